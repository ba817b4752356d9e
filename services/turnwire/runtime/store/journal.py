"""The owner's handle on one turn: each change of state is staged with the events that report it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from turnwire.extend.events import ToolCallFinished, ToolOutcome, TurnEvent, TurnFinished, TurnState
from turnwire.runtime.domain.admission import AppliedCommand
from turnwire.runtime.domain.message import CallPart, StoredPart
from turnwire.runtime.domain.turn import TurnKey
from turnwire.runtime.store.log import TurnLog
from turnwire.runtime.store.rows import call_extra, encode, part_values
from turnwire.storage.units import Statement, UnitRejected

__all__ = ["Journal", "finish_statements"]

# The time of a thread moves with the claim and the end of a turn, so its index is left alone in between.
_BUMP = "UPDATE threads SET version = version + 1 WHERE scope = ? AND thread_id = ?"
_TAKE_POSITION = (
    "UPDATE threads SET version = version + 1, next_position = next_position + 1"
    " WHERE scope = ? AND thread_id = ?"
)
_OPEN_MESSAGE = (
    "INSERT INTO messages (scope, thread_id, position, message_id, role, turn_id, status, create_time,"
    " update_time) SELECT scope, thread_id, next_position, ?, 'assistant', ?, 'open', ?, ? FROM threads"
    " WHERE scope = ? AND thread_id = ?"
)
_PART = (
    "INSERT INTO message_parts (scope, thread_id, message_id, part_index, step, kind, text, data, extra)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_CALL = (
    "INSERT INTO tool_calls (scope, thread_id, message_id, part_index, call_id, provider_call_id, turn_id,"
    " step, call_index, tool_name, arguments, state) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'ready')"
)
_STEP = "UPDATE turns SET step = ?, transcript_sequence = ? WHERE scope = ? AND thread_id = ? AND turn_id = ?"
_HELD = "UPDATE turns SET transcript_sequence = ? WHERE scope = ? AND thread_id = ? AND turn_id = ?"
_START_CALL = (
    "UPDATE tool_calls SET state = 'started'"
    " WHERE scope = ? AND thread_id = ? AND call_id = ? AND state = 'ready'"
)
_FINISH_CALL = (
    "UPDATE tool_calls SET state = 'finished', outcome = ?, content = ?, is_error = ?, extra = ?"
    " WHERE scope = ? AND thread_id = ? AND call_id = ? AND state <> 'finished'"
)
_CLOSE_MESSAGE = (
    "UPDATE messages SET status = 'final', interrupted_reason = ?, update_time = ?"
    " WHERE scope = ? AND thread_id = ? AND turn_id = ? AND status = 'open'"
)
_END_TURN = (
    "UPDATE turns SET state = ?, stop_reason = ?, error_reason = ?, error_text = ?, final_message = ?,"
    " usage = ?, step = ?, finish_time = ? WHERE scope = ? AND thread_id = ? AND turn_id = ?"
    " AND state IN ('running', 'waiting', 'queued')"
)
_FREE_THREAD = (
    "UPDATE threads SET version = version + 1, live_turn = '', owner = '', update_time = ?"
    " WHERE scope = ? AND thread_id = ? AND live_turn = ?"
)
_APPLIED = (
    "INSERT INTO applied_commands (scope, command_id, turn, kind, duplicate_of, sequence, create_time)"
    " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
)

_LOST = "The result of the call could not be stored: nobody knows how it ended."


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
    statements = [
        Statement(_CLOSE_MESSAGE, (interrupted_reason, now, *place, key.turn_id)),
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
                key.turn_id,
            ),
            1,
        ),
        Statement(_FREE_THREAD, (now, *place, key.turn_id)),
    ]
    statements.extend(
        Statement(_APPLIED, (key.scope, c.command_id, key.name, c.kind, c.duplicate_of, sequence, now))
        for c in applied
    )
    return statements


class Journal:
    """Implements `TurnJournal` on a turn's log. `on_finish` is called when the end is committed."""

    def __init__(self, log: TurnLog, on_finish: Callable[[], None]) -> None:
        self.log = log
        self.key = log.turn
        self.epoch = log.epoch
        self._on_finish = on_finish
        self._place = (log.turn.scope, log.turn.thread_id)
        self._message_id = ""
        self._message_open = False
        self._part_index = 0
        # Calls with the sequences of their intent and of their result (0 = none): durable when committed.
        self._calls: dict[str, tuple[CallPart, int, int]] = {}
        # The hot path goes to the log without a layer between.
        self.emit = log.emit
        self.emit_soon = log.emit_soon
        self.weigh = log.weigh

    @property
    def next_sequence(self) -> int:
        """The sequence that the next event gets."""
        return self.log.next_sequence

    @property
    def crowded(self) -> bool:
        """Whether to wait for `room` before going on."""
        return self.log.crowded

    def at(self, *, step: int, step_attempt: int = 1, turn_attempt: int = 1) -> None:
        """Set what later events carry."""
        self.log.stamp(turn_attempt, step, step_attempt)

    def begin_answer(self, message_id: str) -> None:
        """Name the message that this turn's next parts go to."""
        self._message_id = message_id
        self._message_open = False
        self._part_index = 0

    def commit_step(self, parts: Sequence[StoredPart], events: Sequence[TurnEvent]) -> None:
        """Hand in the model's answer of a step."""
        now = time.time_ns()
        statements: list[Statement] = []
        if parts and not self._message_open:
            self._message_open = True
            statements.append(
                Statement(_OPEN_MESSAGE, (self._message_id, self.key.turn_id, now, now, *self._place), 1)
            )
            statements.append(Statement(_TAKE_POSITION, self._place))
        else:
            statements.append(Statement(_BUMP, self._place))
        held = self.log.next_sequence + len(events) - 1
        for part in parts:
            statements.append(self._insert(part))
            self._part_index += 1
            if isinstance(part, CallPart):
                self._calls[part.call_id] = (part, held, 0)
        if parts:
            statements.append(Statement(_STEP, (parts[0].step, held, *self._place, self.key.turn_id)))
        self.log.stage(statements, events)

    def _insert(self, part: StoredPart) -> Statement:
        place = (*self._place, self._message_id, self._part_index)
        if not isinstance(part, CallPart):
            return Statement(_PART, (*place, *part_values(part)))
        return Statement(
            _CALL,
            (
                *place,
                part.call_id,
                part.provider_call_id,
                self.key.turn_id,
                part.step,
                part.call_index,
                part.tool_name,
                part.arguments_json,
            ),
        )

    def record_start(self, call: CallPart, event: TurnEvent) -> None:
        """Hand in that a call has started at the executor."""
        self.log.stage([Statement(_START_CALL, (*self._place, call.call_id))], [event])

    def record_outcome(self, call: CallPart, event: ToolCallFinished) -> None:
        """Hand in the one result of a call."""
        assert call.outcome is not None
        values = (
            call.outcome.value,
            call.content,
            int(call.is_error),
            call_extra(call, event.exit_code, event.elapsed),
            *self._place,
            call.call_id,
        )
        held = (self.log.next_sequence, *self._place, self.key.turn_id)
        _, intent, _ = self._calls[call.call_id]
        self._calls[call.call_id] = (call, intent, self.log.next_sequence)
        self.log.stage([Statement(_FINISH_CALL, values, 1), Statement(_HELD, held)], [event])

    async def flush(self) -> None:
        """Wait until everything handed in so far is committed."""
        await self.log.flush()

    async def room(self) -> None:
        """Wait until there is room for more uncommitted events."""
        await self.log.room()

    async def finish(
        self, event: TurnFinished, *, interrupted_reason: str, applied: Sequence[AppliedCommand]
    ) -> None:
        """Commit the end of the turn.

        When something handed in before cannot be stored, the turn ends as failed with an end of its own.
        """
        try:
            await self._commit_end(event, interrupted_reason, applied)
        except UnitRejected:
            self.log.begin_anew()
            self._close_calls()
            await self._commit_end(_unstorable(event), "error", ())
        self._on_finish()

    def _close_calls(self) -> None:
        """Give each call a result whose own one was lost with what could not be stored."""
        committed = self.log.committed
        settled = Counter(part.step for part, _, result in self._calls.values() if 0 < result <= committed)
        for part, intent, result in tuple(self._calls.values()):
            if intent > committed or 0 < result <= committed:
                continue
            settled[part.step] += 1
            lost = replace(part, outcome=ToolOutcome.OUTCOME_UNKNOWN, content=_LOST, is_error=True)
            self.record_outcome(
                replace(lost, overflow=None, parts=()),
                ToolCallFinished(
                    part.call_id,
                    part.tool_name,
                    ToolOutcome.OUTCOME_UNKNOWN,
                    _LOST,
                    True,
                    0.0,
                    settled[part.step],
                    part.call_index,
                ),
            )

    async def _commit_end(
        self, event: TurnFinished, interrupted_reason: str, applied: Sequence[AppliedCommand]
    ) -> None:
        statements = finish_statements(self.key, event, interrupted_reason, applied, self.log.next_sequence)
        self.log.stage(statements, [event])
        await self.log.flush()


def _unstorable(event: TurnFinished) -> TurnFinished:
    return TurnFinished(
        state=TurnState.FAILED,
        stop_reason="error",
        elapsed=event.elapsed,
        steps=event.steps,
        usage=event.usage,
        error_reason="INTERNAL",
        error_text="a part of the turn could not be stored",
    )
