"""Reads beside the writer: one short transaction per call on a thread of the pool, nothing held after it."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

from turnwire.storage.sqlite import TROUBLE
from turnwire.storage.trouble import Trouble
from turnwire.storage.units import Connection, StoreUnavailable

__all__ = ["ReadConnection", "Reader"]

logger = logging.getLogger(__name__)
T = TypeVar("T")


class ReadConnection(Connection, Protocol):
    """A read-only connection of one engine."""

    def read(self, fn: Callable[[Connection], T], /) -> T:
        """Run `fn` in one read transaction and end it, whatever `fn` does."""

    def close(self) -> None:
        """Close it."""


class Reader:
    """A few read-only connections, each opened by the thread that uses it, at its first read.

    Args:
        connect: opens a read-only connection.
        threads: reads at once; as many again may wait in the pool, the rest waits on the loop.
        trouble: how the engine's errors are classed.
        tries: how often a read is tried on a new connection when its connection was broken.
    """

    def __init__(
        self,
        connect: Callable[[], ReadConnection],
        *,
        threads: int = 2,
        trouble: Trouble = TROUBLE,
        tries: int = 1,
    ) -> None:
        self._connect = connect
        self._trouble = trouble
        self._tries = tries
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="storage-reader")
        self._slots = asyncio.Semaphore(threads * 2)
        self._local = threading.local()
        self._open: list[ReadConnection] = []
        self._closed = False

    async def read(self, fn: Callable[[Connection], T]) -> T:
        """Run `fn` in one read transaction and return its result, which must not refer to the connection.

        A cancelled caller leaves at once; the read that is under way ends by itself, unheard.

        Raises:
            StoreUnavailable: the store cannot be read now, or the reader is closed.
        """
        async with self._slots:
            if self._closed:
                raise StoreUnavailable("the store is closed: this server is leaving", retry_after=1.0)
            return await asyncio.get_running_loop().run_in_executor(self._pool, self._read, fn)

    async def close(self) -> None:
        """Wait for the reads under way and close the connections."""
        self._closed = True
        await asyncio.get_running_loop().run_in_executor(None, self._pool.shutdown)
        while self._open:
            self._open.pop().close()

    def _read(self, fn: Callable[[Connection], T]) -> T:
        tries = self._tries
        while True:
            tries -= 1
            try:
                return self._connection().read(fn)
            except Exception as error:
                trouble = self._trouble
                if not (trouble.is_transient(error) or trouble.is_corruption(error)):
                    raise
                self._drop_connection()
                # A server that was restarted leaves every idle connection broken: nothing was read with it.
                if tries > 0 and trouble.wants_reconnect(error):
                    continue
                logger.warning("storage.read_failed", extra={"error": trouble.describe(error)})
                raise StoreUnavailable("the store cannot be read now", retry_after=1.0) from error

    def _connection(self) -> ReadConnection:
        db: ReadConnection | None = getattr(self._local, "db", None)
        if db is None:
            db = self._local.db = self._connect()
            self._open.append(db)
        return db

    def _drop_connection(self) -> None:
        db: ReadConnection | None = self._local.__dict__.pop("db", None)
        if db is not None:
            self._open.remove(db)
            db.close()
