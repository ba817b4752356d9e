"""The sync client keeps the same promises as the async one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

import grpc
import pytest

from support.scripted_runtime import CUT, Failure, Leg, ScriptedRuntime, serving
from support.turn_story import THREAD, TURN, multiplication
from turnwire.api.runtime.v1.turn_pb2 import TurnState
from turnwire_client import Client, NotFound, Patience, Unavailable

STORY = multiplication().events
ALL = [event.sequence for event in STORY]
T = TypeVar("T")


async def with_client(runtime: ScriptedRuntime, work: Callable[[Client], T]) -> T:
    """Do the work in a thread, beside the server's loop."""

    def run(target: str) -> T:
        with Client(target, patience=Patience(connect_time=1.0, retry_time=5.0)) as client:
            return work(client)

    async with asyncio.timeout(20), serving(runtime) as target:
        return await asyncio.to_thread(run, target)


def read(client: Client) -> list[int]:
    with client.run_turn(agent="demo", text="6 times 7?") as stream:
        assert stream.turn == TURN
        return [event.sequence for event in stream]


@pytest.mark.parametrize("cut", [1, 2, len(STORY) // 2, len(STORY) - 1, len(STORY)])
async def test_a_cut_loses_and_repeats_nothing_for_the_sync_client(cut: int) -> None:
    runtime = ScriptedRuntime(STORY, Leg(until=cut, failure=CUT), Leg(repeat=2))
    assert await with_client(runtime, read) == ALL
    if cut < len(STORY):
        assert runtime.requests[1].after_sequence == cut


async def test_a_gap_and_an_early_ok_are_bridged_by_the_sync_client() -> None:
    runtime = ScriptedRuntime(STORY, Leg(until=3), Leg(skip=2), Leg(until=0, failure=CUT))
    assert await with_client(runtime, read) == ALL


async def test_leaving_the_scope_cancels_the_call_of_the_sync_client() -> None:
    runtime = ScriptedRuntime(STORY, Leg(until=4, silent=True))

    def leave_early(client: Client) -> int:
        with client.run_turn(agent="demo", text="hello") as stream:
            return next(stream).sequence

    assert await with_client(runtime, leave_early) == 1
    async with asyncio.timeout(5):
        await runtime.detached.wait()


async def test_closing_from_another_thread_ends_the_sync_iteration() -> None:
    runtime = ScriptedRuntime(STORY, Leg(until=2, silent=True))
    loop = asyncio.get_running_loop()

    def close_from_outside(client: Client) -> list[int]:
        with client.run_turn(agent="demo", text="hello") as stream:
            seen = [next(stream).sequence, next(stream).sequence]
            loop.call_soon_threadsafe(stream.close)
            return seen + [event.sequence for event in stream]

    assert await with_client(runtime, close_from_outside) == [1, 2]


async def test_the_sync_run_gives_the_whole_result() -> None:
    result = await with_client(ScriptedRuntime(STORY), lambda client: client.run("demo", "6 times 7?"))
    assert result.ok
    assert result.text == "6 times 7 is 42."
    assert (result.turn, result.thread, result.stop_reason) == (TURN, THREAD, "completed")
    assert [call.tool_name for call in result.calls] == ["multiply"]


async def test_the_sync_client_maps_errors_and_gives_up_in_time() -> None:
    missing = ScriptedRuntime(
        STORY, Leg(until=0, failure=Failure(grpc.StatusCode.NOT_FOUND, reason="AGENT_NOT_FOUND"))
    )
    with pytest.raises(NotFound):
        await with_client(missing, read)
    gone = ScriptedRuntime(STORY, *[Leg(until=0, failure=CUT)] * 100)
    with pytest.raises(Unavailable):
        await with_client(gone, read)


async def test_sync_unary_calls_and_lists_work() -> None:
    runtime = ScriptedRuntime(STORY)

    def calls(client: Client) -> None:
        assert client.get_turn(TURN).state == TurnState.TURN_STATE_COMPLETED
        outcome = client.cancel(TURN, cause="enough")
        assert outcome is not None
        assert outcome.applied_sequence == 7
        assert list(client.list_turns()) == []
        assert b"".join(client.read_tool_result(TURN, "call-0001")) == b"bytes..."

    await with_client(runtime, calls)
