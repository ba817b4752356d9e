"""A turn as it stands after the events so far: what a screen shows. Voided model output is taken out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from google.rpc import status_pb2

from turnwire.api.common.v1.tool_pb2 import ToolOutcome
from turnwire.api.llm.v1.llm_event_pb2 import LlmEvent
from turnwire.api.runtime.v1.action_pb2 import Action
from turnwire.api.runtime.v1.turn_event_pb2 import (
    Notice,
    ToolCallFinished,
    TurnEvent,
    TurnFinished,
    Waiting,
)
from turnwire.api.runtime.v1.turn_pb2 import TurnState, UsageSummary

__all__ = ["StepView", "ToolCallView", "TurnView"]


@dataclass(slots=True)
class ToolCallView:
    """One tool call: asked for, perhaps started, perhaps ended."""

    call_id: str
    tool_name: str
    arguments_json: str = ""
    step: int = 0
    started: bool = False
    progress: str = ""
    result: ToolCallFinished | None = None

    @property
    def outcome(self) -> ToolOutcome:
        """How the call ended; UNSPECIFIED while it has not."""
        return self.result.outcome if self.result else ToolOutcome.TOOL_OUTCOME_UNSPECIFIED


@dataclass(slots=True)
class StepView:
    """One step: the model's text and reasoning, joined without separators, and the calls it asked for."""

    step: int
    committed: bool = False
    pieces: dict[int, LlmEvent] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """What the model said in this step."""
        return "".join(piece.text_delta.text for piece in self.pieces.values())

    @property
    def reasoning(self) -> str:
        """What the model thought in this step."""
        return "".join(piece.reasoning_delta.text for piece in self.pieces.values())


class TurnView:
    """Folds events into the present state; the same event twice changes nothing.

    Args:
        events: events to begin with, in order.
    """

    def __init__(self, events: Iterable[TurnEvent] = ()) -> None:
        self.turn = ""
        self.last_sequence = 0
        self.state: TurnState = TurnState.TURN_STATE_UNSPECIFIED
        self.steps: dict[int, StepView] = {}
        self.calls: dict[str, ToolCallView] = {}
        self.actions: dict[str, Action] = {}
        self.notices: list[Notice] = []
        self.waiting: Waiting | None = None
        self.finished: TurnFinished | None = None
        for event in events:
            self.apply(event)

    @property
    def text(self) -> str:
        """The answer: the final one once the turn has ended, before that the last step's that has any."""
        if self.finished is not None and self.finished.text:
            return self._whole(self.finished)
        return next((step.text for step in reversed(self.steps.values()) if step.text), "")

    @property
    def reasoning(self) -> str:
        """The reasoning of the last step that has any."""
        return next((step.reasoning for step in reversed(self.steps.values()) if step.reasoning), "")

    @property
    def stop_reason(self) -> str:
        """Why the turn ended; empty before."""
        return self.finished.stop_reason if self.finished else ""

    @property
    def usage(self) -> UsageSummary | None:
        """What the turn cost, once it has ended."""
        return self.finished.usage if self.finished else None

    @property
    def error(self) -> status_pb2.Status | None:
        """The error of a turn that failed with one."""
        return self.finished.error if self.finished and self.finished.HasField("error") else None

    def apply(self, event: TurnEvent) -> None:
        """Take one event in; kinds that are not known here change nothing but the position."""
        if event.sequence <= self.last_sequence:
            return
        self.last_sequence = event.sequence
        self.turn = event.turn or self.turn
        kind = event.WhichOneof("event")
        if kind not in ("waiting", "notice"):
            self.waiting = None
        handler = _HANDLERS.get(kind or "")
        if handler is not None:
            handler(self, event)

    def _whole(self, finished: TurnFinished) -> str:
        """Give the final text; a cut one is completed from the deltas, where they were seen."""
        if not finished.text_truncated:
            return finished.text
        texts = [step.text for step in self.steps.values()]
        candidates = ["".join(texts[first:]) for first in range(len(texts) - 1, -1, -1)]
        return next((text for text in candidates if text.startswith(finished.text)), finished.text)

    def _step(self, number: int) -> StepView:
        return self.steps.setdefault(number, StepView(number))

    def _accepted(self, event: TurnEvent) -> None:
        self.state = TurnState.TURN_STATE_QUEUED

    def _running(self, event: TurnEvent) -> None:
        self.state = TurnState.TURN_STATE_RUNNING

    def _suspended(self, event: TurnEvent) -> None:
        self.state = TurnState.TURN_STATE_WAITING

    def _finished(self, event: TurnEvent) -> None:
        self.finished = event.turn_finished
        self.state = event.turn_finished.state
        self.actions.clear()

    def _step_started(self, event: TurnEvent) -> None:
        self._step(event.step_started.step or event.step)

    def _llm(self, event: TurnEvent) -> None:
        self._step(event.step).pieces[event.sequence] = event.llm
        if event.llm.WhichOneof("event") == "tool_call_complete":
            call = event.llm.tool_call_complete
            self.calls[call.call_id] = ToolCallView(
                call.call_id, call.tool_name, call.arguments_json, event.step
            )

    def _reset(self, event: TurnEvent) -> None:
        reset = event.step_reset
        for step in self.steps.values():
            for sequence in [s for s in step.pieces if reset.from_sequence <= s <= reset.to_sequence]:
                piece = step.pieces.pop(sequence)
                if piece.WhichOneof("event") == "tool_call_complete":
                    self.calls.pop(piece.tool_call_complete.call_id, None)

    def _committed(self, event: TurnEvent) -> None:
        self._step(event.step).committed = True

    def _call(self, call_id: str, tool_name: str, step: int) -> ToolCallView:
        return self.calls.setdefault(call_id, ToolCallView(call_id, tool_name, step=step))

    def _tool_started(self, event: TurnEvent) -> None:
        started = event.tool_call_started
        self._call(started.call_id, started.tool_name, event.step).started = True

    def _tool_progress(self, event: TurnEvent) -> None:
        progress = event.tool_call_progress
        self._call(progress.call_id, "", event.step).progress = progress.text

    def _tool_finished(self, event: TurnEvent) -> None:
        result = event.tool_call_finished
        self._call(result.call_id, result.tool_name, event.step).result = result

    def _action_required(self, event: TurnEvent) -> None:
        action = event.action_required.action
        self.actions[action.name] = action

    def _action_resolved(self, event: TurnEvent) -> None:
        self.actions.pop(event.action_resolved.action, None)

    def _waiting(self, event: TurnEvent) -> None:
        self.waiting = event.waiting

    def _notice(self, event: TurnEvent) -> None:
        self.notices.append(event.notice)


_HANDLERS = {
    "llm": TurnView._llm,
    "turn_accepted": TurnView._accepted,
    "turn_started": TurnView._running,
    "turn_resumed": TurnView._running,
    "turn_suspended": TurnView._suspended,
    "turn_finished": TurnView._finished,
    "step_started": TurnView._step_started,
    "step_reset": TurnView._reset,
    "step_committed": TurnView._committed,
    "tool_call_started": TurnView._tool_started,
    "tool_call_progress": TurnView._tool_progress,
    "tool_call_finished": TurnView._tool_finished,
    "action_required": TurnView._action_required,
    "action_resolved": TurnView._action_resolved,
    "waiting": TurnView._waiting,
    "notice": TurnView._notice,
}
