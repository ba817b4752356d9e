"""What a start finds: turns that a dead owner left running end truthfully, and nothing is run again."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from turnwire.core.text import cut
from turnwire.extend.events import ToolCallFinished, ToolOutcome, TurnEvent, TurnFinished, TurnState
from turnwire.runtime.domain.admission import AppliedCommand
from turnwire.runtime.domain.turn import MAX_FINISHED_TEXT_BYTES, ThreadKey, TurnKey
from turnwire.runtime.store.admission import EncodePage
from turnwire.runtime.store.journal import finish_statements
from turnwire.storage.units import Connection

__all__ = ["RESTARTED_TEXT", "abandon", "end_turn", "recover"]

RESTARTED_TEXT = "the runtime was restarted while the turn was running"

_UNKNOWN = "The runtime was restarted while the call was running: nobody knows how it ended."


def end_turn(
    db: Connection,
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


def recover(db: Connection, encode_page: EncodePage) -> Sequence[ThreadKey]:
    """End every running turn of the file and return the threads that have turns to claim."""
    rows = db.execute(
        "SELECT t.scope, t.thread_id, t.turn_id, h.next_sequence, t.step, t.start_time FROM turns t"
        " JOIN turn_heads h ON h.scope = t.scope AND h.turn_id = t.turn_id WHERE t.state = 'running'"
    ).fetchall()
    for scope, thread_id, turn_id, next_sequence, step, start_time in rows:
        key = TurnKey(scope, thread_id, turn_id)
        left = _Left(key, next_sequence, step, start_time)
        _end_left(db, left, "RUNTIME_RESTARTED", RESTARTED_TEXT, encode_page)
    return [
        ThreadKey(*row)
        for row in db.execute(
            "SELECT DISTINCT q.scope, q.thread_id FROM turns q JOIN threads t"
            " ON t.scope = q.scope AND t.thread_id = q.thread_id"
            " WHERE q.state = 'queued' AND t.live_turn = ''"
        )
    ]


def abandon(
    db: Connection, key: TurnKey, text: str, encode_page: EncodePage
) -> tuple[int, int, bytes] | None:
    """End one turn that nobody can end the regular way; returns its last page, None when it has ended."""
    row = db.execute(
        "SELECT h.next_sequence, t.step, t.start_time FROM turns t"
        " JOIN turn_heads h ON h.scope = t.scope AND h.turn_id = t.turn_id"
        " WHERE t.scope = ? AND t.thread_id = ? AND t.turn_id = ? AND t.state = 'running'",
        (key.scope, key.thread_id, key.turn_id),
    ).fetchone()
    return None if row is None else _end_left(db, _Left(key, *row), "INTERNAL", text, encode_page)


@dataclass(frozen=True, slots=True)
class _Left:
    """A running turn without a runner."""

    key: TurnKey
    next_sequence: int
    step: int
    start_time: int


def _end_left(
    db: Connection, left: _Left, reason: str, text: str, encode_page: EncodePage
) -> tuple[int, int, bytes]:
    key = left.key
    # A new epoch, so that whatever the former runner still has under way is refused.
    db.execute(
        "UPDATE threads SET epoch = epoch + 1 WHERE scope = ? AND thread_id = ?", (key.scope, key.thread_id)
    )
    db.execute(
        "UPDATE turn_heads SET epoch = epoch + 1 WHERE scope = ? AND turn_id = ?", (key.scope, key.turn_id)
    )
    calls = _close_calls(db, key)
    message_id, answer = _answer_so_far(db, key)
    kept = cut(answer, MAX_FINISHED_TEXT_BYTES)
    end = TurnFinished(
        state=TurnState.FAILED,
        stop_reason="error",
        elapsed=max(0.0, (time.time_ns() - left.start_time) / 1e9),
        steps=left.step,
        final_message=f"{key.thread.name}/messages/{message_id}" if message_id else "",
        text=kept,
        text_truncated=len(kept) < len(answer),
        error_reason=reason,
        error_text=text,
    )
    events: Sequence[TurnEvent] = [*calls, end]
    page = end_turn(db, key, left.next_sequence, events, end, "error", (), encode_page)
    return left.next_sequence, left.next_sequence + len(events) - 1, page


def _answer_so_far(db: Connection, key: TurnKey) -> tuple[str, str]:
    """Return the id of the turn's answer, empty when there is none, and the last text in it."""
    row = db.execute(
        "SELECT message_id FROM messages WHERE scope = ? AND thread_id = ? AND turn_id = ?"
        " AND role = 'assistant' ORDER BY position DESC LIMIT 1",
        (key.scope, key.thread_id, key.turn_id),
    ).fetchone()
    if row is None:
        return "", ""
    part = db.execute(
        "SELECT text FROM message_parts WHERE scope = ? AND thread_id = ? AND message_id = ?"
        " AND kind = 'text' ORDER BY part_index DESC LIMIT 1",
        (key.scope, key.thread_id, row[0]),
    ).fetchone()
    return row[0], part[0] if part is not None else ""


def _close_calls(db: Connection, key: TurnKey) -> Sequence[ToolCallFinished]:
    """Give every call without a result the one that is true."""
    rows = db.execute(
        "SELECT c.call_id, c.tool_name, c.call_index, (SELECT count(*) FROM tool_calls f"
        " WHERE f.scope = c.scope AND f.thread_id = c.thread_id AND f.message_id = c.message_id"
        " AND f.step = c.step AND f.state = 'finished') FROM tool_calls c"
        " WHERE c.scope = ? AND c.thread_id = ? AND c.turn_id = ? AND c.state <> 'finished'"
        " ORDER BY c.step, c.call_index",
        (key.scope, key.thread_id, key.turn_id),
    ).fetchall()
    events = []
    # Only the last step can have open calls.
    for order, (call_id, tool_name, index, settled) in enumerate(rows, 1):
        # A call that was ready may have been started in the moment of the crash: only the executor's ledger
        # knows, and nothing is run again, so both ends are told as unknown.
        db.execute(
            "UPDATE tool_calls SET state = 'finished', outcome = ?, content = ?, is_error = 1"
            " WHERE scope = ? AND thread_id = ? AND call_id = ?",
            (ToolOutcome.OUTCOME_UNKNOWN.value, _UNKNOWN, key.scope, key.thread_id, call_id),
        )
        events.append(
            ToolCallFinished(
                call_id, tool_name, ToolOutcome.OUTCOME_UNKNOWN, _UNKNOWN, True, 0.0, settled + order, index
            )
        )
    return events
