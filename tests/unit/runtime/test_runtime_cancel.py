"""Stopping a turn: wherever it is, it ends once, keeps what it has, and tells the truth about its calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from support.runtime_fakes import (
    NOT_FOUND,
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
from turnwire.extend.errors import AgentTimeoutError, LoopDetectedError
from turnwire.extend.events import (
    StepCommitted,
    StepStarted,
    ToolCallFinished,
    ToolCallStarted,
    ToolOutcome,
    TurnState,
)
from turnwire.extend.llm import Finish, FinishReason, ReasoningDelta, TextDelta, ToolCallComplete
from turnwire.runtime.domain.admission import AppliedCommand
from turnwire.runtime.domain.execution import (
    ExecuteCall,
    ExecutionAccepted,
    ExecutionEvent,
    ExecutionResult,
    ExecutionStarted,
)
from turnwire.runtime.domain.message import ContentPart
from turnwire.runtime.engine import cancel, execution, tools
from turnwire.runtime.engine.cancel import CancelToken, StopRequest

STOP = Finish(FinishReason.STOP)
CALLS = Finish(FinishReason.TOOL_CALLS)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody who does not answer is waited for long."""
    monkeypatch.setattr(tools, "STOP_WAIT_SECONDS", 0.05)
    monkeypatch.setattr(cancel, "ABANDON_SECONDS", 0.02)
    monkeypatch.setattr(execution, "_LINK_DELAYS", (0.0,))


def cancelled(turn: Turn, kind: type, count: int = 1, command: str = "command-1"):  # type: ignore[no-untyped-def]
    """Cancel the turn as soon as it has emitted so many events of a class."""

    async def act() -> None:
        await turn.journal.saw(kind, count)
        turn.token.cancel("enough", command)

    return act


async def test_a_cancel_before_the_first_byte_leaves_no_message() -> None:
    model = FakeModel([asyncio.Event()])
    turn = Turn(model)
    assert await turn.run_while(cancelled(turn, StepStarted)) is TurnState.CANCELLED
    assert turn.journal.committed == []
    assert (turn.end.stop_reason, turn.end.text, turn.end.final_message) == ("cancelled", "", "")
    assert turn.end.error_reason == ""
    assert model.closed == 1


async def test_a_cancel_in_mid_stream_keeps_the_text_so_far_with_its_reason() -> None:
    model = FakeModel([TextDelta("so "), TextDelta("far"), asyncio.Event()])
    turn = Turn(model)
    assert await turn.run_while(cancelled(turn, TextDelta, 2)) is TurnState.CANCELLED
    ((part,),) = turn.journal.committed
    assert isinstance(part, ContentPart)
    assert part.content.text == "so far"
    assert turn.journal.interrupted_reason == "cancelled"
    assert turn.end.text == "so far"
    assert turn.end.usage.model_calls == 1
    assert model.closed == 1


async def test_reasoning_is_kept_with_the_text_it_led_to_and_not_alone() -> None:
    for told, kept in (([TextDelta("so far")], 2), ([], 0)):
        turn = Turn(FakeModel([ReasoningDelta("hm"), *told, asyncio.Event()]))
        await turn.run_while(cancelled(turn, TextDelta if told else ReasoningDelta))
        assert sum(len(parts) for parts in turn.journal.committed) == kept


async def test_a_cancel_between_steps_starts_no_further_step() -> None:
    gate = asyncio.Event()
    model = FakeModel([call("add"), CALLS], [STOP])
    turn = Turn(model, tool("add"))

    class Journal(type(turn.journal)):  # type: ignore[misc]
        def emit(self, event: object) -> int:
            sequence: int = super().emit(event)
            if isinstance(event, ToolCallFinished):
                turn.token.cancel("enough", "command-1")
                gate.set()
            return sequence

    turn.journal.__class__ = Journal
    assert await turn.run() is TurnState.CANCELLED
    assert gate.is_set()
    assert len(model.requests) == 1
    assert turn.journal.finished_calls() == [("add", ToolOutcome.SUCCEEDED)]


async def test_a_cancel_before_the_first_step_ends_the_turn_without_a_model_call() -> None:
    model = FakeModel([STOP])
    turn = Turn(model)
    turn.token.cancel("enough", "command-1")
    assert await turn.run() is TurnState.CANCELLED
    assert model.requests == []
    assert turn.journal.applied == (AppliedCommand("command-1", "applied"),)


async def test_a_cancel_stops_running_calls_keeps_finished_ones_and_starts_no_more() -> None:
    model = FakeModel([call("done"), call("running"), call("later"), CALLS])
    turn = Turn(model, tool("done", parallel=True), tool("running", parallel=True), tool("later"))
    turn.executor.behaviours["running"] = hangs(turn.executor)

    async def act() -> None:
        await turn.journal.saw(ToolCallFinished)
        await turn.journal.saw(ToolCallStarted, 2)
        turn.token.cancel("enough")

    assert await turn.run_while(act) is TurnState.CANCELLED
    assert turn.journal.finished_calls() == [
        ("done", ToolOutcome.SUCCEEDED),
        ("running", ToolOutcome.STOPPED),
        ("later", ToolOutcome.NOT_STARTED),
    ]
    assert turn.executor.cancelled == [("running", "enough")]
    stopped = turn.journal.outcomes[1]
    assert stopped.content.startswith("<tool_cancelled")
    assert "so far" in stopped.content


async def test_a_call_that_does_not_answer_its_cancel_has_an_unknown_end() -> None:
    turn = Turn(FakeModel([call("deaf"), CALLS]), tool("deaf"))
    turn.executor.behaviours["deaf"] = hangs(turn.executor, obeys=False)
    assert await turn.run_while(cancelled(turn, ToolCallStarted)) is TurnState.CANCELLED
    assert turn.journal.finished_calls() == [("deaf", ToolOutcome.OUTCOME_UNKNOWN)]


async def test_an_executor_that_hangs_on_cancel_does_not_hold_the_turn_twice_as_long() -> None:
    turn = Turn(FakeModel([call("deaf"), CALLS]), tool("deaf"))
    turn.executor.behaviours["deaf"] = hangs(turn.executor, obeys=False)
    turn.executor.hang_cancel = asyncio.Event()
    loop = asyncio.get_running_loop()
    fired: list[float] = []

    async def act() -> None:
        await turn.journal.saw(ToolCallStarted)
        fired.append(loop.time())
        turn.token.cancel("enough")

    await turn.run_while(act)
    assert turn.journal.finished_calls() == [("deaf", ToolOutcome.OUTCOME_UNKNOWN)]
    assert loop.time() - fired[0] < 1


async def test_a_result_that_arrives_while_a_cancel_hangs_ends_the_wait() -> None:
    turn = Turn(FakeModel([call("work"), CALLS]), tool("work"))
    turn.executor.behaviours["work"] = hangs(turn.executor)
    turn.executor.hang_cancel = asyncio.Event()
    await turn.run_while(cancelled(turn, ToolCallStarted))
    assert turn.journal.finished_calls() == [("work", ToolOutcome.STOPPED)]


async def test_a_tool_that_had_finished_when_the_cancel_came_is_told_as_finished() -> None:
    gate = asyncio.Event()
    turn = Turn(FakeModel([call("work"), CALLS]), tool("work"))
    turn.executor.behaviours["work"] = waits_for(gate, "made it")

    async def act() -> None:
        await turn.journal.saw(ToolCallStarted)
        turn.token.cancel("enough")
        gate.set()

    assert await turn.run_while(act) is TurnState.CANCELLED
    assert turn.journal.finished_calls() == [("work", ToolOutcome.SUCCEEDED)]


async def test_calls_that_wait_for_the_pool_never_start_after_a_cancel() -> None:
    turn = Turn(FakeModel([*[call("look")] * 8, CALLS]), tool("look", parallel=True))
    turn.executor.behaviours["look"] = hangs(turn.executor)
    await turn.run_while(cancelled(turn, ToolCallStarted, 5))
    outcomes = [outcome for _, outcome in turn.journal.finished_calls()]
    assert outcomes.count(ToolOutcome.STOPPED) == 5
    assert outcomes.count(ToolOutcome.NOT_STARTED) == 3


async def test_a_call_whose_link_is_broken_is_not_started_after_a_cancel() -> None:
    turn = Turn(FakeModel([call("work"), CALLS]), tool("work"))
    turn.executor.answers["work"] = NOT_FOUND
    broke = asyncio.Event()

    async def behaviour(request: ExecuteCall) -> AsyncIterator[ExecutionEvent]:
        if turn.executor.count("work") > 1:
            assert not turn.token.fired, "it was started after the cancel"
        broke.set()
        raise unreachable()
        yield

    turn.executor.behaviours["work"] = behaviour

    async def act() -> None:
        await broke.wait()
        turn.token.cancel("enough")

    assert await turn.run_while(act) is TurnState.CANCELLED
    assert turn.journal.finished_calls() == [("work", ToolOutcome.NOT_STARTED)]


async def test_a_started_call_whose_link_is_broken_is_joined_for_its_truth_after_a_cancel() -> None:
    turn = Turn(FakeModel([call("work"), CALLS]), tool("work"))
    begun = (ExecutionAccepted(), ExecutionStarted(9.0))
    stopped = ExecutionResult(ToolOutcome.STOPPED, "", True)
    joined = breaks_then([*begun, unreachable()], [*begun, stopped])

    async def behaviour(request: ExecuteCall) -> AsyncIterator[ExecutionEvent]:
        if turn.executor.count("work") == 1:
            turn.token.cancel("enough")
        async for event in joined(request):
            yield event

    turn.executor.behaviours["work"] = behaviour
    await turn.run()
    assert turn.journal.finished_calls() == [("work", ToolOutcome.STOPPED)]


async def test_a_cancel_ends_the_wait_for_a_hung_list_of_tools() -> None:
    turn = Turn(FakeModel([STOP]), tool("add"))
    turn.executor.hang_list = asyncio.Event()

    async def act() -> None:
        assert turn.executor.hang_list is not None
        await turn.executor.hang_list.wait()
        turn.token.cancel("enough")

    assert await turn.run_while(act) is TurnState.CANCELLED
    assert turn.journal.of(StepStarted) == []


async def test_a_second_cancel_is_a_duplicate_that_names_the_first() -> None:
    turn = Turn(FakeModel([TextDelta("a"), asyncio.Event()]))

    async def act() -> None:
        await turn.journal.saw(TextDelta)
        assert turn.token.cancel("enough", "one")
        assert not turn.token.cancel("really", "two")
        assert not turn.token.cancel("enough", "one")

    await turn.run_while(act)
    assert turn.journal.applied == (
        AppliedCommand("one", "applied"),
        AppliedCommand("two", "duplicate", "one"),
    )


async def test_a_cancel_in_the_tick_of_the_last_event_changes_nothing() -> None:
    turn = Turn(FakeModel([TextDelta("a"), STOP]))

    class Journal(type(turn.journal)):  # type: ignore[misc]
        def emit(self, event: object) -> int:
            sequence: int = super().emit(event)
            if isinstance(event, Finish):
                turn.token.cancel("too late", "command-1")
            return sequence

    turn.journal.__class__ = Journal
    assert await turn.run() is TurnState.COMPLETED
    assert turn.end.text == "a"
    assert turn.journal.applied == ()


async def test_a_cancel_after_the_answer_with_calls_starts_no_tool() -> None:
    turn = Turn(FakeModel([call("add"), CALLS], [STOP]), tool("add"))

    class Journal(type(turn.journal)):  # type: ignore[misc]
        def commit_step(self, *args: object, **fields: object) -> None:
            super().commit_step(*args, **fields)
            turn.token.cancel("enough", "command-1")

    turn.journal.__class__ = Journal
    assert await turn.run() is TurnState.CANCELLED
    assert turn.executor.executed == []
    assert turn.journal.finished_calls() == [("add", ToolOutcome.NOT_STARTED)]
    assert len(turn.journal.of(StepCommitted)) == 1


async def test_a_turn_that_uses_up_its_time_fails_with_timeout_and_keeps_its_text() -> None:
    turn = Turn(FakeModel([TextDelta("so far"), asyncio.Event()]), spec=spec(limits={"turn_timeout": 0.02}))
    assert await turn.run() is TurnState.FAILED
    assert (turn.end.stop_reason, turn.end.error_reason) == ("timeout", "TIMEOUT")
    assert turn.end.text == "so far"
    assert turn.journal.interrupted_reason == "timeout"


async def test_a_cancel_after_a_timeout_is_no_effect_of_that_command() -> None:
    turn = Turn(FakeModel([TextDelta("a"), asyncio.Event()]))

    async def act() -> None:
        await turn.journal.saw(TextDelta)
        turn.token.fire(AgentTimeoutError("too long"))
        turn.token.cancel("enough", "late")

    assert await turn.run_while(act) is TurnState.FAILED
    assert turn.journal.applied == ()


async def test_a_controlled_end_may_bring_the_final_text() -> None:
    turn = Turn(FakeModel([TextDelta("a"), asyncio.Event()]))

    async def act() -> None:
        await turn.journal.saw(TextDelta)
        turn.token.fire(LoopDetectedError("it repeats itself", user_content="I am going in circles."))

    assert await turn.run_while(act) is TurnState.FAILED
    assert (turn.end.stop_reason, turn.end.error_reason) == ("loop-detected", "LOOP_DETECTED")
    assert turn.end.text == "I am going in circles."


async def test_a_shutdown_ends_the_turn_as_failed_by_its_own_words() -> None:
    turn = Turn(FakeModel([TextDelta("a"), asyncio.Event()]))

    async def act() -> None:
        await turn.journal.saw(TextDelta)
        turn.token.fire(StopRequest("error", "the runtime was stopped"))

    assert await turn.run_while(act) is TurnState.FAILED
    assert (turn.end.stop_reason, turn.end.error_text) == ("error", "the runtime was stopped")


async def test_a_model_that_swallows_the_cancel_is_left_behind_and_says_nothing_more() -> None:
    model = FakeModel([TextDelta("a"), asyncio.Event(), TextDelta("b"), STOP])
    model.swallow_cancel = asyncio.Event()
    turn = Turn(model)
    assert await turn.run_while(cancelled(turn, TextDelta)) is TurnState.CANCELLED
    assert turn.end.text == "a"
    model.swallow_cancel.set()


async def test_a_model_that_fails_while_it_is_stopped_is_still_a_cancel() -> None:
    class Sore(FakeModel):
        async def _wait(self, gate: asyncio.Event) -> None:
            try:
                await gate.wait()
            except asyncio.CancelledError:
                raise RuntimeError("the connection did not close") from None

    turn = Turn(Sore([TextDelta("a"), asyncio.Event()]))
    assert await turn.run_while(cancelled(turn, TextDelta)) is TurnState.CANCELLED
    assert turn.end.text == "a"


async def test_the_timer_of_a_turn_does_not_outlive_it() -> None:
    turn = Turn(FakeModel([STOP]), spec=spec(limits={"turn_timeout": 60}))
    await turn.run()
    assert turn.token._timer is not None
    assert turn.token._timer.cancelled()


async def test_a_callback_set_after_the_stop_is_called_at_once() -> None:
    token = CancelToken()
    token.cancel("enough")
    called: list[bool] = []
    token.on_fire(lambda: called.append(True))
    assert called == [True]


async def test_work_that_never_began_is_not_left_unawaited() -> None:
    token = CancelToken()
    token.cancel("enough")
    with pytest.raises(Exception, match="enough"):
        await token.sleep(60)


async def test_each_call_of_an_answer_has_exactly_one_result_wherever_the_stop_comes() -> None:
    for stop_at in range(1, 16):
        names = ["look", "write", "look", "look"]
        turn = Turn(
            FakeModel([TextDelta("x"), *[call(n) for n in names], CALLS], [STOP]),
            tool("look", parallel=True),
            tool("write"),
        )

        class Journal(type(turn.journal)):  # type: ignore[misc]
            stop_at = 0
            token: CancelToken

            def emit(self, event: object) -> int:
                sequence: int = super().emit(event)
                if len(self.events) == self.stop_at:
                    self.token.cancel("enough")
                return sequence

        turn.journal.__class__ = Journal
        turn.journal.stop_at = stop_at  # type: ignore[attr-defined]
        turn.journal.token = turn.token  # type: ignore[attr-defined]
        await turn.run()
        committed = [i for e in turn.journal.of(StepCommitted) for i in e.call_ids]
        assert sorted(e.call_id for e in turn.journal.of(ToolCallFinished)) == sorted(committed)
        assert len(committed) in (0, len(turn.journal.of(ToolCallComplete)))
