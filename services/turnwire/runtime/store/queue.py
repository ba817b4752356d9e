"""Changes of turns that wait in a queue, as functions that run inside one write transaction."""

from __future__ import annotations

from collections.abc import Sequence

from turnwire.core.errors import Conflict, NotFound, WrongState
from turnwire.extend.events import TurnState
from turnwire.runtime.domain.turn import InputPart, TurnKey, TurnRow, TurnSpec
from turnwire.runtime.store.queries import get_turn
from turnwire.runtime.store.threads import lock_thread
from turnwire.storage.units import Connection

__all__ = ["update_queued_turn"]


def update_queued_turn(db: Connection, key: TurnKey, etag: str, parts: Sequence[InputPart]) -> TurnRow:
    """Give a turn that waits another input; of a task nothing stays.

    The fingerprint of the request that made the turn stays: its repeat still joins the turn.

    Raises:
        NotFound: TURN_NOT_FOUND.
        WrongState: TURN_NOT_QUEUED. Conflict: TURN_CHANGED.
    """
    get_turn(db, key)
    try:
        lock_thread(db, key.thread)
    except NotFound:
        raise NotFound(f"there is no {key.name}", reason="TURN_NOT_FOUND", turn=key.name) from None
    row = get_turn(db, key)
    if row.state is not TurnState.QUEUED:
        raise WrongState(
            f"{key.name} does not wait any more: it is {row.state.value}",
            reason="TURN_NOT_QUEUED",
            turn=key.name,
            state=row.state.value.upper(),
        )
    if row.etag != etag:
        raise Conflict(
            f"{key.name} has changed since it was read: read it again", reason="TURN_CHANGED", etag=row.etag
        )
    place = (key.scope, key.thread_id)
    (version,) = db.execute(
        "UPDATE threads SET version = version + 1, queue_version = version + 1, update_time = ?"
        " WHERE scope = ? AND thread_id = ? RETURNING version",
        (db.now_ns(), *place),
    ).fetchone()
    (spec,) = db.execute(
        "SELECT spec FROM turns WHERE scope = ? AND thread_id = ? AND turn_id = ?", (*place, key.turn_id)
    ).fetchone()
    changed = TurnSpec.model_validate_json(spec).model_copy(update={"parts": tuple(parts), "task": None})
    db.execute(
        "UPDATE turns SET spec = ?, change_version = ? WHERE scope = ? AND thread_id = ? AND turn_id = ?",
        (changed.canonical_json(), version, *place, key.turn_id),
    )
    return get_turn(db, key)
