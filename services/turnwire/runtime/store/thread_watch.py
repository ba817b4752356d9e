"""Watchers of threads: woken after each commit of this process, and by a poll for those of others.

A watcher is a cursor into the versions of a thread, never a queue: a slow one holds no more than one page.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Protocol, TypeVar

from turnwire.core.errors import Unavailable
from turnwire.runtime.domain.turn import ThreadKey
from turnwire.runtime.store.attached import AttachedReader, ReaderTicker
from turnwire.runtime.store.changes import Change, ChangeKind, read_changes, versions_of
from turnwire.storage.units import Connection

__all__ = ["ReadStore", "ThreadReader", "ThreadWatch"]

logger = logging.getLogger(__name__)
T = TypeVar("T")

POLL_SECONDS = 1.0


class ReadStore(Protocol):
    """Runs a query in a short read transaction."""

    async def __call__(self, query: Callable[[Connection], T], /) -> T:
        """Return what the query does."""
        ...


class _Watched:
    """A thread that somebody watches: the highest version that was read, and how often it was woken."""

    __slots__ = ("readers", "version", "wakes")

    def __init__(self) -> None:
        self.readers: set[ThreadReader] = set()
        self.version = 0
        self.wakes = 0

    def wake(self) -> None:
        """Have every reader look again, also those that look at this moment."""
        self.wakes += 1
        for reader in self.readers:
            reader.wake()


class ThreadWatch:
    """Knows which threads are watched, and owns the task that looks at their versions meanwhile.

    Args:
        read: runs a query.
        ticker: gives silent watchers their heartbeat.
        poll: seconds between two looks at the versions of all watched threads.
    """

    def __init__(self, read: ReadStore, ticker: ReaderTicker, *, poll: float = POLL_SECONDS) -> None:
        self.read = read
        self.ticker = ticker
        self._poll_seconds = poll
        self._watched: dict[ThreadKey, _Watched] = {}
        self._task: asyncio.Task[None] | None = None

    @property
    def watched(self) -> int:
        """Threads that somebody watches."""
        return len(self._watched)

    def changed(self, thread: ThreadKey) -> None:
        """Have the watchers of a thread look again; to be called after the commit of a change."""
        watched = self._watched.get(thread)
        if watched is not None:
            watched.wake()

    def reader(self, thread: ThreadKey, after_version: int) -> ThreadReader:
        """Return a watcher of the changes above a version, to be closed."""
        watched = self._watched.get(thread)
        if watched is None:
            watched = self._watched[thread] = _Watched()
        reader = ThreadReader(self, thread, watched, after_version)
        watched.readers.add(reader)
        if self._task is None:
            self._task = asyncio.create_task(self._poll(), name="threads.poll")
        return reader

    def leave(self, reader: ThreadReader, watched: _Watched) -> None:
        """Forget a watcher."""
        watched.readers.discard(reader)
        if not watched.readers and self._watched.get(reader.thread) is watched:
            del self._watched[reader.thread]
        if not self._watched and self._task is not None:
            self._task.cancel()
            self._task = None

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(self._poll_seconds)
            keys = tuple(self._watched)
            try:
                versions = await self.read(partial(versions_of, keys=keys))
            except Unavailable:
                continue  # the store has said so in the log; whoever looks at a thread now hears it too
            except Exception:
                logger.exception("threads.poll_failed")
                continue
            for key, version in versions.items():
                watched = self._watched.get(key)
                if watched is not None and version > watched.version:
                    watched.wake()


class ThreadReader(AttachedReader):
    """Iterates over the changes of a thread; None means that a heartbeat is due.

    Ends after the deletion of the thread.
    """

    def __init__(self, watch: ThreadWatch, thread: ThreadKey, watched: _Watched, after_version: int) -> None:
        super().__init__(watch.ticker)
        self.thread = thread
        self._watch = watch
        self._watched = watched
        self._cursor = after_version

    def close(self) -> None:
        """Let go of the thread; may be called from any task, also after the end."""
        super().close()
        self._watch.leave(self, self._watched)

    def __aiter__(self) -> AsyncIterator[Change | None]:
        """Iterate over the changes. Raises what `read_changes` does, and Unavailable (DRAINING)."""
        return self._changes()

    async def _changes(self) -> AsyncIterator[Change | None]:
        loop = asyncio.get_running_loop()
        told = None
        while True:
            wakes = self._watched.wakes
            page = await self._watch.read(
                partial(read_changes, key=self.thread, after_version=self._cursor, told=told)
            )
            told = self._cursor if told is None else told
            for change in page.changes:
                self._cursor = change.version
                self._sent_at = loop.time()
                yield change
                if change.kind is ChangeKind.DELETED:
                    return
            if page.more:
                continue
            told = self._cursor = page.version
            self._watched.version = max(self._watched.version, page.version)
            if self._watched.wakes != wakes:
                continue
            self.leave_if_asked()
            await self._wait()
            if self._beat:
                self._beat = False
                self._sent_at = loop.time()
                yield None

    async def _wait(self) -> None:
        self._waiting = asyncio.get_running_loop().create_future()
        try:
            await self._waiting
        finally:
            self._waiting = None
