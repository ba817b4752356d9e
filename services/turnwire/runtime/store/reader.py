"""A reader of a turn: a cursor into its committed pages, never a queue. Slow readers hold no memory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol

from turnwire.core.errors import TurnwireError
from turnwire.runtime.domain.turn import TurnKey
from turnwire.runtime.store.log import MAX_PAGE_BYTES, Page, TurnLog

__all__ = ["LogReader", "PageSource", "ReaderTicker", "TrimPage"]

# Cuts a page to the events above a sequence.
TrimPage = Callable[[bytes, int], bytes]


class PageSource(Protocol):
    """Where a reader gets pages that are no longer in memory."""

    ticker: ReaderTicker

    async def pages_after(self, key: TurnKey, after_sequence: int) -> Sequence[Page]:
        """Read committed pages back."""
        ...


class ReaderTicker:
    """Wakes silent readers for their heartbeat: one timer for all of them."""

    def __init__(self, heartbeat: float) -> None:
        self.heartbeat = heartbeat
        self._readers: set[LogReader] = set()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def readers(self) -> int:
        """Readers attached now."""
        return len(self._readers)

    def wall_time(self) -> int:
        """Return nanoseconds since the epoch."""
        return time.time_ns()

    def add(self, reader: LogReader) -> None:
        """Begin to look after a reader."""
        self._readers.add(reader)
        if self._timer is None:
            self._arm()

    def remove(self, reader: LogReader) -> None:
        """Forget a reader."""
        self._readers.discard(reader)

    def _arm(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self.heartbeat / 4, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if not self._readers:
            return
        due = asyncio.get_running_loop().time() - self.heartbeat
        for reader in self._readers:
            reader.beat_if_silent_since(due)
        self._arm()


class LogReader:
    """Iterates over page bytes; an empty item means that a heartbeat is due.

    Ends after the page with TurnFinished. `close` may be called from any task, also after the end.
    """

    def __init__(
        self,
        source: PageSource,
        key: TurnKey,
        log: TurnLog | None,
        after_sequence: int,
        until: int,
        trim: TrimPage,
    ) -> None:
        self.key = key
        self._source = source
        self._log = log
        self._cursor = after_sequence
        self._until = until
        self._trim = trim
        self._sent_at = asyncio.get_running_loop().time()
        self._waiting: asyncio.Future[None] | None = None
        source.ticker.add(self)

    def close(self) -> None:
        """Let go of the turn."""
        self._source.ticker.remove(self)

    def beat_if_silent_since(self, due: float) -> None:
        """Wake the reader for a heartbeat when it has been waiting since before `due`."""
        waiting = self._waiting
        if waiting is not None and self._sent_at <= due and not waiting.done():
            waiting.set_result(None)

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Iterate over the pages."""
        return self._pages()

    async def _pages(self) -> AsyncIterator[bytes]:
        log = self._log
        loop = asyncio.get_running_loop()
        while True:
            body = self._from_memory(log) if log is not None else b""
            if not body:
                committed = log.committed if log is not None else self._until
                if self._cursor < committed:
                    async for body in self._from_store(committed):
                        yield body
                    continue
                if log is None or log.finished:
                    return
                if isinstance(log.error, TurnwireError):
                    raise log.error
                self._waiting = log.wait()
                await self._waiting
                self._waiting = None
                if log.committed > self._cursor or log.finished:
                    continue
                self._sent_at = loop.time()
                yield b""
                continue
            self._sent_at = loop.time()
            yield body

    def _from_memory(self, log: TurnLog) -> bytes:
        """Return the next pages in memory, joined up to the page limit; empty when there are none."""
        pages = log.pages
        if not pages or pages[-1][1] <= self._cursor or pages[0][0] > self._cursor + 1:
            return b""
        chosen: list[bytes] = []
        size = 0
        for first, last, body in pages:
            if last <= self._cursor:
                continue
            if chosen and size + len(body) > MAX_PAGE_BYTES:
                break
            chosen.append(body if first > self._cursor else self._trim(body, self._cursor))
            size += len(body)
            self._cursor = last
        return chosen[0] if len(chosen) == 1 else b"".join(chosen)

    async def _from_store(self, committed: int) -> AsyncIterator[bytes]:
        """Yield stored pages, joined up to the page limit."""
        pages = await self._source.pages_after(self.key, self._cursor)
        if not pages:
            raise RuntimeError(f"{self.key.name} lacks sequence {self._cursor + 1} of {committed}")
        joined: list[bytes] = []
        size = 0
        for first, last, body in pages:
            if first <= self._cursor:
                body = self._trim(body, self._cursor)
            if joined and size + len(body) > MAX_PAGE_BYTES:
                yield b"".join(joined)
                joined, size = [], 0
            joined.append(body)
            size += len(body)
            self._cursor = last
        yield b"".join(joined)
