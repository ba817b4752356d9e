"""TurnService over a real server: start, repeat, re-attach at every event, and no client holds a turn."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from support.postgres import Location
from support.runtime_server import Runtime, end, events, request, running, start
from turnwire.api.common.v1 import tool_pb2
from turnwire.api.runtime.v1 import turn_pb2, turn_service_pb2
from turnwire.core.errors import Unauthenticated
from turnwire.runtime.domain.turn import TurnKey
from turnwire.wire.auth import Credentials
from turnwire.wire.rpc_errors import error_from_rpc

HANG = [{"text": "so far "}, {"hang": True}]
AGENTS = {
    "plain": [[{"text": "Hello, world", "size": 2}]],
    "hang": [HANG],
    "tools": [
        [{"text": "Let me see. "}, {"tool_call": {"name": "echo", "arguments": {"n": 1}}}],
        [{"text": "It said $result"}],
    ],
    "slow": [[{"tool_call": {"name": "wait", "arguments": {}}}], [{"text": "done: $result"}]],
    "long": [[{"tool_call": {"name": "long", "arguments": {}}}], [{"text": "read"}]],
    "fails": [[{"text": "half"}, {"fail": {"kind": "server", "message": "it broke", "retryable": False}}]],
}


@pytest.fixture
async def runtime(tmp_path: Path, store_location: Location) -> AsyncIterator[Runtime]:
    async with running(tmp_path, AGENTS, location=store_location) as made:
        yield made


def key_of(name: str) -> TurnKey:
    _, thread, _, turn = name.split("/")
    return TurnKey("default-org", thread, turn)


async def refused(call: object) -> tuple[str, str]:
    """Return code and reason of a call that is refused."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        if hasattr(call, "__aiter__"):
            async with asyncio.timeout(10):
                _ = [m async for m in call]
        else:
            await call  # type: ignore[misc]
    return caught.value.code().name, error_from_rpc(caught.value).reason


async def test_a_turn_streams_a_header_and_then_its_events_to_the_end(runtime: Runtime) -> None:
    header, *rest = await runtime.run(request("plain"))
    assert header.header.disposition == turn_pb2.TURN_DISPOSITION_STARTED
    assert header.header.state == turn_pb2.TURN_STATE_RUNNING
    assert header.header.agent == "agents/plain"
    assert header.header.thread == header.header.turn.partition("/turns/")[0]
    assert header.header.log_id == runtime.store.log_id
    assert "replay" in header.header.capabilities
    found = events(rest)
    assert [e.sequence for e in found] == list(range(1, len(found) + 1))
    assert {e.turn for e in found} == {header.header.turn}
    assert "".join(e.llm.text_delta.text for e in found) == "Hello, world"
    assert (end(rest).text, end(rest).stop_reason) == ("Hello, world", "completed")


async def test_the_same_request_joins_the_turn_it_made(runtime: Runtime) -> None:
    asked = request("plain")
    first = await runtime.run(asked)
    again = await runtime.run(asked)
    assert again[0].header.disposition == turn_pb2.TURN_DISPOSITION_ATTACHED
    assert again[0].header.turn == first[0].header.turn
    assert events(again) == events(first)
    other = request("plain", request_id=asked.request_id, text="other")
    assert await refused(runtime.turns.RunTurn(other)) == ("ALREADY_EXISTS", "REQUEST_ID_REUSED")


async def test_an_attach_after_any_event_gives_the_same_bytes(runtime: Runtime) -> None:
    first = await runtime.run(request("tools"))
    whole = events(first)
    turn = first[0].header.turn
    for after in range(len(whole) + 1):
        header, *rest = await runtime.watch(turn, after)
        assert header.header.last_sequence == len(whole)
        got = [e.SerializeToString() for e in events(rest)]
        assert got == [e.SerializeToString() for e in whole[after:]]


async def test_a_turn_is_the_same_after_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path, AGENTS) as runtime:
        before = await runtime.run(request("tools"))
    async with running(tmp_path, AGENTS) as runtime:
        after = await runtime.watch(before[0].header.turn)
        assert events(after) == events(before)
        assert after[0].header.log_id == before[0].header.log_id


async def test_a_cursor_ahead_of_the_log_is_refused(runtime: Runtime) -> None:
    first = await runtime.run(request("plain"))
    watch = turn_service_pb2.WatchTurnRequest(turn=first[0].header.turn, after_sequence=999)
    assert await refused(runtime.turns.WatchTurn(watch)) == ("OUT_OF_RANGE", "SEQUENCE_AHEAD")


async def test_another_log_than_the_one_read_before_is_refused(runtime: Runtime) -> None:
    first = await runtime.run(request("plain"))
    watch = turn_service_pb2.WatchTurnRequest(turn=first[0].header.turn, log_id="another")
    assert await refused(runtime.turns.WatchTurn(watch)) == ("ABORTED", "LOG_REPLACED")
    asked = request("plain")
    asked.log_id = "another"
    assert await refused(runtime.turns.RunTurn(asked)) == ("ABORTED", "LOG_REPLACED")


async def test_losing_the_client_never_stops_the_turn(runtime: Runtime) -> None:
    call = runtime.turns.RunTurn(request("slow"))
    async with asyncio.timeout(10):
        header = await call.read()
        await runtime.executor.started.wait()
    call.cancel()
    await runtime.until_no_reader()
    runtime.executor.gate.set()
    turn = await runtime.ended(header.header.turn)
    assert turn.state == turn_pb2.TURN_STATE_COMPLETED
    assert end(await runtime.watch(turn.name)).text == "done: {}"


async def test_a_client_that_leaves_before_its_first_answer_leaves_no_stuck_turn(runtime: Runtime) -> None:
    asked = request("plain")
    for _ in range(10):
        call = runtime.turns.RunTurn(request("plain", request_id=asked.request_id))
        await asyncio.sleep(0)
        call.cancel()
    messages = await runtime.run(asked)
    assert end(messages).text == "Hello, world"
    await runtime.until_no_reader()


async def test_a_deadline_ends_the_reader_and_not_the_turn(runtime: Runtime) -> None:
    asked = request("slow")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await runtime.run(asked, timeout=0.3)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    runtime.executor.gate.set()
    messages = await runtime.run(asked)
    assert end(messages).state == turn_pb2.TURN_STATE_COMPLETED


async def test_a_turn_that_asked_for_it_is_cancelled_when_its_client_is_gone(runtime: Runtime) -> None:
    asked = request("hang")
    asked.cancel_on_disconnect.grace_timeout.CopyFrom(Duration(nanos=10_000_000))
    call = runtime.turns.RunTurn(asked)
    async with asyncio.timeout(10):
        header = await call.read()
    call.cancel()
    turn = await runtime.ended(header.header.turn)
    assert (turn.state, turn.stop_reason) == (turn_pb2.TURN_STATE_CANCELLED, "cancelled")


async def test_a_late_reader_joins_a_running_turn_and_sees_all_of_it(runtime: Runtime) -> None:
    call = aiter(runtime.turns.RunTurn(request("slow")))
    async with asyncio.timeout(10):
        header = await anext(call)
        await runtime.executor.started.wait()
        late = asyncio.create_task(runtime.watch(header.header.turn))
        while runtime.store.ticker.readers < 2:
            await asyncio.sleep(0)
        runtime.executor.gate.set()
        rest = [m async for m in call]
        messages = await late
    assert events(messages) == events(rest)
    assert [e.tool_call_progress.text for e in events(rest) if e.HasField("tool_call_progress")] == ["half"]


async def test_a_silent_reader_is_sent_heartbeats(tmp_path: Path) -> None:
    async with running(tmp_path, AGENTS, heartbeat=0.04) as runtime:
        call = runtime.turns.RunTurn(request("hang"))
        async with asyncio.timeout(10):
            async for message in call:
                if message.HasField("heartbeat"):
                    break
        assert message.heartbeat.create_time.seconds > 0
        call.cancel()


async def test_a_started_turn_needs_no_reader(runtime: Runtime) -> None:
    answer = await runtime.turns.StartTurn(start(request("tools")))
    assert answer.disposition == turn_pb2.TURN_DISPOSITION_STARTED
    assert answer.log_id == runtime.store.log_id
    turn = await runtime.ended(answer.turn.name)
    assert turn.state == turn_pb2.TURN_STATE_COMPLETED
    assert turn.usage.model_calls == 2
    assert turn.usage.tool_calls == 1
    assert turn.finish_time.seconds >= turn.start_time.seconds > 0


async def test_a_wait_for_a_turn_that_goes_on_answers_with_its_present_state(runtime: Runtime) -> None:
    answer = await runtime.turns.StartTurn(start(request("hang")))
    asked = turn_service_pb2.GetTurnRequest(name=answer.turn.name, wait_timeout=Duration(nanos=20_000_000))
    async with asyncio.timeout(10):
        found = (await runtime.turns.GetTurn(asked)).turn
    assert found.state == turn_pb2.TURN_STATE_RUNNING


async def test_a_cancelled_turn_ends_as_cancelled_with_its_text(runtime: Runtime) -> None:
    call = runtime.turns.RunTurn(request("hang"))
    messages = []
    async with asyncio.timeout(10):
        async for message in call:
            messages.append(message)
            if any(e.llm.text_delta.text for e in message.events):
                await runtime.desk.cancel(key_of(messages[0].header.turn), "enough")
    assert (end(messages).stop_reason, end(messages).text) == ("cancelled", "so far ")


async def test_a_cancel_reaches_the_tool_that_runs(runtime: Runtime) -> None:
    answer = await runtime.turns.StartTurn(start(request("slow")))
    async with asyncio.timeout(10):
        await runtime.executor.started.wait()
    await runtime.desk.cancel(key_of(answer.turn.name), "enough")
    turn = await runtime.ended(answer.turn.name)
    assert turn.state == turn_pb2.TURN_STATE_CANCELLED
    (finished,) = [
        e.tool_call_finished
        for e in events(await runtime.watch(turn.name))
        if e.HasField("tool_call_finished")
    ]
    assert finished.outcome == tool_pb2.TOOL_OUTCOME_STOPPED


async def test_a_queued_turn_says_its_place_and_runs_after_the_one_before(runtime: Runtime) -> None:
    first = await runtime.turns.StartTurn(start(request("slow")))
    thread = first.turn.name.partition("/turns/")[0]
    second = request("plain", thread=thread)
    call = aiter(runtime.turns.RunTurn(second))
    async with asyncio.timeout(10):
        header = (await anext(call)).header
        assert header.disposition == turn_pb2.TURN_DISPOSITION_QUEUED
        assert (header.state, header.queue_position) == (turn_pb2.TURN_STATE_QUEUED, 1)
        await runtime.executor.started.wait()
        runtime.executor.gate.set()
        rest = [m async for m in call]
    found = events(rest)
    assert found[0].turn_accepted.queue_position == 1
    assert found[1].HasField("turn_started")
    assert end(rest).text == "Hello, world"


async def test_a_busy_thread_refuses_a_turn_that_asks_it_to(runtime: Runtime) -> None:
    first = await runtime.turns.StartTurn(start(request("hang")))
    thread = first.turn.name.partition("/turns/")[0]
    asked = request("plain", thread=thread, busy_policy=turn_pb2.BUSY_POLICY_REJECT)
    assert await refused(runtime.turns.RunTurn(asked)) == ("FAILED_PRECONDITION", "THREAD_BUSY")


async def test_a_failed_model_is_an_end_in_the_stream_and_no_status(runtime: Runtime) -> None:
    messages = await runtime.run(request("fails"))
    finished = end(messages)
    assert finished.state == turn_pb2.TURN_STATE_FAILED
    assert (finished.stop_reason, finished.text) == ("model-error", "half")
    assert len(finished.error.details) == 1


async def test_a_stored_result_is_read_by_its_call(runtime: Runtime) -> None:
    messages = await runtime.run(request("long"))
    (finished,) = [e.tool_call_finished for e in events(messages) if e.HasField("tool_call_finished")]
    assert finished.overflow.handle == "h-1"
    turn = messages[0].header.turn
    asked = turn_service_pb2.ReadToolResultRequest(turn=turn, call_id=finished.call_id)
    chunks = [c async for c in runtime.turns.ReadToolResult(asked)]
    assert b"".join(c.data for c in chunks) == b"hello, world"
    asked.range.offset = 7
    assert b"".join([c.data async for c in runtime.turns.ReadToolResult(asked)]) == b"world"
    plain = await runtime.run(request("tools"))
    (short,) = [e.tool_call_finished for e in events(plain) if e.HasField("tool_call_finished")]
    for turn_name, call_id in ((plain[0].header.turn, short.call_id), (turn, "nothing")):
        wrong = turn_service_pb2.ReadToolResultRequest(turn=turn_name, call_id=call_id)
        assert await refused(runtime.turns.ReadToolResult(wrong)) == ("NOT_FOUND", "RESULT_NOT_FOUND")


async def test_the_trace_of_a_caller_reaches_the_tool(runtime: Runtime) -> None:
    trace = uuid.uuid4().hex
    parent = f"00-{trace}-00f067aa0ba902b7-01"
    await runtime.run(request("tools"), metadata=(("traceparent", parent),))
    (executed,) = runtime.executor.requests
    assert executed.context.traceparent.split("-")[1] == trace
    assert runtime.executor.metadata[0]["traceparent"].split("-")[1] == trace


async def test_a_turn_that_waited_in_the_queue_is_in_no_other_turns_trace(runtime: Runtime) -> None:
    parent = f"00-{uuid.uuid4().hex}-00f067aa0ba902b7-01"
    first = await runtime.turns.StartTurn(start(request("slow")), metadata=(("traceparent", parent),))
    thread = first.turn.name.partition("/turns/")[0]
    second = await runtime.turns.StartTurn(start(request("tools", thread=thread)))
    async with asyncio.timeout(10):
        await runtime.executor.started.wait()
    runtime.executor.gate.set()
    await runtime.ended(second.turn.name)
    traces = [r.context.traceparent for r in runtime.executor.requests]
    assert traces[0].split("-")[1] == parent.split("-")[1]
    assert traces[1] == ""


async def test_turns_are_listed_newest_first_in_pages_and_by_filter(runtime: Runtime) -> None:
    names = []
    for number in range(5):
        labels = {"team": "search"} if number % 2 else {}
        answer = await runtime.turns.StartTurn(start(request("plain", labels=labels)))
        await runtime.ended(answer.turn.name)
        names.append(answer.turn.name)
    asked = turn_service_pb2.ListTurnsRequest(parent="threads/-", page_size=2)
    found = []
    while True:
        page = await runtime.turns.ListTurns(asked)
        found += [t.name for t in page.turns]
        if not page.next_page_token:
            break
        asked.page_token = page.next_page_token
    assert found == names[::-1]
    where = turn_service_pb2.ListTurnsRequest(
        parent="threads/-", filter="label.team=search AND state=COMPLETED AND create_time>=2020-01-01"
    )
    assert [t.name for t in (await runtime.turns.ListTurns(where)).turns] == [names[3], names[1]]
    where.filter = "state=FAILED"
    assert not (await runtime.turns.ListTurns(where)).turns
    where.page_token = asked.page_token
    assert await refused(runtime.turns.ListTurns(where)) == ("INVALID_ARGUMENT", "PAGE_TOKEN_MISMATCH")
    one = turn_service_pb2.ListTurnsRequest(parent=names[0].partition("/turns/")[0])
    assert [t.name for t in (await runtime.turns.ListTurns(one)).turns] == [names[0]]


class ByHeader:
    """Takes the scope from a header."""

    def authenticate(self, metadata: Mapping[str, str | bytes]) -> Credentials:
        scope = metadata.get("x-scope")
        if scope is None:
            raise Unauthenticated("no scope")
        return Credentials("somebody", (str(scope),), frozenset({"caller"}))


async def test_nothing_of_another_scope_can_be_seen(tmp_path: Path) -> None:
    async with running(tmp_path, AGENTS, authenticator=ByHeader()) as runtime:
        mine, theirs = (("x-scope", "mine"),), (("x-scope", "theirs"),)
        messages = await runtime.run(request("long"), metadata=mine)
        turn = messages[0].header.turn
        thread = messages[0].header.thread
        (call_id,) = [
            e.tool_call_finished.call_id for e in events(messages) if e.HasField("tool_call_finished")
        ]
        pb, turns = turn_service_pb2, runtime.turns
        tries = [
            (turns.WatchTurn(pb.WatchTurnRequest(turn=turn), metadata=theirs), "TURN_NOT_FOUND"),
            (turns.GetTurn(pb.GetTurnRequest(name=turn), metadata=theirs), "TURN_NOT_FOUND"),
            (turns.ListTurns(pb.ListTurnsRequest(parent=thread), metadata=theirs), "THREAD_NOT_FOUND"),
            (
                turns.ReadToolResult(pb.ReadToolResultRequest(turn=turn, call_id=call_id), metadata=theirs),
                "TURN_NOT_FOUND",
            ),
            (turns.RunTurn(request("plain", thread=thread), metadata=theirs), "THREAD_NOT_FOUND"),
        ]
        for call, reason in tries:
            assert await refused(call) == ("NOT_FOUND", reason)
        everything = pb.ListTurnsRequest(parent="threads/-")
        assert not (await turns.ListTurns(everything, metadata=theirs)).turns
        assert len((await turns.ListTurns(everything, metadata=mine)).turns) == 1
