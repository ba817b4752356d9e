"""Steps, tokens, cost and time bound a turn; what is nearly used up is told once; time bounds tools too."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.runtime_fakes import FakeModel, Turn, agent, call, hangs, spec, tool
from turnwire.extend.events import EpisodeKind, Notice, StepSettled, ToolOutcome, TurnState, UsageSummary
from turnwire.extend.llm import (
    Finish,
    FinishReason,
    TextDelta,
    TokenUsage,
    UsageProvenance,
    UsageSnapshot,
)
from turnwire.runtime.domain.prices import PriceTable
from turnwire.runtime.domain.resumption import Progress, Resumption
from turnwire.runtime.engine import cancel, tools
from turnwire.runtime.engine.budget import narrower

STOP = Finish(FinishReason.STOP)
CALLS = Finish(FinishReason.TOOL_CALLS)
ANSWER = [TextDelta("done"), STOP]
PRICES = PriceTable.model_validate({"models": {"fake:model": {"input": 1, "output": 1}}})


def usage(given: int) -> UsageSnapshot:
    return UsageSnapshot(TokenUsage(given, provenance=UsageProvenance.REPORTED))


def step(given: int) -> list[Any]:
    return [usage(given), call("add"), CALLS]


def warnings(turn: Turn) -> list[str]:
    return [n.text for n in turn.journal.of(Notice) if n.reason == "budget-warning"]


async def test_a_budget_is_told_once_when_four_fifths_of_it_are_gone() -> None:
    steps = [step(40), step(39), step(2), step(3), [usage(1), *ANSWER]]
    turn = Turn(FakeModel(*steps), tool("add"), spec=spec(limits={"tokens": 100}))
    assert await turn.run() is TurnState.COMPLETED
    assert warnings(turn) == ["The turn has used 81 of its 100 tokens."]
    at = [e for e in turn.journal.events if isinstance(e, StepSettled) or type(e) is Notice]
    assert [type(e) for e in at[:4]] == [StepSettled, StepSettled, StepSettled, Notice]


async def test_each_budget_is_told_by_itself() -> None:
    limits = {"tokens": 100, "cost_micro_usd": 90}
    turn = Turn(
        FakeModel(step(85), step(0), step(0), step(0), ANSWER),
        tool("add"),
        spec=spec(limits=limits),
        max_steps=5,
        prices=PRICES,
        bytes_per_token=0,
    )
    await turn.run()
    assert warnings(turn) == [
        "The turn has used 85 of its 100 tokens.",
        "The turn has cost 0.000085 USD of its 0.00009 USD.",
        "The turn has used 4 of its 5 steps.",
    ]


async def test_a_turn_that_ends_is_not_warned() -> None:
    turn = Turn(FakeModel([usage(90), *ANSWER]), spec=spec(limits={"tokens": 100}))
    await turn.run()
    assert warnings(turn) == []


async def test_what_an_earlier_episode_has_told_is_not_told_again() -> None:
    spent = UsageSummary(TokenUsage(85, provenance=UsageProvenance.REPORTED), 1)
    known = Resumption(2, EpisodeKind.RECOVERY, step=4, progress=Progress(spent, "pause"), settled=True)
    turn = Turn(
        FakeModel([usage(1), Finish(FinishReason.PAUSE)], ANSWER),
        spec=spec(limits={"tokens": 100}),
        max_steps=5,
        resumption=known,
    )
    await turn.run()
    assert warnings(turn) == []


async def test_time_that_is_nearly_used_up_is_told_between_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    turn = Turn(FakeModel(step(1), step(1), ANSWER), tool("add"), agent=agent(limits={"turn_timeout": 100}))
    left = iter([100.0, 90.0, 90.0, 15.0, 15.0, *[15.0] * 20])
    monkeypatch.setattr(cancel.CancelToken, "time_left", property(lambda _: next(left)))
    await turn.run()
    assert warnings(turn) == ["The turn has 15 s left of its 100 s."]


async def test_a_request_only_narrows_what_its_agent_allows() -> None:
    own = agent(limits={"tokens": 50})
    turn = Turn(FakeModel(step(60), ANSWER), tool("add"), agent=own, spec=spec(limits={"tokens": 1000}))
    assert await turn.run() is TurnState.FAILED
    assert turn.end.error_text == "the turn used up its 50 tokens"


@given(st.none() | st.integers(1, 9), st.none() | st.integers(1, 9))
def test_the_narrower_limit_holds(asked: int | None, own: int | None) -> None:
    known = [limit for limit in (asked, own) if limit is not None]
    assert narrower(asked, own) == (min(known) if known else None)


# --- time and tools ---


async def test_a_call_is_given_no_more_time_than_its_turn_has_left() -> None:
    made = Turn(
        FakeModel([call("add"), CALLS], ANSWER),
        tool("add", timeout=540),
        agent=agent(limits={"turn_timeout": 100, "tool_timeout": 300}),
    )
    await made.run()
    (executed,) = made.executor.executed
    assert 0 < executed.execution_timeout <= 100


@pytest.mark.parametrize(("own", "allowed", "turn"), [(5, 300, 100), (300, 5, 100), (300, 300, None)])
async def test_a_call_is_given_the_least_of_all_limits(
    own: float, allowed: float, turn: float | None
) -> None:
    limits = {"tool_timeout": allowed, "turn_timeout": turn}
    made = Turn(FakeModel([call("add"), CALLS], ANSWER), tool("add", timeout=own), agent=agent(limits=limits))
    await made.run()
    (executed,) = made.executor.executed
    assert executed.execution_timeout == min(own, allowed)


async def test_a_turn_out_of_time_keeps_its_text_and_stops_its_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "STOP_WAIT_SECONDS", 0.5)
    made = Turn(
        FakeModel([TextDelta("so far"), call("add"), CALLS]),
        tool("add"),
        agent=agent(limits={"turn_timeout": 0.05}),
    )
    made.executor.behaviours["add"] = hangs(made.executor)
    async with asyncio.timeout(10):
        assert await made.run() is TurnState.FAILED
    assert (made.end.stop_reason, made.end.error_reason) == ("timeout", "TIMEOUT")
    assert made.end.text == "so far"
    assert made.journal.finished_calls() == [("add", ToolOutcome.STOPPED)]
