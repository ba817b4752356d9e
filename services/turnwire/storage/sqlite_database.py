"""One SQLite store of one process: lock, schema, writer, checkpoints, readers, opened and closed together."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path

from turnwire.storage.checkpoint import Checkpointer, reserve_log
from turnwire.storage.committer import SqliteCommitter
from turnwire.storage.database import Database
from turnwire.storage.lock import FileLock
from turnwire.storage.migrate import StoreInfo, load_migrations, migrate
from turnwire.storage.reader import Reader
from turnwire.storage.sqlite import Synchronous, connect, describe
from turnwire.storage.stats import WriterStats
from turnwire.storage.units import StoreUnavailable
from turnwire.storage.writer import GroupCommitWriter

__all__ = ["SqliteDatabase"]


class SqliteDatabase(Database):
    """A file that this process alone has. See `database_at` for the arguments."""

    def __init__(
        self,
        path: Path,
        package: str,
        *,
        on_fatal: Callable[[BaseException], None],
        on_health: Callable[[bool], None] | None = None,
        synchronous: Synchronous = "FULL",
        spacing: float = 0.005,
        retry_for: float = 30.0,
        readers: int = 2,
    ) -> None:
        self.stats = WriterStats()
        self.reader = Reader(partial(connect, path, read_only=True, busy_timeout=2.0), threads=readers)
        self._path = path
        self._package = package
        self._lock = FileLock(path)
        open_connection = partial(connect, path, synchronous=synchronous)
        self._connect = open_connection
        self._checkpointer = Checkpointer(
            open_connection, self.stats, lambda error: self.writer.report_fatal(error)
        )
        committer = SqliteCommitter(
            open_connection,
            retry_for=retry_for,
            stats=self.stats,
            checkpointer=self._checkpointer,
            on_health=lambda healthy: self.writer.report_health(healthy),
        )
        self.writer = GroupCommitWriter(
            committer,
            on_fatal=on_fatal,
            on_health=on_health,
            stats=self.stats,
            spacing=spacing,
            stuck_after=2 * retry_for + 30,
        )

    async def open(self) -> None:
        """Lock the file, bring its schema up to date and start the threads.

        Raises:
            WrongState: STORE_LOCKED, another process has it; SCHEMA_NEWER, a later version wrote it.
            StoreUnavailable: the file cannot be opened or is damaged.
        """
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock.acquire()
            self.info = await asyncio.to_thread(self._prepare)
            await self.writer.start()
            await self.writer.run(lambda db: db.execute("SELECT 1 FROM store_info").fetchone())
            await asyncio.to_thread(reserve_log, self._path)
        except (OSError, sqlite3.Error) as error:
            self._lock.release()
            text = describe(error) if isinstance(error, sqlite3.Error) else error.strerror
            raise StoreUnavailable(f"the store {self._path} cannot be opened: {text}") from error
        except BaseException:
            self._lock.release()
            raise
        self._checkpointer.start()

    async def close(self) -> None:
        """Commit what waits, close every connection and give the lock back."""
        await self.writer.stop()
        await asyncio.to_thread(self._checkpointer.stop)
        await self.reader.close()
        self._lock.release()

    async def claim_name(self, name: str) -> bool:
        """Return True: no other process has the file."""
        return True

    def notify(self, payload: str) -> None:
        """Do nothing: there are no other processes."""

    def listen(self, callback: Callable[[str], None]) -> None:
        """Do nothing: there are no other processes."""

    def _prepare(self) -> StoreInfo:
        # What people said is in here: a new file is its owner's alone, and so are SQLite's files beside it.
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        db = self._connect()
        try:
            return migrate(db, load_migrations(self._package))
        finally:
            db.close()
