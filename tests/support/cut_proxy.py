"""A TCP proxy that cuts, closes or stalls what goes through it, at once or after so many pieces."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import Enum

__all__ = ["CutProxy", "Trouble", "cut_proxy"]

_LINGER_NOW = struct.pack("ii", 1, 0)


class Trouble(Enum):
    """What happens to a connection."""

    CUT = "cut"  # Both sides get a reset.
    CLOSE = "close"  # Both sides get an end of file.
    STALL = "stall"  # Nothing moves any more, and nobody is told.


class _Link:
    def __init__(self, writers: tuple[asyncio.StreamWriter, asyncio.StreamWriter]) -> None:
        self.writers = writers
        self.flowing = asyncio.Event()
        self.flowing.set()

    def end(self, trouble: Trouble) -> None:
        for writer in self.writers:
            if trouble is Trouble.CUT:
                sock = writer.get_extra_info("socket")
                if sock is not None and sock.fileno() >= 0:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOW)
                writer.transport.abort()
            else:
                writer.close()


class CutProxy:
    """Passes bytes on to `target` until told otherwise; new connections are good ones while it is `open`."""

    def __init__(self, target: tuple[str, int]) -> None:
        self.port = 0
        # Whether new connections are let through.
        self.open = True
        self._target = target
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._due: tuple[Trouble, int] | None = None
        self.happened = 0

    @property
    def address(self) -> str:
        """Where to connect to."""
        return f"127.0.0.1:{self.port}"

    def trouble(self, kind: Trouble, after: int = 0) -> None:
        """Make trouble for every connection there is, after so many more pieces from the server."""
        if after:
            self._due = (kind, after)
            return
        self._due = None
        self.happened += 1
        for link in tuple(self._links):
            if kind is Trouble.STALL:
                link.flowing.clear()
            else:
                link.end(kind)

    def release(self) -> None:
        """End what is stalled, and trouble that has not come."""
        self._due = None
        for link in tuple(self._links):
            if not link.flowing.is_set():
                link.flowing.set()
                link.end(Trouble.CUT)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if not self.open:
                raise ConnectionRefusedError
            there, back = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            self._tasks.discard(task)
            return
        link = _Link((writer, back))
        self._links.add(link)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._carry(link, reader, back, counted=False))
                both.create_task(self._carry(link, there, writer, counted=True))
        finally:
            self._links.discard(link)
            self._tasks.discard(task)

    async def _carry(
        self, link: _Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, counted: bool
    ) -> None:
        try:
            while data := await reader.read(65536):
                if counted:
                    self._count()
                await link.flowing.wait()
                writer.write(data)
                await writer.drain()
        except OSError:
            # One side is gone; the other is told below.
            pass
        link.end(Trouble.CLOSE)

    def _count(self) -> None:
        if self._due is None:
            return
        kind, left = self._due
        if left > 1:
            self._due = (kind, left - 1)
        else:
            self.trouble(kind)

    async def close(self) -> None:
        """End every connection."""
        self.release()
        self.trouble(Trouble.CUT)
        if self._tasks:
            await asyncio.wait(self._tasks)


@asynccontextmanager
async def cut_proxy(host: str, port: int) -> AsyncIterator[CutProxy]:
    """Serve on a free port of this machine, in front of a server there."""
    proxy = CutProxy((host, port))
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        await proxy.close()
