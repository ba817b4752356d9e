"""Who is measured: the three services, and the floors; each runs the same turns and tells the same things."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import grpc.aio
import msgspec

from bench.floors.bare import Ended
from bench.floors.gen import floor_pb2
from bench.floors.gen.floor_pb2_grpc import FloorServiceStub
from bench.process import Process, module
from bench.workloads import TOKEN_CHARS, Workload

LINE_BYTES = 1024 * 1024


class Reader:
    """What the consumer of one turn saw; `hook`, if any, gets each delta after it was counted."""

    __slots__ = ("chars", "count", "finish_time", "hook", "state", "times", "turn")

    def __init__(self, hook: Callable[[str], None] | None = None) -> None:
        self.count = 0
        self.chars = 0
        self.times: list[float] = []
        self.turn = ""
        self.state = 0
        self.finish_time = 0.0
        self.hook = hook

    def take(self, text: str) -> None:
        """Count one delta."""
        self.times.append(time.monotonic())
        self.count += 1
        self.chars += len(text)
        if self.hook is not None:
            self.hook(text)

    def finish(self, state: int) -> None:
        """Note the end and how it was told."""
        self.finish_time = time.monotonic()
        self.state = state

    def is_exact(self, workload: Workload) -> bool:
        """Whether each token came as a delta of its own, whole."""
        return self.count == workload.tokens and self.chars == workload.tokens * TOKEN_CHARS


class Contestant(Protocol):
    """One way to run turns."""

    name: str

    async def start(self, folder: Path, model_url: str, workload: Workload) -> None:
        """Start the processes and connect; not measured."""

    def roots(self) -> dict[str, int]:
        """The processes that count, by name."""

    async def turn(self, reader: Reader) -> None:
        """Run one turn to its end."""

    async def stop(self) -> None:
        """End everything."""


class Bare:
    """F1: a process that reads the model and does nothing with it."""

    name = "F1"

    def __init__(self) -> None:
        self._process: Process | None = None
        self._out: asyncio.StreamWriter | None = None
        self._listener: asyncio.Task[None] | None = None
        self._turns: dict[int, tuple[Reader, asyncio.Future[None]]] = {}
        self._numbers = itertools.count(1)

    async def start(self, folder: Path, model_url: str, workload: Workload) -> None:
        """Start the reader's process."""
        self._process = Process(self.name, folder)
        command = [*module("bench.floors.bare"), "--model-url", model_url, "--model", workload.script]
        await self._process.start(command)
        self._lines, self._out = await asyncio.open_connection(
            "127.0.0.1", self._process.port, limit=LINE_BYTES
        )
        self._listener = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        async for line in self._lines:
            ended = msgspec.json.decode(line, type=Ended)
            reader, done = self._turns.pop(ended.number)
            reader.count, reader.chars, reader.times = len(ended.times), len(ended.text), ended.times
            if reader.hook is not None:
                reader.hook(ended.text)
            done.set_result(None)

    def roots(self) -> dict[str, int]:
        """The one process."""
        assert self._process is not None
        return {self.name: self._process.pid}

    async def turn(self, reader: Reader) -> None:
        """Have one turn read; a reader's hook gets the whole text at the end."""
        number = next(self._numbers)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._turns[number] = reader, done
        assert self._out is not None
        self._out.write(b"%d\n" % number)
        await done

    async def stop(self) -> None:
        """End the process."""
        if self._listener is not None and self._out is not None:
            self._listener.cancel()
            self._out.close()
        if self._process is not None:
            self._process.kill()


@runtime_checkable
class Cancellable(Contestant, Protocol):
    """A contestant whose turns can be stopped."""

    async def cancel(self, reader: Reader) -> None:
        """Ask that the reader's turn be stopped."""


class Floor:
    """F2 or F3: a process that forwards, and a gRPC client of it."""

    def __init__(self, name: str, durable: bool, synchronous: str = "FULL") -> None:
        self.name = name
        self._durable = durable
        self._synchronous = synchronous
        self._calls: dict[Reader, Any] = {}
        self._process: Process | None = None
        self._channel: grpc.aio.Channel | None = None

    async def start(self, folder: Path, model_url: str, workload: Workload) -> None:
        """Start the floor's process."""
        self._process = Process(self.name, folder)
        command = [*module("bench.floors.server"), "--model-url", model_url]
        if self._durable:
            command += ["--database", str(folder / f"{self.name}.db"), "--synchronous", self._synchronous]
        await self._process.start(command)
        self._channel = grpc.aio.insecure_channel(self._process.target)
        stub = FloorServiceStub(self._channel)  # type: ignore[no-untyped-call]
        self._method = stub.Run if self._durable else stub.Forward
        self._request = floor_pb2.RunRequest(model=workload.script, prompt="go")

    def roots(self) -> dict[str, int]:
        """The one process."""
        assert self._process is not None
        return {self.name: self._process.pid}

    async def turn(self, reader: Reader) -> None:
        """Run one turn over the wire."""
        call = self._calls[reader] = self._method(self._request)
        try:
            if self._durable:
                async for page in call:
                    for event in page.events:
                        if event.WhichOneof("event") == "model":
                            reader.take(event.model.text_delta.text)
            else:
                async for token in call:
                    reader.take(token.text)
        finally:
            del self._calls[reader]
            call.cancel()

    async def cancel(self, reader: Reader) -> None:
        """Cancel the call, which is all that a floor has."""
        self._calls[reader].cancel()

    async def stop(self) -> None:
        """End the process."""
        if self._channel is not None:
            await self._channel.close()
        if self._process is not None:
            self._process.kill()
