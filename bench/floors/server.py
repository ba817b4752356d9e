"""The gRPC floors as one process: `Forward` is F2, `Run` is F3, `Hop` is a bare unary call.

With --database the process is F3: the log is durable before it is visible. Without it the process is F2.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import uvloop

from bench.floors.durable_log import GroupWriter, TurnLog
from bench.floors.gen import floor_pb2 as pb
from bench.floors.reader import open_session, run_turn

SERVICE = "turnwire.bench.floor.FloorService"


class Forwarder:
    """F2: each token is one message; nothing is kept."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._http = open_session()

    async def forward(self, request: pb.RunRequest, context: Any) -> None:
        """Send each token as it comes."""
        count = itertools.count(1)

        def send(text: str) -> Any:
            return context.write(pb.Token(sequence=next(count), text=text))

        await run_turn(self._http, self._url, request.model, request.prompt, send)

    async def hop(self, request: pb.RunRequest, context: Any) -> pb.Token:
        """Answer at once."""
        return pb.Token(sequence=1)


class DurableForwarder:
    """F3: a turn runs in a task of its own into a log; the call reads committed pages."""

    def __init__(self, url: str, writer: GroupWriter) -> None:
        self._url = url
        self._writer = writer
        self._http = open_session()
        self._names = itertools.count(1)
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, request: pb.RunRequest, context: Any) -> AsyncIterator[bytes]:
        """Yield the pages of a new turn."""
        log = TurnLog(f"turn-{next(self._names)}")
        task = asyncio.create_task(self._turn(log, request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            async for page in log.read():
                yield page
        finally:
            task.cancel()

    async def _turn(self, log: TurnLog, request: pb.RunRequest) -> None:
        def append(text: str) -> None:
            self._writer.append(
                log,
                pb.Event(
                    sequence=log.take(),
                    create_time_us=time.time_ns() // 1000,
                    turn=log.name,
                    step=1,
                    step_attempt=1,
                    model=pb.ModelEvent(text_delta=pb.TextDelta(text=text)),
                ),
            )

        await run_turn(self._http, self._url, request.model, request.prompt, append)
        end = pb.Event(sequence=log.take(), turn=log.name, finished=pb.Finish(reason=1))
        log.last_sequence = end.sequence
        self._writer.append(log, end)


async def serve(options: argparse.Namespace) -> None:
    """Serve on 127.0.0.1 until the process is ended."""
    handlers: dict[str, Any] = {}
    parse = pb.RunRequest.FromString
    if options.database is None:
        forwarder = Forwarder(options.model_url)
        handlers["Forward"] = grpc.unary_stream_rpc_method_handler(
            forwarder.forward, request_deserializer=parse, response_serializer=pb.Token.SerializeToString
        )
        handlers["Hop"] = grpc.unary_unary_rpc_method_handler(
            forwarder.hop, request_deserializer=parse, response_serializer=pb.Token.SerializeToString
        )
    else:
        writer = GroupWriter(options.database, options.spacing_ms / 1000, options.synchronous)
        handlers["Run"] = grpc.unary_stream_rpc_method_handler(
            DurableForwarder(options.model_url, writer).run, request_deserializer=parse
        )
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    server.add_insecure_port(f"127.0.0.1:{options.port}")
    await server.start()
    options.ready_file.write_text(str(options.port), encoding="utf-8")
    await server.wait_for_termination()


def main() -> None:
    """Run a floor as a process."""
    parser = argparse.ArgumentParser(description="The gRPC floors.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--ready-file", type=Path, required=True)
    parser.add_argument("--model-url", required=True)
    parser.add_argument("--database", type=Path)
    parser.add_argument("--spacing-ms", type=float, default=5.0)
    parser.add_argument("--synchronous", choices=["FULL", "NORMAL"], default="FULL")
    uvloop.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
