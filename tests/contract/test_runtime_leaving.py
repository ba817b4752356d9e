"""Cancel by command and by absence, at the moments at which a turn changes hands."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.runtime_server import Runtime, request, running, start
from turnwire.api.runtime.v1 import turn_pb2, turn_service_pb2
from turnwire.extend.events import TurnState
from turnwire.runtime.domain.control import ControlDelivery
from turnwire.runtime.domain.turn import TurnKey

AGENTS = {
    "hang": [[{"text": "so far "}, {"hang": True}]],
    "plain": [[{"text": "hello"}]],
    "slow": [[{"tool_call": {"name": "wait"}}], [{"text": "done"}]],
}
CANCELLED = turn_pb2.TURN_STATE_CANCELLED


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[Runtime]:
    async with running(tmp_path, AGENTS) as served:
        yield served


def key_of(turn: str) -> TurnKey:
    _, thread, _, turn_id = turn.split("/")
    return TurnKey("default-org", thread, turn_id)


def delivery(turn: str = "", thread: str = "", *, clear_queue: bool = False) -> ControlDelivery:
    return ControlDelivery(
        "default-org",
        str(uuid.uuid4()),
        turn=turn,
        thread=thread,
        cause="enough",
        clear_queue=clear_queue,
        remaining_seconds=30.0,
    )


async def started(runtime: Runtime, agent: str, thread: str = "") -> turn_pb2.Turn:
    answer = await runtime.turns.StartTurn(start(request(agent, thread=thread)))
    turn: turn_pb2.Turn = answer.turn
    return turn


async def in_line(runtime: Runtime, *agents: str) -> list[turn_pb2.Turn]:
    """Turns of one thread; all but the first wait."""
    first = await started(runtime, agents[0])
    thread = first.name.partition("/turns/")[0]
    return [first, *[await started(runtime, agent, thread) for agent in agents[1:]]]


async def test_a_cancel_that_clears_the_queue_ends_what_waits_too(runtime: Runtime) -> None:
    turns = await in_line(runtime, "hang", "plain", "plain")
    outcome = await runtime.desk.deliver(delivery(turns[0].name, clear_queue=True))
    assert (outcome.kind, outcome.turn) == ("applied", turns[0].name)
    ends = [await runtime.ended(turn.name) for turn in turns]
    assert [turn.state for turn in ends] == [CANCELLED] * 3
    assert not ends[1].HasField("start_time")


async def test_a_cancel_of_a_thread_may_clear_its_queue(runtime: Runtime) -> None:
    turns = await in_line(runtime, "hang", "plain")
    thread = turns[0].name.partition("/turns/")[0]
    assert (await runtime.desk.deliver(delivery(thread=thread, clear_queue=True))).kind == "applied"
    assert [(await runtime.ended(turn.name)).state for turn in turns] == [CANCELLED] * 2


async def test_a_cancel_of_one_turn_leaves_the_queue_alone(runtime: Runtime) -> None:
    turns = await in_line(runtime, "hang", "plain")
    await runtime.desk.deliver(delivery(turns[0].name))
    assert (await runtime.ended(turns[1].name)).state == turn_pb2.TURN_STATE_COMPLETED


async def test_a_turn_that_begins_while_it_is_cancelled_for_absence_is_cancelled_all_the_same(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = await in_line(runtime, "slow", "hang")
    begin = runtime.supervisor.cancel_queued

    async def late(key: TurnKey, cause: str, command_id: str) -> int | None:
        """Let the turn leave the queue between the look at it and the cancel."""
        runtime.executor.gate.set()
        async with asyncio.timeout(10):
            while key not in runtime.supervisor.live:
                await asyncio.sleep(0)
        return await begin(key, cause, command_id)

    monkeypatch.setattr(runtime.supervisor, "cancel_queued", late)
    await runtime.desk.cancel(key_of(turns[1].name), "nobody reads it")
    assert (await runtime.ended(turns[1].name)).state == CANCELLED


async def test_a_cancel_of_a_turn_that_nobody_runs_fails_instead_of_looking_for_ever(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = await started(runtime, "hang")
    running_row = await runtime.store.get_turn(key_of(turn.name))
    assert running_row.state is TurnState.RUNNING
    live = dict(runtime.supervisor.live)
    runtime.supervisor.live.clear()
    with pytest.raises(RuntimeError, match="does not run here"):
        await runtime.desk.deliver(delivery(turn.name))
    runtime.supervisor.live.update(live)


@pytest.mark.parametrize("moment", ["before the admission is stored", "before the header is read"])
async def test_a_caller_that_leaves_before_it_reads_is_absent_too(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    asked = request("hang")
    asked.cancel_on_disconnect.grace_timeout.FromMilliseconds(20)
    if moment == "before the admission is stored":
        arrived, go = asyncio.Event(), asyncio.Event()
        admit = runtime.store.admit

        async def slow(*arguments: object) -> object:
            arrived.set()
            await go.wait()
            return await admit(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(runtime.store, "admit", slow)
        call = runtime.turns.RunTurn(asked)
        async with asyncio.timeout(10):
            await arrived.wait()
        call.cancel()
        async with asyncio.timeout(10):
            await call.code()
        go.set()
    else:
        call = runtime.turns.RunTurn(asked)
        async with asyncio.timeout(10):
            while not runtime.supervisor.live:
                await asyncio.sleep(0)
        call.cancel()
    name = await known_turn(runtime, asked)
    turn = await runtime.ended(name)
    assert (turn.state, turn.stop_reason) == (CANCELLED, "cancelled")


async def known_turn(runtime: Runtime, asked: turn_service_pb2.RunTurnRequest) -> str:
    """Wait for the turn that a request became, without being a reader of it."""
    listed = turn_service_pb2.ListTurnsRequest(parent="threads/-")
    async with asyncio.timeout(10):
        while True:
            for turn in (await runtime.turns.ListTurns(listed)).turns:
                if turn.request_id == asked.request_id:
                    return str(turn.name)
