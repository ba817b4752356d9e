"""The thread side of the SQLite writer: one group, one transaction; a unit that fails costs nobody else."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable, Sequence
from typing import Any

from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

from turnwire.storage.checkpoint import Checkpointer
from turnwire.storage.sqlite import SqliteConnection, describe, is_corruption, is_transient, wants_reconnect
from turnwire.storage.stats import WriterStats
from turnwire.storage.units import Connection, Done, StorageError, Unit, UnitFenced, UnitRejected

__all__ = ["Call", "Item", "Outcome", "SqliteCommitter"]

logger = logging.getLogger(__name__)

Outcome = Exception | None


class Call:
    """A function that runs in the group's transaction, in a savepoint of its own."""

    __slots__ = ("done", "fn", "key", "result", "size")

    def __init__(self, fn: Callable[[Connection], Any], key: str, done: Done) -> None:
        self.fn = fn
        self.key = key
        self.done = done
        self.size = 0
        self.result: Any = None


Item = Unit | Call


class _Spoiled(Exception):
    """One item failed after it had written: the transaction must be undone to take it out."""

    def __init__(self, outcome: Exception) -> None:
        super().__init__("spoiled")
        self.outcome = outcome


class SqliteCommitter:
    """Commits groups on the calling thread and keeps trying while the trouble is the store's, not the data's.

    Args:
        connect: opens the connection; called again when an I/O error may have broken it.
        retry_for: seconds of back-off after which the error is raised and the writer ends.
        stats: counters, shared with the loop side.
        checkpointer: told of every commit; None where no write-ahead log is to be kept short.
        on_health: called on this thread with False at the first failed try and True after recovery.
    """

    def __init__(
        self,
        connect: Callable[[], SqliteConnection],
        *,
        retry_for: float,
        stats: WriterStats,
        checkpointer: Checkpointer | None,
        on_health: Callable[[bool], None],
    ) -> None:
        self._connect = connect
        self._retry_for = retry_for
        self._stats = stats
        self._checkpointer = checkpointer
        self._on_health = on_health
        self._broken = False

    def open(self) -> None:
        self._db = self._connect()
        self._cursor = self._db.cursor()

    def close(self) -> None:
        self._db.close()

    def commit(self, items: Sequence[Item]) -> list[Outcome]:
        """Commit the group and say for each item None (durable) or why it, and it alone, is not.

        Raises:
            sqlite3.Error: the store failed for longer than `retry_for`, or is damaged.
        """
        started = time.perf_counter()
        outcomes = self._isolating(items)
        self._stats.seconds += time.perf_counter() - started
        if self._checkpointer is not None:
            self._checkpointer.wrote()
        return outcomes

    def between_groups(self) -> None:
        """Restart the write-ahead log when it has grown too long."""
        if self._checkpointer is not None:
            self._checkpointer.restart_if_due(self._db)

    def _isolating(self, items: Sequence[Item]) -> list[Outcome]:
        try:
            return self._persistent(items)
        except _Spoiled as spoiled:
            if len(items) == 1:
                return [spoiled.outcome]
        self._stats.isolated_groups += 1
        return [self._isolating((item,))[0] for item in items]

    def _persistent(self, items: Sequence[Item]) -> list[Outcome]:
        try:
            return self._transaction(items)
        except Exception as error:
            if not is_transient(error):
                raise
            self._note_failure(error)
        outcomes = Retrying(
            stop=stop_after_delay(self._retry_for),
            wait=wait_random_exponential(multiplier=0.02, max=1.0),
            retry=retry_if_exception(is_transient),
            reraise=True,
        )(self._retry, items)
        logger.info("storage.recovered", extra={"units": len(items)})
        self._on_health(True)
        return outcomes

    def _retry(self, items: Sequence[Item]) -> list[Outcome]:
        self._stats.retries += 1
        try:
            if self._broken:
                self._reconnect()
            return self._transaction(items)
        except _Spoiled:
            self._on_health(True)  # the store answers again; this item's data is what fails
            raise
        except Exception as error:
            self._broken = self._broken or wants_reconnect(error)
            raise

    def _note_failure(self, error: Exception) -> None:
        self._broken = self._broken or wants_reconnect(error)
        fields = {"error": describe(error), "retry_for": self._retry_for}
        logger.warning("storage.commit_failed", extra=fields)
        self._on_health(False)

    def _reconnect(self) -> None:
        self._db.close()
        self.open()
        self._broken = False

    def _transaction(self, items: Sequence[Item]) -> list[Outcome]:
        cursor = self._cursor
        try:
            cursor.execute("BEGIN IMMEDIATE")
            outcomes = [self._unit(item) if isinstance(item, Unit) else self._call(item) for item in items]
            self._end(items)
        except BaseException:
            self._roll_back()
            raise
        return outcomes

    def _end(self, items: Sequence[Item]) -> None:
        try:
            self._cursor.execute("COMMIT")
        except sqlite3.IntegrityError as error:  # a deferred constraint: it does not say whose row it was
            raise _Spoiled(_rejection(items[0].key, error)) from error

    def _roll_back(self) -> None:
        if not self._db.in_transaction:  # SQLite itself rolls back on some errors
            return
        try:
            self._cursor.execute("ROLLBACK")
        except sqlite3.Error as error:
            self._broken = True
            logger.warning("storage.rollback_failed", extra={"error": describe(error)})

    def _unit(self, unit: Unit) -> Outcome:
        cursor = self._cursor
        before = self._db.total_changes
        for statement in unit.statements:
            try:
                cursor.execute(statement.sql, statement.params)
            except Exception as error:
                return self._skip(before, _rejection(unit.key, error))
            if statement.expect is not None and cursor.rowcount != statement.expect:
                text = f"{cursor.rowcount} rows changed where {statement.expect} were required"
                return self._skip(before, UnitFenced(text, unit.key))
        return None

    def _skip(self, before: int, outcome: StorageError) -> StorageError:
        # A statement that fails undoes itself; only what the unit wrote before it would stay in the group.
        if self._db.in_transaction and self._db.total_changes == before:
            return outcome
        raise _Spoiled(outcome)

    def _call(self, call: Call) -> Outcome:
        cursor = self._cursor
        cursor.execute("SAVEPOINT call")
        try:
            call.result = call.fn(self._db)
            cursor.execute("RELEASE call")
        except Exception as error:
            outcome = _rejection(call.key, error) if isinstance(error, sqlite3.Error) else error
            if not self._db.in_transaction:
                raise _Spoiled(outcome) from error
            cursor.execute("ROLLBACK TO call")
            cursor.execute("RELEASE call")
            return outcome
        return None


def _rejection(key: str, error: Exception) -> UnitRejected:
    """Turn an error of the data into a rejection; an error of the store goes on up."""
    if is_transient(error) or is_corruption(error):
        raise error
    rejection = UnitRejected(f"the unit cannot be stored: {describe(error)}", key)
    rejection.__cause__ = error
    return rejection
