"""A request that is too long for its model is made anew, shorter, at most twice; no step is used up by it."""

from __future__ import annotations

import asyncio
from typing import Any

from support.long_threads import CALLS, TwoVoices, head_of, past, says, usage
from support.runtime_fakes import FakeModel, Turn, agent, call, tool
from turnwire.extend.errors import AgentCancelledError
from turnwire.extend.events import Compacted, Notice, StepReset, StepStarted, TurnState
from turnwire.extend.llm import (
    FailureKind,
    ReasoningDelta,
    StreamFailure,
    TextDelta,
    ToolMessage,
    UsageProvenance,
)
from turnwire.runtime.domain.agent import AgentDefinition

TOO_LONG = StreamFailure(
    FailureKind.CONTEXT_OVERFLOW, "maximum context length is 8192 tokens", status_code=400
)
WIDE = agent(context_window=1_000_000)


def compacted(turn: Turn) -> list[Compacted]:
    return turn.journal.of(Compacted)


async def overflowing(
    *steps: Any, summaries: Any = None, turns: int = 6, size: int = 10, agent: AgentDefinition = WIDE
) -> Turn:
    model = TwoVoices(summaries or [says("in short")], *steps)
    turn = Turn(model, tool("look"), agent=agent, transcript=past(turns, size=size))
    await turn.run()
    return turn


async def test_a_request_that_is_too_long_is_compacted_and_made_anew() -> None:
    turn = await overflowing([TOO_LONG], says("done"))
    assert isinstance(turn.model, TwoVoices)
    first, second = turn.model.step_requests
    assert turn.end.state is TurnState.COMPLETED
    assert turn.end.steps == 1
    assert len(first.messages) == 13
    assert "in short" in head_of(second)
    (event,) = compacted(turn)
    assert (event.trigger, event.fallback) == ("overflow", False)
    assert event.tokens_after < event.tokens_before
    assert len(turn.journal.compactions) == 1


async def test_a_failure_that_nobody_has_seen_is_told_to_nobody() -> None:
    turn = await overflowing([TOO_LONG], says("done"))
    assert not turn.journal.of(StreamFailure)
    assert not turn.journal.of(StepReset)
    assert [n.reason for n in turn.journal.of(Notice)] == ["context-overflow"]


async def test_what_was_seen_before_is_void() -> None:
    turn = await overflowing([ReasoningDelta("hm"), TextDelta("I th"), TOO_LONG], says("done"))
    (reset,) = turn.journal.of(StepReset)
    assert reset.cause == "context-overflow"
    void = turn.journal.events[reset.from_sequence - 3 : reset.to_sequence - 2]
    assert [type(e) for e in void] == [ReasoningDelta, TextDelta, StreamFailure]
    assert [e.step for e in turn.journal.of(StepStarted)] == [1, 1]
    assert turn.end.text == "done"


async def test_what_the_refused_attempts_used_counts() -> None:
    seen = [TextDelta("x" * 40), usage(500, 10), TOO_LONG]
    turn = await overflowing(seen, says("done", tokens=100))
    assert turn.end.usage.tokens.input_tokens >= 600
    assert turn.end.usage.tokens.provenance is UsageProvenance.ESTIMATED
    assert turn.end.usage.model_calls == 3


async def test_the_second_time_long_results_are_cut_as_well() -> None:
    turn = Turn(
        TwoVoices(
            [says("in short")],
            [call("look", '{"a": "b"}', call_id="p"), CALLS],
            [TOO_LONG],
            [TOO_LONG],
            says("done"),
        ),
        tool("look"),
        agent=WIDE,
        transcript=past(8, 2, size=4000),
    )
    await turn.run()
    assert isinstance(turn.model, TwoVoices)
    last = turn.model.step_requests[-1]
    results = [m for m in last.messages if isinstance(m, ToolMessage)]
    assert turn.end.state is TurnState.COMPLETED
    assert results
    assert all(len(m.content) < 2200 for m in results)
    assert [e.trigger for e in compacted(turn)] == ["overflow", "overflow"]


async def test_a_result_too_long_for_the_model_is_cut_where_nothing_else_can_be() -> None:
    steps = [[call("look", "{}" + " " * 9000), CALLS], [TOO_LONG], says("done")]
    turn = Turn(TwoVoices([says("s")], *steps), tool("look"), agent=WIDE, first=True)
    await turn.run()
    assert isinstance(turn.model, TwoVoices)
    assert turn.end.state is TurnState.COMPLETED
    result = turn.model.step_requests[-1].messages[-1]
    assert isinstance(result, ToolMessage)
    assert "characters left out" in result.content
    assert not compacted(turn)
    # What is stored is whole.
    assert len(turn.journal.outcomes[0].content) > 9000


async def test_after_two_repeats_the_turn_fails_and_says_why() -> None:
    turn = await overflowing([TOO_LONG], [TOO_LONG], [TOO_LONG], turns=30)
    assert (turn.end.stop_reason, turn.end.error_reason) == ("model-error", "MODEL_FAILED")
    assert "does not fit the model's context window" in turn.end.error_text
    assert "maximum context length" in turn.end.error_text
    assert len(turn.journal.of(StreamFailure)) == 1


async def test_where_nothing_can_be_left_out_the_turn_fails_at_once_and_says_why() -> None:
    turn = Turn(FakeModel([TOO_LONG]), agent=agent(instructions="x" * 40_000), first=True)
    await turn.run()
    assert turn.end.stop_reason == "model-error"
    assert "no more of it can be left out" in turn.end.error_text
    assert len(turn.model.requests) == 1


async def test_a_conversation_that_is_to_stay_whole_is_not_compacted_for_it() -> None:
    turn = await overflowing([TOO_LONG], agent=agent(compaction={"enabled": False}))
    assert turn.end.stop_reason == "model-error"
    assert not compacted(turn)


async def test_a_summary_that_cannot_be_had_is_replaced_by_pieces_for_the_repeat() -> None:
    down = [[StreamFailure(FailureKind.SERVER, "down")]]
    turn = await overflowing([TOO_LONG], says("done"), summaries=down, size=300)
    assert turn.end.state is TurnState.COMPLETED
    assert [(e.trigger, e.fallback) for e in compacted(turn)] == [("overflow", True)]
    assert turn.journal.compactions == []


async def test_later_steps_stay_below_what_the_provider_refused() -> None:
    steps: list[Any] = [[TOO_LONG]]
    steps += [[call("look", '{"x": "%s"}' % ("y" * 900), call_id=f"p{i}"), CALLS] for i in range(8)]
    model = TwoVoices([says("in short")], *steps, says("done"))
    turn = Turn(model, tool("look"), agent=WIDE, transcript=past(8, size=600))
    await turn.run()
    assert turn.end.state is TurnState.COMPLETED
    first, *later = (e.trigger for e in compacted(turn))
    assert first == "overflow"
    assert set(later) == {"tokens"}


async def test_a_cancel_while_the_summary_is_made_keeps_what_was_said() -> None:
    model = TwoVoices([[asyncio.Event()]], [TextDelta("so far"), TOO_LONG])
    turn = Turn(model, agent=WIDE, transcript=past(6))

    async def act() -> None:
        await turn.journal.saw(TextDelta)
        while not model.summary_requests:
            await asyncio.sleep(0)
        turn.token.fire(AgentCancelledError("enough"))

    assert await turn.run_while(act) is TurnState.CANCELLED
    assert turn.end.text == "so far"


async def test_an_overflow_of_one_step_leaves_the_next_its_own_two_repeats() -> None:
    steps = [[TOO_LONG], [call("look", "{}" + " " * 9000), CALLS], [TOO_LONG], [TOO_LONG], says("done")]
    turn = await overflowing(*steps, turns=12)
    assert turn.end.state is TurnState.COMPLETED
    assert turn.end.steps == 2
    assert isinstance(turn.model, TwoVoices)
    assert len(turn.model.step_requests) == 5
