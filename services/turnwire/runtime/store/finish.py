"""What ends a turn in the store: its row, its message, its actions, and the thread that it leaves."""

from __future__ import annotations

import time
from collections.abc import Sequence

from turnwire.extend.events import TurnFinished, TurnState
from turnwire.runtime.domain.admission import AppliedCommand
from turnwire.runtime.domain.turn import TurnKey
from turnwire.runtime.store.actions import close_statement
from turnwire.runtime.store.rows import encode
from turnwire.storage.units import Statement

__all__ = ["finish_statements", "unstorable"]

# A turn that ends is a change that can be seen, and so is the one before it: that of its open message, or of
# the queue. One that was still queued leaves the thread to whoever has it.
_END = (
    "UPDATE threads SET version = version + 1 + CASE WHEN live_turn = ? THEN (SELECT count(*) FROM messages m"
    " WHERE m.scope = threads.scope AND m.thread_id = threads.thread_id AND m.status = 'open') ELSE 1 END,"
    " update_time = ?,"
    " queue_version = CASE WHEN live_turn = ? THEN queue_version ELSE version + 1 END,"
    " owner = CASE WHEN live_turn = ? THEN '' ELSE owner END,"
    " lease = CASE WHEN live_turn = ? THEN '' ELSE lease END,"
    " live_turn = CASE WHEN live_turn = ? THEN '' ELSE live_turn END"
    " WHERE scope = ? AND thread_id = ?"
)
_CLOSE_MESSAGE = (
    "UPDATE messages SET status = 'final', interrupted_reason = ?, update_time = ?,"
    " change_version = (SELECT t.version - 1 FROM threads t WHERE t.scope = messages.scope"
    " AND t.thread_id = messages.thread_id)"
    " WHERE scope = ? AND thread_id = ? AND turn_id = ? AND status = 'open'"
)
_END_TURN = (
    "UPDATE turns SET state = ?, stop_reason = ?, error_reason = ?, error_text = ?, final_message = ?,"
    " usage = ?, step = ?, finish_time = ?, wake_time = 0, suspend_time = 0, stop_request = '',"
    " change_version = (SELECT h.version FROM threads h WHERE h.scope = turns.scope"
    " AND h.thread_id = turns.thread_id) WHERE scope = ? AND thread_id = ? AND turn_id = ?"
    " AND state IN ('running', 'waiting', 'queued')"
)
_APPLIED = (
    "INSERT INTO applied_commands (scope, command_id, turn, kind, duplicate_of, sequence, create_time)"
    " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
)


def finish_statements(
    key: TurnKey,
    event: TurnFinished,
    interrupted_reason: str,
    applied: Sequence[AppliedCommand],
    sequence: int,
) -> list[Statement]:
    """Return the statements that end a turn. They come with TurnFinished, in one transaction."""
    now = time.time_ns()
    place = (key.scope, key.thread_id)
    turn = key.turn_id
    statements = [
        Statement(_END, (turn, now, turn, turn, turn, turn, *place)),
        Statement(_CLOSE_MESSAGE, (interrupted_reason, now, *place, turn)),
        close_statement(key, now),
        Statement(
            _END_TURN,
            (
                event.state.value,
                event.stop_reason,
                event.error_reason,
                event.error_text,
                event.final_message.rpartition("/")[2],
                encode(event.usage),
                event.steps,
                now,
                *place,
                turn,
            ),
            1,
        ),
    ]
    statements.extend(
        Statement(_APPLIED, (key.scope, c.command_id, key.name, c.kind, c.duplicate_of, sequence, now))
        for c in applied
    )
    return statements


def unstorable(event: TurnFinished) -> TurnFinished:
    """Return how a turn ends of which something could not be stored."""
    return TurnFinished(
        state=TurnState.FAILED,
        stop_reason="error",
        elapsed=event.elapsed,
        steps=event.steps,
        usage=event.usage,
        error_reason="INTERNAL",
        error_text="a part of the turn could not be stored",
    )
