"""Turns that cannot be ended the regular way still end once, and their threads go on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from support.runtime_fakes import FakeModel, Turn, call, tool
from support.runtime_rig import command
from support.runtime_turns import STOP, answers, rig
from turnwire.extend.events import ToolOutcome, TurnState
from turnwire.extend.llm import Finish, FinishReason, ReasoningDelta, TextDelta
from turnwire.runtime.engine.plan import MAX_CALLS
from turnwire.runtime.engine.turn import TurnRunner

CALLS = Finish(FinishReason.TOOL_CALLS)


async def test_a_runner_with_a_defect_at_its_end_leaves_a_failed_turn_and_a_free_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    regular = TurnRunner.run
    broken: list[TurnRunner] = []

    async def breaks_once(self: TurnRunner) -> TurnState | None:
        if broken:
            return await regular(self)
        broken.append(self)
        raise RuntimeError("no end can be written")

    monkeypatch.setattr(TurnRunner, "run", breaks_once)
    async with rig(tmp_path, answers(2)) as made:
        first = await made.supervisor.start(command())
        second = await made.supervisor.start(command(first.key.thread_id))
        await made.observer.until(lambda: made.observer.closed == 2)
        row = await made.store.get_turn(first.key)
        assert (row.state, row.error_reason) == (TurnState.FAILED, "INTERNAL")
        assert await made.state(second.key) is TurnState.COMPLETED
        assert made.store.open_logs == 0


async def test_a_wait_for_an_end_is_over_when_the_process_leaves(tmp_path: Path) -> None:
    gate = asyncio.Event()
    async with rig(tmp_path, FakeModel([gate, STOP])) as made:
        admitted = await made.supervisor.start(command())
        log = made.store.log_of(admitted.key)
        assert log is not None
        async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(made.store.wait_for_end(log, 300.0))
            await asyncio.sleep(0)
            made.store.send_away()
        assert waiting.done()
        assert not log.finished
        gate.set()
        await made.observer.until(lambda: made.observer.closed == 1)


async def test_long_deltas_are_weighed_by_their_length_and_short_ones_are_not() -> None:
    turn = Turn(FakeModel([TextDelta("a" * 5000), TextDelta("b"), ReasoningDelta("c" * 2000), STOP]))
    assert await turn.run() is TurnState.COMPLETED
    assert turn.journal.weighed == [5000, 2000]


async def test_calls_beyond_what_one_step_takes_are_told_so_and_not_run() -> None:
    model = FakeModel([*(call("add") for _ in range(MAX_CALLS + 3)), CALLS], [STOP])
    turn = Turn(model, tool("add"))
    assert await turn.run() is TurnState.COMPLETED
    assert len(turn.executor.executed) == MAX_CALLS
    outcomes = [outcome for _, outcome in turn.journal.finished_calls()]
    assert outcomes.count(ToolOutcome.FAILED) == 3
