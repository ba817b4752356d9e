"""Rows of the ledger to and from their columns."""

from __future__ import annotations

import json
from typing import Any

from turnwire.control.domain import (
    CommandKind,
    CommandRow,
    CommandState,
    Outcome,
    OutcomeKind,
    Target,
    thread_of,
)

__all__ = ["COLUMNS", "INSERT", "insert_values", "outcome_values", "row_from_columns"]

COLUMNS = (
    "entry, scope, command_id, fingerprint, kind, target_thread, target_turn, target_graph, target_node, "
    "subject, client_id, create_time, expire_time, position, state, command_json, offered, bound_turn, body, "
    "outcome, outcome_turn, applied_sequence, duplicate_of, message, reason, decide_time"
)
INSERT = (
    f"INSERT OR IGNORE INTO commands ({COLUMNS}, thread) VALUES ({', '.join('?' * (COLUMNS.count(',') + 2))})"
)

_Value = str | bytes | int | None
_NO_OUTCOME: tuple[_Value, ...] = (None,) * 7


def insert_values(row: CommandRow) -> tuple[_Value, ...]:
    """Return the values of a new row in the order of `INSERT`."""
    target = row.target
    return (
        row.entry,
        row.scope,
        row.command_id,
        row.fingerprint,
        row.kind.value,
        target.thread,
        target.turn,
        target.graph,
        target.node,
        row.subject,
        row.client_id,
        row.create_time,
        row.expire_time,
        row.position,
        row.state.value,
        json.dumps({"ttl_seconds": row.ttl_seconds, "clear_queue": row.clear_queue, "text_bytes": row.size}),
        int(row.offered),
        row.bound_turn,
        row.body,
        *outcome_values(row.outcome),
        target.thread or thread_of(target.turn),
    )


def outcome_values(outcome: Outcome | None) -> tuple[_Value, ...]:
    """Return the seven values of an outcome, all NULL without one."""
    if outcome is None:
        return _NO_OUTCOME
    return (
        outcome.kind.value,
        outcome.turn,
        outcome.applied_sequence,
        outcome.duplicate_of,
        outcome.message,
        outcome.reason,
        outcome.decide_time,
    )


def row_from_columns(values: tuple[Any, ...]) -> CommandRow:
    """Return the row whose `COLUMNS` these are."""
    options = json.loads(values[15])
    return CommandRow(
        entry=values[0],
        scope=values[1],
        command_id=values[2],
        fingerprint=values[3],
        kind=CommandKind(values[4]),
        target=Target(*values[5:9]),
        subject=values[9],
        client_id=values[10],
        create_time=values[11],
        expire_time=values[12],
        position=values[13],
        state=CommandState(values[14]),
        ttl_seconds=options["ttl_seconds"],
        clear_queue=options["clear_queue"],
        size=options["text_bytes"],
        offered=bool(values[16]),
        bound_turn=values[17],
        body=values[18],
        outcome=_outcome(values[19:]),
    )


def _outcome(values: tuple[Any, ...]) -> Outcome | None:
    if values[0] is None:
        return None
    return Outcome(OutcomeKind(values[0]), *values[1:])
