"""A local HTTP server that plays the body of a model's answer: whole, in pieces, with pauses, or cut off."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Answer", "ReplayServer", "Seen", "replay_server"]


@dataclass(frozen=True)
class Answer:
    """How one request is answered.

    `piece` cuts the body in pieces of so many bytes; `gate` is awaited before each piece after the first
    `ungated`; `cut` ends the connection after so many bytes; `reset` does so without the end of the body;
    `hang` never ends the body.
    """

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = "text/event-stream"
    piece: int = 0
    cut: int | None = None
    reset: bool = False
    hang: bool = False
    silent: bool = False
    gate: asyncio.Semaphore | None = None
    ungated: int = 1
    keep_alive: bool = True


@dataclass
class Seen:
    """One request as it came."""

    path: str
    headers: dict[str, str]
    body: bytes
    connection: int

    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


class ReplayServer:
    """Answers the n-th request by the n-th answer, the last one from there on."""

    def __init__(self, answers: list[Answer]) -> None:
        self.answers = answers
        self.seen: list[Seen] = []
        self.closed = asyncio.Event()
        self.connections = 0
        self.url = ""
        self._tasks: set[asyncio.Task[None]] = set()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until it ends."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        number = self.connections
        try:
            while await self._request(reader, writer, number):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            # The client has gone, or the test is over.
            pass
        finally:
            self._tasks.discard(task)
            self.closed.set()
            writer.close()

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        line, *rest = head.decode("latin-1").split("\r\n")
        headers = {}
        for item in rest:
            name, colon, value = item.partition(":")
            if colon:
                headers[name.lower()] = value.strip()
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        answer = self.answers[min(len(self.seen), len(self.answers) - 1)]
        self.seen.append(Seen(line.split(" ")[1], headers, body, number))
        if answer.silent:
            await self._until_gone(reader)
            return False
        await self._answer(answer, reader, writer)
        return answer.keep_alive and not answer.reset and answer.cut is None

    async def _answer(
        self, answer: Answer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        lines = [f"HTTP/1.1 {answer.status} Answer", f"content-type: {answer.content_type}"]
        lines += [f"{name}: {value}" for name, value in answer.headers.items()]
        chunked = answer.cut is None or answer.reset
        lines.append("transfer-encoding: chunked" if chunked else "connection: close")
        writer.write("\r\n".join([*lines, "", ""]).encode())
        body = answer.body if answer.cut is None else answer.body[: answer.cut]
        size = answer.piece or len(body) or 1
        for position, start in enumerate(range(0, len(body), size)):
            if answer.gate is not None and position >= answer.ungated:
                await answer.gate.acquire()
            piece = body[start : start + size]
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
            await writer.drain()
        if answer.hang:
            await self._until_gone(reader)
            raise ConnectionError
        if chunked and not answer.reset:
            writer.write(b"0\r\n\r\n")
            await writer.drain()

    @staticmethod
    async def _until_gone(reader: asyncio.StreamReader) -> None:
        while await reader.read(1024):
            pass

    async def close(self) -> None:
        """Cancel what still answers."""
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


@asynccontextmanager
async def replay_server(*answers: Answer) -> AsyncIterator[ReplayServer]:
    """Serve `answers` on a free port of this machine; the address is `url`."""
    replay = ReplayServer(list(answers))
    server = await asyncio.start_server(replay.handle, "127.0.0.1", 0)
    replay.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield replay
    finally:
        server.close()
        await replay.close()
