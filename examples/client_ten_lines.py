"""Run one turn and print the answer as it comes; `turnwire up` must be running."""

import asyncio
import sys

from turnwire_client import AsyncClient


async def main(target: str) -> None:
    async with AsyncClient(target) as client, client.run_turn(agent="demo", text="multiply 6 by 7") as stream:
        async for event in stream:
            print(event.llm.text_delta.text, end="", flush=True)


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:50051"))
