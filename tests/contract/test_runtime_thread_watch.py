"""WatchThread over a real server: whoever comes when, all see the same thread."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from support.client_view import ClientView, TurnText
from support.runtime_server import SECONDS, Runtime, events, request, running, start
from turnwire.api.runtime.v1 import message_pb2, thread_pb2, turn_pb2, turn_service_pb2
from turnwire.api.runtime.v1 import thread_service_pb2 as pb
from turnwire.runtime.domain.turn import ThreadKey
from turnwire.runtime.store import thread_watch
from turnwire.wire.rpc_errors import error_from_rpc

WORDS = [{"text": "one two three four ", "size": 3, "every": 0.002}]
AGENTS: dict[str, list[list[dict[str, Any]]]] = {
    "plain": [[{"text": "hello"}]],
    "hang": [[{"text": "so far "}, {"hang": True}]],
    "slow": [[*WORDS, {"tool_call": {"name": "wait"}}], [{"text": "done"}]],
    "steps": [
        [*WORDS, {"tool_call": {"name": "echo", "arguments": {"n": 1}}}],
        [*WORDS, {"tool_call": {"name": "echo", "arguments": {"n": 2}}}],
        [{"text": "five six seven ", "size": 2, "every": 0.002}],
    ],
    "large": [[{"text": "x" * 700_000}]],
    "huge": [[{"text": "$user"}] * 20],
}


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[Runtime]:
    async with running(tmp_path, AGENTS, heartbeat=0.2) as served:
        yield served


def watch(runtime: Runtime, thread: str, after: int = 0) -> Any:
    """Begin to follow a thread."""
    return runtime.threads.WatchThread(pb.WatchThreadRequest(thread=thread, after_version=after))


async def snapshot(runtime: Runtime, thread: str) -> pb.GetThreadResponse:
    found: pb.GetThreadResponse = await runtime.threads.GetThread(pb.GetThreadRequest(name=thread))
    return found


async def new_thread(runtime: Runtime, **fields: Any) -> str:
    thread = thread_pb2.Thread(**fields)
    answer = await runtime.threads.CreateThread(pb.CreateThreadRequest(thread=thread))
    return str(answer.thread.name)


async def until(call: Any, version: int) -> list[pb.WatchThreadResponse]:
    """Read changes until one of this version, which is the thread's."""
    found: list[pb.WatchThreadResponse] = []
    async with asyncio.timeout(SECONDS):
        while not found or found[-1].version < version:
            message = await call.read()
            if message.WhichOneof("change"):
                found.append(message)
    return found


def kinds(changes: list[pb.WatchThreadResponse]) -> list[str]:
    return [str(change.WhichOneof("change")) for change in changes]


async def ended(call: Any) -> tuple[str, str, dict[str, str]]:
    """Read a stream to its end; returns code, reason and metadata."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async with asyncio.timeout(SECONDS):
            while await call.read() is not grpc.aio.EOF:
                pass
        raise AssertionError("the stream ended with OK")
    error = error_from_rpc(caught.value)
    return caught.value.code().name, error.reason, error.metadata


async def test_a_thread_is_told_from_its_creation_on(runtime: Runtime) -> None:
    thread = await new_thread(runtime, title="mine")
    await runtime.run(request("plain", thread=thread))
    now = await snapshot(runtime, thread)
    changes = await until(watch(runtime, thread), now.thread.version)
    assert kinds(changes) == ["metadata_changed", "message_added", "message_added", "turn_changed"]
    assert changes[0].metadata_changed.thread.title == "mine"
    assert changes[-1].turn_changed.turn.state == turn_pb2.TURN_STATE_COMPLETED
    assert [c.message_added.message for c in changes[1:3]] == list(now.messages)


async def test_a_watcher_hears_of_each_change_as_it_is_made(runtime: Runtime) -> None:
    thread = await new_thread(runtime)
    call = watch(runtime, thread, 1)
    first = (await runtime.turns.StartTurn(start(request("hang", thread=thread)))).turn
    begun = await until(call, 3)
    assert kinds(begun) == ["message_added", "turn_changed"]
    assert begun[0].message_added.message.role == message_pb2.MESSAGE_ROLE_USER
    assert begun[1].turn_changed.turn.name == first.name
    second = (await runtime.turns.StartTurn(start(request("plain", thread=thread)))).turn
    (queued,) = await until(call, 4)
    assert [t.name for t in queued.queue_changed.queued_turns] == [second.name]
    await runtime.threads.UpdateThread(
        pb.UpdateThreadRequest(
            thread=thread_pb2.Thread(name=thread, title="new"), update_mask={"paths": ["title"]}
        )
    )
    (renamed,) = await until(call, 5)
    assert renamed.metadata_changed.thread.title == "new"
    call.cancel()


async def test_any_version_can_be_gone_on_from(runtime: Runtime) -> None:
    thread = await new_thread(runtime)
    for agent in ("steps", "plain"):
        await runtime.run(request(agent, thread=thread))
    now = await snapshot(runtime, thread)
    for cut in range(now.thread.version):
        view = ClientView()
        for after in (0, cut):
            for change in await until(watch(runtime, thread, after), now.thread.version):
                view.apply(change)
        assert view == ClientView.of(now)


async def test_a_silent_watcher_gets_a_heartbeat_without_a_version(runtime: Runtime) -> None:
    thread = await new_thread(runtime)
    call = watch(runtime, thread, 1)
    async with asyncio.timeout(SECONDS):
        message = await call.read()
    assert message == pb.WatchThreadResponse()
    call.cancel()
    await runtime.until_no_reader()
    assert runtime.store.watch.watched == 0


async def test_a_version_ahead_of_the_thread_is_refused(runtime: Runtime) -> None:
    thread = await new_thread(runtime)
    code, reason, metadata = await ended(watch(runtime, thread, 2**64 - 1))
    assert (code, reason, metadata["version"]) == ("OUT_OF_RANGE", "VERSION_AHEAD", "1")


async def test_a_thread_of_nobody_cannot_be_watched(runtime: Runtime) -> None:
    assert (await ended(watch(runtime, "threads/nobody-1")))[:2] == ("NOT_FOUND", "THREAD_NOT_FOUND")


async def test_the_end_of_a_thread_is_its_last_change(runtime: Runtime) -> None:
    thread = await new_thread(runtime)
    call = watch(runtime, thread)
    await until(call, 1)
    deleted = await runtime.threads.DeleteThread(pb.DeleteThreadRequest(name=thread))
    (change,) = await until(call, deleted.version)
    assert change.HasField("deleted")
    async with asyncio.timeout(SECONDS):
        assert await call.read() is grpc.aio.EOF
    assert (await ended(watch(runtime, thread)))[:2] == ("NOT_FOUND", "THREAD_DELETED")


async def test_watchers_leave_with_the_process(runtime: Runtime) -> None:
    thread = await new_thread(runtime)
    call = watch(runtime, thread)
    await until(call, 1)
    runtime.store.send_away()
    assert (await ended(call))[:2] == ("UNAVAILABLE", "DRAINING")


async def test_changes_of_other_processes_are_found(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = await new_thread(runtime)
    monkeypatch.setattr(thread_watch.ThreadWatch, "changed", lambda self, key: None)
    call = watch(runtime, thread, 1)
    turn = (await runtime.turns.StartTurn(start(request("plain", thread=thread)))).turn
    found: list[pb.WatchThreadResponse] = []
    while not found or found[-1].turn_changed.turn.state != turn_pb2.TURN_STATE_COMPLETED:
        found += await until(call, found[-1].version + 1 if found else 2)
    assert found[-1].turn_changed.turn.name == turn.name
    call.cancel()


async def test_a_thread_of_an_older_schema_is_read_anew(runtime: Runtime) -> None:
    thread = await new_thread(runtime)
    await runtime.run(request("plain", thread=thread))
    version = (await snapshot(runtime, thread)).thread.version
    key = ThreadKey("default-org", thread.rpartition("/")[2])
    await runtime.store.change(
        key,
        lambda db: db.execute(
            "UPDATE threads SET snapshot_version = version WHERE scope = ? AND thread_id = ?",
            (key.scope, key.thread_id),
        ),
    )
    call = watch(runtime, thread, 2)
    (change,) = await until(call, version)
    assert change.HasField("resnapshot")
    await runtime.run(request("plain", thread=thread))
    assert kinds(await until(call, version + 1))[0] in ("message_added", "turn_changed")
    call.cancel()


async def _refreshed(runtime: Runtime, turn: str, thread: str, found: pb.GetThreadResponse) -> None:
    """Go on from a snapshot, and end with what somebody who never left has."""
    view = ClientView.of(found)
    text = TurnText.of(found)
    if found.live_turn.name:
        for event in events(await runtime.watch(turn, found.transcript_sequence)):
            text.apply(event)
    await runtime.ended(turn)
    now = await snapshot(runtime, thread)
    if now.thread.version > view.version:
        for change in await until(watch(runtime, thread, view.version), now.thread.version):
            view.apply(change)
    assert view == ClientView.of(now)
    assert text == TurnText.of(now)


@pytest.mark.parametrize("seed", range(3))
async def test_a_refresh_at_any_moment_of_a_turn_loses_and_repeats_nothing(
    runtime: Runtime, seed: int
) -> None:
    moments = random.Random(seed)
    thread = await new_thread(runtime)
    turn = (await runtime.turns.StartTurn(start(request("steps", thread=thread)))).turn.name
    async with asyncio.timeout(SECONDS), asyncio.TaskGroup() as refreshes:
        stream = runtime.turns.WatchTurn(turn_service_pb2.WatchTurnRequest(turn=turn))
        while (message := await stream.read()) is not grpc.aio.EOF:
            if message.events and moments.random() < 0.4:
                found = await snapshot(runtime, thread)
                refreshes.create_task(_refreshed(runtime, turn, thread, found))


@pytest.fixture
async def impatient(tmp_path: Path) -> AsyncIterator[Runtime]:
    async with running(tmp_path, AGENTS, heartbeat=0.2) as served:
        served.store.ticker.stall = 0.4
        yield served


async def test_a_watcher_that_takes_nothing_is_ended(impatient: Runtime) -> None:
    thread = await new_thread(impatient)
    for _ in range(20):
        await impatient.run(request("large", thread=thread))
    call = watch(impatient, thread)
    async with asyncio.timeout(SECONDS):
        await call.read()
        await impatient.until_no_reader()
    assert (await ended(call))[:2] == ("UNAVAILABLE", "READER_STALLED")


@pytest.mark.parametrize("method", ["RunTurn", "WatchTurn"])
async def test_a_reader_of_a_turn_that_takes_nothing_is_ended_and_can_come_back(
    impatient: Runtime, method: str
) -> None:
    asked = request("huge", request_id=str(uuid.uuid4()), text="x" * 700_000)
    finished = await impatient.run(asked)
    turn = finished[0].header.turn
    if method == "RunTurn":
        call = impatient.turns.RunTurn(asked)
    else:
        call = impatient.turns.WatchTurn(turn_service_pb2.WatchTurnRequest(turn=turn))
    async with asyncio.timeout(SECONDS):
        await call.read()
        await impatient.until_no_reader()
    assert (await ended(call))[:2] == ("UNAVAILABLE", "READER_STALLED")
    assert events(await impatient.watch(turn)) == events(finished)
