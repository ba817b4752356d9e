"""The owner's handle on one turn: each change of state is staged with the events that report it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from turnwire.extend.actions import Action, ActionState
from turnwire.extend.events import (
    ActionResolved,
    Compacted,
    MessageOrigin,
    ToolCallFinished,
    ToolCallStarted,
    ToolOutcome,
    TurnEvent,
    TurnFinished,
    UsageSummary,
)
from turnwire.runtime.domain.admission import AppliedCommand
from turnwire.runtime.domain.compaction import Compaction
from turnwire.runtime.domain.message import CallPart, ContentPart, StoredPart
from turnwire.runtime.domain.resumption import CallState, Progress, Resumption
from turnwire.runtime.domain.turn import InputPart
from turnwire.runtime.ports import OwnerLost
from turnwire.runtime.store import suspension
from turnwire.runtime.store.actions import insert_statements, void_statement
from turnwire.runtime.store.compactions import compaction_statements
from turnwire.runtime.store.finish import finish_statements, unstorable
from turnwire.runtime.store.log import TurnLog
from turnwire.runtime.store.rows import call_extra, encode, part_values
from turnwire.storage.units import Statement, UnitFenced, UnitRejected

__all__ = ["Journal", "finish_statements"]

# The time of a thread moves with the claim and the end of a turn, so its index is left alone in between.
_BUMP = "UPDATE threads SET version = version + 1 WHERE scope = ? AND thread_id = ?"
_TAKE_POSITION = (
    "UPDATE threads SET version = version + 1, next_position = next_position + 1"
    " WHERE scope = ? AND thread_id = ?"
)
# After the change of the thread's row: its version is that of this message now.
_OPEN_MESSAGE = (
    "INSERT INTO messages (scope, thread_id, position, message_id, role, turn_id, status, create_time,"
    " update_time, create_version, change_version) SELECT scope, thread_id, next_position - 1, ?,"
    " 'assistant', ?, 'open', ?, ?, version, version FROM threads WHERE scope = ? AND thread_id = ?"
)
_CLOSE_MESSAGE = (
    "UPDATE messages SET status = 'final', update_time = ?, change_version = (SELECT t.version FROM threads t"
    " WHERE t.scope = messages.scope AND t.thread_id = messages.thread_id)"
    " WHERE scope = ? AND thread_id = ? AND message_id = ? AND status = 'open'"
)
_ADD_MESSAGE = (
    "INSERT INTO messages (scope, thread_id, position, message_id, role, turn_id, status, origin,"
    " create_time, update_time, create_version, change_version)"
    " SELECT scope, thread_id, next_position - 1, ?, 'user', ?, 'final', ?, ?, ?, version, version"
    " FROM threads WHERE scope = ? AND thread_id = ?"
)
_TOUCH_MESSAGE = (
    "UPDATE messages SET change_version = (SELECT t.version FROM threads t WHERE t.scope = messages.scope"
    " AND t.thread_id = messages.thread_id) WHERE scope = ? AND thread_id = ? AND message_id = ?"
)
_PART = (
    "INSERT INTO message_parts (scope, thread_id, message_id, part_index, step, kind, text, data, extra)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_CALL = (
    "INSERT INTO tool_calls (scope, thread_id, message_id, part_index, call_id, provider_call_id, turn_id,"
    " step, call_index, tool_name, arguments, state, outcome, content, is_error, extra)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_STEP = (
    "UPDATE turns SET step = ?, transcript_sequence = ?, progress = ?, recoveries = 0"
    " WHERE scope = ? AND thread_id = ? AND turn_id = ?"
)
_TAKEN_IN = (
    "UPDATE turns SET transcript_sequence = ?, progress = ? WHERE scope = ? AND thread_id = ? AND turn_id = ?"
)
_HELD = "UPDATE turns SET transcript_sequence = ? WHERE scope = ? AND thread_id = ? AND turn_id = ?"
_START_CALL = (
    "UPDATE tool_calls SET state = 'started', attempt = ?"
    " WHERE scope = ? AND thread_id = ? AND call_id = ? AND state <> 'finished'"
)
_FINISH_CALL = (
    "UPDATE tool_calls SET state = 'finished', outcome = ?, content = ?, is_error = ?, extra = ?"
    " WHERE scope = ? AND thread_id = ? AND call_id = ? AND state <> 'finished'"
)
_LOST = "The result of the call could not be stored: nobody knows how it ended."


class Journal:
    """Implements `TurnJournal` on a turn's log. `on_leave` is called when nothing more is written by it."""

    def __init__(self, log: TurnLog, on_leave: Callable[[], None]) -> None:
        self.log = log
        self.key = log.turn
        self.epoch = log.epoch
        self._on_leave = on_leave
        self._place = (log.turn.scope, log.turn.thread_id)
        self._step = 0
        self._message_id = ""
        self._message_open = False
        self._part_index = 0
        # As it was committed last.
        self._progress = Progress()
        # Calls with the sequences of their intent and of their result (0 = none): durable when committed.
        self._calls: dict[str, tuple[CallPart, int, int]] = {}
        # Open actions with the sequences of their ActionRequired and of their end by this journal (0 = none).
        self._actions: dict[str, tuple[Action, int, int]] = {}
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
        self._step = step
        self.log.stamp(turn_attempt, step, step_attempt)

    def begin_answer(self, message_id: str) -> None:
        """Name the message that this turn's next parts go to."""
        self._message_id = message_id
        self._message_open = False
        self._part_index = 0

    def resume(self, resumption: Resumption) -> None:
        """Go on where an earlier episode stopped: its open message, its calls and what it asked."""
        self._progress = resumption.progress
        self._message_id = resumption.message_id
        self._message_open = bool(resumption.message_id)
        self._part_index = resumption.part_index
        known = self.log.committed
        for call in resumption.calls:
            finished = call.state is CallState.FINISHED
            self._calls[call.part.call_id] = (call.part, known, known if finished else 0)
            if call.action is not None and call.action.state is ActionState.OPEN:
                self._actions[call.action.name] = (call.action, known, 0)

    def commit_step(
        self,
        parts: Sequence[StoredPart],
        events: Sequence[TurnEvent],
        *,
        progress: Progress | None = None,
        actions: Sequence[Action] = (),
    ) -> None:
        """Hand in the model's answer of a step."""
        statements = self._enter(parts)
        held = self.log.next_sequence + len(events) - 1
        waiting = {a.call_id for a in actions if a.state is ActionState.OPEN}
        for part in parts:
            statements.append(self._insert(part, waiting))
            self._part_index += 1
            if isinstance(part, CallPart):
                self._calls[part.call_id] = (part, held, held if part.outcome is not None else 0)
        statements.extend(self._insert_actions(actions, held))
        self._progress = progress or Progress()
        encoded = encode(progress) if progress is not None else "{}"
        step = parts[0].step if parts else self._step
        statements.append(Statement(_STEP, (step, held, encoded, *self._place, self.key.turn_id)))
        self.log.stage(statements, events)

    def take_in(
        self,
        message_id: str,
        origin: MessageOrigin,
        parts: Sequence[InputPart],
        events: Sequence[TurnEvent],
        *,
        progress: Progress,
    ) -> None:
        """Hand in a user message that is added to the turn after a settled step."""
        now = time.time_ns()
        statements: list[Statement] = []
        if self._message_open:
            # A change of its own for each row, so that a watcher may stop between the two.
            statements.append(Statement(_BUMP, self._place))
            statements.append(Statement(_CLOSE_MESSAGE, (now, *self._place, self._message_id), 1))
            self._message_open = False
        statements.append(Statement(_TAKE_POSITION, self._place))
        added = (message_id, self.key.turn_id, origin.value, now, now, *self._place)
        statements.append(Statement(_ADD_MESSAGE, added, 1))
        for index, part in enumerate(parts):
            place = (*self._place, message_id, index)
            statements.append(Statement(_PART, (*place, *part_values(ContentPart(part)))))
        held = self.log.next_sequence + len(events) - 1
        self._progress = progress
        statements.append(Statement(_TAKEN_IN, (held, encode(progress), *self._place, self.key.turn_id)))
        self.log.stage(statements, events)

    def _enter(self, parts: Sequence[StoredPart]) -> list[Statement]:
        """Return what changes thread and message before parts are added."""
        if not parts:
            return []
        if self._message_open:
            return self._touch()
        self._message_open = True
        now = time.time_ns()
        return [
            Statement(_TAKE_POSITION, self._place),
            Statement(_OPEN_MESSAGE, (self._message_id, self.key.turn_id, now, now, *self._place), 1),
        ]

    def _touch(self) -> list[Statement]:
        """Return what makes a change of the open message one that can be seen."""
        return [
            Statement(_BUMP, self._place),
            Statement(_TOUCH_MESSAGE, (*self._place, self._message_id)),
        ]

    def _insert(self, part: StoredPart, waiting: set[str]) -> Statement:
        place = (*self._place, self._message_id, self._part_index)
        if not isinstance(part, CallPart):
            return Statement(_PART, (*place, *part_values(part)))
        state = CallState.WAITING if part.call_id in waiting else CallState.READY
        if part.outcome is not None:
            state = CallState.FINISHED
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
                state.value,
                part.outcome.value if part.outcome is not None else "",
                part.content,
                int(part.is_error),
                call_extra(part),
            ),
        )

    def _insert_actions(self, actions: Sequence[Action], held: int) -> list[Statement]:
        statements: list[Statement] = []
        for action in actions:
            statements.extend(insert_statements(self.key.scope, action))
            if action.state is ActionState.OPEN:
                self._actions[action.name] = (action, held, 0)
        return statements

    def compact(self, made: Compaction, usage: UsageSummary, event: Compacted) -> None:
        """Hand in a summary of the older part of the thread; `usage` is what the turn has used with it."""
        self._progress = replace(self._progress, usage=usage)
        self.log.stage(compaction_statements(self.key, made, encode(self._progress)), [event])

    def ask_again(
        self, voided: Sequence[Action], asked: Sequence[Action], events: Sequence[TurnEvent]
    ) -> None:
        """Hand in that answers no longer hold, with the new questions in their place."""
        statements = self._touch()
        for action in voided:
            statements.append(void_statement(self.key.scope, action.name))
            self._actions.pop(action.name, None)
        statements.extend(self._insert_actions(asked, self.log.next_sequence + len(events) - 1))
        self.log.stage(statements, events)

    def record_start(self, call: CallPart, event: ToolCallStarted) -> None:
        """Hand in that a call has started at the executor."""
        self.log.stage([Statement(_START_CALL, (event.attempt, *self._place, call.call_id))], [event])

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
        self.log.stage([*self._touch(), Statement(_FINISH_CALL, values, 1), Statement(_HELD, held)], [event])

    def cancel_actions(self) -> None:
        """Append that what is still asked needs no answer any more; the rows change with the turn's end."""
        # After something could not be stored, what was asked, or told as ended, after it never was.
        held = self.log.next_sequence - 1
        for action, asked, ended in tuple(self._actions.values()):
            if asked > held or 0 < ended <= held:
                continue
            sequence = self.emit(ActionResolved(action.name, action.call_id, ActionState.CANCELLED, ""))
            self._actions[action.name] = (action, asked, sequence)

    async def flush(self) -> None:
        """Wait until everything handed in so far is committed."""
        await self.log.flush()

    async def room(self) -> None:
        """Wait until there is room for more uncommitted events."""
        await self.log.room()

    async def suspend(self) -> None:
        """Commit that the turn waits, and let go of it. Nothing is written by this journal after it.

        Raises:
            OwnerLost: another owner has the turn.
        """
        await self.log.flush()
        log, key, epoch, first = self.log, self.key, self.epoch, self.log.next_sequence
        log.stamp(1, 0, 0)
        # The transaction holds on to no log: the writer may keep it for longer than anybody needs the turn.
        encode = log.page_encoder()
        try:
            page = await log.run(lambda db: suspension.suspend(db, key, epoch, first, encode))
        except UnitFenced as error:
            raise OwnerLost(self.key.name) from error
        log.retire(page, waiting=True)
        self._on_leave()

    async def release(self) -> None:
        """Let go of the turn as it stands, for whoever takes it next. Nothing is written after it.

        Raises:
            OwnerLost: another owner has the turn.
        """
        try:
            await self.log.flush()
        except UnitRejected:
            # What cannot be stored is done anew by the next owner.
            self.log.begin_anew()
        key, epoch, following = self.key, self.epoch, self.log.next_sequence
        try:
            await self.log.run(lambda db: suspension.release(db, key, epoch, following))
        except UnitFenced as error:
            raise OwnerLost(self.key.name) from error
        self.log.retire(None, waiting=False)
        self._on_leave()

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
            await self._commit_end(unstorable(event), "error", ())
        self._on_leave()

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
        self.cancel_actions()
        statements = finish_statements(self.key, event, interrupted_reason, applied, self.log.next_sequence)
        self.log.stage(statements, [event])
        await self.log.flush()
