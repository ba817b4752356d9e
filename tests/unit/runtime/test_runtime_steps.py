"""A turn's steps: what the model's answers make of the transcript, the events and the end."""

from __future__ import annotations

import asyncio

import pytest

from support.runtime_fakes import FakeModel, Turn, agent, call, spec, tool, user
from turnwire.core.errors import InvalidRequest
from turnwire.extend.events import (
    Notice,
    StepCommitted,
    StepSettled,
    StepStarted,
    ToolCallPreparing,
    ToolCallStarted,
    ToolOutcome,
    TurnState,
    Waiting,
)
from turnwire.extend.llm import (
    AssistantMessage,
    FailureKind,
    Finish,
    FinishReason,
    ReasoningDelta,
    StreamFailure,
    SystemMessage,
    TextDelta,
    TokenUsage,
    ToolCallFragment,
    ToolMessage,
    UsageProvenance,
    UsageSnapshot,
    UserMessage,
)
from turnwire.runtime.domain.message import BegunTools, CallPart, ContentPart, ReasoningText
from turnwire.runtime.domain.turn import MAX_FINISHED_TEXT_BYTES
from turnwire.runtime.engine.model_step import ModelCall

STOP = Finish(FinishReason.STOP)
CALLS = Finish(FinishReason.TOOL_CALLS)


def usage(given: int, output: int) -> UsageSnapshot:
    return UsageSnapshot(TokenUsage(given, 0, 0, output, 0, UsageProvenance.REPORTED))


async def test_a_plain_answer_is_one_step_and_completes_the_turn() -> None:
    turn = Turn(FakeModel([TextDelta("Hel"), TextDelta("lo"), STOP]))
    assert await turn.run() is TurnState.COMPLETED
    assert turn.story() == [
        "StepStarted",
        "TextDelta",
        "TextDelta",
        "Finish",
        "StepCommitted",
        "StepSettled",
        "TurnFinished",
    ]
    assert (turn.end.stop_reason, turn.end.text, turn.end.steps) == ("completed", "Hello", 1)
    assert turn.end.final_message == f"threads/thread-1/messages/{turn.journal.messages[0]}"
    assert turn.end.error_reason == ""
    assert turn.journal.interrupted_reason == ""


async def test_events_carry_their_step_and_the_end_carries_none() -> None:
    turn = Turn(FakeModel([call("add"), CALLS], [TextDelta("5"), STOP]), tool("add"))
    await turn.run()
    steps = [stamp[1] for stamp in turn.journal.stamps]
    assert steps == [*sorted(steps[:-1]), 0]
    assert set(steps) == {0, 1, 2}


async def test_a_step_ends_with_all_its_results_and_the_next_one_reads_them() -> None:
    model = FakeModel([TextDelta("Let me see."), call("add", '{"a":1}'), CALLS], [TextDelta("2"), STOP])
    turn = Turn(model, tool("add"), agent=agent(instructions="Be brief."))
    assert await turn.run() is TurnState.COMPLETED
    first, second = model.requests
    assert first.messages[0] == SystemMessage("Be brief.")
    assert isinstance(first.messages[1], UserMessage)
    answer, result = second.messages[2:]
    assert isinstance(answer, AssistantMessage)
    assert isinstance(result, ToolMessage)
    assert answer.text == "Let me see."
    assert [c.call_id for c in answer.tool_calls] == [result.call_id]
    assert result.content == 'add {"a":1}'
    assert turn.end.text == "2"
    assert turn.end.usage.tool_calls == 1


async def test_all_steps_of_a_turn_are_parts_of_one_message() -> None:
    turn = Turn(FakeModel([call("add"), CALLS], [TextDelta("2"), STOP]), tool("add"))
    await turn.run()
    assert len(turn.journal.messages) == 1
    kinds = [(type(p), p.step) for parts in turn.journal.committed for p in parts]
    assert kinds == [(CallPart, 1), (ContentPart, 2)]


async def test_the_intent_is_durable_before_any_tool_starts() -> None:
    turn = Turn(FakeModel([call("add"), CALLS], [STOP]), tool("add"))
    await turn.run()
    story = turn.story()
    assert story.index("StepCommitted") < story.index("ToolCallStarted")
    assert turn.journal.flushes == 1
    assert turn.journal.of(StepCommitted)[0].call_ids == (turn.journal.of(ToolCallStarted)[0].call_id,)


async def test_call_ids_are_ours_whatever_the_provider_sends() -> None:
    turn = Turn(FakeModel([call("add", call_id="x"), call("add", call_id="x"), CALLS], [STOP]), tool("add"))
    await turn.run()
    parts = [p for p in turn.journal.committed[0] if isinstance(p, CallPart)]
    assert len({p.call_id for p in parts}) == 2
    assert {p.provider_call_id for p in parts} == {"x"}


async def test_a_turn_out_of_steps_fails_and_keeps_its_last_text() -> None:
    again = [TextDelta("still"), call("add"), CALLS]
    turn = Turn(FakeModel(again, again), tool("add"), max_steps=2)
    assert await turn.run() is TurnState.FAILED
    assert (turn.end.stop_reason, turn.end.error_reason) == ("max-steps", "STEPS_EXHAUSTED")
    assert turn.end.text == "still"
    assert turn.end.steps == 2
    assert [e.step for e in turn.journal.of(StepStarted)] == [1, 2]


async def test_a_budget_that_tools_would_pass_ends_the_turn() -> None:
    model = FakeModel([TextDelta("a"), usage(80, 30), call("add"), CALLS])
    turn = Turn(model, tool("add"), spec=spec(limits={"tokens": 100}))
    assert await turn.run() is TurnState.FAILED
    assert (turn.end.stop_reason, turn.end.error_reason) == ("budget", "BUDGET_EXHAUSTED")
    assert turn.journal.finished_calls() == [("add", ToolOutcome.SUCCEEDED)]


async def test_a_budget_passed_by_the_answer_itself_keeps_the_answer() -> None:
    turn = Turn(FakeModel([TextDelta("paid"), usage(80, 30), STOP]), spec=spec(limits={"tokens": 100}))
    assert await turn.run() is TurnState.COMPLETED
    assert turn.end.text == "paid"


async def test_a_failed_stream_fails_the_turn_and_keeps_what_was_streamed() -> None:
    failure = StreamFailure(FailureKind.SERVER, "it broke", "fake", 500)
    turn = Turn(FakeModel([TextDelta("half an "), TextDelta("answer"), failure]))
    assert await turn.run() is TurnState.FAILED
    assert (turn.end.stop_reason, turn.end.error_reason) == ("model-error", "MODEL_FAILED")
    assert (turn.end.error_text, turn.end.text) == ("it broke", "half an answer")
    assert turn.journal.interrupted_reason == "error"
    (part,) = turn.journal.committed[0]
    assert isinstance(part, ContentPart)
    assert part.content.text == "half an answer"
    assert turn.journal.of(StreamFailure)[0].partial_content == "half an answer"


async def test_a_failure_before_the_first_byte_leaves_no_message() -> None:
    turn = Turn(FakeModel([StreamFailure(FailureKind.AUTH, "no")]))
    await turn.run()
    assert turn.journal.committed == []
    assert turn.end.final_message == ""


async def test_a_stream_that_just_ends_is_a_failure_and_never_an_answer() -> None:
    turn = Turn(FakeModel([TextDelta("The ans")]))
    assert await turn.run() is TurnState.FAILED
    assert turn.journal.of(StreamFailure)[0].kind is FailureKind.INCOMPLETE
    assert turn.end.text == "The ans"


async def test_what_follows_the_end_of_a_stream_is_not_read() -> None:
    turn = Turn(FakeModel([TextDelta("a"), STOP, TextDelta("b"), STOP]))
    await turn.run()
    assert turn.end.text == "a"
    assert len(turn.journal.of(Finish)) == 1


async def test_a_refusal_is_the_answer_when_there_is_no_text() -> None:
    turn = Turn(FakeModel([Finish(FinishReason.REFUSAL, refusal="I cannot do that.")]))
    assert await turn.run() is TurnState.COMPLETED
    assert turn.end.text == "I cannot do that."
    (part,) = turn.journal.committed[0]
    assert isinstance(part, ContentPart)
    assert part.content.text == "I cannot do that."


async def test_an_answer_cut_by_the_output_limit_is_kept_with_a_notice() -> None:
    turn = Turn(FakeModel([TextDelta("long"), Finish(FinishReason.LENGTH)]))
    await turn.run()
    assert turn.end.text == "long"
    assert [n.reason for n in turn.journal.of(Notice)] == ["answer-truncated"]


async def test_an_answer_cut_by_a_filter_fails_the_turn() -> None:
    turn = Turn(FakeModel([TextDelta("a"), Finish(FinishReason.CONTENT_FILTER)]))
    assert await turn.run() is TurnState.FAILED
    assert (turn.end.stop_reason, turn.end.text) == ("model-error", "a")


async def test_a_pause_goes_on_with_the_next_step() -> None:
    model = FakeModel([TextDelta("one"), Finish(FinishReason.PAUSE)], [TextDelta("two"), STOP])
    turn = Turn(model)
    assert await turn.run() is TurnState.COMPLETED
    assert turn.end.steps == 2
    assert model.requests[1].messages[-1] == AssistantMessage("one")


async def test_endless_pauses_end_at_the_step_limit() -> None:
    turn = Turn(FakeModel(*[[Finish(FinishReason.PAUSE)]] * 3), max_steps=3)
    assert await turn.run() is TurnState.FAILED
    assert turn.end.stop_reason == "max-steps"


async def test_usage_is_summed_over_calls_and_the_last_report_of_a_call_counts() -> None:
    model = FakeModel(
        [usage(20, 0), call("add"), usage(20, 7), CALLS],
        [TextDelta("x"), usage(30, 5), STOP],
    )
    turn = Turn(model, tool("add"))
    await turn.run()
    tokens = turn.end.usage.tokens
    assert (tokens.input_tokens, tokens.output_tokens) == (50, 12)
    assert tokens.provenance is UsageProvenance.REPORTED
    assert turn.end.usage.model_calls == 2
    assert [e.usage.model_calls for e in turn.journal.of(StepSettled)] == [1, 2]


async def test_reasoning_and_what_the_provider_wants_back_go_into_the_next_request() -> None:
    model = FakeModel(
        [ReasoningDelta("hm"), call("add"), Finish(FinishReason.TOOL_CALLS, replay_json='[{"s":1}]')],
        [STOP],
    )
    turn = Turn(model, tool("add"))
    await turn.run()
    answer = model.requests[1].messages[1]
    assert isinstance(answer, AssistantMessage)
    assert (answer.reasoning, answer.replay_json) == ("hm", '[{"s":1}]')
    part = turn.journal.committed[0][0]
    assert part == ReasoningText("hm", 1, '[{"s":1}]', "fake")


async def test_the_tool_choice_of_a_request_holds_for_the_first_step_only() -> None:
    model = FakeModel([call("add"), CALLS], [STOP])
    turn = Turn(model, tool("add"), spec=spec(tool_choice={"mode": "tool", "tool_name": "add"}))
    await turn.run()
    assert [r.tool_choice.mode for r in model.requests] == ["tool", "auto"]


async def test_only_tools_of_agent_and_request_are_shown_to_the_model() -> None:
    model = FakeModel([STOP])
    tools = [tool(n) for n in ("file_read", "file_write", "shell", "add")]
    turn = Turn(
        model, *tools, agent=agent(tools=["file_*", "add"]), spec=spec(allowed_tools=["file_read", "shell"])
    )
    await turn.run()
    assert [t.name for t in model.requests[0].tools] == ["file_read"]


async def test_an_agent_without_tools_never_asks_the_executor() -> None:
    turn = Turn(FakeModel([STOP]), agent=agent(tools=[]))
    turn.executor.hang_list = asyncio.Event()
    assert await turn.run() is TurnState.COMPLETED


async def test_a_long_answer_stands_in_the_end_up_to_its_limit() -> None:
    turn = Turn(FakeModel([*[TextDelta("€" * 10_000)] * 10, STOP]))
    await turn.run()
    assert turn.end.text_truncated
    assert len(turn.end.text.encode()) <= MAX_FINISHED_TEXT_BYTES
    assert set(turn.end.text) == {"€"}


async def test_a_model_that_is_silent_for_long_is_told_once() -> None:
    gate = asyncio.Event()
    turn = Turn(FakeModel([gate, TextDelta("at last"), STOP]), first_feedback=0.01)

    async def act() -> None:
        await turn.journal.saw(Waiting)
        gate.set()

    await turn.run_while(act)
    assert turn.journal.of(Waiting) == [Waiting("model", 0.01)]


async def test_a_repeat_before_the_first_byte_is_told_with_its_cause() -> None:
    gate = asyncio.Event()
    model = FakeModel([gate, TextDelta("x"), STOP])
    turn = Turn(model)

    async def act() -> None:
        await turn.journal.saw(StepStarted)
        while model.on_wait is None:
            await asyncio.sleep(0)
        model.on_wait("model.retry", 1.5, StreamFailure(FailureKind.RATE_LIMIT, "slow down"))
        gate.set()

    assert await turn.run_while(act) is TurnState.COMPLETED
    assert turn.journal.of(Notice)[0].reason == "model-retry"
    assert turn.journal.of(Waiting) == [Waiting("retry", 1.5, 2)]
    assert turn.end.steps == 1


async def test_arriving_arguments_are_told_at_most_four_times_a_second() -> None:
    fragments = [ToolCallFragment("add", n) for n in range(200)]
    turn = Turn(FakeModel([*fragments, call("add"), CALLS], [STOP]), tool("add"))
    await turn.run()
    assert len(turn.journal.of(ToolCallPreparing)) == 1
    assert not turn.journal.of(ToolCallFragment)


async def test_tools_that_an_interrupted_answer_had_begun_to_call_are_kept_by_name() -> None:
    failure = StreamFailure(FailureKind.CONNECTION, "gone")
    turn = Turn(FakeModel([ToolCallFragment("add", 3), call("mul"), failure]), tool("add"), tool("mul"))
    await turn.run()
    assert turn.journal.committed == [(BegunTools(("add", "mul"), 1),)]
    assert turn.executor.executed == []


async def test_an_error_of_ours_ends_the_turn_by_its_reason() -> None:
    turn = Turn(FakeModel([InvalidRequest("no such thing", reason="MODEL_UNKNOWN")]))
    assert await turn.run() is TurnState.FAILED
    assert (turn.end.error_reason, turn.end.error_text) == ("MODEL_UNKNOWN", "no such thing")


async def test_a_defect_ends_the_turn_without_telling_its_text(caplog: pytest.LogCaptureFixture) -> None:
    turn = Turn(FakeModel([TextDelta("a"), ValueError("secret-token")]))
    assert await turn.run() is TurnState.FAILED
    assert turn.end.error_reason == "INTERNAL"
    assert "secret" not in turn.end.error_text
    assert turn.end.text == "a"
    assert any(r.message == "turn.failed" for r in caplog.records)


async def test_a_stray_cancel_inside_a_model_is_a_defect_and_still_an_end() -> None:
    turn = Turn(FakeModel([TextDelta("a"), asyncio.CancelledError()]))
    assert await turn.run() is TurnState.FAILED
    assert (turn.end.error_reason, turn.end.text) == ("INTERNAL", "a")


async def test_the_model_stream_is_closed_after_its_end() -> None:
    model = FakeModel([TextDelta("a"), STOP, TextDelta("b")])
    await Turn(model).run()
    assert model.closed == 1


@pytest.mark.parametrize("where", ["flush", "finish"])
async def test_a_turn_that_another_owner_has_writes_nothing_more(where: str) -> None:
    turn = Turn(FakeModel([call("add"), CALLS], [STOP]), tool("add"), lost_at=where)
    assert await turn.run() is None
    assert turn.journal.end is None
    if where == "flush":
        assert turn.executor.executed == []


async def test_a_full_log_makes_the_model_wait() -> None:
    model = FakeModel([TextDelta("a"), TextDelta("b"), STOP])
    turn = Turn(model)
    waited: list[int] = []

    class Journal(type(turn.journal)):  # type: ignore[misc]
        async def room(self) -> None:
            waited.append(len(self.events))
            self.crowded = False

    journal = Journal()
    journal.crowded = True
    request = ModelCall(model, None, journal, 0.0)  # type: ignore[arg-type]
    await request.run()
    assert waited == [1]


async def test_history_of_the_thread_comes_before_the_new_message() -> None:
    model = FakeModel([STOP])
    turn = Turn(model, transcript=[user("first", 1), user("second", 2)])
    await turn.run()
    assert [m.parts[0].text for m in model.requests[0].messages] == ["first", "second"]  # type: ignore[union-attr]
