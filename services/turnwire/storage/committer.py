"""The thread side of the SQLite writer: one group, one transaction; a unit that fails costs nobody else.

After a COMMIT that is told as failed the file itself is asked: each group leaves its number in the file, in
the same transaction. (What could not be synced may be found again when the file is opened anew.)
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from turnwire.storage.checkpoint import Checkpointer
from turnwire.storage.isolation import Call, IsolatingCommitter, Item, Outcome, Spoiled
from turnwire.storage.sqlite import TROUBLE, SqliteConnection, describe
from turnwire.storage.stats import WriterStats
from turnwire.storage.units import StorageError, Unit, UnitFenced

__all__ = ["Call", "Item", "Outcome", "SqliteCommitter"]

logger = logging.getLogger(__name__)

_TABLE = (
    "CREATE TABLE IF NOT EXISTS writer_group (id INTEGER PRIMARY KEY CHECK (id = 1), number INTEGER NOT NULL)"
)
_ENTER = "INSERT INTO writer_group (id, number) VALUES (1, 0)"
_MARK = "UPDATE writer_group SET number = ?"
_ASK = "SELECT number FROM writer_group"


@dataclass(frozen=True, slots=True)
class _Doubt:
    """A group whose COMMIT was told as failed."""

    items: Sequence[Item]
    outcomes: list[Outcome]
    number: int


class SqliteCommitter(IsolatingCommitter):
    """Commits groups to a file. See `IsolatingCommitter` for what it promises.

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
        super().__init__(TROUBLE, retry_for=retry_for, stats=stats, on_health=on_health)
        self._connect = connect
        self._checkpointer = checkpointer
        # Above what any earlier writer of the file has left there.
        self._number = time.time_ns()
        self._doubt: _Doubt | None = None

    def open(self) -> None:
        """Open the file."""
        self._db = self._connect()
        self._cursor = self._db.cursor()
        self._cursor.execute(_TABLE)
        if self._cursor.execute(_ASK).fetchone() is None:
            self._cursor.execute(_ENTER)

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def commit(self, items: Sequence[Item]) -> list[Outcome]:
        """Commit the group and say for each item None (durable) or why it, and it alone, is not.

        Raises:
            sqlite3.Error: the store failed for longer than `retry_for`, or is damaged.
        """
        outcomes = super().commit(items)
        if self._checkpointer is not None:
            self._checkpointer.wrote()
        return outcomes

    def between_groups(self) -> None:
        """Restart the write-ahead log when it has grown too long."""
        if self._checkpointer is not None:
            self._checkpointer.restart_if_due(self._db)

    def _transaction(self, items: Sequence[Item]) -> list[Outcome]:
        doubt = self._doubt
        if doubt is not None and doubt.items is items and self._went_through(doubt):
            return doubt.outcomes
        cursor = self._cursor
        before = self._db.total_changes
        try:
            cursor.execute("BEGIN IMMEDIATE")
            outcomes = [self._unit(item) if isinstance(item, Unit) else self._call(item) for item in items]
            # What has written nothing may be done again without asking, and costs no write.
            if self._db.total_changes != before:
                self._number += 1
                cursor.execute(_MARK, (self._number,))
            self._end(items, outcomes)
        except BaseException:
            self._roll_back()
            raise
        return outcomes

    def _went_through(self, doubt: _Doubt) -> bool:
        """Ask whether the group in doubt is committed; settles the doubt."""
        committed: bool = self._cursor.execute(_ASK).fetchone() == (doubt.number,)
        self._doubt = None
        logger.warning(
            "storage.commit_was_in_doubt", extra={"committed": committed, "units": len(doubt.items)}
        )
        return committed

    def _end(self, items: Sequence[Item], outcomes: list[Outcome]) -> None:
        self._doubt = _Doubt(items, outcomes, self._number)
        try:
            self._cursor.execute("COMMIT")
        except sqlite3.IntegrityError as error:  # a deferred constraint: it does not say whose row it was
            self._doubt = None
            raise Spoiled(self._rejection(items[0].key, error)) from error
        self._doubt = None

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
                return self._skip(before, self._rejection(unit.key, error))
            if statement.expect is not None and cursor.rowcount != statement.expect:
                text = f"{cursor.rowcount} rows changed where {statement.expect} were required"
                return self._skip(before, UnitFenced(text, unit.key))
        return None

    def _skip(self, before: int, outcome: StorageError) -> StorageError:
        # A statement that fails undoes itself; only what the unit wrote before it would stay in the group.
        if self._db.in_transaction and self._db.total_changes == before:
            return outcome
        raise Spoiled(outcome)

    def _call(self, call: Call) -> Outcome:
        cursor = self._cursor
        cursor.execute("SAVEPOINT call")
        try:
            call.result = call.fn(self._db)
            cursor.execute("RELEASE call")
        except Exception as error:
            outcome = self._rejection(call.key, error) if isinstance(error, sqlite3.Error) else error
            if not self._db.in_transaction:
                raise Spoiled(outcome) from error
            cursor.execute("ROLLBACK TO call")
            cursor.execute("RELEASE call")
            return outcome
        return None
