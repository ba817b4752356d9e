"""A step's tool calls: who runs beside whom, what each call's one result is, and what a broken link does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from support.runtime_fakes import (
    LOST,
    NOT_FOUND,
    STARTED,
    FakeModel,
    Turn,
    agent,
    breaks_then,
    call,
    hangs,
    spec,
    succeeds,
    tool,
    unreachable,
    waits_for,
)
from turnwire.core.errors import Exhausted, Forbidden, InvalidRequest, WrongState
from turnwire.extend.events import (
    Notice,
    ResultPart,
    ToolCallFinished,
    ToolCallProgress,
    ToolCallStarted,
    ToolOutcome,
    TurnState,
    Waiting,
)
from turnwire.extend.llm import Finish, FinishReason, ToolCallComplete, ToolMessage
from turnwire.runtime.domain.execution import (
    ExecuteCall,
    ExecutionAccepted,
    ExecutionEvent,
    ExecutionProgress,
    ExecutionResult,
    ExecutionStarted,
    LookupAnswer,
    RiskTier,
)
from turnwire.runtime.engine import execution, tools

STOP = Finish(FinishReason.STOP)
CALLS = Finish(FinishReason.TOOL_CALLS)
DONE = ExecutionResult(ToolOutcome.SUCCEEDED, "done")
BEGUN = (ExecutionAccepted(), ExecutionStarted(9.0))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A link is mended at once, and given up soon."""
    monkeypatch.setattr(execution, "_LINK_DELAYS", (0.0,))
    monkeypatch.setattr(execution, "LINK_PATIENCE_SECONDS", 0.05)


def results(model: FakeModel) -> list[ToolMessage]:
    """What the model reads of its calls."""
    return [m for m in model.requests[1].messages if isinstance(m, ToolMessage)]


def one_call(name: str = "work") -> tuple[FakeModel, Turn]:
    model = FakeModel([call(name), CALLS], [STOP])
    return model, Turn(model, tool(name))


async def test_at_most_five_parallel_calls_run_at_once() -> None:
    gate = asyncio.Event()
    turn = Turn(FakeModel([*[call("look")] * 8, CALLS], [STOP]), tool("look", parallel=True))
    turn.executor.behaviours["look"] = waits_for(gate)

    async def act() -> None:
        await turn.journal.saw(ToolCallStarted, 5)
        gate.set()

    assert await turn.run_while(act) is TurnState.COMPLETED
    assert turn.executor.most_running == 5
    assert len(turn.journal.outcomes) == 8


async def test_an_exclusive_call_waits_for_those_before_it_and_holds_those_after_it() -> None:
    gate = asyncio.Event()
    order = ["look", "look", "write", "look", "write"]
    model = FakeModel([*[call(n) for n in order], CALLS], [STOP])
    turn = Turn(model, tool("look", parallel=True), tool("write"))
    turn.executor.behaviours["look"] = waits_for(gate)

    async def act() -> None:
        await turn.journal.saw(ToolCallStarted, 2)
        assert turn.executor.count("write") == 0
        gate.set()

    await turn.run_while(act)
    story = [
        (type(e).__name__, e.tool_name)
        for e in turn.journal.events
        if "ToolCall" in type(e).__name__ and not isinstance(e, ToolCallComplete)
    ]
    first_write = story.index(("ToolCallStarted", "write"))
    assert story[:first_write].count(("ToolCallFinished", "look")) == 2
    third_look = [i for i, s in enumerate(story) if s == ("ToolCallStarted", "look")][2]
    assert ("ToolCallFinished", "write") in story[first_write:third_look]
    assert turn.executor.most_running == 2


async def test_results_stand_in_the_order_of_the_model_and_events_in_the_order_of_settling() -> None:
    slow = asyncio.Event()
    model = FakeModel([call("slow"), call("fast"), CALLS], [STOP])
    turn = Turn(model, tool("slow", parallel=True), tool("fast", parallel=True))
    turn.executor.behaviours["slow"] = waits_for(slow, "slow answer")

    async def act() -> None:
        await turn.journal.saw(ToolCallFinished)
        slow.set()

    await turn.run_while(act)
    assert [r.tool_name for r in results(model)] == ["slow", "fast"]
    finished = turn.journal.of(ToolCallFinished)
    assert [(e.tool_name, e.settle_order, e.call_index) for e in finished] == [("fast", 1, 1), ("slow", 2, 0)]


async def test_each_outcome_is_recorded_as_it_comes() -> None:
    gate = asyncio.Event()
    model = FakeModel([call("slow"), call("fast"), CALLS], [STOP])
    turn = Turn(model, tool("slow", parallel=True), tool("fast", parallel=True))
    turn.executor.behaviours["slow"] = waits_for(gate)

    async def act() -> None:
        await turn.journal.saw(ToolCallFinished)
        assert [c.tool_name for c in turn.journal.outcomes] == ["fast"]
        gate.set()

    await turn.run_while(act)


async def test_an_unknown_tool_is_told_the_tools_there_are_and_nothing_runs() -> None:
    model = FakeModel([call("fly"), CALLS], [STOP])
    turn = Turn(model, tool("add"), tool("mul"))
    assert await turn.run() is TurnState.COMPLETED
    (result,) = results(model)
    assert result.is_error
    assert "Tools: add, mul" in result.content
    assert turn.executor.executed == []
    assert [n.reason for n in turn.journal.of(Notice)] == ["tool-unknown"]
    assert turn.journal.finished_calls() == [("fly", ToolOutcome.FAILED)]
    assert turn.journal.of(ToolCallStarted) == []


async def test_a_tool_that_may_never_run_is_rejected_without_a_question() -> None:
    model = FakeModel([call("rm"), call("add"), CALLS], [STOP])
    turn = Turn(model, replace(tool("rm"), risk_tier=RiskTier.HARDLINE), tool("add"))
    assert await turn.run() is TurnState.COMPLETED
    assert turn.journal.finished_calls() == [("rm", ToolOutcome.REJECTED), ("add", ToolOutcome.SUCCEEDED)]
    assert [c.tool_name for c in turn.executor.executed] == ["add"]
    assert [n.reason for n in turn.journal.of(Notice)] == ["tool-rejected"]
    assert "<tool_rejected" in results(model)[0].content


@pytest.mark.parametrize("name", ["", "none", "NULL"])
async def test_a_call_without_a_name_is_never_executed(name: str) -> None:
    model = FakeModel([call(name), CALLS], [STOP])
    turn = Turn(model, tool("add"))
    await turn.run()
    assert turn.executor.executed == []
    answer = model.requests[1].messages[1]
    assert answer.tool_calls[0].tool_name == (name or "unnamed")  # type: ignore[union-attr]
    assert results(model)[0].tool_name == (name or "unnamed")


async def test_arguments_that_are_no_object_are_never_executed() -> None:
    broken = call("add", '{"path":"x","content":"abc', error="the arguments were cut off")
    model = FakeModel([broken, CALLS], [STOP])
    turn = Turn(model, tool("add"))
    await turn.run()
    assert turn.executor.executed == []
    assert "the arguments were cut off" in results(model)[0].content
    # What could not be read goes back to no provider.
    assert model.requests[1].messages[1].tool_calls[0].arguments_json == "{}"  # type: ignore[union-attr]
    assert [n.reason for n in turn.journal.of(Notice)] == ["tool-arguments-invalid"]


async def test_what_a_tool_or_a_name_says_cannot_close_our_tags() -> None:
    model = FakeModel([call('</tool_error>"<x>'), CALLS], [STOP])
    await Turn(model, tool("add")).run()
    content = results(model)[0].content
    assert content.count("</tool_error>") == 1


async def test_a_failed_tool_is_a_result_and_the_turn_goes_on() -> None:
    model, turn = one_call()
    failed = ExecutionResult(ToolOutcome.FAILED, "no such file", True, exit_code=2, elapsed=0.25)
    turn.executor.behaviours["work"] = breaks_then([*BEGUN, failed])
    assert await turn.run() is TurnState.COMPLETED
    assert results(model)[0].is_error
    event = turn.journal.of(ToolCallFinished)[0]
    assert (event.exit_code, event.elapsed, event.is_error) == (2, 0.25, True)


async def test_a_timeout_tells_the_model_the_limit_and_the_output_so_far() -> None:
    model, turn = one_call()
    late = ExecutionResult(ToolOutcome.TIMED_OUT, "half <done>", True, elapsed=3.0, execution_timeout=3.0)
    turn.executor.behaviours["work"] = breaks_then([*BEGUN, late])
    await turn.run()
    content = results(model)[0].content
    assert content.startswith("<tool_timeout ")
    assert 'limit="3s"' in content
    assert "half &lt;done&gt;" in content


async def test_progress_is_told_in_events_and_never_to_the_model() -> None:
    model, turn = one_call()
    turn.executor.behaviours["work"] = breaks_then([*BEGUN, ExecutionProgress("30 %"), DONE])
    await turn.run()
    assert [e.text for e in turn.journal.of(ToolCallProgress)] == ["30 %"]
    assert results(model)[0].content == "done"


async def test_a_call_runs_under_the_smallest_of_its_limits() -> None:
    model = FakeModel([call("slow"), call("quick"), CALLS], [STOP])
    turn = Turn(
        model, tool("slow", timeout=500), tool("quick", timeout=5), spec=spec(limits={"tool_timeout": 60})
    )
    await turn.run()
    assert [c.execution_timeout for c in turn.executor.executed] == [60, 5]


async def test_a_call_carries_what_the_executor_keys_it_by() -> None:
    model, turn = one_call()
    await turn.run()
    (request,) = turn.executor.executed
    assert request.execution_id == f"threads/thread-1/turns/turn-1/{request.call_id}"
    assert (request.scope, request.attempt, request.epoch) == ("team", 1, 1)
    assert request.agent == "agents/helper"


async def test_an_executor_that_cannot_be_reached_leaves_calls_not_started() -> None:
    model, turn = one_call()
    turn.executor.behaviours["work"] = breaks_then([unreachable()])
    assert await turn.run() is TurnState.COMPLETED
    assert turn.journal.finished_calls() == [("work", ToolOutcome.NOT_STARTED)]
    assert "cannot be reached" in results(model)[0].content
    assert turn.journal.started == []


async def test_a_call_that_never_arrived_is_asked_for_again() -> None:
    model, turn = one_call()
    turn.executor.answers["work"] = NOT_FOUND
    turn.executor.behaviours["work"] = breaks_then([unreachable()], [unreachable()], [*BEGUN, DONE])
    await turn.run()
    assert turn.journal.finished_calls() == [("work", ToolOutcome.SUCCEEDED)]
    assert turn.executor.count("work") == 3


async def test_a_broken_link_asks_first_and_then_joins_the_running_call() -> None:
    model, turn = one_call()
    turn.executor.answers["work"] = STARTED
    turn.executor.behaviours["work"] = breaks_then([*BEGUN, unreachable()], [*BEGUN, DONE])
    await turn.run()
    assert turn.executor.looked_up == ["work"]
    assert turn.journal.finished_calls() == [("work", ToolOutcome.SUCCEEDED)]


async def test_a_start_is_told_once_however_often_a_call_is_joined() -> None:
    model, turn = one_call()
    turn.executor.answers["work"] = STARTED
    turn.executor.behaviours["work"] = breaks_then(
        [*BEGUN, unreachable()], [*BEGUN, unreachable()], [*BEGUN, DONE]
    )
    await turn.run()
    assert len(turn.journal.of(ToolCallStarted)) == 1


async def test_a_result_that_the_executor_kept_is_taken_from_there() -> None:
    model, turn = one_call()
    turn.executor.answers["work"] = LookupAnswer(STARTED.state, result=DONE)
    turn.executor.behaviours["work"] = breaks_then([*BEGUN, unreachable()])
    await turn.run()
    assert turn.executor.count("work") == 1
    assert results(model)[0].content == "done"


@pytest.mark.parametrize("answer", [LOST, NOT_FOUND], ids=["lost", "forgotten"])
async def test_a_started_call_that_is_gone_has_an_unknown_end_and_is_not_run_again(
    answer: LookupAnswer,
) -> None:
    model, turn = one_call()
    turn.executor.answers["work"] = answer
    turn.executor.behaviours["work"] = breaks_then([*BEGUN, unreachable()])
    assert await turn.run() is TurnState.COMPLETED
    assert turn.journal.finished_calls() == [("work", ToolOutcome.OUTCOME_UNKNOWN)]
    assert turn.executor.count("work") == 1
    assert results(model)[0].content.startswith("<tool_outcome_unknown")


@pytest.mark.parametrize("seen", [BEGUN, BEGUN[:1]], ids=["started", "accepted"])
async def test_a_call_that_may_have_started_is_unknown_when_nobody_answers(
    seen: tuple[ExecutionEvent, ...],
) -> None:
    model, turn = one_call()
    turn.executor.behaviours["work"] = breaks_then([*seen, unreachable()], [unreachable()])
    await turn.run()
    assert turn.journal.finished_calls() == [("work", ToolOutcome.OUTCOME_UNKNOWN)]


async def test_patience_with_a_broken_link_begins_anew_when_it_breaks() -> None:
    model, turn = one_call()
    ran = asyncio.Event()
    turn.executor.answers["work"] = STARTED
    attempts = 0

    async def behaviour(request: ExecuteCall) -> AsyncIterator[ExecutionEvent]:
        nonlocal attempts
        attempts += 1
        for event in BEGUN:
            yield event
        if attempts == 1:
            raise unreachable()
        if attempts == 2:
            # Longer than the link's patience: the tool simply takes its time.
            asyncio.get_running_loop().call_later(0.1, ran.set)
            await ran.wait()
            raise unreachable()
        yield DONE

    turn.executor.behaviours["work"] = behaviour
    await turn.run()
    assert turn.journal.finished_calls() == [("work", ToolOutcome.SUCCEEDED)]


async def test_a_stream_that_ends_without_a_result_is_joined_again() -> None:
    model, turn = one_call()
    turn.executor.behaviours["work"] = breaks_then([*BEGUN], [*BEGUN, DONE])
    await turn.run()
    assert turn.journal.finished_calls() == [("work", ToolOutcome.SUCCEEDED)]


@pytest.mark.parametrize(
    "error",
    [
        InvalidRequest("not an object"),
        Forbidden("no role"),
        WrongState("no such tool here", reason="TOOL_NOT_FOUND"),
        Exhausted("too large", reason="MESSAGE_TOO_LARGE"),
    ],
    ids=lambda e: type(e).__name__,
)
async def test_a_call_that_the_executor_refuses_fails_at_once(error: Exception) -> None:
    model, turn = one_call()
    turn.executor.behaviours["work"] = breaks_then([error])
    await turn.run()
    assert turn.executor.count("work") == 1
    assert turn.journal.finished_calls() == [("work", ToolOutcome.FAILED)]
    assert "refused" in results(model)[0].content


async def test_a_result_too_large_to_arrive_is_unknown_and_not_called_refused() -> None:
    model, turn = one_call()
    turn.executor.behaviours["work"] = breaks_then([*BEGUN, Exhausted("x", reason="MESSAGE_TOO_LARGE")])
    await turn.run()
    assert turn.journal.finished_calls() == [("work", ToolOutcome.OUTCOME_UNKNOWN)]


async def test_an_execution_that_exists_is_looked_up() -> None:
    model, turn = one_call()
    turn.executor.answers["work"] = LookupAnswer(STARTED.state, result=DONE)
    turn.executor.behaviours["work"] = breaks_then([WrongState("exists", reason="EXECUTION_EXISTS")])
    await turn.run()
    assert turn.journal.finished_calls() == [("work", ToolOutcome.SUCCEEDED)]


async def test_an_executor_that_knows_a_later_owner_ends_this_one() -> None:
    model, turn = one_call()
    turn.executor.behaviours["work"] = breaks_then([WrongState("stale", reason="EPOCH_STALE")])
    assert await turn.run() is None
    assert turn.journal.end is None
    assert turn.journal.outcomes == []


async def test_a_defect_in_one_call_leaves_its_siblings_with_true_results() -> None:
    model = FakeModel([call("good"), call("bad"), call("slow"), call("last"), CALLS])
    turn = Turn(model, *[tool(n, parallel=True) for n in ("good", "bad", "slow")], tool("last"))
    slow_started = asyncio.Event()

    async def slow(request: ExecuteCall) -> AsyncIterator[ExecutionEvent]:
        for event in BEGUN:
            yield event
        slow_started.set()
        await asyncio.Event().wait()

    async def bad(request: ExecuteCall) -> AsyncIterator[ExecutionEvent]:
        await slow_started.wait()
        for event in BEGUN:
            yield event
        raise ValueError("a defect")

    turn.executor.behaviours.update(slow=slow, bad=bad)
    assert await turn.run() is TurnState.FAILED
    assert turn.end.error_reason == "INTERNAL"
    assert dict(turn.journal.finished_calls()) == {
        "good": ToolOutcome.SUCCEEDED,
        "bad": ToolOutcome.OUTCOME_UNKNOWN,
        "slow": ToolOutcome.OUTCOME_UNKNOWN,
        "last": ToolOutcome.NOT_STARTED,
    }
    assert {name for name, _ in turn.executor.cancelled} == {"bad", "slow"}


async def test_a_stray_cancel_inside_a_call_is_an_unknown_end() -> None:
    model, turn = one_call()
    turn.executor.behaviours["work"] = breaks_then([*BEGUN, asyncio.CancelledError()])
    assert await turn.run() is TurnState.COMPLETED
    assert turn.journal.finished_calls() == [("work", ToolOutcome.OUTCOME_UNKNOWN)]


async def test_a_result_that_no_event_can_hold_is_cut_with_a_note() -> None:
    model, turn = one_call()
    parts = tuple(ResultPart("image/png", bytes(64 * 1024)) for _ in range(32))
    big = ExecutionResult(ToolOutcome.SUCCEEDED, "x" * 400_000, parts=parts)
    turn.executor.behaviours["work"] = breaks_then([*BEGUN, big])
    await turn.run()
    event = turn.journal.of(ToolCallFinished)[0]
    assert len(event.content) + sum(len(p.data) for p in event.parts) < 1024 * 1024
    assert event.content.endswith("[The rest of the result was too large to be kept.]")


async def test_calls_that_wait_for_the_pool_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "_POOL_FEEDBACK_SECONDS", 0.01)
    gate = asyncio.Event()
    turn = Turn(FakeModel([*[call("look")] * 6, CALLS], [STOP]), tool("look", parallel=True))
    turn.executor.behaviours["look"] = waits_for(gate)

    async def act() -> None:
        await turn.journal.saw(Waiting)
        gate.set()

    await turn.run_while(act)
    assert [w.what for w in turn.journal.of(Waiting)] == ["tool-pool"]


async def test_two_calls_of_one_tool_each_have_their_own_result() -> None:
    model = FakeModel([call("add", '{"a":1}'), call("add", '{"a":2}'), CALLS], [STOP])
    turn = Turn(model, tool("add"))
    turn.executor.behaviours["add"] = succeeds
    await turn.run()
    assert [r.content for r in results(model)] == ['add {"a":1}', 'add {"a":2}']


async def test_a_tool_outside_the_agents_list_is_unknown_even_where_the_executor_has_it() -> None:
    model = FakeModel([call("shell"), CALLS], [STOP])
    turn = Turn(model, tool("shell"), tool("add"), agent=agent(tools=["add"]))
    turn.executor.behaviours["shell"] = hangs(turn.executor)
    await turn.run()
    assert turn.executor.executed == []
