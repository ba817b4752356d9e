"""Reads beside the writer: one short transaction per call on a thread of the pool, nothing held after it."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from turnwire.storage.sqlite import SqliteConnection, describe, is_corruption, is_transient
from turnwire.storage.units import Connection, StoreUnavailable

__all__ = ["Reader"]

logger = logging.getLogger(__name__)
T = TypeVar("T")


class Reader:
    """A few read-only connections, each opened by the thread that uses it, at its first read.

    Args:
        connect: opens a read-only connection.
        threads: reads at once; as many again may wait in the pool, the rest waits on the loop.
    """

    def __init__(self, connect: Callable[[], SqliteConnection], *, threads: int = 2) -> None:
        self._connect = connect
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="storage-reader")
        self._slots = asyncio.Semaphore(threads * 2)
        self._local = threading.local()
        self._open: list[SqliteConnection] = []
        self._closed = False

    async def read(self, fn: Callable[[Connection], T]) -> T:
        """Run `fn` in one read transaction and return its result, which must not refer to the connection.

        A cancelled caller leaves at once; the read that is under way ends by itself, unheard.

        Raises:
            StoreUnavailable: the file cannot be read now, or the reader is closed.
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
        try:
            db = self._connection()
            db.execute("BEGIN")
            try:
                return fn(db)
            finally:
                if db.in_transaction:
                    db.execute("ROLLBACK")  # ends the snapshot; there is nothing to keep
        except (sqlite3.Error, MemoryError) as error:
            if not (is_transient(error) or is_corruption(error)):
                raise
            logger.warning("storage.read_failed", extra={"error": describe(error)})
            self._drop_connection()
            raise StoreUnavailable("the store cannot be read now", retry_after=1.0) from error

    def _connection(self) -> SqliteConnection:
        db: SqliteConnection | None = getattr(self._local, "db", None)
        if db is None:
            db = self._local.db = self._connect()
            self._open.append(db)
        return db

    def _drop_connection(self) -> None:
        db: SqliteConnection | None = self._local.__dict__.pop("db", None)
        if db is not None:
            self._open.remove(db)
            db.close()
