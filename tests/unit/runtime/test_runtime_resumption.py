"""A turn that goes on: what the store says of each call decides what becomes of it; nothing is done twice."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from support.resumed_turns import ANSWER, going_on, left, outcomes, part, stored
from support.runtime_fakes import (
    LOST,
    NOT_FOUND,
    STARTED,
    FakeModel,
    Turn,
    breaks_then,
    call,
    hangs,
    spec,
    tool,
    unreachable,
    waits_for,
)
from turnwire.extend.events import (
    EpisodeKind,
    StepSettled,
    StepStarted,
    ToolCallFinished,
    ToolCallStarted,
    ToolOutcome,
    TurnState,
    UsageSummary,
)
from turnwire.extend.llm import Finish, FinishReason, TextDelta, TokenUsage
from turnwire.runtime.domain.execution import (
    ExecutionAccepted,
    ExecutionResult,
    ExecutionStarted,
    ExecutionState,
    LookupAnswer,
)
from turnwire.runtime.domain.resumption import CallState, Progress, ResumedCall, Resumption
from turnwire.runtime.engine import cancel, execution, toolbox, tools

CALLS = Finish(FinishReason.TOOL_CALLS)
RAN = ExecutionResult(ToolOutcome.SUCCEEDED, "from the ledger")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody who does not answer is waited for long."""
    monkeypatch.setattr(tools, "STOP_WAIT_SECONDS", 0.05)
    monkeypatch.setattr(cancel, "ABANDON_SECONDS", 0.02)
    monkeypatch.setattr(execution, "_LINK_DELAYS", (0.0,))
    monkeypatch.setattr(execution, "LINK_PATIENCE_SECONDS", 0.05)
    monkeypatch.setattr(toolbox, "_DELAY", 0.0)


async def test_a_committed_answer_ends_the_turn_without_another_model_call() -> None:
    model = FakeModel()
    made = Turn(model, resumption=left(last_text="the answer"), transcript=stored())
    assert await made.run() is TurnState.COMPLETED
    assert model.requests == []
    assert (made.end.text, made.end.steps, made.end.final_message) == (
        "the answer",
        1,
        "threads/thread-1/messages/answer-1",
    )
    assert made.story() == ["StepSettled", "TurnFinished"]


async def test_a_step_that_is_settled_in_the_log_is_not_settled_again() -> None:
    made = Turn(FakeModel(), resumption=left(settled=True, last_text="x"), transcript=stored())
    assert await made.run() is TurnState.COMPLETED
    assert made.story() == ["TurnFinished"]


async def test_an_answer_that_asked_for_a_pause_is_gone_on_with() -> None:
    model = FakeModel(ANSWER)
    paused = left(progress=Progress(finish_reason="pause"))
    made = Turn(model, resumption=paused, transcript=stored())
    assert await made.run() is TurnState.COMPLETED
    assert [e.step for e in made.journal.of(StepStarted)] == [2]


async def test_a_filtered_answer_is_a_failure_also_after_a_death() -> None:
    finish = FinishReason.CONTENT_FILTER.value
    made = Turn(FakeModel(), resumption=left(progress=Progress(finish_reason=finish)), transcript=stored())
    assert await made.run() is TurnState.FAILED
    assert made.end.stop_reason == "model-error"


async def test_a_step_that_was_not_committed_is_begun_again_as_its_next_attempt() -> None:
    model = FakeModel(ANSWER)
    made = Turn(model, resumption=Resumption(2, EpisodeKind.RECOVERY, next_attempt=3))
    assert await made.run() is TurnState.COMPLETED
    (index,) = [i for i, e in enumerate(made.journal.events) if isinstance(e, StepStarted)]
    assert made.journal.stamps[index] == (1, 1, 3)
    assert made.journal.progress[0].step_attempt == 3  # type: ignore[union-attr]


async def test_the_steps_after_it_are_first_attempts_again() -> None:
    model = FakeModel([call("add"), CALLS], ANSWER)
    made = Turn(model, tool("add"), resumption=Resumption(2, EpisodeKind.RECOVERY, next_attempt=2))
    await made.run()
    found = [
        s for s, e in zip(made.journal.stamps, made.journal.events, strict=True) if isinstance(e, StepStarted)
    ]
    assert found == [(1, 1, 2), (1, 2, 1)]


async def test_what_was_spent_before_the_death_counts() -> None:
    spent = Progress(UsageSummary(TokenUsage(input_tokens=70, output_tokens=30), 4, 2), "stop")
    made = Turn(FakeModel(), resumption=left(progress=spent, elapsed=5.0), transcript=stored())
    await made.run()
    assert (made.end.usage.tokens.input_tokens, made.end.usage.model_calls) == (70, 4)
    assert made.end.elapsed >= 5.0


async def test_a_budget_used_up_before_the_death_ends_the_turn_after_it() -> None:
    known = ResumedCall(part("add", 0, ToolOutcome.SUCCEEDED), CallState.FINISHED)
    spent = Progress(UsageSummary(TokenUsage(output_tokens=500), 1, 1), "tool_calls")
    spent = replace(spent, finish_reason=FinishReason.TOOL_CALLS.value)
    made = going_on(known, resumption=left(known, progress=spent), spec=spec(limits={"tokens": 100}))
    assert await made.run() is TurnState.FAILED
    assert made.end.stop_reason == "budget"


async def test_a_call_that_was_ready_is_run_with_the_same_key() -> None:
    made = going_on(ResumedCall(part("add"), CallState.READY))
    made.executor.answers["add"] = NOT_FOUND
    assert await made.run() is TurnState.COMPLETED
    assert outcomes(made) == [("add", ToolOutcome.SUCCEEDED)]
    (executed,) = made.executor.executed
    assert (executed.call_id, executed.attempt) == ("c-add-0", 1)


async def test_a_call_that_ran_after_the_death_is_told_from_the_ledger() -> None:
    made = going_on(ResumedCall(part("add"), CallState.READY))
    made.executor.answers["add"] = LookupAnswer(ExecutionState.FINISHED, False, RAN)
    assert await made.run() is TurnState.COMPLETED
    assert made.executor.executed == []
    assert made.journal.outcomes[0].content == "from the ledger"


async def test_a_call_that_had_started_is_joined_and_its_start_is_not_told_again() -> None:
    made = going_on(ResumedCall(part("add"), CallState.STARTED))
    made.executor.answers["add"] = STARTED
    assert await made.run() is TurnState.COMPLETED
    assert outcomes(made) == [("add", ToolOutcome.SUCCEEDED)]
    assert made.journal.of(ToolCallStarted) == []


async def test_a_start_that_the_ledger_does_not_know_is_never_repeated() -> None:
    made = going_on(ResumedCall(part("pay"), CallState.STARTED))
    made.executor.answers["pay"] = NOT_FOUND
    assert await made.run() is TurnState.COMPLETED
    assert made.executor.executed == []
    assert outcomes(made) == [("pay", ToolOutcome.OUTCOME_UNKNOWN)]


@pytest.mark.parametrize("state", [CallState.READY, CallState.STARTED])
async def test_a_lost_run_of_a_tool_that_may_not_repeat_has_an_unknown_end(state: CallState) -> None:
    made = going_on(ResumedCall(part("pay"), state))
    made.executor.answers["pay"] = LOST
    assert await made.run() is TurnState.COMPLETED
    assert made.executor.executed == []
    assert outcomes(made) == [("pay", ToolOutcome.OUTCOME_UNKNOWN)]


async def test_a_lost_run_of_a_repeatable_tool_is_another_attempt() -> None:
    made = going_on(ResumedCall(part("find"), CallState.STARTED, attempt=1))
    made.executor.answers["find"] = LookupAnswer(ExecutionState.LOST, True)
    assert await made.run() is TurnState.COMPLETED
    assert [c.attempt for c in made.executor.executed] == [2]
    assert [e.attempt for e in made.journal.of(ToolCallStarted)] == [2]
    assert outcomes(made) == [("find", ToolOutcome.SUCCEEDED)]


async def test_attempts_are_bounded() -> None:
    made = going_on(ResumedCall(part("find"), CallState.STARTED, attempt=execution.MAX_ATTEMPTS))
    made.executor.answers["find"] = LookupAnswer(ExecutionState.LOST, True)
    await made.run()
    assert made.executor.executed == []
    assert outcomes(made) == [("find", ToolOutcome.OUTCOME_UNKNOWN)]


async def test_a_run_that_is_lost_under_a_living_owner_is_repeated_too() -> None:
    unknown = ExecutionResult(ToolOutcome.OUTCOME_UNKNOWN, "", True)
    made = Turn(FakeModel([call("find"), CALLS], ANSWER), tool("find"))
    made.executor.answers["find"] = LookupAnswer(ExecutionState.LOST, True, unknown)
    made.executor.behaviours["find"] = breaks_then(
        [ExecutionAccepted(), ExecutionStarted(9.0), unreachable()],
        [ExecutionAccepted(), ExecutionStarted(9.0), RAN],
    )
    await made.run()
    assert [c.attempt for c in made.executor.executed] == [1, 2]
    assert outcomes(made) == [("find", ToolOutcome.SUCCEEDED)]


async def test_a_lost_run_that_is_told_by_joining_it_is_repeated_too() -> None:
    unknown = ExecutionResult(ToolOutcome.OUTCOME_UNKNOWN, "", True)
    made = Turn(FakeModel([call("find"), CALLS], ANSWER), tool("find"))
    made.executor.answers["find"] = LookupAnswer(ExecutionState.LOST, True, unknown)
    made.executor.behaviours["find"] = breaks_then([ExecutionAccepted(), unknown], [ExecutionAccepted(), RAN])
    await made.run()
    assert outcomes(made) == [("find", ToolOutcome.SUCCEEDED)]


@pytest.mark.parametrize("state", [CallState.READY, CallState.STARTED])
async def test_an_executor_that_cannot_be_asked_leaves_an_unknown_end(state: CallState) -> None:
    made = going_on(ResumedCall(part("pay"), state))
    assert await made.run() is TurnState.COMPLETED
    assert made.executor.executed == []
    assert outcomes(made) == [("pay", ToolOutcome.OUTCOME_UNKNOWN)]


async def test_a_tool_that_is_no_longer_offered_is_asked_about_all_the_same() -> None:
    made = going_on(ResumedCall(part("old"), CallState.STARTED), offered=(tool("other"),))
    made.executor.answers["old"] = LookupAnswer(ExecutionState.FINISHED, False, RAN)
    assert await made.run() is TurnState.COMPLETED
    assert made.journal.outcomes[0].content == "from the ledger"


async def test_results_continue_their_order_and_stand_in_the_history() -> None:
    known = ResumedCall(part("add", 0, ToolOutcome.SUCCEEDED), CallState.FINISHED)
    made = going_on(known, ResumedCall(part("mul", 1), CallState.READY))
    made.executor.answers["mul"] = NOT_FOUND
    await made.run()
    (finished,) = made.journal.of(ToolCallFinished)
    assert (finished.settle_order, finished.call_index) == (2, 1)
    assert len(made.journal.of(StepSettled)) == 2


async def test_exclusive_calls_keep_their_barriers() -> None:
    gate = asyncio.Event()
    calls = [ResumedCall(part(n, i), CallState.READY) for i, n in enumerate(("a", "x", "b"))]
    made = going_on(*calls, offered=(tool("a", parallel=True), tool("x"), tool("b", parallel=True)))
    made.executor.answers.update(dict.fromkeys("axb", NOT_FOUND))
    made.executor.behaviours["a"] = waits_for(gate)

    async def act() -> None:
        await made.journal.saw(ToolCallStarted)
        assert [c.tool_name for c in made.executor.executed] == ["a"]
        gate.set()

    await made.run_while(act)
    assert [name for name, _ in outcomes(made)] == ["a", "x", "b"]


async def test_the_time_that_is_left_ends_the_turn_whatever_the_spec_says() -> None:
    model = FakeModel([TextDelta("so far"), asyncio.Event()])
    made = Turn(model, spec=spec(limits={"turn_timeout": 500}), time_left=0.02)
    assert await made.run() is TurnState.FAILED
    assert (made.end.stop_reason, made.end.error_text) == ("timeout", "the turn used up its 500 s")


async def test_a_turn_whose_time_was_up_asks_no_model_and_ends_its_calls_truthfully() -> None:
    made = going_on(ResumedCall(part("pay"), CallState.STARTED), time_left=-3.0)
    made.executor.answers["pay"] = STARTED
    made.executor.behaviours["pay"] = hangs(made.executor)
    assert await made.run() is TurnState.FAILED
    assert made.end.stop_reason == "timeout"
    assert outcomes(made) == [("pay", ToolOutcome.STOPPED)]
    assert made.model.requests == []
