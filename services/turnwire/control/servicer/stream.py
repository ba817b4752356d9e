"""One stream with two directions: what is written waits in a bounded queue, what is silent or stuck ends."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import grpc

from turnwire.core.errors import InvalidRequest, Unavailable

__all__ = ["END", "Outbox", "StreamLimits", "read_hello", "read_message", "run_stream", "write_message"]

T = TypeVar("T")

# What `read_message` returns when the peer has said everything.
END: Any = grpc.aio.EOF


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """Limits of one stream; times in seconds.

    Args:
        heartbeat: how often a peer is to say something; three missed ones end the stream.
        stall: how long one message may wait for a peer that takes nothing.
        linger: how long a client that has closed its half is kept for the outcomes of its commands.
        queue: messages that wait to be written.
        pipelined: commands of one stream that may wait for their row to be durable.
    """

    heartbeat: float = 20.0
    stall: float = 300.0
    linger: float = 600.0
    queue: int = 1024
    pipelined: int = 256

    @property
    def silence(self) -> float:
        """Seconds of silence that end a stream."""
        return self.heartbeat * 3


class Outbox(Generic[T]):
    """Messages that wait for the writer; putting never waits, so whoever puts looks at `full` first."""

    def __init__(self, limit: int) -> None:
        self._items: deque[T] = deque()
        self._limit = limit
        self._stir = asyncio.Event()
        self._room = asyncio.Event()
        self.closed = False

    def __len__(self) -> int:
        return len(self._items)

    @property
    def full(self) -> bool:
        """Whether no more messages should be put."""
        return len(self._items) >= self._limit

    def put(self, item: T) -> None:
        """Add a message."""
        self._items.append(item)
        self._stir.set()

    def pop(self) -> T | None:
        """Take the oldest message, or None when there is none."""
        if not self._items:
            return None
        self._room.set()
        return self._items.popleft()

    def stir(self) -> None:
        """Wake the writer for something else than a message."""
        self._stir.set()

    def close(self) -> None:
        """Have the writer end once everything is written."""
        self.closed = True
        self._stir.set()

    async def wait(self) -> None:
        """Wait until there is something to do for the writer."""
        await self._stir.wait()
        self._stir.clear()

    async def room(self) -> None:
        """Wait until there is room for another message."""
        while self.full:
            self._room.clear()
            await self._room.wait()


async def read_message(context: Any, silence: float) -> Any:
    """Return the peer's next message, or `END`.

    Raises:
        InvalidRequest: the bytes are no message.
        Unavailable: HEARTBEAT_MISSED, nothing came for `silence` seconds.
    """
    try:
        async with asyncio.timeout(silence):
            return await context.read()
    except TimeoutError:
        raise Unavailable(
            f"nothing was heard for {silence:g} s: send a ping at every heartbeat interval",
            reason="HEARTBEAT_MISSED",
            retry_after=0.1,
        ) from None


async def read_hello(context: Any, silence: float) -> Any:
    """Return the hello that opens a stream.

    Raises:
        InvalidRequest: HELLO_EXPECTED, the first message is another one, or none came.
    """
    message = await read_message(context, silence)
    if message is END or message.WhichOneof("message") != "hello":
        raise InvalidRequest("the first message must be hello", reason="HELLO_EXPECTED")
    return message.hello


async def write_message(context: Any, message: Any, stall: float) -> None:
    """Write one message.

    Raises:
        Unavailable: READER_STALLED, the peer took nothing for `stall` seconds.
    """
    try:
        async with asyncio.timeout(stall):
            await context.write(message)
    except TimeoutError:
        raise Unavailable(
            f"the reader took nothing for {stall:g} s: connect again",
            reason="READER_STALLED",
            retry_after=0.1,
        ) from None


async def run_stream(
    read: Callable[[], Coroutine[Any, Any, None]], write: Callable[[], Awaitable[None]]
) -> None:
    """Read and write until the writer has ended; an error of either ends both."""
    async with asyncio.TaskGroup() as group:
        reader = group.create_task(read())
        await write()
        reader.cancel()
