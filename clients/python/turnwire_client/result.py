"""What one blocking call gives back."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from google.rpc import status_pb2

from turnwire.api.runtime.v1.action_pb2 import Action
from turnwire.api.runtime.v1.turn_pb2 import TurnState, UsageSummary
from turnwire_client.view import ToolCallView, TurnView

__all__ = ["TurnResult"]


@dataclass(frozen=True, slots=True)
class TurnResult:
    """A turn that has ended, or that waits for somebody.

    Attributes:
        text: the answer, or what there was of it when the turn ended.
        state: COMPLETED, FAILED, CANCELLED, or WAITING.
        stop_reason: why it ended; empty while it waits.
        usage: what it cost; None while it waits.
        turn: name of the turn.
        thread: name of the thread: pass it to the next call to go on talking.
        error: the error of a turn that failed with one.
        calls: the tool calls, in the model's order.
        actions: what the turn waits for.
    """

    text: str
    state: TurnState
    stop_reason: str
    usage: UsageSummary | None
    turn: str
    thread: str
    error: status_pb2.Status | None = None
    calls: tuple[ToolCallView, ...] = ()
    actions: tuple[Action, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the turn ended with an answer."""
        return self.state == TurnState.TURN_STATE_COMPLETED

    def parsed(self) -> Any:
        """Read the answer as JSON: what a turn with a schema completes with always is.

        Raises:
            ValueError: the answer is none, or there is no whole one.
        """
        if not self.ok:
            raise ValueError(f"the turn has no answer: {self.stop_reason or 'it waits'}")
        return json.loads(self.text)

    @classmethod
    def from_view(cls, view: TurnView, turn: str, thread: str) -> TurnResult:
        """Read the result off a view that has seen every event."""
        return cls(
            text=view.text,
            state=view.state,
            stop_reason=view.stop_reason,
            usage=view.usage,
            turn=turn,
            thread=thread,
            error=view.error,
            calls=tuple(view.calls.values()),
            actions=tuple(view.actions.values()),
        )
