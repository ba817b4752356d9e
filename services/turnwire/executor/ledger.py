"""The durable ledger: one row per execution and attempt, and nothing runs before its row says so.

States go ACCEPTED, STARTED, then one of FINISHED, SUSPENDED, LOST, and never back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from turnwire.core.clock import Clock
from turnwire.executor.domain import (
    ExecuteCommand,
    ExecutionKey,
    ExecutionRecord,
    ExecutionState,
    Outcome,
    Result,
    Started,
    Suspension,
)
from turnwire.storage.reader import Reader
from turnwire.storage.units import Connection, Statement, Unit, UnitWriter

__all__ = ["Expiry", "Ledger", "Snapshot"]

_SELECT = (
    "SELECT scope, execution_id, attempt, state, tool_name, arguments_sha256, repeatable, start_time,"
    " execution_timeout, end_json FROM execution"
)
_UPSERT = (
    "INSERT INTO execution (scope, execution_id, attempt, turn, thread, tool_name, arguments_sha256,"
    " repeatable, state, execution_timeout, accept_time, start_time)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (scope, execution_id, attempt) DO UPDATE SET state = excluded.state,"
    " execution_timeout = excluded.execution_timeout, start_time = excluded.start_time"
    " WHERE execution.state = 'accepted'"
)
_EPOCH = (
    "INSERT INTO turn_epoch (scope, turn, thread, epoch, seen_time) VALUES (?, ?, ?, ?, ?)"
    " ON CONFLICT (scope, turn) DO UPDATE SET epoch = max(epoch, excluded.epoch),"
    " seen_time = excluded.seen_time"
)
_END = (
    "UPDATE execution SET state = ?, end_json = ?, end_time = ?"
    " WHERE scope = ? AND execution_id = ? AND attempt = ? AND state IN ('accepted', 'started')"
)
_EXPIRE_ROWS = 500

_read_result = msgspec.json.Decoder(Result).decode
_read_suspension = msgspec.json.Decoder(Suspension).decode
_encode = msgspec.json.encode


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is known of one call: its attempts in order, and the highest epoch of its turn."""

    attempts: tuple[ExecutionRecord, ...] = ()
    epoch: int = 0

    def attempt(self, number: int) -> ExecutionRecord | None:
        """Give one attempt; 0 means the latest."""
        if number == 0:
            return self.attempts[-1] if self.attempts else None
        return next((record for record in self.attempts if record.key.attempt == number), None)


@dataclass(frozen=True, slots=True)
class Expiry:
    """How many rows went, and the threads of which none is left."""

    executions: int = 0
    empty_threads: tuple[tuple[str, str], ...] = ()


class Ledger:
    """Reads and writes the ledger. Every method may raise StoreUnavailable."""

    def __init__(self, writer: UnitWriter, reader: Reader, clock: Clock) -> None:
        self._writer = writer
        self._reader = reader
        self._clock = clock

    async def snapshot(self, scope: str, execution_id: str) -> Snapshot:
        """Read all attempts of a call."""
        turn = execution_id.rpartition("/")[0]

        def read(db: Connection) -> Snapshot:
            rows = db.execute(
                f"{_SELECT} WHERE scope = ? AND execution_id = ? ORDER BY attempt", (scope, execution_id)
            ).fetchall()
            epoch = db.execute(
                "SELECT epoch FROM turn_epoch WHERE scope = ? AND turn = ?", (scope, turn)
            ).fetchone()
            return Snapshot(tuple(_record(row) for row in rows), epoch[0] if epoch else 0)

        return await self._reader.read(read)

    def accept(self, command: ExecuteCommand, sha256: str, repeatable: bool) -> None:
        """Note that a call waits for room; nobody waits for this to be durable."""
        statement = self._row(command, sha256, repeatable, ExecutionState.ACCEPTED, 0, 0.0)
        self._writer.submit(Unit(_unit_key(command.key), [statement, self._epoch(command)]))

    def start_statements(
        self, command: ExecuteCommand, sha256: str, repeatable: bool, started: Started
    ) -> list[Statement]:
        """Give what makes a start; it is refused when the key has a row in any state but ACCEPTED."""
        row = self._row(
            command,
            sha256,
            repeatable,
            ExecutionState.STARTED,
            started.start_time,
            started.execution_timeout,
        )
        row.expect = 1
        return [row, self._epoch(command)]

    async def start(self, key: ExecutionKey, statements: list[Statement]) -> None:
        """Make the start durable."""
        await self._writer.commit(statements, _unit_key(key))

    async def finish(
        self,
        key: ExecutionKey,
        state: ExecutionState,
        end: Result | Suspension,
        start: Sequence[Statement] = (),
    ) -> None:
        """Write the end, with the `start` in the same transaction where that is not written yet.

        Raises UnitFenced when there is an end already.
        """
        await self._writer.commit([*start, self._end(key, state, end)], _unit_key(key))

    async def finish_unstarted(self, command: ExecuteCommand, sha256: str, end: Result) -> None:
        """Write the end of a call that never started."""
        statement = self._row(command, sha256, False, ExecutionState.ACCEPTED, 0, 0.0)
        end_row = self._end(command.key, ExecutionState.FINISHED, end)
        await self._writer.commit([statement, end_row], _unit_key(command.key))

    def raise_epoch(self, command: ExecuteCommand) -> None:
        """Remember a higher epoch that came with a repeat."""
        self._writer.submit(Unit(_unit_key(command.key), [self._epoch(command)]))

    async def lose_started(self) -> int:
        """Mark every STARTED row LOST: at a start of the service nothing of an earlier one runs any more."""
        end = Result(Outcome.OUTCOME_UNKNOWN, is_error=True)
        text, now = _encode(end).decode(), self._clock.now()

        def lose(db: Connection) -> int:
            return db.execute(
                "UPDATE execution SET state = 'lost', end_json = ?, end_time = ? WHERE state = 'started'",
                (text, now),
            ).rowcount

        return await self._writer.run(lose)

    async def purge_thread(self, scope: str, thread: str) -> int:
        """Remove the rows of a thread and count its executions. Idempotent."""

        def purge(db: Connection) -> int:
            values = (scope, thread)
            db.execute("DELETE FROM turn_epoch WHERE scope = ? AND thread = ?", values)
            return db.execute("DELETE FROM execution WHERE scope = ? AND thread = ?", values).rowcount

        return await self._writer.run(purge)

    async def expire(self, before: int) -> Expiry:
        """Remove up to 500 ends from before `before` (nanoseconds since 1970)."""

        def expire(db: Connection) -> Expiry:
            rows = db.execute(
                "DELETE FROM execution WHERE rowid IN (SELECT rowid FROM execution WHERE state IN"
                " ('finished', 'lost', 'suspended') AND end_time < ? LIMIT ?) RETURNING scope, thread",
                (before, _EXPIRE_ROWS),
            ).fetchall()
            empty = []
            for scope, thread in sorted(set(rows)):
                values = (scope, thread)
                if db.execute("SELECT 1 FROM execution WHERE scope = ? AND thread = ?", values).fetchone():
                    continue
                db.execute("DELETE FROM turn_epoch WHERE scope = ? AND thread = ?", values)
                empty.append((scope, thread))
            return Expiry(len(rows), tuple(empty))

        return await self._writer.run(expire)

    def _row(
        self,
        command: ExecuteCommand,
        sha256: str,
        repeatable: bool,
        state: ExecutionState,
        start_time: int,
        execution_timeout: float,
    ) -> Statement:
        key = command.key
        return Statement(
            _UPSERT,
            (
                key.scope,
                key.execution_id,
                key.attempt,
                key.turn,
                key.thread,
                command.tool_name,
                sha256,
                int(repeatable),
                state.value,
                execution_timeout,
                self._clock.now(),
                start_time,
            ),
        )

    def _end(self, key: ExecutionKey, state: ExecutionState, end: Result | Suspension) -> Statement:
        text = _encode(end).decode()
        values = (state.value, text, self._clock.now(), key.scope, key.execution_id, key.attempt)
        return Statement(_END, values, expect=1)

    def _epoch(self, command: ExecuteCommand) -> Statement:
        key = command.key
        return Statement(_EPOCH, (key.scope, key.turn, key.thread, command.epoch, self._clock.now()))


def _unit_key(key: ExecutionKey) -> str:
    return f"{key.scope}/{key.execution_id}"


def _record(row: tuple[str, str, int, str, str, str, int, int, float, str]) -> ExecutionRecord:
    state = ExecutionState(row[3])
    end: Result | Suspension | None = None
    if row[9]:
        end = _read_suspension(row[9]) if state is ExecutionState.SUSPENDED else _read_result(row[9])
    return ExecutionRecord(
        key=ExecutionKey(row[0], row[1], row[2]),
        state=state,
        tool_name=row[4],
        arguments_sha256=row[5],
        repeatable=bool(row[6]),
        start_time=row[7],
        execution_timeout=row[8],
        end=end,
    )
