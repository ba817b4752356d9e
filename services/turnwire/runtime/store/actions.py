"""What turns wait for: one row per action, and each answer taken in exactly one write transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from turnwire.extend.actions import Action, ActionKind, ActionState
from turnwire.storage.units import Statement

__all__ = ["ACTION_COLUMNS", "action_row", "insert_statements"]

_VALUES = (
    "kind, state, call_id, tool_name, arguments, digest, risk_tier, question, payload, answer_schema,"
    " required_role, agent, answer, resolver, create_time, expire_time, resolve_time"
)
# What `action_row` reads.
ACTION_COLUMNS = f"thread_id, turn_id, action_id, {_VALUES}"

_INSERT = f"INSERT INTO actions (scope, {ACTION_COLUMNS}) VALUES ({', '.join('?' * 21)})"


def insert_statements(scope: str, action: Action) -> list[Statement]:
    """Return what stores a new action as it is, an answered one too (as by `auto`).

    They come with ActionRequired in one transaction. The unit is refused when the call has an open action.
    """
    _, thread_id, _, turn_id, _, action_id = action.name.split("/")
    values = (
        scope,
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
