"""How an owner lets go of a turn that is not at its end: it waits for somebody, or is given away."""

from __future__ import annotations

from turnwire.extend.events import TurnSuspended
from turnwire.runtime.domain.turn import TurnKey
from turnwire.runtime.store.actions import open_actions, wake_statement
from turnwire.runtime.store.log import EncodePage, Page
from turnwire.storage.units import Connection, UnitFenced

__all__ = ["release", "suspend"]

_OF_TURN = "scope = ? AND thread_id = ? AND turn_id = ?"
_LET_GO = (
    "UPDATE threads SET version = version + ?, owner = '', lease = ''"
    " WHERE scope = ? AND thread_id = ? AND live_turn = ? AND epoch = ?"
)
_ADVANCE = (
    "UPDATE turn_heads SET next_sequence = ?"
    " WHERE scope = ? AND turn_id = ? AND next_sequence = ? AND epoch = ?"
)
_WAITS = (
    "UPDATE turns SET state = 'waiting', suspend_time = ?, change_version = (SELECT h.version FROM threads h"
    f" WHERE h.scope = turns.scope AND h.thread_id = turns.thread_id) WHERE {_OF_TURN}"
)
# Where nobody owns a running turn the sweep takes what is due.
_GIVEN_AWAY = f"UPDATE turns SET wake_time = 1 WHERE {_OF_TURN} AND state = 'running'"
_PAGE = (
    "INSERT INTO pages (scope, turn_id, first_sequence, last_sequence, flags, body) VALUES (?, ?, ?, ?, ?, ?)"
)
SUSPENDED_FLAG = 2


def suspend(
    db: Connection,
    key: TurnKey,
    epoch: int,
    first: int,
    encode: EncodePage,
) -> Page:
    """Make a turn wait, with TurnSuspended as its last event, and return the page.

    It is due again when the first of its open actions expires, or at once when an answer has come meanwhile.

    Raises:
        UnitFenced: another owner has the turn, or its log has moved on.
    """
    _let_go(db, key, epoch, (first, first + 1), 1)
    body = encode(first, [TurnSuspended(open_actions(db, key))])
    db.execute(_PAGE, (key.scope, key.turn_id, first, first, SUSPENDED_FLAG, body))
    db.execute(_WAITS, (db.now_ns(), key.scope, key.thread_id, key.turn_id))
    wake = wake_statement(key)
    db.execute(wake.sql, wake.params)
    return first, first, body


def release(db: Connection, key: TurnKey, epoch: int, following: int) -> None:
    """Give a running turn away as it stands. Raises UnitFenced as `suspend`."""
    _let_go(db, key, epoch, (following, following), 0)
    db.execute(_GIVEN_AWAY, (key.scope, key.thread_id, key.turn_id))


def _let_go(db: Connection, key: TurnKey, epoch: int, sequences: tuple[int, int], changes: int) -> None:
    place = (key.scope, key.thread_id)
    given = db.execute(_LET_GO, (changes, *place, key.turn_id, epoch))
    if given.rowcount != 1:
        raise UnitFenced(f"{key.name} has another owner", key.name)
    before, after = sequences
    if db.execute(_ADVANCE, (after, key.scope, key.turn_id, before, epoch)).rowcount != 1:
        raise UnitFenced(f"the log of {key.name} has moved on", key.name)
