"""The runtime dies in the middle of a turn: what was delivered stays true, and the turn goes on."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import grpc
import pytest
import pytest_asyncio

from support.strict_provider import Hold, says
from support.turn_rig import Stream, TurnRig, arms, serialised, turn_rig
from turnwire.api.common.v1.tool_pb2 import ToolOutcome
from turnwire.api.runtime.v1 import turn_event_pb2 as event_pb
from turnwire.api.runtime.v1 import turn_service_pb2 as pb
from turnwire.api.runtime.v1.turn_pb2 import TurnState
from turnwire_client.view import TurnView

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def rig(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[TurnRig]:
    async with turn_rig(tmp_path_factory.mktemp("kill")) as rig:
        yield rig


async def restart(rig: TurnRig) -> None:
    """Kill the runtime as a power cut would, start it again and connect anew."""
    await rig.cluster.runtime.kill()
    await rig.cluster.runtime.start()
    rig.connect()


async def delivered(stream: Stream) -> list[event_pb.TurnEvent]:
    """Read until the broken connection ends the stream, and return what came."""
    with contextlib.suppress(grpc.aio.AioRpcError):
        await stream.rest()
    return stream.events


async def check_every_cut(
    rig: TurnRig, request: pb.RunTurnRequest, before: Sequence[event_pb.TurnEvent]
) -> list[event_pb.TurnEvent]:
    """Find each delivered event again, byte for byte, from wherever the client goes on; return them all."""
    whole = await rig.watch(before[0].turn).rest()
    assert serialised(whole[: len(before)]) == serialised(list(before))
    for cut in range(len(before) + 1):
        stream = rig.run(request, cut) if cut % 2 else rig.watch(before[0].turn, cut)
        assert serialised(await stream.rest()) == serialised(whole[cut:])
    assert [event.sequence for event in whole] == list(range(1, len(whole) + 1))
    return whole


def check_gone_on(whole: Sequence[event_pb.TurnEvent], text: str) -> None:
    """The turn ended as if nobody had died: its last words are those that no reset has voided."""
    end = whole[-1].turn_finished
    assert (end.state, end.stop_reason, end.text) == (TurnState.TURN_STATE_COMPLETED, "completed", text)
    assert arms(list(whole)).count("turn_finished") == 1
    view = TurnView(whole)
    assert view.steps[end.steps].text == text
    assert all(step.committed for step in view.steps.values())


async def test_a_kill_in_the_middle_of_a_model_stream_keeps_every_delivered_event(
    rig: TurnRig, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    hold = Hold()
    words = [f"word{n} " for n in range(60)]
    calls = [("note", {"file": str(notes), "line": "once"}), ("shout", {"text": "aloud"})]
    rig.provider.queue(
        "kill-stream", says("look ", calls=calls), says(*words[:50], hold, *words[50:]), says("well ", "done")
    )
    request = rig.request("openai:kill-stream")
    async with asyncio.timeout(100):
        stream = rig.run(request)
        await hold.reached.wait()
        # Up to the last word before the hold: "look " and fifty more.
        await stream.until("text_delta", 51)
        await restart(rig)
        before = await delivered(stream)
        whole = await check_every_cut(rig, request, before)
        assert len(before) >= 60
        check_gone_on(whole, "well done")
        after = arms(whole[len(before) :])
        assert [a for a in after if a.startswith("turn_") or a == "step_reset"] == [
            "turn_resumed",
            "step_reset",
            "turn_finished",
        ]
        assert [(e.step, e.step_attempt) for e in whole if e.HasField("step_started")] == [
            (1, 1),
            (2, 1),
            (2, 2),
        ]
        assert notes.read_text() == "once\n"
        assert len(rig.provider.requests["kill-stream"]) == 3
        # The next turn of the thread goes on, with a history that a strict provider takes.
        events = await rig.whole("openai:kill-stream-next", thread=before[0].turn.partition("/turns/")[0])
    assert events[-1].turn_finished.text == "done"
    assert rig.provider.refusals == []


async def test_a_kill_in_the_middle_of_a_tool_waits_for_it_and_runs_nothing_again(
    rig: TurnRig, tmp_path: Path
) -> None:
    notes, pipe = tmp_path / "notes", tmp_path / "pipe"
    os.mkfifo(pipe)
    calls = [
        ("note", {"file": str(notes), "line": "first"}),
        ("held", {"file": str(notes), "pipe": str(pipe)}),
        ("note", {"file": str(notes), "line": "third"}),
    ]
    rig.provider.queue("kill-tool", says("look ", calls=calls))
    request = rig.request("openai:kill-tool")
    async with asyncio.timeout(100):
        stream = rig.run(request)
        # The output comes when the command has written its line.
        await stream.until("tool_call_progress")
        await restart(rig)
        before = await delivered(stream)
        # The executor lived on with the tool, and the next owner joins it.
        await asyncio.to_thread(pipe.write_text, "go\n")
        await asyncio.to_thread(pipe.read_bytes)
        whole = await check_every_cut(rig, request, before)
        check_gone_on(whole, "done")
        ends = [event.tool_call_finished for event in whole if event.HasField("tool_call_finished")]
        succeeded = ToolOutcome.TOOL_OUTCOME_SUCCEEDED
        assert [(e.tool_name, e.outcome, e.settle_order) for e in ends] == [
            ("note", succeeded, 1),
            ("held", succeeded, 2),
            ("note", succeeded, 3),
        ]
        thread = before[0].turn.partition("/turns/")[0]
        rig.provider.queue("kill-tool-next", says(calls=[("note", {"file": str(notes), "line": "next"})]))
        events = await rig.whole("openai:kill-tool-next", "and now?", thread=thread)
    assert events[-1].turn_finished.text == "done"
    assert sorted(notes.read_text().split()) == ["begun", "first", "next", "over", "third"]
    assert rig.provider.refusals == []
    told = [m for m in rig.provider.requests["kill-tool-next"][0]["messages"] if m["role"] == "tool"]
    assert len(told) == 3
    assert told[0]["content"] == "noted first"


async def test_a_kill_after_the_end_changes_nothing(rig: TurnRig, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    words = [f"word{n} " for n in range(60)]
    rig.provider.queue(
        "kill-late", says(calls=[("note", {"file": str(notes), "line": "once"})]), says(*words)
    )
    request = rig.request("openai:kill-late")
    async with asyncio.timeout(100):
        before = await rig.run(request).rest()
        await restart(rig)
        whole = await check_every_cut(rig, request, before)
        assert serialised(whole) == serialised(before)
        assert whole[-1].turn_finished.state == TurnState.TURN_STATE_COMPLETED
    assert notes.read_text() == "once\n"
    assert len(rig.provider.requests["kill-late"]) == 2


async def test_a_queued_turn_survives_a_kill_and_runs(rig: TurnRig) -> None:
    hold = Hold()
    rig.provider.queue("kill-first", says("one ", hold))
    async with asyncio.timeout(100):
        first = rig.run(rig.request("openai:kill-first"))
        await hold.reached.wait()
        thread = (await first.opened()).thread
        request = rig.request("openai:kill-queued", thread=thread)
        queued = rig.run(request)
        assert (await queued.opened()).queue_position == 1
        await restart(rig)
        events = await rig.run(request).rest()
        check_gone_on(await rig.watch(first.header.turn).rest(), "done")
    assert events[-1].turn_finished.text == "done"
    assert rig.provider.refusals == []


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("count", range(3, 60, 4))
async def test_a_kill_at_any_event_keeps_what_was_delivered(rig: TurnRig, tmp_path: Path, count: int) -> None:
    notes = tmp_path / "notes"
    words = [f"word{n} " for n in range(50)]
    calls = [("note", {"file": str(notes), "line": "once"}), ("shout", {"text": "aloud"})]
    model = f"kill-at-{count}"
    rig.provider.queue(model, says(*words[:20], calls=calls), says(*words))
    request = rig.request(f"openai:{model}")
    async with asyncio.timeout(500):
        stream = rig.run(request)
        for _ in range(count):
            await stream.next()
        await restart(rig)
        whole = await check_every_cut(rig, request, await delivered(stream))
    check_gone_on(whole, whole[-1].turn_finished.text)
    # Run once or never, and told as run only where it was.
    ran = notes.read_text() if notes.exists() else ""
    assert ran in ("", "once\n")
    succeeded = ToolOutcome.TOOL_OUTCOME_SUCCEEDED
    ends = [event.tool_call_finished for event in whole if event.HasField("tool_call_finished")]
    assert ran or not any(e.tool_name == "note" and e.outcome == succeeded for e in ends)
