"""A reader of a turn: a cursor into its committed pages, never a queue. Slow readers hold no memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol

from turnwire.core.errors import TurnwireError, Unavailable
from turnwire.runtime.domain.turn import TurnKey
from turnwire.runtime.ports import OwnerLost
from turnwire.runtime.store.attached import AttachedReader, ReaderTicker
from turnwire.runtime.store.log import MAX_PAGE_BYTES, MAX_PAGE_EVENTS, Page, TurnLog

__all__ = ["LogReader", "PageSource", "ReaderTicker", "TrimPage"]

# Cuts a page to the events above a sequence.
TrimPage = Callable[[bytes, int], bytes]


class PageSource(Protocol):
    """Where a reader gets pages that are no longer in memory."""

    ticker: ReaderTicker

    async def pages_after(self, key: TurnKey, after_sequence: int) -> Sequence[Page]:
        """Read committed pages back."""
        ...


class LogReader(AttachedReader):
    """Iterates over page bytes; an empty item means that a heartbeat is due.

    Ends after the page with TurnFinished, and, unless it follows on, when it has given all there is of a turn
    that waits for somebody.
    """

    def __init__(
        self,
        source: PageSource,
        key: TurnKey,
        log: TurnLog | None,
        after_sequence: int,
        until: int,
        trim: TrimPage,
        follow_while_waiting: bool = False,
    ) -> None:
        super().__init__(source.ticker)
        self.key = key
        self._source = source
        self._log = log
        self._cursor = after_sequence
        self._until = until
        self._trim = trim
        self._follow_while_waiting = follow_while_waiting

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Iterate over the pages."""
        return self._pages()

    async def _pages(self) -> AsyncIterator[bytes]:
        log = self._log
        loop = asyncio.get_running_loop()
        while True:
            while log is not None and log.successor is not None:
                log = log.successor
            body = self._from_memory(log) if log is not None else b""
            if body:
                self._sent_at = loop.time()
                yield body
                continue
            if self._cursor < (log.committed if log is not None else self._until):
                async for body in self._from_store():
                    self._sent_at = loop.time()
                    yield body
                continue
            if log is None or log.finished or (log.waiting and not self._follow_while_waiting):
                return
            if log.error is not None:
                _leave_if_cut_off(log.error)
            self.leave_if_asked()
            self._waiting = waiting = log.wait()
            try:
                await waiting
            finally:
                self._waiting = None
                log.unwait(waiting)
            if self._beat:
                self._beat = False
                self._sent_at = loop.time()
                yield b""

    def _from_memory(self, log: TurnLog) -> bytes:
        """Return the next pages in memory, joined up to the page limits; empty when there are none."""
        pages = log.pages
        cursor = self._cursor
        if not pages or pages[-1][1] <= cursor or pages[0][0] > cursor + 1:
            return b""
        first, last, body = pages[-1]
        if first == cursor + 1:  # a reader that keeps up
            self._cursor = last
            return body
        joined = _Joined(cursor, self._trim)
        for page in pages:
            if page[1] > cursor and not joined.add(page):
                break
        self._cursor = joined.last
        return joined.body()

    async def _from_store(self) -> AsyncIterator[bytes]:
        """Yield stored pages, joined up to the page limits."""
        pages = await self._source.pages_after(self.key, self._cursor)
        if not pages:
            raise RuntimeError(f"{self.key.name} lacks sequence {self._cursor + 1}")
        joined = _Joined(self._cursor, self._trim)
        for page in pages:
            if not joined.add(page):
                self._cursor = joined.last
                yield joined.body()
                joined = _Joined(self._cursor, self._trim)
                joined.add(page)
        self._cursor = joined.last
        yield joined.body()


class _Joined:
    """Pages that go out as one message; the first may have to be cut to what the reader lacks."""

    __slots__ = ("_bodies", "_first", "_size", "_trim", "last")

    def __init__(self, cursor: int, trim: TrimPage) -> None:
        self._first = cursor + 1
        self._trim = trim
        self._bodies: list[bytes] = []
        self._size = 0
        self.last = cursor

    def add(self, page: Page) -> bool:
        """Take the page in, unless the message would grow above the limits of a page."""
        first, last, body = page
        if self._bodies:
            if self._size + len(body) > MAX_PAGE_BYTES or last - self._first >= MAX_PAGE_EVENTS:
                return False
        elif first < self._first:
            body = self._trim(body, self.last)
        self._bodies.append(body)
        self._size += len(body)
        self.last = last
        return True

    def body(self) -> bytes:
        """Return the message."""
        return self._bodies[0] if len(self._bodies) == 1 else b"".join(self._bodies)


def _leave_if_cut_off(error: Exception) -> None:
    """Raise when nothing more will come from this log; a turn that could not be stored still gets its end."""
    if isinstance(error, TurnwireError):
        raise error
    if isinstance(error, OwnerLost):
        text = "this runtime does not own the turn any more: attach again"
        raise Unavailable(text, reason="DRAINING", retry_after=0.5)
