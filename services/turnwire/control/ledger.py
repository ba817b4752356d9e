"""The command ledger on SQLite: an outcome that was written once never changes.

Writes go through the group commit writer in the order in which they are handed in, and answer by callback.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial

from turnwire.control.domain import CommandRow, Key
from turnwire.control.filters import CommandFilter
from turnwire.control.ports import Stored
from turnwire.control.rows import COLUMNS, INSERT, insert_values, outcome_values, row_from_columns
from turnwire.control.supervisor import Supervisor
from turnwire.core.errors import TurnwireError, Unavailable
from turnwire.storage.database import Database
from turnwire.storage.units import Connection, Statement, Unit, UnitFenced

__all__ = ["Recovered", "SqliteLedger"]

logger = logging.getLogger(__name__)

_SELECT = f"SELECT {COLUMNS} FROM commands"
_FIND = f"{_SELECT} WHERE scope = ? AND command_id = ?"
_UPDATE = (
    "UPDATE commands SET offered = ?, bound_turn = ?, state = ?, position = ? "
    "WHERE scope = ? AND command_id = ? AND outcome IS NULL"
)
_FINISH = (
    "UPDATE commands SET outcome = ?, outcome_turn = ?, applied_sequence = ?, duplicate_of = ?, message = ?, "
    "reason = ?, decide_time = ?, bound_turn = ?, position = ?, state = 'done', body = NULL "
    "WHERE scope = ? AND command_id = ? AND outcome IS NULL"
)
_OUTCOMES = (
    f"{_SELECT} WHERE scope = ? AND client_id = ? AND position > ? AND outcome IS NOT NULL "
    "ORDER BY position LIMIT ?"
)
_CHANGES = f"{_SELECT} WHERE scope = ? AND position > ? ORDER BY position LIMIT ?"
_LAST = """
SELECT max(last,
           coalesce((SELECT max(entry) FROM commands), 0),
           coalesce((SELECT max(position) FROM commands), 0))
FROM ledger_head"""
_DELETE = """
DELETE FROM commands WHERE entry IN (
  SELECT entry FROM commands WHERE outcome IS NOT NULL AND decide_time < ? ORDER BY decide_time LIMIT ?
)"""
_REMEMBERED = 4096
_PRUNE_CHUNK = 500


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a start finds: rows without an outcome, the highest number given, cancels applied of late."""

    open: list[CommandRow]
    last: int
    finished: list[CommandRow]


class SqliteLedger:
    """The ledger of one process; implements `ports.Ledger`, and reads beside it."""

    def __init__(self, database: Database, supervisor: Supervisor) -> None:
        self._database = database
        self._supervisor = supervisor

    @property
    def ledger_id(self) -> str:
        """Which ledger this is: new when it is created or restored."""
        return self._database.info.log_id

    @property
    def healthy(self) -> bool:
        """Whether commits succeed at present."""
        return self._database.writer.healthy

    def insert(self, row: CommandRow, done: Stored) -> None:
        """Store a new row, or find the one that has its key; see `ports.Ledger`."""
        self._submit(row, INSERT, insert_values(row), done)

    def update(self, row: CommandRow, done: Stored) -> None:
        """Store how far a row without outcome has come; see `ports.Ledger`."""
        values = (int(row.offered), row.bound_turn, row.state.value, row.position, *row.key)
        self._submit(row, _UPDATE, values, done)

    def finish(self, row: CommandRow, done: Stored) -> None:
        """Store the outcome, or find the one that the row has; see `ports.Ledger`."""
        values = (*outcome_values(row.outcome), row.bound_turn, row.position, *row.key)
        self._submit(row, _FINISH, values, done)

    def _submit(
        self, row: CommandRow, sql: str, values: tuple[str | bytes | int | None, ...], done: Stored
    ) -> None:
        self._database.writer.submit(
            Unit(
                key=f"{row.scope}/{row.command_id}",
                statements=[Statement(sql, values, expect=1)],
                urgent=True,
                done=partial(self._committed, row.key, done),
                size=len(row.body or b""),
            )
        )

    def _committed(self, key: Key, done: Stored, error: BaseException | None) -> None:
        if error is None:
            done(None, None)
        elif isinstance(error, UnitFenced):
            self._supervisor.start(self._tell_stored(key, done), "control.ledger.find")
        else:
            done(None, _as_ours(error))

    async def _tell_stored(self, key: Key, done: Stored) -> None:
        try:
            row = await self.find(key)
        except TurnwireError as error:
            done(None, error)
            return
        if row is None:
            done(None, Unavailable("the ledger has no such row", reason="STORE_UNAVAILABLE"))
        else:
            done(row, None)

    async def recover(self) -> Recovered:
        """Read what the hub needs at the start. Raises: StoreUnavailable."""
        return await self._database.reader.read(_recover)

    async def find(self, key: Key) -> CommandRow | None:
        """Return a row, or None. Raises: StoreUnavailable."""
        rows = await self._read(_FIND, key)
        return rows[0] if rows else None

    async def outcomes(self, scope: str, client_id: str, after: int, limit: int) -> list[CommandRow]:
        """Return a client's ended rows behind a position, in that order. Raises: StoreUnavailable."""
        return await self._read(_OUTCOMES, (scope, client_id, after, limit))

    async def changes(self, scope: str, after: int, limit: int) -> list[CommandRow]:
        """Return a scope's rows that changed behind a position, in that order. Raises: StoreUnavailable."""
        return await self._read(_CHANGES, (scope, after, limit))

    async def ended(self, scope: str, terms: CommandFilter, before: int, limit: int) -> list[CommandRow]:
        """Return rows with an outcome and an entry below `before`, newest first. Raises: StoreUnavailable."""
        clauses, values = terms.where()
        sql = (
            f"{_SELECT} WHERE scope = ? AND entry < ? AND outcome IS NOT NULL{clauses} "
            "ORDER BY entry DESC LIMIT ?"
        )
        return await self._read(sql, (scope, before, *values, limit))

    async def _read(self, sql: str, values: tuple[str | int, ...]) -> list[CommandRow]:
        def fetch(db: Connection) -> list[CommandRow]:
            return [row_from_columns(columns) for columns in db.execute(sql, values)]

        return await self._database.reader.read(fetch)

    async def prune(self, decided_before: int) -> int:
        """Delete rows whose outcome is older than a time in nanoseconds, in chunks; returns how many.

        Raises:
            StoreUnavailable: the writer has ended.
        """
        total = 0
        while True:
            deleted = await self._database.writer.run(partial(_prune, decided_before), key="prune")
            total += deleted
            if deleted < _PRUNE_CHUNK:
                break
        if total:
            logger.info("ledger.pruned", extra={"rows": total})
        return total


def _recover(db: Connection) -> Recovered:
    unfinished = db.execute(f"{_SELECT} WHERE outcome IS NULL ORDER BY entry")
    found = [row_from_columns(columns) for columns in unfinished]
    cancels = f"{_SELECT} WHERE outcome = 'applied' AND kind = 'cancel_turn' ORDER BY entry DESC LIMIT ?"
    finished = [row_from_columns(columns) for columns in db.execute(cancels, (_REMEMBERED,))]
    return Recovered(found, db.execute(_LAST).fetchone()[0], finished[::-1])


def _prune(decided_before: int, db: Connection) -> int:
    db.execute(f"UPDATE ledger_head SET last = ({_LAST})")
    cursor = db.execute(_DELETE, (decided_before, _PRUNE_CHUNK))
    if cursor.rowcount:
        db.reclaim()
    return cursor.rowcount


def _as_ours(error: BaseException) -> TurnwireError:
    if isinstance(error, TurnwireError):
        return error
    logger.error("ledger.unit_rejected", exc_info=error)
    return Unavailable("the ledger did not take the row", reason="STORE_UNAVAILABLE")
