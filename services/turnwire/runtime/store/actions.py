"""What turns wait for: one row per action, and each answer taken in exactly one write transaction.

An answer is stored and the turn is woken; the log hears of it from the claim that takes the turn up again, in
the page that it begins with (`expire`). So nobody but the owner of a turn ever writes to its log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from turnwire.core.errors import AlreadyExists, Forbidden, NotFound, WrongState
from turnwire.extend.actions import Action, ActionKind, ActionState
from turnwire.extend.events import ActionResolved
from turnwire.runtime.domain.action import ActionAnswer, ActionKey, ApprovalTerms, Resolution
from turnwire.runtime.domain.turn import ThreadKey, TurnKey
from turnwire.storage.units import Connection, Statement

__all__ = [
    "ACTION_COLUMNS",
    "action_row",
    "approval_terms",
    "close_statement",
    "expire",
    "get_action",
    "insert_statements",
    "open_actions",
    "resolve",
    "void_statement",
    "wake_statement",
]

_VALUES = (
    "kind, state, call_id, tool_name, arguments, digest, risk_tier, question, payload, answer_schema,"
    " required_role, agent, answer, resolver, create_time, expire_time, resolve_time"
)
# What `action_row` reads.
ACTION_COLUMNS = f"thread_id, turn_id, action_id, {_VALUES}"

_INSERT = f"INSERT INTO actions (scope, told, {ACTION_COLUMNS}) VALUES ({', '.join('?' * 22)})"
_OF_TURN = "scope = ? AND thread_id = ? AND turn_id = ?"
_RESOLVE = (
    "UPDATE actions SET state = ?, answer = ?, answer_request = ?, resolver = ?, resolve_time = ?"
    f" WHERE {_OF_TURN} AND action_id = ? AND state = 'open'"
)
_CLOSE = (
    "UPDATE actions SET told = 1, resolve_time = CASE state WHEN 'open' THEN ? ELSE resolve_time END,"
    f" state = CASE state WHEN 'open' THEN 'cancelled' ELSE state END WHERE {_OF_TURN} AND told = 0"
)
_EXPIRE = (
    "UPDATE actions SET state = 'expired', resolver = 'expiry', resolve_time = ?"
    f" WHERE {_OF_TURN} AND state = 'open' AND expire_time > 0 AND expire_time <= ?"
)
_VOID = f"UPDATE actions SET state = 'voided', told = 1 WHERE {_OF_TURN} AND action_id = ?"
# Due at once when an answer came that the log has not told, else when the first open action expires.
_WAKE = (
    "UPDATE turns SET wake_time = CASE WHEN EXISTS (SELECT 1 FROM actions a WHERE a.scope = turns.scope"
    " AND a.thread_id = turns.thread_id AND a.turn_id = turns.turn_id AND a.state <> 'open' AND a.told = 0)"
    " THEN 1 ELSE coalesce((SELECT min(a.expire_time) FROM actions a WHERE a.scope = turns.scope"
    " AND a.thread_id = turns.thread_id AND a.turn_id = turns.turn_id AND a.state = 'open'"
    f" AND a.expire_time > 0), 0) END WHERE {_OF_TURN}"
)


def insert_statements(scope: str, action: Action) -> list[Statement]:
    """Return what stores a new action as it is, an answered one too (as by `auto`).

    They come with ActionRequired, and for an answered one ActionResolved, in one transaction. The unit is
    refused when the call has an open action.
    """
    _, thread_id, _, turn_id, _, action_id = action.name.split("/")
    values = (
        scope,
        int(action.state is not ActionState.OPEN),
        thread_id,
        turn_id,
        action_id,
        action.kind.value,
        action.state.value,
        action.call_id,
        action.tool_name,
        action.arguments_json,
        action.digest,
        action.risk_tier,
        action.question,
        action.payload_json,
        action.answer_schema_json,
        action.required_role,
        action.agent,
        action.answer,
        action.resolver,
        action.create_time,
        action.expire_time,
        action.resolve_time,
    )
    return [Statement(_INSERT, values, 1)]


def wake_statement(key: TurnKey) -> Statement:
    """Return what sets when a turn that begins to wait has to be looked at.

    It comes in the unit that makes the turn WAITING, after that unit's UPDATE of the thread's row: an answer
    that was stored before that is seen by it, and one stored after it sees the turn wait.
    """
    return Statement(_WAKE, (key.scope, key.thread_id, key.turn_id))


def close_statement(key: TurnKey, now: int) -> Statement:
    """Return what cancels the open actions of a turn that ends; its unit has their ActionResolved events.

    An answer that came meanwhile stands as it is, though nothing was done with it.
    """
    return Statement(_CLOSE, (now, key.scope, key.thread_id, key.turn_id))


def void_statement(scope: str, name: str) -> Statement:
    """Return what takes an answer back: what would run is not what was shown. The log tells in that unit."""
    _, thread_id, _, turn_id, _, action_id = name.split("/")
    return Statement(_VOID, (scope, thread_id, turn_id, action_id))


def action_row(row: Sequence[Any]) -> Action:
    """Read a row of ACTION_COLUMNS."""
    return Action(
        name=f"threads/{row[0]}/turns/{row[1]}/actions/{row[2]}",
        kind=ActionKind(row[3]),
        state=ActionState(row[4]),
        call_id=row[5],
        tool_name=row[6],
        arguments_json=row[7],
        digest=row[8],
        risk_tier=row[9],
        question=row[10],
        payload_json=row[11],
        answer_schema_json=row[12],
        required_role=row[13],
        agent=row[14],
        answer=row[15],
        resolver=row[16],
        create_time=row[17],
        expire_time=row[18],
        resolve_time=row[19],
    )


def get_action(db: Connection, key: ActionKey) -> Action:
    """Read an action. Raises NotFound (ACTION_NOT_FOUND)."""
    row = db.execute(
        f"SELECT {ACTION_COLUMNS} FROM actions WHERE {_OF_TURN} AND action_id = ?", _place(key)
    ).fetchone()
    if row is None:
        raise NotFound(f"there is no {key.name}", reason="ACTION_NOT_FOUND", action=key.name)
    return action_row(row)


def approval_terms(db: Connection, thread: ThreadKey) -> ApprovalTerms:
    """Return by what a thread asks now."""
    row = db.execute(
        "SELECT permission_mode FROM threads WHERE scope = ? AND thread_id = ?",
        (thread.scope, thread.thread_id),
    ).fetchone()
    return ApprovalTerms(db.now_ns(), row is not None and row[0] == "auto")


def open_actions(db: Connection, key: TurnKey) -> tuple[str, ...]:
    """Return the names of the open actions of a turn, oldest first."""
    rows = db.execute(
        f"SELECT action_id FROM actions WHERE {_OF_TURN} AND state = 'open' ORDER BY create_time, action_id",
        (key.scope, key.thread_id, key.turn_id),
    )
    return tuple(f"{key.name}/actions/{row[0]}" for row in rows)


def expire(db: Connection, key: TurnKey, now: int) -> list[ActionResolved]:
    """Return the events that tell how actions of a turn ended since its log was last told; they are told now.

    Open actions whose time has passed by `now`, the store's clock, expire. The caller has locked the thread
    and writes the events into the page that its claim begins with.
    """
    place = (key.scope, key.thread_id, key.turn_id)
    db.execute(_EXPIRE, (now, *place, now))
    rows = db.execute(
        f"SELECT {ACTION_COLUMNS} FROM actions WHERE {_OF_TURN} AND state <> 'open' AND told = 0"
        " ORDER BY resolve_time, action_id",
        place,
    ).fetchall()
    if rows:
        db.execute(f"UPDATE actions SET told = 1 WHERE {_OF_TURN} AND state <> 'open' AND told = 0", place)
    found = [action_row(row) for row in rows]
    return [ActionResolved(a.name, a.call_id, a.state, a.resolver) for a in found]


def resolve(db: Connection, given: ActionAnswer) -> Resolution:
    """Take an answer in, or give the same answer its first result again; the first one wins.

    Raises:
        NotFound: ACTION_NOT_FOUND. Forbidden: ROLE_MISSING. AlreadyExists: REQUEST_ID_REUSED.
        WrongState: ACTION_RESOLVED, ACTION_STALE, DIGEST_MISMATCH.
    """
    key, thread = given.key, given.key.turn.thread
    # The lock: whoever else changes the thread waits.
    db.execute(
        "UPDATE threads SET version = version WHERE scope = ? AND thread_id = ? AND delete_time IS NULL",
        (thread.scope, thread.thread_id),
    )
    action = get_action(db, key)
    if not given.roles & {action.required_role, "operator"}:
        raise Forbidden(
            f"an answer to {key.name} needs the role {action.required_role}",
            method="/turnwire.api.runtime.v1.TurnService/ResolveAction",
        )
    if _is_repeat(db, action, given):
        return Resolution(action, changed=False)
    if action.state is not ActionState.OPEN:
        raise _stale(db, action, key) or _resolved(action)
    now = db.now_ns()
    if 0 < action.expire_time <= now:
        _store(db, key, ("expired", "", "", "expiry"), now)
        return Resolution(ended := get_action(db, key), changed=True, error=_resolved(ended))
    if given.digest != action.digest:
        raise WrongState(
            f"{key.name} has another digest than the answer: read it again, then decide",
            reason="DIGEST_MISMATCH",
            action=key.name,
        )
    _store(db, key, (given.state.value, given.answer, given.request_id, given.resolver), now)
    return Resolution(get_action(db, key), changed=True)


def _is_repeat(db: Connection, action: Action, given: ActionAnswer) -> bool:
    """Tell whether this very answer was taken before. Raises AlreadyExists for another one of that id."""
    row = db.execute(
        "SELECT thread_id, turn_id, action_id FROM actions WHERE scope = ? AND answer_request = ?",
        (given.key.turn.scope, given.request_id),
    ).fetchone()
    if row is None:
        return False
    same = (given.state, given.answer, given.digest) == (action.state, action.answer, action.digest)
    if not same or row != (given.key.turn.thread_id, given.key.turn.turn_id, given.key.action_id):
        raise AlreadyExists(
            f"request_id {given.request_id} came before with another answer: use a new one",
            reason="REQUEST_ID_REUSED",
            turn=f"threads/{row[0]}/turns/{row[1]}",
        )
    return True


def _store(db: Connection, key: ActionKey, values: tuple[str, str, str, str], now: int) -> None:
    """Store how an open action ended, one visible change of the turn, and wake the turn if it waits."""
    place = (key.turn.scope, key.turn.thread_id)
    db.execute(_RESOLVE, (*values, now, *_place(key)))
    (version,) = db.execute(
        "UPDATE threads SET version = version + 1 WHERE scope = ? AND thread_id = ? RETURNING version", place
    ).fetchone()
    db.execute(
        "UPDATE turns SET change_version = ?, wake_time = CASE state WHEN 'waiting' THEN ? ELSE wake_time END"
        f" WHERE {_OF_TURN}",
        (version, now, *place, key.turn.turn_id),
    )


def _stale(db: Connection, action: Action, key: ActionKey) -> WrongState | None:
    """Return the error for an action in whose place another one of the same call is open."""
    row = db.execute(
        f"SELECT action_id FROM actions WHERE {_OF_TURN} AND call_id = ? AND state = 'open'",
        (key.turn.scope, key.turn.thread_id, key.turn.turn_id, action.call_id),
    ).fetchone()
    if row is None:
        return None
    newer = ActionKey(key.turn, row[0]).name
    return WrongState(
        f"{key.name} was replaced by {newer}: answer that one", reason="ACTION_STALE", action=newer
    )


def _resolved(action: Action) -> WrongState:
    by = f" by {action.resolver}" if action.resolver else ""
    return WrongState(
        f"{action.name} is {action.state.value}{by} already",
        reason="ACTION_RESOLVED",
        action=action.name,
        state=action.state.name,
        resolver=action.resolver,
    )


def _place(key: ActionKey) -> tuple[str, str, str, str]:
    return key.turn.scope, key.turn.thread_id, key.turn.turn_id, key.action_id
