"""The one who cancels, as a process of its own, so that it shares no event loop with the readers.

Each line on stdin is `cancel TURN` or `hop`; the answer is one JSON line with the times before and after, by
CLOCK_MONOTONIC. A hop is a unary call to a bare gRPC server.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time

import grpc.aio

from bench.floors.gen import floor_pb2
from bench.floors.gen.floor_pb2_grpc import FloorServiceStub
from bench.services import cancel_request
from turnwire.api.control.v1.control_service_pb2_grpc import ControlServiceStub


async def serve(control: str, hop: str) -> None:
    """Obey until stdin ends."""
    async with grpc.aio.insecure_channel(control) as commands, grpc.aio.insecure_channel(hop) as bare:
        command = ControlServiceStub(commands).SendCommand
        unary = FloorServiceStub(bare).Hop  # type: ignore[no-untyped-call]
        await commands.channel_ready()
        await bare.channel_ready()
        print("ready", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            word, _, turn = line.strip().partition(" ")
            request = cancel_request(turn) if word == "cancel" else floor_pb2.RunRequest()
            begin = time.monotonic()
            answer = await (command(request) if word == "cancel" else unary(request))
            end = time.monotonic()
            outcome = answer.command.outcome.kind if word == "cancel" else 0
            print(json.dumps({"begin": begin, "end": end, "outcome": outcome}), flush=True)


def main() -> None:
    """Run as a process."""
    parser = argparse.ArgumentParser(description="The one who cancels.")
    parser.add_argument("--control", required=True)
    parser.add_argument("--hop", required=True)
    options = parser.parse_args()
    asyncio.run(serve(options.control, options.hop))


if __name__ == "__main__":
    main()
