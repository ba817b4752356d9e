"""Keeps the write-ahead log short without making a commit wait: this thread copies pages, not the writer."""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path

from turnwire.storage.sqlite import describe, is_transient
from turnwire.storage.stats import WriterStats

__all__ = ["LOG_BYTES", "Checkpointer", "reserve_log"]

logger = logging.getLogger(__name__)

_FRAME_HEADER_BYTES = 24
# Length at which the log is restarted, and to which it is made at the start. A commit that overwrites what is
# there costs a third less than one that makes the file longer.
LOG_BYTES = 8 * 1024 * 1024
_RESERVE_CHUNK = 256 * 1024


def reserve_log(database: Path, size: int = LOG_BYTES) -> None:
    """Make the write-ahead log at least `size` bytes long, with zeros, which are no frames to SQLite.

    Call it while a connection is open and nothing is being written. A disk without room for it has none for
    the commits either: they will say so.
    """
    log = database.with_name(f"{database.name}-wal")
    try:
        with log.open("r+b") as file:
            missing = size - file.seek(0, os.SEEK_END)
            while missing > 0:
                missing -= file.write(bytes(min(missing, _RESERVE_CHUNK)))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        logger.warning("storage.log_not_reserved", extra={"error": error.strerror})


class Checkpointer:
    """A thread with its own connection that copies the log into the file while it grows, and else sleeps.

    PASSIVE checkpoints never block anyone, and so never let the log start anew under load; the writer does
    that between two groups, through `restart_if_due`.

    Args:
        connect: opens the connection, on the checkpoint thread.
        stats: counters, shared with the writer.
        on_fatal: called on this thread if it ends for any reason but `stop`.
        interval: seconds between two passes while there are writes.
        restart_bytes: length of the log from which the writer restarts it.
        restart_retry: seconds until the next try when a reader was in the way.
    """

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        stats: WriterStats,
        on_fatal: Callable[[BaseException], None],
        *,
        interval: float = 0.25,
        restart_bytes: int = LOG_BYTES,
        restart_retry: float = 1.0,
    ) -> None:
        self._connect = connect
        self._stats = stats
        self._on_fatal = on_fatal
        self._interval = interval
        self._restart_bytes = restart_bytes
        self._restart_retry = restart_retry
        self._next_restart = 0.0
        self._dirty = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="storage-checkpoint", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread and wait for it; a pass that is under way is finished."""
        self._stop.set()
        self._dirty.set()
        if self._thread.ident is not None:
            self._thread.join()

    def wrote(self) -> None:
        """Note on the writer's thread that there is something to copy."""
        if not self._dirty.is_set():
            self._dirty.set()

    def restart_if_due(self, db: sqlite3.Connection) -> None:
        """Let the log start anew on the writer's connection, outside a transaction, if it is too long."""
        if self._stats.wal_bytes < self._restart_bytes or time.monotonic() < self._next_restart:
            return
        try:
            blocked = self._checkpoint(db, "RESTART")
        except sqlite3.Error as error:
            if not is_transient(error):
                raise
            _warn("RESTART", error)
            blocked = True
        if blocked:
            self._next_restart = time.monotonic() + self._restart_retry
            return
        self._stats.wal_restarts += 1
        self._stats.wal_bytes = 0

    def _run(self) -> None:
        try:
            db = self._patient_connect()
            if db is not None:
                try:
                    self._loop(db)
                finally:
                    db.close()
        except BaseException as error:
            if self._stop.is_set():
                _warn("last", error)
                return
            self._on_fatal(error)

    def _patient_connect(self) -> sqlite3.Connection | None:
        while True:
            try:
                return self._connect()
            except sqlite3.Error as error:
                if not is_transient(error):
                    raise
                _warn("open", error)
            if self._stop.wait(self._restart_retry):
                return None

    def _loop(self, db: sqlite3.Connection) -> None:
        self._page_bytes = db.execute("PRAGMA page_size").fetchone()[0] + _FRAME_HEADER_BYTES
        while True:
            self._dirty.wait()
            if self._stop.wait(self._interval):
                return
            self._dirty.clear()
            try:
                self._checkpoint(db, "PASSIVE")
            except sqlite3.Error as error:
                if not is_transient(error):
                    raise
                _warn("PASSIVE", error)
                if self._stop.wait(self._restart_retry):
                    return
                self._dirty.set()

    def _checkpoint(self, db: sqlite3.Connection, mode: str) -> bool:
        """Run one checkpoint and say whether something was in its way."""
        started = time.perf_counter()
        blocked, frames, _copied = db.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        self._stats.checkpoints += 1
        self._stats.checkpoint_seconds += time.perf_counter() - started
        if mode == "PASSIVE" and frames >= 0:
            self._stats.wal_bytes = frames * self._page_bytes
        return bool(blocked)


def _warn(mode: str, error: BaseException) -> None:
    logger.warning("storage.checkpoint_failed", extra={"mode": mode, "error": describe(error)})
