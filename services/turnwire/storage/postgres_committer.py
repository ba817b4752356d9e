"""The thread side of the PostgreSQL writer: one group, one transaction, its statements sent in a pipeline.

After a COMMIT whose answer never came the store itself is asked: each group leaves its number in a row of
its writer, in the same transaction. (A transaction id would not do: after a crash the server gives ids of
transactions that it had not written down to others.)
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import psycopg
from psycopg import errors, pq

from turnwire.storage.isolation import Call, IsolatingCommitter, Item, Outcome, Spoiled
from turnwire.storage.postgres import TROUBLE, PgConnection, Sent, StatementFailed, describe
from turnwire.storage.postgres_text import encode_values, translate
from turnwire.storage.stats import WriterStats
from turnwire.storage.units import Unit, UnitFenced, UnitRejected

__all__ = ["PgCommitter"]

logger = logging.getLogger(__name__)

_FORGET = "DELETE FROM writer_groups WHERE commit_time < now() - interval '30 days'"
_ENTER = "INSERT INTO writer_groups (writer, number) VALUES (?, 0) ON CONFLICT DO NOTHING"
_LEAVE = "DELETE FROM writer_groups WHERE writer = ?"
# Leaves a transaction that has written nothing as it is: its commit costs nothing then, and needs no asking.
_MARK = (
    "UPDATE writer_groups SET number = ?, commit_time = now()"
    " WHERE writer = ? AND txid_current_if_assigned() IS NOT NULL"
)
# Waits for the transaction in question, should the server still be at it: that one holds the row.
_ASK = "UPDATE writer_groups SET number = number WHERE writer = ? RETURNING number"
_END_OLD = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE pid = ? AND pid <> pg_backend_pid() AND application_name = ?"
)
_BEGIN: Sent = (b"BEGIN ISOLATION LEVEL READ COMMITTED", ((), [], []))
_SAVEPOINT: Sent = (b"SAVEPOINT call", ((), [], []))
_RELEASE: Sent = (b"RELEASE call", ((), [], []))
_CONFLICTS = (errors.DeadlockDetected, errors.SerializationFailure)


@dataclass(frozen=True, slots=True)
class _Doubt:
    """A group whose COMMIT was sent and not answered."""

    items: Sequence[Item]
    outcomes: list[Outcome]
    number: int
    backend_pid: int


class PgCommitter(IsolatingCommitter):
    """Commits groups to a server. See `IsolatingCommitter` for what it promises.

    Args:
        connect: opens the connection with the name that it is given.
        retry_for: seconds of back-off after which the error is raised and the writer ends.
        stats: counters, shared with the loop side.
        on_health: called on this thread with False at the first failed try and True after recovery.
    """

    def __init__(
        self,
        connect: Callable[[str], PgConnection],
        *,
        retry_for: float,
        stats: WriterStats,
        on_health: Callable[[bool], None],
    ) -> None:
        super().__init__(TROUBLE, retry_for=retry_for, stats=stats, on_health=on_health)
        self._connect = connect
        self._writer = secrets.token_hex(8)
        self._number = 0
        self._doubt: _Doubt | None = None

    @property
    def name(self) -> str:
        """What the server shows of this connection."""
        return f"turnwire-writer-{self._writer}"

    def open(self) -> None:
        """Connect."""
        self._db = self._connect(self.name)
        try:
            self._db.execute(_FORGET)
            self._db.execute(_ENTER, (self._writer,))
        except BaseException:
            self._db.close()
            raise

    def close(self) -> None:
        """Forget the writer's row and close the connection: nothing is committed after it."""
        try:
            self._db.execute(_LEAVE, (self._writer,))
        except psycopg.Error as error:  # old rows are removed by whoever comes next
            logger.info("storage.row_left", extra={"error": describe(error)})
        self._db.close()

    def _reconnect(self) -> None:
        self._db.close()
        self.open()
        self._broken = False

    def _transaction(self, items: Sequence[Item]) -> list[Outcome]:
        doubt = self._doubt
        if doubt is not None and doubt.items is items and self._went_through(doubt):
            return doubt.outcomes
        try:
            return self._attempt(items)
        except _CONFLICTS as error:
            self._note_conflict(error, items)
        try:
            return self._attempt(items)
        except _CONFLICTS as error:
            if len(items) == 1:
                raise
            self._note_conflict(error, items)
            raise Spoiled(error) from error

    def _note_conflict(self, error: psycopg.Error, items: Sequence[Item]) -> None:
        self._stats.retries += 1
        logger.info("storage.conflict", extra={"error": describe(error), "units": len(items)})

    def _went_through(self, doubt: _Doubt) -> bool:
        """Ask whether the group in doubt is committed; settles the doubt."""
        self._db.execute(_END_OLD, (doubt.backend_pid, self.name))
        row = self._db.execute(_ASK, (self._writer,)).fetchone()
        self._doubt = None
        committed = row is not None and row[0] == doubt.number
        fields = {"committed": committed, "units": len(doubt.items)}
        logger.warning("storage.commit_was_in_doubt", extra=fields)
        return committed

    def _attempt(self, items: Sequence[Item]) -> list[Outcome]:
        group = _Group(self._db, items, self._rejection)
        try:
            self._db.tidy()
            group.run()
            self._number += 1
            group.finish((_MARK, (self._number, self._writer)))
            self._end(items, group.outcomes)
        except BaseException:
            self._roll_back()
            raise
        return group.outcomes

    def _end(self, items: Sequence[Item], outcomes: list[Outcome]) -> None:
        db = self._db
        self._doubt = _Doubt(items, outcomes, self._number, db.backend_pid)
        try:
            result = db.command("COMMIT")
        except psycopg.Error as error:
            if db.pgconn.status == pq.ConnStatus.OK:
                self._doubt = None  # a clean refusal
                # It does not say whose row it was.
                raise Spoiled(self._rejection(items[0].key, error)) from error
            raise
        self._doubt = None
        if result.command_status != b"COMMIT":
            raise psycopg.InternalError("a transaction that had failed was to be committed")

    def _roll_back(self) -> None:
        db = self._db
        if not db.in_transaction:
            return
        try:
            db.command("ROLLBACK")
        except psycopg.Error as error:
            self._broken = True
            logger.warning("storage.rollback_failed", extra={"error": describe(error)})


class _Group:
    """One try of a group: what it sends, and which result belongs to whom."""

    def __init__(
        self,
        db: PgConnection,
        items: Sequence[Item],
        rejection: Callable[[str, Exception], UnitRejected],
    ) -> None:
        self.outcomes: list[Outcome] = [None] * len(items)
        self._db = db
        self._items = items
        self._rejection = rejection
        self._batch: list[Sent] = [_BEGIN]
        # The unit of each statement of the batch and the rows it must change; None for our own statements.
        self._owners: list[tuple[Unit, int | None] | None] = [None]

    def run(self) -> None:
        """Queue the units and run the calls, in an order of keys that is the same in every process."""
        items = self._items
        order = range(len(items))
        # Calls without a key come last, as if handed in after the units that came with them.
        for place in sorted(order, key=lambda n: (items[n].key == "", items[n].key)):
            item = items[place]
            if isinstance(item, Unit):
                self.outcomes[place] = self._queue(item)
            else:
                self.outcomes[place] = self._call(item)

    def finish(self, mark: tuple[str, tuple[int, str]]) -> None:
        """Send what is left and the mark of the group."""
        text, count = translate(mark[0])
        self._add((text, encode_values(mark[1], count)))
        self._flush()

    def _add(self, sent: Sent, owner: tuple[Unit, int | None] | None = None) -> None:
        self._batch.append(sent)
        self._owners.append(owner)

    def _queue(self, unit: Unit) -> Outcome:
        sent: list[Sent] = []
        try:
            for statement in unit.statements:
                text, count = translate(statement.sql)
                sent.append((text, encode_values(statement.params, count)))
        except (ValueError, OverflowError, TypeError) as error:
            return self._rejection(unit.key, error)
        for one, statement in zip(sent, unit.statements, strict=True):
            self._add(one, (unit, statement.expect))
        return None

    def _call(self, call: Call) -> Outcome:
        db = self._db
        self._add(_SAVEPOINT)
        self._flush(part=True)
        self._add(_RELEASE)
        again = True
        while True:
            try:
                call.result = call.fn(db)
                if db.pgconn.transaction_status == pq.TransactionStatus.INERROR:
                    raise psycopg.InternalError("a call went on after an error of the database")
                return None
            except Exception as error:
                outcome = self._rejection(call.key, error) if isinstance(error, psycopg.Error) else error
                db.command("ROLLBACK TO call")
                # Another process was first with the same key: now its row can be seen, and calls look first.
                if not (again and isinstance(error, errors.UniqueViolation)):
                    return outcome
                again = False
                db.part([])

    def _flush(self, *, part: bool = False) -> None:
        batch, owners = self._batch, self._owners
        self._batch, self._owners = [], []
        try:
            results = (self._db.part if part else self._db.pipeline)(batch)
        except StatementFailed as failed:
            # A fence does not keep what follows it from running, and from failing for its own reason.
            _check_fences(owners, failed.before)
            owner = owners[failed.index] if failed.index < len(owners) else None
            if owner is None:
                raise failed.error from None
            raise Spoiled(self._rejection(owner[0].key, failed.error)) from failed.error
        _check_fences(owners, results)


def _check_fences(
    owners: Sequence[tuple[Unit, int | None] | None], results: Sequence[pq.abc.PGresult]
) -> None:
    for owner, result in zip(owners, results, strict=False):
        if owner is None or owner[1] is None:
            continue
        unit, expected = owner
        found = result.command_tuples or 0
        if found != expected:
            text = f"{found} rows changed where {expected} were required"
            raise Spoiled(UnitFenced(text, unit.key))
