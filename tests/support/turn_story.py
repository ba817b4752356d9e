"""Short stories of turns, event by event, for tests of whatever reads them."""

from __future__ import annotations

from typing import Any

from google.protobuf.duration_pb2 import Duration

from turnwire.api.common.v1.tool_pb2 import ToolOutcome
from turnwire.api.llm.v1.llm_event_pb2 import (
    Finish,
    FinishReason,
    LlmEvent,
    ReasoningDelta,
    TextDelta,
    ToolCallComplete,
)
from turnwire.api.runtime.v1.turn_event_pb2 import (
    StepCommitted,
    StepReset,
    StepSettled,
    StepStarted,
    ToolCallFinished,
    ToolCallStarted,
    TurnAccepted,
    TurnEvent,
    TurnFinished,
    TurnStarted,
)
from turnwire.api.runtime.v1.turn_pb2 import TurnDisposition, TurnState

TURN = "threads/story-thread/turns/story-turn"
THREAD = "threads/story-thread"
AGENT = "agents/demo"
LOG_ID = "a1b2c3d4e5f60718"


class Story:
    """Numbers events from 1; each method adds one and returns the story."""

    def __init__(self) -> None:
        self.events: list[TurnEvent] = []
        self.step = 0

    def add(self, **arm: Any) -> Story:
        self.events.append(
            TurnEvent(
                sequence=len(self.events) + 1,
                turn=TURN,
                turn_attempt=1,
                step=self.step,
                step_attempt=1 if self.step else 0,
                **arm,
            )
        )
        return self

    def accepted(self) -> Story:
        started = TurnDisposition.TURN_DISPOSITION_STARTED
        return self.add(turn_accepted=TurnAccepted(agent=AGENT, disposition=started))

    def started(self) -> Story:
        return self.add(turn_started=TurnStarted(episode=1, epoch=1))

    def step_started(self) -> Story:
        self.step += 1
        return self.add(step_started=StepStarted(step=self.step, max_steps=30, model="demo:"))

    def text(self, text: str) -> Story:
        return self.add(llm=LlmEvent(text_delta=TextDelta(text=text)))

    def reasoning(self, text: str) -> Story:
        return self.add(llm=LlmEvent(reasoning_delta=ReasoningDelta(text=text)))

    def call(self, call_id: str, tool: str, arguments: str) -> Story:
        complete = ToolCallComplete(call_id=call_id, tool_name=tool, arguments_json=arguments)
        return self.add(llm=LlmEvent(tool_call_complete=complete))

    def model_stopped(self, reason: FinishReason = FinishReason.FINISH_REASON_STOP) -> Story:
        return self.add(llm=LlmEvent(finish=Finish(reason=reason)))

    def reset(self, first: int, last: int) -> Story:
        return self.add(step_reset=StepReset(from_sequence=first, to_sequence=last, cause="retry"))

    def committed(self, *call_ids: str) -> Story:
        return self.add(step_committed=StepCommitted(message=f"{THREAD}/messages/answer", call_ids=call_ids))

    def tool_started(self, call_id: str, tool: str) -> Story:
        return self.add(tool_call_started=ToolCallStarted(call_id=call_id, tool_name=tool, attempt=1))

    def tool_finished(
        self,
        call_id: str,
        tool: str,
        content: str,
        outcome: ToolOutcome = ToolOutcome.TOOL_OUTCOME_SUCCEEDED,
    ) -> Story:
        return self.add(
            tool_call_finished=ToolCallFinished(
                call_id=call_id,
                tool_name=tool,
                outcome=outcome,
                content=content,
                is_error=outcome != ToolOutcome.TOOL_OUTCOME_SUCCEEDED,
                elapsed_duration=Duration(nanos=20_000_000),
            )
        )

    def settled(self) -> Story:
        return self.add(step_settled=StepSettled())

    def finished(
        self,
        text: str,
        state: TurnState = TurnState.TURN_STATE_COMPLETED,
        stop_reason: str = "completed",
        **fields: Any,
    ) -> Story:
        self.step = 0
        return self.add(turn_finished=TurnFinished(state=state, stop_reason=stop_reason, text=text, **fields))


def multiplication() -> Story:
    """A turn of two steps: the model calls a tool, reads its result and answers in pieces."""
    story = Story().accepted().started().step_started()
    story.reasoning("I should ").reasoning("multiply.").call("call-0001", "multiply", '{"a": 6, "b": 7}')
    story.model_stopped(FinishReason.FINISH_REASON_TOOL_CALLS).committed("call-0001")
    story.tool_started("call-0001", "multiply").tool_finished("call-0001", "multiply", "42").settled()
    story.step_started().text("6 times 7 ").text("is ").text("42.").model_stopped().committed().settled()
    return story.finished("6 times 7 is 42.")
