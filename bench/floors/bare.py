"""F1 as a process: it reads turns itself, and tells only how each ended.

On its one connection each line is a number that the caller chose for a turn; the answer is one JSON line
with the number, the text and the time of each delta.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from pathlib import Path

import msgspec

from bench.floors.reader import open_session, run_turn


class Ended(msgspec.Struct):
    """How a turn ended: its text, and by CLOCK_MONOTONIC when each delta was there."""

    number: int
    text: str
    times: list[float]


class BareServer:
    """Runs turns for one caller."""

    def __init__(self, url: str, model: str) -> None:
        self._url = url
        self._model = model
        self._http = open_session()
        self._turns: dict[int, asyncio.Task[None]] = {}

    async def serve(self, lines: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        """Take commands until the caller leaves."""
        async for line in lines:
            number = int(line)
            self._turns[number] = asyncio.create_task(self._run(number, out))

    async def _run(self, number: int, out: asyncio.StreamWriter) -> None:
        times: list[float] = []
        texts: list[str] = []

        def take(text: str) -> None:
            times.append(time.monotonic())
            texts.append(text)

        try:
            await run_turn(self._http, self._url, self._model, "go", take)
        finally:
            del self._turns[number]
            out.write(msgspec.json.encode(Ended(number, "".join(texts), times)) + b"\n")


async def serve(options: argparse.Namespace) -> None:
    """Serve on 127.0.0.1 until the process is ended."""
    bare = BareServer(options.model_url, options.model)
    server = await asyncio.start_server(bare.serve, "127.0.0.1", options.port)
    options.ready_file.write_text(str(options.port), encoding="utf-8")
    await server.serve_forever()


def main() -> None:
    """Run the reader as a process."""
    parser = argparse.ArgumentParser(description="The bare reader.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--ready-file", type=Path, required=True)
    parser.add_argument("--model-url", required=True)
    parser.add_argument("--model", required=True)
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
