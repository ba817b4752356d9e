"""SQLite connections: every pragma is set here and nowhere else, and every driver error is classed here."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import ClassVar, Literal, TypeVar

from turnwire.storage.trouble import Trouble

__all__ = [
    "TROUBLE",
    "SqliteConnection",
    "Synchronous",
    "connect",
    "describe",
    "is_corruption",
    "is_transient",
    "wants_reconnect",
]

Synchronous = Literal["FULL", "NORMAL"]
T = TypeVar("T")

# A WAL that outgrew this is cut back when it starts anew.
_WAL_KEEP_BYTES = 64 * 1024 * 1024
_CACHE_KIB = 4096

_TRANSIENT = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_INTERRUPT,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PROTOCOL,
}
_CORRUPTION = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_RECONNECT = {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PROTOCOL}


class SqliteConnection(sqlite3.Connection):
    """A connection with the host's clock as the store's."""

    def now_ns(self) -> int:
        """Return nanoseconds since 1970."""
        return time.time_ns()

    def reclaim(self, pages: int = 500) -> int:
        """Give up to `pages` free pages back to the file system and return how many."""
        free: int = self.execute("PRAGMA freelist_count").fetchone()[0]
        count = min(pages, free)
        for _ in range(count):
            # One at a time: the driver takes only the first step of this pragma, which frees one page.
            self.execute("PRAGMA incremental_vacuum(1)")
        # None go from a file that was made without auto_vacuum, such as one loaded from a dump.
        return free - int(self.execute("PRAGMA freelist_count").fetchone()[0])

    def read(self, fn: Callable[[SqliteConnection], T], /) -> T:
        """Run `fn` in one read transaction and end it, whatever `fn` does."""
        self.execute("BEGIN")
        try:
            return fn(self)
        finally:
            if self.in_transaction:
                self.execute("ROLLBACK")  # ends the snapshot; there is nothing to keep

    own_tables: ClassVar[Mapping[str, str]] = {}

    def schema_lock(self) -> AbstractContextManager[None]:
        """Do nothing: the file is one process's."""
        return nullcontext()

    def has_table(self, name: str) -> bool:
        """Say whether there is a table of this name."""
        found = self.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (name,))
        return found.fetchone() is not None

    def begin(self) -> None:
        """Begin a transaction that will write."""
        self.execute("BEGIN IMMEDIATE")

    def script(self, sql: str) -> None:
        """Begin a transaction and run many statements in it."""
        # The driver commits what is open before a script, so the script itself begins.
        self.executescript(f"BEGIN IMMEDIATE;\n{sql}")


def connect(
    path: Path, *, synchronous: Synchronous = "FULL", read_only: bool = False, busy_timeout: float = 0.1
) -> SqliteConnection:
    """Open one connection in autocommit mode: transactions are begun and ended by hand.

    Args:
        path: the database file; created, in WAL mode, unless `read_only`.
        synchronous: FULL survives a power cut, NORMAL survives the end of the process only.
        read_only: refuse every write; the file must exist.
        busy_timeout: seconds the driver itself waits for a lock.
    """
    db = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rwc'}",
        uri=True,
        timeout=busy_timeout,
        isolation_level=None,
        check_same_thread=False,  # opened by one thread and used by another, never by two at once
        cached_statements=256,
        factory=SqliteConnection,
    )
    try:
        if not read_only and db.execute("PRAGMA auto_vacuum").fetchone()[0] == 0:
            # Counts only in an empty file, so before WAL writes its header; later it takes the write lock.
            db.execute("PRAGMA auto_vacuum=INCREMENTAL")
        for pragma in _pragmas(synchronous, read_only):
            db.execute(f"PRAGMA {pragma}")
    except BaseException:
        db.close()
        raise
    return db


def _pragmas(synchronous: Synchronous, read_only: bool) -> tuple[str, ...]:
    if read_only:
        return ("query_only=ON", f"cache_size=-{_CACHE_KIB}")
    return (
        "journal_mode=WAL",
        f"synchronous={synchronous}",
        "wal_autocheckpoint=0",  # the checkpoint thread and the writer see to it, see checkpoint.py
        f"journal_size_limit={_WAL_KEEP_BYTES}",
        "foreign_keys=ON",
        "secure_delete=FAST",  # builds differ in their default; ON would write every freed page once more
        f"cache_size=-{_CACHE_KIB}",
    )


def _code(error: BaseException) -> int | None:
    code = getattr(error, "sqlite_errorcode", None) if isinstance(error, sqlite3.Error) else None
    return None if code is None else code & 0xFF


def is_transient(error: BaseException) -> bool:
    """Say whether the same transaction may succeed later: busy, I/O, disk full, memory."""
    return isinstance(error, MemoryError) or _code(error) in _TRANSIENT


def is_corruption(error: BaseException) -> bool:
    """Say whether the file itself is damaged, so that nothing read or written is to be trusted."""
    return _code(error) in _CORRUPTION


def wants_reconnect(error: BaseException) -> bool:
    """Say whether the connection may be the broken part, so that a retry should open a new one."""
    return _code(error) in _RECONNECT


def describe(error: BaseException) -> str:
    """Name a driver error without its text, which may quote values."""
    return getattr(error, "sqlite_errorname", None) or type(error).__name__


TROUBLE = Trouble(
    lambda error: isinstance(error, sqlite3.Error), is_transient, is_corruption, wants_reconnect, describe
)
