"""What a start finds: turns that a dead owner left running end truthfully, and nothing is run again."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence

from turnwire.extend.events import ToolCallFinished, ToolOutcome, TurnEvent, TurnFinished, TurnState
from turnwire.runtime.domain.admission import AppliedCommand
from turnwire.runtime.domain.turn import ThreadKey, TurnKey
from turnwire.runtime.store.admission import EncodePage
from turnwire.runtime.store.journal import finish_statements

__all__ = ["RESTARTED_TEXT", "end_turn", "recover"]

RESTARTED_TEXT = "the runtime was restarted while the turn was running"

_UNKNOWN = "The runtime was restarted while the call was running: nobody knows how it ended."


def end_turn(
    db: sqlite3.Connection,
    key: TurnKey,
    first_sequence: int,
    events: Sequence[TurnEvent],
    end: TurnFinished,
    interrupted_reason: str,
    applied: Sequence[AppliedCommand],
    encode_page: EncodePage,
) -> bytes:
    """End a turn inside the transaction and return the page; `events` are the last ones, `end` among them."""
    last = first_sequence + len(events) - 1
    page = encode_page(key, first_sequence, events)
    db.execute(
        "UPDATE turn_heads SET next_sequence = ? WHERE scope = ? AND turn_id = ?",
        (last + 1, key.scope, key.turn_id),
    )
    db.execute(
        "INSERT INTO pages (scope, turn_id, first_sequence, last_sequence, flags, body)"
        " VALUES (?, ?, ?, ?, 1, ?)",
        (key.scope, key.turn_id, first_sequence, last, page),
    )
    for statement in finish_statements(key, end, interrupted_reason, applied, last):
        db.execute(statement.sql, statement.params)
    return page


def recover(db: sqlite3.Connection, encode_page: EncodePage) -> Sequence[ThreadKey]:
    """End every running turn of the file and return the threads that have turns to claim."""
    rows = db.execute(
        "SELECT t.scope, t.thread_id, t.turn_id, h.next_sequence, t.step, t.start_time FROM turns t"
        " JOIN turn_heads h ON h.scope = t.scope AND h.turn_id = t.turn_id WHERE t.state = 'running'"
    ).fetchall()
    for scope, thread_id, turn_id, next_sequence, step, start_time in rows:
        key = TurnKey(scope, thread_id, turn_id)
        # A new epoch, so that whatever the dead owner still has under way is refused.
        db.execute(
            "UPDATE threads SET epoch = epoch + 1 WHERE scope = ? AND thread_id = ?", (scope, thread_id)
        )
        db.execute(
            "UPDATE turn_heads SET epoch = epoch + 1 WHERE scope = ? AND turn_id = ?", (scope, turn_id)
        )
        calls = _close_calls(db, key)
        end = TurnFinished(
            state=TurnState.FAILED,
            stop_reason="error",
            elapsed=max(0.0, (time.time_ns() - start_time) / 1e9),
            steps=step,
            error_reason="RUNTIME_RESTARTED",
            error_text=RESTARTED_TEXT,
        )
        end_turn(db, key, next_sequence, [*calls, end], end, "error", (), encode_page)
    return [
        ThreadKey(*row)
        for row in db.execute(
            "SELECT DISTINCT q.scope, q.thread_id FROM turns q JOIN threads t"
            " ON t.scope = q.scope AND t.thread_id = q.thread_id"
            " WHERE q.state = 'queued' AND t.live_turn = ''"
        )
    ]


def _close_calls(db: sqlite3.Connection, key: TurnKey) -> Sequence[ToolCallFinished]:
    """Give every call without a result the one that is true."""
    rows = db.execute(
        "SELECT call_id, tool_name, state, call_index, step FROM tool_calls"
        " WHERE scope = ? AND thread_id = ? AND turn_id = ? AND state <> 'finished'"
        " ORDER BY step, call_index",
        (key.scope, key.thread_id, key.turn_id),
    ).fetchall()
    events = []
    for order, (call_id, tool_name, _state, index, _step) in enumerate(rows, 1):
        # A call that was ready may have been started in the moment of the crash: only the executor's ledger
        # knows, and nothing is run again, so both ends are told as unknown.
        db.execute(
            "UPDATE tool_calls SET state = 'finished', outcome = ?, content = ?, is_error = 1"
            " WHERE scope = ? AND thread_id = ? AND call_id = ?",
            (ToolOutcome.OUTCOME_UNKNOWN.value, _UNKNOWN, key.scope, key.thread_id, call_id),
        )
        events.append(
            ToolCallFinished(
                call_id, tool_name, ToolOutcome.OUTCOME_UNKNOWN, _UNKNOWN, True, 0.0, order, index
            )
        )
    return events
