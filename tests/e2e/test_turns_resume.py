"""A client that leaves a turn anywhere and comes back sees the same events as one that stayed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import pytest

from support.strict_provider import Hold, Reply, says
from support.turn_rig import TurnRig, arms, serialised
from turnwire.api.runtime.v1 import turn_event_pb2 as event_pb
from turnwire.api.runtime.v1 import turn_service_pb2 as pb
from turnwire.api.runtime.v1.turn_pb2 import TurnDisposition, TurnState

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

ANSWER = [f"word{n} " for n in range(40)]


def two_steps(file: Path, holds: list[Hold]) -> list[Reply]:
    """Two steps and two tools, with a hold in the reasoning, in the text and in the answer."""
    calls = [("note", {"file": str(file), "line": "first"}), ("shout", {"text": "aloud"})]
    begin = [f"begin{n} " for n in range(10)]
    return [
        says(*begin[:4], holds[0], *begin[4:], reasoning=["let ", "me ", "think"], calls=calls),
        says(*ANSWER[:10], holds[1], *ANSWER[10:25], holds[2], *ANSWER[25:]),
    ]


async def leave_and_return(
    rig: TurnRig, request: pb.RunTurnRequest, count: int, by_watch: bool
) -> list[event_pb.TurnEvent]:
    """Take `count` events, drop the call, come back with what was taken, and return all events."""
    stream = rig.run(request)
    taken = []
    for _ in range(count):
        event = await stream.next()
        assert event is not None
        taken.append(event)
    turn = (await stream.opened()).turn
    stream.leave()
    again = rig.watch(turn, count) if by_watch else rig.run(request, count)
    return taken + await again.rest()


async def release(holds: list[Hold]) -> None:
    """Let the provider go on each time it waits: readers leave and return before, between and after."""
    for hold in holds:
        await hold.reached.wait()
        hold.set()


async def test_readers_that_leave_at_every_event_of_a_running_turn_miss_and_repeat_nothing(
    rig: TurnRig, tmp_path: Path
) -> None:
    holds = [Hold(), Hold(), Hold()]
    rig.provider.queue("resume-all", *two_steps(tmp_path / "notes", holds))
    request = rig.request("openai:resume-all")
    stayed = rig.run(request)
    async with asyncio.timeout(100), asyncio.TaskGroup() as tasks:
        await stayed.opened()
        # 60 readers leave at 1 to 60; whoever leaves early does so before the first hold opens.
        readers = [
            tasks.create_task(leave_and_return(rig, request, count, count % 2 == 0)) for count in range(61)
        ]
        await holds[0].reached.wait()
        tasks.create_task(release(holds))
        events = await stayed.rest()
    assert len(events) >= 60
    kinds = arms(events)
    assert [kinds.count(k) for k in ("step_started", "tool_call_finished", "turn_finished")] == [2, 2, 1]
    whole = serialised(events)
    for reader in readers:
        assert serialised(reader.result()) == whole
    assert (tmp_path / "notes").read_text() == "first\n"


async def test_every_cut_of_a_finished_turn_gives_the_rest_byte_for_byte(
    rig: TurnRig, tmp_path: Path
) -> None:
    holds = [Hold(), Hold(), Hold()]
    for hold in holds:
        hold.set()
    rig.provider.queue("resume-cuts", *two_steps(tmp_path / "notes", holds))
    request = rig.request("openai:resume-cuts")
    async with asyncio.timeout(100):
        whole = serialised(await rig.run(request).rest())
        for cut in range(len(whole) + 1):
            stream = rig.run(request, cut)
            assert serialised(await stream.rest()) == whole[cut:]
            assert stream.header.disposition == TurnDisposition.TURN_DISPOSITION_ATTACHED
            assert stream.header.last_sequence == len(whole)
    assert len(rig.provider.requests["resume-cuts"]) == 2


async def test_a_turn_whose_only_reader_has_left_runs_to_its_end(rig: TurnRig) -> None:
    hold = Hold()
    rig.provider.queue("resume-alone", says("one ", hold, "two"))
    async with asyncio.timeout(60):
        stream = rig.run(rig.request("openai:resume-alone"))
        await stream.until("text_delta")
        turn = (await stream.opened()).turn
        taken = len(stream.leave())
        await hold.reached.wait()
        hold.set()
        ended = pb.GetTurnRequest(name=turn)
        ended.wait_timeout.FromSeconds(30)
        response = await rig.turns.GetTurn(ended)
        assert response.turn.state == TurnState.TURN_STATE_COMPLETED
        rest = await rig.watch(turn, taken).rest()
    assert rest[-1].turn_finished.text == "one two"


async def test_a_deadline_of_the_call_ends_the_reader_and_not_the_turn(rig: TurnRig) -> None:
    hold = Hold()
    rig.provider.queue("resume-late", says("one ", hold, "two"))
    request = rig.request("openai:resume-late")
    async with asyncio.timeout(60):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for _ in rig.turns.RunTurn(request, timeout=1.0):
                await hold.reached.wait()
        assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        hold.set()
        events = await rig.run(request).rest()
    assert events[-1].turn_finished.state == TurnState.TURN_STATE_COMPLETED
