"""Turns that wait, made by hand: what the engine commits when a call needs an answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from support.runtime_rig import begin
from turnwire.core.ids import mint_id
from turnwire.extend.actions import Action, ActionKind, ActionState
from turnwire.runtime.domain.action import ActionAnswer, ActionKey
from turnwire.runtime.domain.turn import TurnKey
from turnwire.runtime.store.actions import insert_statements, wake_statement
from turnwire.runtime.store.turn_store import TurnStore
from turnwire.storage.units import Connection

DAY_NS = 24 * 3600 * 10**9
REQUESTS = [f"00000000-0000-4000-8000-{number:012d}" for number in range(9)]


def action_of(key: TurnKey, call_id: str = "call-1", **fields: Any) -> Action:
    """An open approval of a call."""
    made = Action(
        name=f"{key.name}/actions/{mint_id()}",
        kind=ActionKind.APPROVAL,
        call_id=call_id,
        tool_name="shell",
        arguments_json='{"command":"ls"}',
        digest="d" * 64,
        risk_tier="dangerous",
        agent="agents/helper",
    )
    return replace(made, **fields)


def key_of(key: TurnKey, action: Action) -> ActionKey:
    return ActionKey(key, action.name.rpartition("/")[2])


def answer_to(
    key: TurnKey,
    action: Action,
    *,
    request_id: str = REQUESTS[0],
    state: ActionState = ActionState.APPROVED,
    answer: str = "{}",
    digest: str = "",
    resolver: str = "ann",
    roles: Sequence[str] = ("approver",),
) -> ActionAnswer:
    return ActionAnswer(
        key_of(key, action), request_id, digest or action.digest, state, answer, resolver, frozenset(roles)
    )


def suspend(db: Connection, key: TurnKey, actions: Sequence[Action]) -> list[Action]:
    """Let a turn wait for these actions; those without a time begin now and end in a day."""
    now = db.now_ns()
    db.execute(
        "UPDATE threads SET owner = '', lease = '', version = version + 1 WHERE scope = ? AND thread_id = ?",
        (key.scope, key.thread_id),
    )
    db.execute(
        "UPDATE turns SET state = 'waiting', suspend_time = ? WHERE scope = ? AND thread_id = ?"
        " AND turn_id = ?",
        (now, key.scope, key.thread_id, key.turn_id),
    )
    stored = [
        replace(a, create_time=a.create_time or now, expire_time=a.expire_time or now + DAY_NS)
        for a in actions
    ]
    for action in stored:
        for statement in insert_statements(key.scope, action):
            db.execute(statement.sql, statement.params)
    wake = wake_statement(key)
    db.execute(wake.sql, wake.params)
    return stored


async def waiting(store: TurnStore, *calls: str, **fields: Any) -> tuple[TurnKey, list[Action]]:
    """Begin a turn on a new thread and let it wait for an answer about each of these calls."""
    key, _ = await begin(store, **fields)
    actions = [action_of(key, call) for call in calls or ("call-1",)]
    return key, await store.change(key.thread, lambda db: suspend(db, key, actions))
