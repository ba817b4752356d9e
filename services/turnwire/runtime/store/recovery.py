"""Ends of turns that are written without a runner: truthful, once, and with a result for each call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from turnwire.core.text import cut
from turnwire.extend.events import ToolCallFinished, ToolOutcome, TurnEvent, TurnFinished, TurnState
from turnwire.runtime.domain.admission import AppliedCommand
from turnwire.runtime.domain.turn import MAX_FINISHED_TEXT_BYTES, TurnKey
from turnwire.runtime.store.actions import close_statement
from turnwire.runtime.store.claimed import EncodePage
from turnwire.runtime.store.finish import finish_statements
from turnwire.storage.units import Connection

__all__ = ["EXHAUSTED", "Loss", "abandon", "end_left", "end_turn"]

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


def abandon(
    db: Connection, key: TurnKey, epoch: int, loss: Loss, encode_page: EncodePage
) -> tuple[int, int, bytes] | None:
    """End one turn that nobody can end the regular way; returns its last page.

    None when it has ended, or is no longer the one of this epoch.
    """
    db.execute(
        "UPDATE threads SET version = version WHERE scope = ? AND thread_id = ?", (key.scope, key.thread_id)
    )
    row = db.execute(
        "SELECT h.epoch FROM turns t JOIN turn_heads h ON h.scope = t.scope AND h.turn_id = t.turn_id"
        " WHERE t.scope = ? AND t.thread_id = ? AND t.turn_id = ? AND t.state = 'running'",
        (key.scope, key.thread_id, key.turn_id),
    ).fetchone()
    if row is None or row[0] != epoch:
        return None
    return end_left(db, key, loss, encode_page)


@dataclass(frozen=True, slots=True)
class Loss:
    """Why a turn that nobody can run any more has failed."""

    stop_reason: str
    error_reason: str
    text: str


EXHAUSTED = Loss(
    "recovery-exhausted",
    "RUNTIME_RESTARTED",
    "the runtime died again and again while it worked on this step of the turn",
)


def end_left(
    db: Connection, key: TurnKey, loss: Loss, encode_page: EncodePage, before: Sequence[TurnEvent] = ()
) -> tuple[int, int, bytes]:
    """End a running turn without a runner, with a result for each open call; returns the page.

    The thread's row is locked. A new epoch refuses whatever the former runner still has under way. `before`
    are events that come first.
    """
    place = (key.scope, key.thread_id)
    db.execute("UPDATE threads SET epoch = epoch + 1 WHERE scope = ? AND thread_id = ?", place)
    (first,) = db.execute(
        "UPDATE turn_heads SET epoch = epoch + 1 WHERE scope = ? AND turn_id = ? RETURNING next_sequence",
        (key.scope, key.turn_id),
    ).fetchone()
    step, start_time = db.execute(
        "SELECT step, start_time FROM turns WHERE scope = ? AND thread_id = ? AND turn_id = ?",
        (*place, key.turn_id),
    ).fetchone()
    now = db.now_ns()
    calls = _close_calls(db, key, now)
    message_id, answer = _answer_so_far(db, key)
    kept = cut(answer, MAX_FINISHED_TEXT_BYTES)
    end = TurnFinished(
        state=TurnState.FAILED,
        stop_reason=loss.stop_reason,
        elapsed=max(0.0, (now - start_time) / 1e9),
        steps=step,
        final_message=f"{key.thread.name}/messages/{message_id}" if message_id else "",
        text=kept,
        text_truncated=len(kept) < len(answer),
        error_reason=loss.error_reason,
        error_text=loss.text,
    )
    events: Sequence[TurnEvent] = [*before, *calls, end]
    page = end_turn(db, key, first, events, end, "error", (), encode_page)
    return first, first + len(events) - 1, page


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


def _close_calls(db: Connection, key: TurnKey, now: int) -> Sequence[ToolCallFinished]:
    """Give every call without a result the one that is true; nobody is asked anything any more."""
    closing = close_statement(key, now)
    db.execute(closing.sql, closing.params)
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
        # A call that was ready may have been started in the moment of the death: only the executor knows.
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
