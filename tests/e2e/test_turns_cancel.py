"""CANCEL_TURN through the control service, wherever a turn stands: it ends truthfully, the thread goes on."""

from __future__ import annotations

import asyncio
import json
import os
import uuid
from pathlib import Path

import pytest

from support.control_peers import cancel as cancel_command
from support.control_peers import connect
from support.executor_process import processes_with
from support.strict_provider import Hold, Reply, says
from support.turn_rig import Stream, TurnRig, arms
from turnwire.api.common.v1.tool_pb2 import ToolOutcome
from turnwire.api.control.v1 import command_pb2 as command_pb
from turnwire.api.runtime.v1 import turn_event_pb2 as event_pb
from turnwire.api.runtime.v1.message_pb2 import MESSAGE_ROLE_ASSISTANT, MESSAGE_STATUS_FINAL
from turnwire.api.runtime.v1.turn_pb2 import TurnState

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]


def check_cancelled(events: list[event_pb.TurnEvent], text: str = "") -> None:
    end = events[-1].turn_finished
    assert (end.state, end.stop_reason, end.text) == (TurnState.TURN_STATE_CANCELLED, "cancelled", text)
    assert arms(events).count("turn_finished") == 1


def check_applied(outcome: command_pb.CommandOutcome, events: list[event_pb.TurnEvent]) -> None:
    assert outcome.kind == command_pb.OUTCOME_KIND_APPLIED
    assert (outcome.turn, outcome.applied_sequence) == (events[-1].turn, events[-1].sequence)


async def held_stream(rig: TurnRig, model: str, *words: str) -> tuple[Stream, Reply]:
    """Begin a turn whose model says the words and then nothing; returns when the words are told."""
    hold = Hold()
    reply = says(*words, hold)
    rig.provider.queue(model, reply)
    stream = rig.run(rig.request(f"openai:{model}"))
    await stream.opened()
    await hold.reached.wait()
    if words:
        await stream.until("text_delta", len(words))
    return stream, reply


async def next_turn(rig: TurnRig, thread: str) -> str:
    """Run the next turn on the thread; its history must please the strict provider. Returns that history."""
    model = f"next-{uuid.uuid4()}"
    events = await rig.whole(f"openai:{model}", "go on", thread=thread)
    assert events[-1].turn_finished.text == "done"
    assert rig.provider.refusals == []
    return json.dumps(rig.provider.requests[model][0]["messages"])


async def test_in_the_middle_of_a_model_stream_the_prefix_stays_and_the_connection_is_closed(
    rig: TurnRig,
) -> None:
    async with asyncio.timeout(60):
        stream, reply = await held_stream(rig, "cancel-stream", "so ", "far ", "so good")
        outcome = await rig.cancel(turn=stream.header.turn, cause="enough")
        events = await stream.rest()
        await reply.closed.wait()
        check_cancelled(events, "so far so good")
        check_applied(outcome, events)
        assert not {"finish", "stream_failure"} & set(arms(events))
        answer = (await rig.messages(stream.header.thread))[-1]
        assert (answer.role, answer.status) == (MESSAGE_ROLE_ASSISTANT, MESSAGE_STATUS_FINAL)
        assert answer.interrupted_reason == "cancelled"
        assert "".join(part.content.text.text for part in answer.parts) == "so far so good"
        assert answer.name == events[-1].turn_finished.final_message
        history = await next_turn(rig, stream.header.thread)
    assert "<interrupted_response reason=" in history
    assert "so far so good" in history


async def test_a_model_that_says_nothing_is_left_at_once_and_leaves_no_message(rig: TurnRig) -> None:
    async with asyncio.timeout(60):
        stream, reply = await held_stream(rig, "cancel-silent")
        outcome = await rig.cancel(turn=stream.header.turn)
        events = await stream.rest()
        await reply.closed.wait()
        check_cancelled(events)
        check_applied(outcome, events)
        assert len(await rig.messages(stream.header.thread)) == 1
        assert "interrupted" not in await next_turn(rig, stream.header.thread)


async def test_in_the_middle_of_a_tool_finished_results_stay_and_the_process_is_gone(
    rig: TurnRig, tmp_path: Path
) -> None:
    notes, pipe = tmp_path / "notes", tmp_path / "pipe"
    os.mkfifo(pipe)
    calls = [
        ("note", {"file": str(notes), "line": "first"}),
        ("held", {"file": str(notes), "pipe": str(pipe)}),
        ("note", {"file": str(notes), "line": "never"}),
    ]
    rig.provider.queue("cancel-tool", says("look ", calls=calls))
    async with asyncio.timeout(60):
        stream = rig.run(rig.request("openai:cancel-tool"))
        await stream.until("tool_call_progress")
        mark = f"TURNWIRE_TURN={stream.header.turn}"
        assert processes_with(mark)
        outcome = await rig.cancel(turn=stream.header.turn)
        assert processes_with(mark) == []
        events = await stream.rest()
        check_cancelled(events, "look ")
        check_applied(outcome, events)
        ends = [event.tool_call_finished for event in events if event.HasField("tool_call_finished")]
        assert {end.call_index: end.outcome for end in ends} == {
            0: ToolOutcome.TOOL_OUTCOME_SUCCEEDED,
            1: ToolOutcome.TOOL_OUTCOME_STOPPED,
            2: ToolOutcome.TOOL_OUTCOME_NOT_STARTED,
        }
        stopped = next(end for end in ends if end.call_index == 1)
        assert "started" in stopped.content
        assert "It waited for a pipe." in stopped.content
        assert arms(events).count("tool_call_started") == 2
        history = await next_turn(rig, stream.header.thread)
    assert notes.read_text() == "first\nbegun\n"
    for text in ("noted first", "<tool_cancelled", "<tool_not_started"):
        assert text in history


async def test_a_queued_turn_ends_where_it_waits_and_the_running_one_goes_on(rig: TurnRig) -> None:
    async with asyncio.timeout(60):
        stream, _ = await held_stream(rig, "cancel-queue", "working")
        queued = rig.run(rig.request("openai:cancel-queued", "me too", thread=stream.header.thread))
        assert (await queued.opened()).queue_position == 1
        outcome = await rig.cancel(turn=queued.header.turn)
        events = await queued.rest()
        check_cancelled(events)
        check_applied(outcome, events)
        assert arms(events) == ["turn_accepted", "turn_finished"]
        await rig.cancel(turn=stream.header.turn)
        check_cancelled(await stream.rest(), "working")
        assert rig.provider.requests["cancel-queued"] == []
        assert "me too" not in await next_turn(rig, stream.header.thread)


async def test_clearing_the_queue_cancels_what_waits_with_what_runs(rig: TurnRig) -> None:
    async with asyncio.timeout(60):
        stream, _ = await held_stream(rig, "cancel-clear", "working")
        thread = stream.header.thread
        waiting = [rig.run(rig.request("openai:cancel-cleared", thread=thread)) for _ in range(2)]
        for queued in waiting:
            await queued.opened()
        outcome = await rig.cancel(turn=stream.header.turn, clear_queue=True)
        events = await stream.rest()
        check_cancelled(events, "working")
        check_applied(outcome, events)
        for queued in waiting:
            check_cancelled(await queued.rest())
        assert rig.provider.requests["cancel-cleared"] == []
        await next_turn(rig, thread)


async def test_without_clearing_the_queue_goes_on(rig: TurnRig) -> None:
    async with asyncio.timeout(60):
        stream, _ = await held_stream(rig, "cancel-keep", "working")
        queued = rig.run(rig.request("openai:cancel-kept", thread=stream.header.thread))
        await queued.opened()
        await rig.cancel(turn=stream.header.turn)
        assert (await queued.rest())[-1].turn_finished.text == "done"


async def test_a_finished_turn_is_already_finished(rig: TurnRig) -> None:
    async with asyncio.timeout(60):
        events = await rig.whole("openai:cancel-late")
        outcome = await rig.cancel(turn=events[-1].turn)
        assert outcome.kind == command_pb.OUTCOME_KIND_ALREADY_FINISHED
        again = await rig.watch(events[-1].turn).rest()
    assert again[-1].turn_finished.state == TurnState.TURN_STATE_COMPLETED


async def test_a_second_cancel_is_a_duplicate_that_names_the_first(rig: TurnRig) -> None:
    first, second = str(uuid.uuid4()), str(uuid.uuid4())
    async with asyncio.timeout(60):
        stream, _ = await held_stream(rig, "cancel-twice", "working")
        turn = stream.header.turn
        outcome = await rig.cancel(turn=turn, command_id=first)
        assert outcome.kind == command_pb.OUTCOME_KIND_APPLIED
        later = await rig.cancel(turn=turn, command_id=second)
        assert (later.kind, later.duplicate_of) == (command_pb.OUTCOME_KIND_DUPLICATE, first)
        # The same command again is no second command: it has the outcome that it had.
        repeated = await rig.cancel(turn=turn, command_id=first)
        assert repeated == outcome
        check_cancelled(await stream.rest(), "working")


async def test_cancels_sent_at_once_have_one_that_applies(rig: TurnRig) -> None:
    async with asyncio.timeout(60):
        stream, _ = await held_stream(rig, "cancel-many", "working")
        async with asyncio.TaskGroup() as tasks:
            sent = [tasks.create_task(rig.cancel(turn=stream.header.turn)) for _ in range(8)]
        outcomes = [task.result() for task in sent]
        events = await stream.rest()
    check_cancelled(events, "working")
    kinds = [outcome.kind for outcome in outcomes]
    assert kinds.count(command_pb.OUTCOME_KIND_APPLIED) == 1
    assert kinds.count(command_pb.OUTCOME_KIND_DUPLICATE) == 7
    applied = next(o for o in outcomes if o.kind == command_pb.OUTCOME_KIND_APPLIED)
    assert {o.duplicate_of for o in outcomes} == {"", applied.command_id}


async def test_a_command_for_a_thread_stops_its_live_turn_and_no_later_one(rig: TurnRig) -> None:
    command = str(uuid.uuid4())
    async with asyncio.timeout(60):
        stream, _ = await held_stream(rig, "cancel-thread", "working")
        outcome = await rig.cancel(thread=stream.header.thread, command_id=command)
        events = await stream.rest()
        check_cancelled(events, "working")
        check_applied(outcome, events)
        assert outcome.turn == stream.header.turn
        idle = await rig.cancel(thread=stream.header.thread)
        assert idle.kind == command_pb.OUTCOME_KIND_NO_ACTIVE_TURN
        # Sent again while another turn runs, the first command still means the turn that it was bound to.
        hold = Hold()
        rig.provider.queue("cancel-thread-next", says("mine ", hold, "alone"))
        later = rig.run(rig.request("openai:cancel-thread-next", thread=stream.header.thread))
        await hold.reached.wait()
        assert await rig.cancel(thread=stream.header.thread, command_id=command) == outcome
        hold.set()
        assert (await later.rest())[-1].turn_finished.text == "mine alone"


async def test_over_a_connection_the_command_is_accepted_and_its_outcome_delivered(rig: TurnRig) -> None:
    async with asyncio.timeout(60):
        stream, reply = await held_stream(rig, "cancel-connect", "working")
        async with connect(rig.cluster.control.target) as client:
            first, second = str(uuid.uuid4()), str(uuid.uuid4())
            await client.send(cancel_command(first, turn=stream.header.turn, cause="enough"))
            assert (await client.expect("accepted")).command_id == first
            outcome = (await client.expect("outcome")).outcome
            events = await stream.rest()
            check_applied(outcome, events)
            check_cancelled(events, "working")
            await reply.closed.wait()
            await client.send(cancel_command(second, thread=stream.header.thread))
            assert (await client.expect("accepted")).command_id == second
            assert (await client.expect("outcome")).outcome.kind == command_pb.OUTCOME_KIND_NO_ACTIVE_TURN
        await next_turn(rig, stream.header.thread)


async def test_a_turn_that_does_not_exist_has_no_active_turn(rig: TurnRig) -> None:
    async with asyncio.timeout(60):
        outcome = await rig.cancel(turn="threads/nothing/turns/nowhere")
    assert outcome.kind == command_pb.OUTCOME_KIND_NO_ACTIVE_TURN
