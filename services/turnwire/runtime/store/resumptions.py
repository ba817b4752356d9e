"""Where a turn stands that an owner takes up again, read inside the transaction of the claim."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from turnwire.extend.actions import Action
from turnwire.extend.events import EpisodeKind
from turnwire.runtime.domain.resumption import CallState, OpenAttempt, Progress, ResumedCall, Resumption
from turnwire.runtime.domain.turn import TurnKey
from turnwire.runtime.store.actions import ACTION_COLUMNS, action_row
from turnwire.runtime.store.claimed import ReadTail
from turnwire.runtime.store.rows import CALL_COLUMNS, call_part
from turnwire.storage.units import Connection

__all__ = ["Standing", "open_attempt_of", "resumption_of"]

_OF_TURN = "scope = ? AND thread_id = ? AND turn_id = ?"
_progress = msgspec.json.Decoder(Progress)


@dataclass(frozen=True, slots=True)
class Standing:
    """What the row of the turn says; `episode` is the one that begins."""

    key: TurnKey
    episode: int
    kind: EpisodeKind
    step: int
    progress: str
    elapsed: float = 0.0


def open_attempt_of(
    db: Connection, key: TurnKey, transcript_sequence: int, read_tail: ReadTail
) -> OpenAttempt:
    """Read what the log holds after the last committed step or result."""
    pages = db.execute(
        "SELECT body FROM pages WHERE scope = ? AND turn_id = ? AND last_sequence > ?"
        " ORDER BY first_sequence",
        (key.scope, key.turn_id, transcript_sequence),
    ).fetchall()
    return read_tail([bytes(body) for (body,) in pages], transcript_sequence)


def resumption_of(db: Connection, standing: Standing, attempt: OpenAttempt) -> Resumption:
    """Put together everything that the store knows of the turn."""
    key = standing.key
    message_id = _open_message(db, key)
    return Resumption(
        episode=standing.episode,
        kind=standing.kind,
        step=standing.step,
        next_attempt=attempt.step_attempt + 1 if attempt.step == standing.step + 1 else 1,
        settled=attempt.settled,
        message_id=message_id,
        part_index=_next_part(db, key, message_id) if message_id else 0,
        answer_id=message_id or _last_answer(db, key),
        calls=_calls(db, key, standing.step) if standing.step else (),
        last_text=_last_text(db, key),
        progress=Progress() if standing.progress == "{}" else _progress.decode(standing.progress),
        elapsed=standing.elapsed,
    )


def _open_message(db: Connection, key: TurnKey) -> str:
    row = db.execute(
        f"SELECT message_id FROM messages WHERE {_OF_TURN} AND status = 'open'",
        (key.scope, key.thread_id, key.turn_id),
    ).fetchone()
    return "" if row is None else str(row[0])


def _last_answer(db: Connection, key: TurnKey) -> str:
    row = db.execute(
        f"SELECT message_id FROM messages WHERE {_OF_TURN} AND role = 'assistant'"
        " ORDER BY position DESC LIMIT 1",
        (key.scope, key.thread_id, key.turn_id),
    ).fetchone()
    return "" if row is None else str(row[0])


def _next_part(db: Connection, key: TurnKey, message_id: str) -> int:
    place = (key.scope, key.thread_id, message_id)
    (index,) = db.execute(
        "SELECT coalesce(max(part_index) + 1, 0) FROM (SELECT part_index FROM message_parts"
        " WHERE scope = ? AND thread_id = ? AND message_id = ? UNION ALL SELECT part_index FROM tool_calls"
        " WHERE scope = ? AND thread_id = ? AND message_id = ?) AS parts",
        (*place, *place),
    ).fetchone()
    return int(index)


def _calls(db: Connection, key: TurnKey, step: int) -> tuple[ResumedCall, ...]:
    rows = db.execute(
        f"SELECT {CALL_COLUMNS}, state, attempt FROM tool_calls WHERE {_OF_TURN} AND step = ?"
        " ORDER BY call_index",
        (key.scope, key.thread_id, key.turn_id, step),
    ).fetchall()
    actions = _actions(db, key) if rows else {}
    return tuple(
        ResumedCall(part := call_part(row), CallState(row[-2]), row[-1], actions.get(part.call_id))
        for row in rows
    )


def _actions(db: Connection, key: TurnKey) -> dict[str, Action]:
    """Return the latest action of each call."""
    rows: Sequence[Sequence[object]] = db.execute(
        f"SELECT {ACTION_COLUMNS} FROM actions WHERE {_OF_TURN} AND call_id <> ''"
        " ORDER BY create_time, action_id",
        (key.scope, key.thread_id, key.turn_id),
    ).fetchall()
    return {action.call_id: action for action in map(action_row, rows)}


def _last_text(db: Connection, key: TurnKey) -> str:
    row = db.execute(
        "SELECT p.text FROM messages m JOIN message_parts p"
        " ON p.scope = m.scope AND p.thread_id = m.thread_id AND p.message_id = m.message_id"
        " WHERE m.scope = ? AND m.thread_id = ? AND m.turn_id = ? AND m.role = 'assistant'"
        " AND p.kind = 'text' ORDER BY m.position DESC, p.part_index DESC LIMIT 1",
        (key.scope, key.thread_id, key.turn_id),
    ).fetchone()
    return "" if row is None else str(row[0])
