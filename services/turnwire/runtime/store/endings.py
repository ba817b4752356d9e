"""Ends of turns by an edit of their thread: whoever runs them is shut out, and each call gets a result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from turnwire.core.text import cut
from turnwire.extend.actions import ActionState
from turnwire.extend.events import (
    ActionResolved,
    ToolCallFinished,
    ToolOutcome,
    TurnEvent,
    TurnFinished,
    TurnState,
    UsageSummary,
)
from turnwire.runtime.domain.execution import ExecutionResult
from turnwire.runtime.domain.resumption import Progress
from turnwire.runtime.domain.turn import MAX_FINISHED_TEXT_BYTES, ThreadKey, TurnKey
from turnwire.runtime.engine import templates
from turnwire.runtime.store.actions import close_statement
from turnwire.runtime.store.claimed import EncodePage
from turnwire.runtime.store.recovery import end_turn
from turnwire.storage.units import Connection

__all__ = ["Ending", "end_by_edit", "queued_keys"]

_OF_TURN = "scope = ? AND thread_id = ? AND turn_id = ?"
_progress = msgspec.json.Decoder(Progress)


@dataclass(frozen=True, slots=True)
class Ending:
    """A turn that was ended, with its last page: first sequence, last sequence, bytes."""

    key: TurnKey
    page: tuple[int, int, bytes]


def queued_keys(db: Connection, thread: ThreadKey) -> Sequence[TurnKey]:
    """Return the turns that wait in a thread, in their order."""
    rows = db.execute(
        "SELECT turn_id FROM turns WHERE scope = ? AND thread_id = ? AND state = 'queued'"
        " ORDER BY queue_position",
        (thread.scope, thread.thread_id),
    ).fetchall()
    return [TurnKey(thread.scope, thread.thread_id, turn_id) for (turn_id,) in rows]


def end_by_edit(db: Connection, key: TurnKey, stop_reason: str, encode_page: EncodePage) -> Ending | None:
    """End a turn as cancelled, whatever it is at; None when it has ended. The thread's row is locked."""
    row = db.execute(
        f"SELECT state, step, start_time, progress FROM turns WHERE {_OF_TURN}",
        (key.scope, key.thread_id, key.turn_id),
    ).fetchone()
    if row is None or TurnState(row[0]).terminal:
        return None
    state, step, start_time, progress = row
    # The epoch of the thread goes with that of the turn, so that a late page and a late claim are refused.
    db.execute(
        "UPDATE threads SET epoch = epoch + 1 WHERE scope = ? AND thread_id = ?", (key.scope, key.thread_id)
    )
    (first,) = db.execute(
        "UPDATE turn_heads SET epoch = epoch + 1 WHERE scope = ? AND turn_id = ? RETURNING next_sequence",
        (key.scope, key.turn_id),
    ).fetchone()
    now = db.now_ns()
    message_id, answer = ("", "") if state == "queued" else _answer(db, key)
    text = cut(answer, MAX_FINISHED_TEXT_BYTES)
    end = TurnFinished(
        TurnState.CANCELLED,
        stop_reason,
        elapsed=max(0.0, (now - start_time) / 1e9) if start_time else 0.0,
        steps=step,
        usage=UsageSummary() if progress == "{}" else _progress.decode(progress).usage,
        final_message=f"{key.thread.name}/messages/{message_id}" if message_id else "",
        text=text,
        text_truncated=len(text) < len(answer),
    )
    events: list[TurnEvent] = [*_close_actions(db, key, now), *_close_calls(db, key), end]
    page = end_turn(db, key, first, events, end, stop_reason, (), encode_page)
    return Ending(key, (first, first + len(events) - 1, page))


def _answer(db: Connection, key: TurnKey) -> tuple[str, str]:
    """Return the id of the turn's last answer and the last text in it, empty when there is none."""
    row = db.execute(
        "SELECT m.message_id, coalesce((SELECT p.text FROM message_parts p WHERE p.scope = m.scope"
        " AND p.thread_id = m.thread_id AND p.message_id = m.message_id AND p.kind = 'text'"
        " ORDER BY p.part_index DESC LIMIT 1), '') FROM messages m WHERE m.scope = ? AND m.thread_id = ?"
        " AND m.turn_id = ? AND m.role = 'assistant' ORDER BY m.position DESC LIMIT 1",
        (key.scope, key.thread_id, key.turn_id),
    ).fetchone()
    return ("", "") if row is None else (row[0], row[1])


def _close_actions(db: Connection, key: TurnKey, now: int) -> list[ActionResolved]:
    place = (key.scope, key.thread_id, key.turn_id)
    rows = db.execute(
        f"SELECT action_id, call_id, state, resolver FROM actions WHERE {_OF_TURN} AND told = 0"
        " ORDER BY create_time, action_id",
        place,
    ).fetchall()
    statement = close_statement(key, now)
    db.execute(statement.sql, statement.params)
    return [
        ActionResolved(
            f"{key.name}/actions/{action_id}",
            call_id,
            ActionState.CANCELLED if state == "open" else ActionState(state),
            resolver,
        )
        for action_id, call_id, state, resolver in rows
    ]


def _close_calls(db: Connection, key: TurnKey) -> list[ToolCallFinished]:
    """Give every call without a result the one that is true of it: it never started, or nobody knows."""
    rows = db.execute(
        "SELECT c.call_id, c.tool_name, c.call_index, c.state, (SELECT count(*) FROM tool_calls f"
        " WHERE f.scope = c.scope AND f.thread_id = c.thread_id AND f.message_id = c.message_id"
        " AND f.step = c.step AND f.state = 'finished') FROM tool_calls c"
        " WHERE c.scope = ? AND c.thread_id = ? AND c.turn_id = ? AND c.state <> 'finished'"
        " ORDER BY c.step, c.call_index",
        (key.scope, key.thread_id, key.turn_id),
    ).fetchall()
    events = []
    for order, (call_id, tool_name, index, state, settled) in enumerate(rows, 1):
        waited = state == "waiting"
        outcome = ToolOutcome.NOT_STARTED if waited else ToolOutcome.OUTCOME_UNKNOWN
        content = templates.result_text(tool_name, ExecutionResult(outcome, "", True))
        db.execute(
            "UPDATE tool_calls SET state = 'finished', outcome = ?, content = ?, is_error = 1"
            " WHERE scope = ? AND thread_id = ? AND call_id = ?",
            (outcome.value, content, key.scope, key.thread_id, call_id),
        )
        # All open calls are of the last step, so the count is of one step.
        events.append(
            ToolCallFinished(call_id, tool_name, outcome, content, True, 0.0, settled + order, index)
        )
    return events
