"""Who is measured: the three services, and the floors; each runs the same turns and tells the same things."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import aiohttp
import grpc.aio

from bench.floors.gen import floor_pb2
from bench.floors.gen.floor_pb2_grpc import FloorServiceStub
from bench.floors.reader import open_session, run_turn
from bench.process import Process, module
from bench.workloads import TOKEN_CHARS, Workload


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

    async def cancel(self, reader: Reader, task: asyncio.Task[None]) -> None:
        """Ask that the reader's turn, which runs in `task`, be stopped."""

    async def stop(self) -> None:
        """End everything."""


class BareReader:
    """F1: reads the model inside this process, so that what counts is this process."""

    name = "F1"

    def __init__(self) -> None:
        self._http: aiohttp.ClientSession | None = None

    async def start(self, folder: Path, model_url: str, workload: Workload) -> None:
        """Open the HTTP client."""
        self._http = open_session()
        self._url = model_url
        self._model = workload.script

    def roots(self) -> dict[str, int]:
        """This process."""
        return {"reader": os.getpid()}

    async def turn(self, reader: Reader) -> None:
        """Read one turn."""
        assert self._http is not None
        await run_turn(self._http, self._url, self._model, "go", reader.take)

    async def cancel(self, reader: Reader, task: asyncio.Task[None]) -> None:
        """Cancel the task: nothing stands between the reader and the model."""
        task.cancel()

    async def stop(self) -> None:
        """Close the HTTP client."""
        if self._http is not None:
            await self._http.close()


class Floor:
    """F2 or F3: a process that forwards, and a gRPC client of it."""

    def __init__(self, name: str, durable: bool, synchronous: str = "FULL") -> None:
        self.name = name
        self._durable = durable
        self._synchronous = synchronous
        self._calls: dict[Reader, Any] = {}

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

    async def cancel(self, reader: Reader, task: asyncio.Task[None]) -> None:
        """Cancel the call, which is all that a floor has."""
        self._calls[reader].cancel()

    async def stop(self) -> None:
        """End the process."""
        if hasattr(self, "_channel"):
            await self._channel.close()
        self._process.kill()
