"""Long conversations are compacted before a model call: when, what stays, and what of a bad summary."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from support.long_threads import CALLS, STOP, TwoVoices, head_of, past, says, stored, text_of, usage
from support.runtime_fakes import FakeModel, Turn, agent, call, spec, tool
from turnwire.extend.errors import AgentCancelledError
from turnwire.extend.events import Compacted, MessageOrigin, Notice, ToolOutcome, TurnState, Waiting
from turnwire.extend.llm import (
    FailureKind,
    Finish,
    FinishReason,
    StreamFailure,
    SystemMessage,
    TextDelta,
    ToolMessage,
    UsageProvenance,
    UserMessage,
)
from turnwire.runtime.domain.compaction import CompactionRules, CompactionTerms
from turnwire.runtime.domain.message import CallPart, ReasoningText
from turnwire.runtime.settings import ContextSettings

BROKEN = StreamFailure(FailureKind.SERVER, "the summariser is down")


def compacted(turn: Turn) -> list[Compacted]:
    return turn.journal.of(Compacted)


def notices(turn: Turn, reason: str) -> list[Notice]:
    return [n for n in turn.journal.of(Notice) if n.reason == reason]


async def run(*calls: Any, turns: int = 11, **fields: Any) -> Turn:
    """Run a turn behind so many others; the first call is that of the summariser."""
    past_fields = {k: fields.pop(k) for k in ("calls", "size", "question") if k in fields}
    turn = Turn(FakeModel(*calls), transcript=past(turns, **past_fields), **fields)
    await turn.run()
    return turn


# --- when ---


async def test_more_than_twenty_messages_are_compacted_where_no_window_is_known() -> None:
    turn = await run(says("all about it"), says("done"), turns=10)
    summary, step = turn.model.requests
    assert turn.end.state is TurnState.COMPLETED
    assert isinstance(summary.messages[0], SystemMessage)
    assert head_of(step).startswith("[compacted] 12 earlier messages")
    assert "all about it" in head_of(step)
    assert [e.trigger for e in compacted(turn)] == ["messages"]


async def test_twenty_messages_stay_as_they_are() -> None:
    turn = await run(says("done"), turns=9)
    assert len(turn.model.requests[0].messages) == 19
    assert not compacted(turn)


async def test_more_characters_than_the_limit_are_compacted() -> None:
    turn = await run(says("short"), says("done"), turns=6, size=5000)
    assert [e.trigger for e in compacted(turn)] == ["characters"]


async def test_where_a_window_is_known_neither_messages_nor_characters_count_unless_set() -> None:
    wide = agent(context_window=200_000)
    assert not compacted(await run(says("done"), turns=40, size=1000, agent=wide))
    told = agent(context_window=200_000, compaction={"messages": 8})
    assert [e.trigger for e in compacted(await run(says("s"), says("d"), turns=6, agent=told))] == [
        "messages"
    ]


async def test_more_tokens_than_the_share_of_the_window_are_compacted() -> None:
    narrow = agent(context_window=10_000, compaction={"threshold": 0.5, "output_reserve": 0})
    turn = await run(says("short"), says("done"), turns=10, size=2000, agent=narrow)
    (event,) = compacted(turn)
    assert event.trigger == "tokens"
    assert event.tokens_before > 5000 > event.tokens_after
    fits = await run(says("done"), turns=4, size=2000, agent=narrow)
    assert not compacted(fits)


async def test_the_answer_has_its_room_in_a_known_window() -> None:
    rules = CompactionRules(window=10_000)
    assert rules.token_limit == 7500
    assert CompactionRules(window=1_000_000).token_limit == 800_000
    assert CompactionRules(window=1000, output_reserve=100_000).token_limit == 750
    narrow = agent(context_window=10_000, compaction={"threshold": 0.95})
    asked = spec(options={"max_output_tokens": 2500})
    turns: dict[str, Any] = {"turns": 8, "size": 2000, "agent": narrow}
    assert compacted(await run(says("short"), says("done"), spec=asked, **turns))
    assert not compacted(await run(says("done"), spec=spec(options={"max_output_tokens": 10}), **turns))


async def test_tools_and_instructions_count_against_the_window() -> None:
    fields: dict[str, Any] = {"context_window": 4000, "compaction": {"output_reserve": 0}}
    assert not compacted(await run(says("done"), turns=6, size=700, agent=agent(**fields)))
    heavy = agent(instructions="x" * 8000, **fields)
    assert compacted(await run(says("s"), says("done"), turns=6, size=700, agent=heavy))


async def test_what_the_provider_reported_of_the_last_call_corrects_the_estimate() -> None:
    fields: dict[str, Any] = {"turns": 9, "size": 1000, "agent": agent(context_window=20_000, tools=["*"])}
    lists = [call("look"), usage(5000, 1), CALLS], says("done")
    assert not compacted(await run(*lists, **fields))
    more = [call("look"), usage(15_900, 1), CALLS], says("short"), says("done")
    turn = await run(*more, **fields)
    assert [e.trigger for e in compacted(turn)] == ["tokens"]
    assert compacted(turn)[0].tokens_before >= 15_900


async def test_the_window_of_an_agent_is_that_of_its_own_model() -> None:
    wide = agent(context_window=200_000, fallback_models=["fake:*"])
    other = spec(options={"model": "fake:other"})
    assert compacted(await run(says("s"), says("done"), turns=12, agent=wide, spec=other))
    same = spec(options={"model": "fake:model"})
    assert not compacted(await run(says("done"), turns=12, agent=wide, spec=same))


async def test_a_report_beyond_reason_corrects_no_further_than_four_times() -> None:
    narrow = agent(context_window=200_000, tools=["*"])
    turn = await run([call("look"), usage(10**9, 1), CALLS], says("done"), turns=9, size=1000, agent=narrow)
    assert not compacted(turn)


async def test_a_deployment_can_leave_conversations_whole() -> None:
    whole = CompactionRules(enabled=False)
    turn = await run(says("done"), turns=30, compaction=whole)
    assert len(turn.model.requests[0].messages) == 61


@pytest.mark.parametrize(
    ("name", "value"),
    [("messages", 7), ("characters", 3999), ("keep_messages", 3), ("threshold", 1.0), ("timeout", 0)],
)
def test_limits_below_their_minimum_are_refused(name: str, value: float) -> None:
    with pytest.raises(ValidationError):
        CompactionTerms.model_validate({name: value})
    with pytest.raises(ValidationError):
        ContextSettings.model_validate({"timeout_seconds" if name == "timeout" else name: value})


# --- what stays ---


async def test_at_least_the_last_eight_messages_stay_and_begin_with_what_a_user_said() -> None:
    turn = await run(says("s"), says("done"), turns=11)
    told = turn.model.requests[1].messages
    rest = [m for m in told if not isinstance(m, SystemMessage)]
    assert len(rest) == 9
    assert isinstance(rest[0], UserMessage)
    assert text_of(rest[-1]) == "go on"


@pytest.mark.parametrize("calls", [1, 2, 3, 4])
@pytest.mark.parametrize("keep", range(4, 13))
async def test_calls_and_their_results_are_never_parted(calls: int, keep: int) -> None:
    kept = agent(compaction={"keep_messages": keep, "messages": 12})
    turn = await run(says("s"), says("done"), turns=6, calls=calls, agent=kept)
    step = turn.model.requests[1]
    results = sum(isinstance(m, ToolMessage) for m in step.messages)
    assert results % calls == 0
    assert len(step.messages) - 1 >= keep
    assert turn.end.state is TurnState.COMPLETED


async def test_a_long_turn_is_compacted_between_its_steps_and_keeps_its_own_question() -> None:
    steps = [[call("look", call_id=f"p{i}"), CALLS] for i in range(10)]
    turn = Turn(FakeModel(*steps, says("so far"), says("done")), tool("look"), agent=agent(), first=True)
    await turn.run()
    last = turn.model.requests[-1]
    assert turn.end.steps == 11
    assert "so far" in head_of(last)
    assert text_of(last.messages[1]) == "hello"
    assert turn.journal.compactions[0].kept == ("user-1",)
    assert [e.compacted_count for e in compacted(turn)] == [12]


async def test_prompt_and_model_of_summaries_are_settings() -> None:
    own = agent(compaction={"prompt": "Fasse zusammen.", "model": "fake:small"})
    turn = await run(says("s"), says("done"), agent=own)
    first = turn.model.requests[0].messages[0]
    assert isinstance(first, SystemMessage)
    assert first.text == "Fasse zusammen."
    assert "fake:small" in turn.runner._context.models.asked  # type: ignore[attr-defined]


async def test_what_users_demanded_stays_word_for_word() -> None:
    transcript = past(12)
    transcript[0] = past(
        0, question="Hello there. You must never write to prod! Thanks.\nAlways say please."
    )[0]
    turn = Turn(FakeModel(says("s"), says("done")), transcript=transcript)
    await turn.run()
    head = head_of(turn.model.requests[1])
    assert "- You must never write to prod!" in head
    assert "- Always say please." in head
    assert "Hello there" not in head


async def test_what_nobody_has_answered_stays_word_for_word() -> None:
    asked = past(0, question="What is the port of the billing service?")[0]
    steered = replace(past(0, question="hurry")[0], message_id="steer", origin=MessageOrigin.STEER)
    looks = [
        CallPart(f"c{i}", "p", "look", "{}", i, 0, ToolOutcome.SUCCEEDED, "so", False) for i in range(1, 8)
    ]
    failed = stored(98, "assistant", *looks)
    transcript = [*past(4)[:-1], replace(asked, message_id="asked"), steered, failed, *past(0)]
    turn = Turn(FakeModel(says("s"), says("done")), transcript=transcript)
    await turn.run()
    head = head_of(turn.model.requests[1])
    assert head.endswith("word for word:\nWhat is the port of the billing service?")
    answered = Turn(FakeModel(says("s"), says("done")), transcript=past(12))
    await answered.run()
    assert "nobody has answered" not in head_of(answered.model.requests[1])


async def test_the_input_of_the_summariser_is_bounded_whatever_there_is() -> None:
    huge = agent(compaction={"input_characters": 4000})
    turn = await run(*[says("s")] * 4, says("done"), turns=40, size=3000, agent=huge)
    summaries = turn.model.requests[:4]
    for request in summaries:
        assert len(text_of(request.messages[1])) < 6000
    assert "entries left out here" in text_of(summaries[2].messages[1])
    assert "<earlier_summary>\ns\n" in text_of(summaries[1].messages[1])
    assert turn.end.state is TurnState.COMPLETED


async def test_the_summary_is_bounded() -> None:
    short = agent(compaction={"summary_characters": 400})
    turn = await run(says("w" * 700), says("done"), turns=20, size=500, agent=short)
    (event,) = compacted(turn)
    assert not event.fallback
    assert event.summary == "w" * 400 + " […]"


# --- a bad summary ---


async def failing(*summary: Any, **fields: Any) -> Turn:
    turn = await run(list(summary), says("done"), turns=20, size=200, **fields)
    assert turn.end.state is TurnState.COMPLETED
    assert turn.journal.compactions == []
    (event,) = compacted(turn)
    assert event.fallback
    (notice,) = notices(turn, "summary-failed")
    head = head_of(turn.model.requests[1])
    assert "could not be summarised" in head
    assert "question 15" in head
    assert len(head) < 4000
    assert head == event.summary
    return turn


async def test_a_summariser_that_fails_leaves_truncated_pieces_for_the_request() -> None:
    turn = await failing(BROKEN)
    assert "the summariser is down" in notices(turn, "summary-failed")[0].text


@pytest.mark.parametrize(
    "summary",
    [
        pytest.param([STOP], id="empty"),
        pytest.param([TextDelta("  \n"), STOP], id="blank"),
        pytest.param([call("look"), CALLS], id="calls of tools"),
        pytest.param([TextDelta("y" * 9000), STOP], id="far too long"),
        pytest.param([TextDelta("no"), Finish(FinishReason.REFUSAL)], id="refused"),
        pytest.param([TextDelta("no"), Finish(FinishReason.CONTENT_FILTER)], id="filtered"),
        pytest.param([TextDelta("half")], id="cut"),
        pytest.param([TextDelta("half"), RuntimeError("a defect")], id="defect"),
        pytest.param([StreamFailure(FailureKind.CONTEXT_OVERFLOW, "too long")], id="overflow"),
    ],
)
async def test_what_is_no_summary_is_not_taken_for_one(summary: list[Any]) -> None:
    await failing(*summary)


async def test_a_summary_longer_than_what_it_is_of_is_not_taken() -> None:
    turn = await run(says("z" * 1400), says("done"), turns=12, size=40)
    assert [e.fallback for e in compacted(turn)] == [True]
    assert turn.journal.compactions == []


async def test_a_summariser_that_hangs_is_given_up_at_its_limit() -> None:
    turn = await failing(asyncio.Event(), agent=agent(compaction={"timeout": 0.01}))
    assert "within 0.01 s" in notices(turn, "summary-failed")[0].text
    assert turn.model.closed == 2


async def test_a_cancel_ends_the_wait_for_a_summary_and_the_turn() -> None:
    turn = Turn(FakeModel([TextDelta("so"), asyncio.Event()]), transcript=past(20), first_feedback=0.001)

    async def act() -> None:
        await turn.journal.saw(Waiting)
        turn.token.fire(AgentCancelledError("enough"))

    turn.model._calls[0] = [asyncio.Event()]
    assert await turn.run_while(act) is TurnState.CANCELLED
    assert not compacted(turn)
    assert turn.end.usage.model_calls == 1


async def test_what_a_summariser_says_reaches_no_reader_and_no_message() -> None:
    turn = await run(says("secret words"), says("done"))
    assert [e.text for e in turn.journal.of(TextDelta)] == ["done"]
    assert "secret" not in str(turn.journal.committed)


async def test_what_summaries_use_counts_whether_they_are_taken_or_not() -> None:
    turn = await run(says("s", tokens=100), says("done", tokens=1000))
    assert turn.end.usage.tokens.input_tokens == 1100
    assert turn.end.usage.model_calls == 2
    turn = await run([usage(70, 3), STOP], says("done", tokens=1000))
    assert turn.end.usage.tokens.input_tokens == 1070
    assert turn.end.usage.tokens.provenance is UsageProvenance.REPORTED


async def test_after_a_summary_that_failed_the_next_one_waits_until_the_conversation_has_grown() -> None:
    steps = [[call("look", call_id=f"p{i}"), CALLS] for i in range(3)]
    turn = Turn(FakeModel([BROKEN], *steps, says("done")), tool("look"), transcript=past(20))
    await turn.run()
    assert [e.fallback for e in compacted(turn)] == [True] * 4
    assert len(notices(turn, "summary-failed")) == 1
    assert all("could not be summarised" in head_of(r) for r in turn.model.requests[1:])


async def test_a_summariser_that_failed_three_times_is_left_alone_for_the_episode() -> None:
    steps = [[*(call("look", call_id=f"p{i}-{j}") for j in range(5)), CALLS] for i in range(20)]
    model = TwoVoices([[BROKEN]], *steps, says("done"))
    turn = Turn(model, tool("look", parallel=True), transcript=past(20))
    await turn.run()
    assert len(model.summary_requests) == len(notices(turn, "summary-failed")) == 3
    assert turn.end.state is TurnState.COMPLETED


async def test_where_there_is_no_text_to_summarise_nobody_is_asked_for_a_summary() -> None:
    silent = [
        stored(n, "assistant", ReasoningText("hm", 1, '[{"type": "reasoning.text"}]', "fake"))
        for n in range(25)
    ]
    turn = Turn(FakeModel(says("done")), transcript=[*silent, *past(0)])
    await turn.run()
    assert turn.end.state is TurnState.COMPLETED
    assert "no text" in notices(turn, "summary-failed")[0].text


# --- never in a loop ---


async def test_after_a_compaction_the_next_one_waits_until_the_rest_has_grown_by_its_share() -> None:
    many = [call("look", call_id=f"p{j}") for j in range(24)]
    steps = [[*many, CALLS], says("one"), [call("look", call_id="q1"), CALLS], says("done")]
    turn = Turn(FakeModel(*steps), tool("look", parallel=True), transcript=past(3))
    await turn.run()
    # Twenty-five messages that must stay together are above the limit, and stay so.
    assert len(compacted(turn)) == 1
    assert turn.end.steps == 3


async def test_a_compaction_that_frees_too_little_is_told_once_with_what_takes_the_room() -> None:
    heavy = agent(
        context_window=4000, instructions="x" * 20_000, compaction={"output_reserve": 0, "growth": 0.05}
    )
    steps = [[call("look", call_id=f"p{i}"), CALLS] for i in range(20)]
    model = TwoVoices([says("s")], *steps, says("done"))
    turn = Turn(model, tool("look"), agent=heavy, transcript=past(10, size=300))
    await turn.run()
    (notice,) = notices(turn, "context-overhead")
    assert "instructions, tools and summary take about 5" in notice.text
    assert len(model.summary_requests) == len(compacted(turn)) == 2
    assert turn.end.state is TurnState.COMPLETED


async def test_nothing_is_summarised_where_nothing_can_be_left_out() -> None:
    heavy = agent(context_window=1000, instructions="x" * 20_000)
    turn = Turn(FakeModel(says("done")), agent=heavy, first=True)
    await turn.run()
    assert len(notices(turn, "context-overhead")) == 1
    assert len(turn.model.requests) == 1


# --- settings ---


@given(st.integers(1000, 10**7), st.floats(0.1, 0.95), st.integers(0, 10**6))
def test_there_is_always_room_for_a_request(window: int, threshold: float, reserve: int) -> None:
    limit = CompactionRules(window=window, threshold=threshold, output_reserve=reserve).token_limit
    assert limit is not None
    assert window // 10 <= limit < window


def test_the_longest_name_that_fits_tells_the_window() -> None:
    rules = CompactionRules(windows={"a:*": 1000, "a:b*": 2000, "a:bc": 3000})
    found = [CompactionTerms().over(rules, None, name).window for name in ("a:x", "a:bx", "a:bc", "z:y")]
    assert found == [1000, 2000, 3000, 0]
    assert CompactionTerms().over(rules, 5000, "a:bc").window == 5000


def test_the_rules_of_a_deployment_hold_where_an_agent_says_nothing() -> None:
    rules = ContextSettings(messages=30, keep_messages=5, windows={"openai:x": 9000}).rules()
    told = CompactionTerms(keep_messages=6).over(rules, None, "openai:x")
    assert (told.messages, told.keep_messages, told.window) == (30, 6, 9000)
    assert CompactionTerms().over(rules, None, "scripted:x").token_limit is not None
