"""UpdateThread, ListQueuedTurns and UpdateQueuedTurn over a real server."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from support.runtime_server import Runtime, request, running, start
from turnwire.api.runtime.v1 import content_pb2, thread_pb2, turn_pb2
from turnwire.api.runtime.v1 import thread_service_pb2 as pb
from turnwire.runtime.domain.control import ControlDelivery
from turnwire.wire.rpc_errors import error_from_rpc

AGENTS: dict[str, list[list[dict[str, Any]]]] = {
    "hang": [[{"text": "so far "}, {"hang": True}]],
    "echo": [[{"text": "$user"}]],
}
MIB = 1024 * 1024


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[Runtime]:
    async with running(tmp_path, AGENTS) as served:
        yield served


async def refused(call: Any) -> tuple[str, str, dict[str, str]]:
    """Return code, reason and metadata of a call that is refused."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    error = error_from_rpc(caught.value)
    return caught.value.code().name, error.reason, error.metadata


async def busy_thread(runtime: Runtime) -> turn_pb2.Turn:
    """A thread whose live turn does not end; returns the turn."""
    turn: turn_pb2.Turn = (await runtime.turns.StartTurn(start(request("hang")))).turn
    return turn


def thread_of(turn: turn_pb2.Turn) -> str:
    return turn.name.partition("/turns/")[0]


async def wait_in(runtime: Runtime, thread: str, text: str, **fields: Any) -> turn_pb2.Turn:
    asked = request("echo", thread=thread, text=text, **fields)
    turn: turn_pb2.Turn = (await runtime.turns.StartTurn(start(asked))).turn
    assert turn.state == turn_pb2.TURN_STATE_QUEUED
    return turn


def edit(turn: turn_pb2.Turn, text: str, etag: str = "") -> pb.UpdateQueuedTurnRequest:
    parts = [content_pb2.Part(text=content_pb2.TextContent(text=text))]
    return pb.UpdateQueuedTurnRequest(
        name=turn.name, etag=etag or turn.etag, input=turn_pb2.Input(parts=parts)
    )


def change(name: str, *paths: str, expected: int | None = None, **fields: Any) -> pb.UpdateThreadRequest:
    return pb.UpdateThreadRequest(
        thread=thread_pb2.Thread(name=name, **fields),
        update_mask={"paths": paths},
        expected_version=expected,
    )


async def stop(runtime: Runtime, turn: str) -> None:
    delivery = ControlDelivery(
        "default-org", str(uuid.uuid4()), turn=turn, cause="enough", remaining_seconds=30.0
    )
    assert (await runtime.desk.deliver(delivery)).kind == "applied"


async def test_a_queue_is_listed_page_by_page_in_its_order(runtime: Runtime) -> None:
    thread = thread_of(await busy_thread(runtime))
    waiting = [(await wait_in(runtime, thread, f"number {n}")).name for n in range(5)]
    listed: list[turn_pb2.Turn] = []
    token = ""
    while True:
        asked = pb.ListQueuedTurnsRequest(parent=thread, page_size=2, page_token=token)
        page = await runtime.threads.ListQueuedTurns(asked)
        assert len(page.turns) <= 2
        listed += page.turns
        token = page.next_page_token
        if not token:
            break
    assert [turn.name for turn in listed] == waiting
    assert [turn.queue_position for turn in listed] == [1, 2, 3, 4, 5]
    found = await runtime.threads.GetThread(pb.GetThreadRequest(name=thread))
    assert list(found.queued_turns) == listed


async def test_a_turn_that_waits_runs_with_its_new_input(runtime: Runtime) -> None:
    live = await busy_thread(runtime)
    asked = request("echo", thread=thread_of(live), text="first thought")
    turn = (await runtime.turns.StartTurn(start(asked))).turn
    edited = (await runtime.threads.UpdateQueuedTurn(edit(turn, "second thought"))).turn
    assert (edited.name, edited.state) == (turn.name, turn_pb2.TURN_STATE_QUEUED)
    assert edited.etag != turn.etag
    again = await runtime.turns.StartTurn(start(asked))
    assert again.turn.name == turn.name, "the request that made it still joins it"
    await stop(runtime, live.name)
    done = await runtime.ended(turn.name)
    found = await runtime.threads.GetThread(pb.GetThreadRequest(name=thread_of(live)))
    assert [m.parts[0].content.text.text for m in found.messages if m.turn == done.name] == [
        "second thought"
    ] * 2


async def test_an_edit_needs_what_was_read_last(runtime: Runtime) -> None:
    turn = await wait_in(runtime, thread_of(await busy_thread(runtime)), "one")
    first = (await runtime.threads.UpdateQueuedTurn(edit(turn, "two"))).turn
    code, reason, metadata = await refused(runtime.threads.UpdateQueuedTurn(edit(turn, "three")))
    assert (code, reason, metadata["etag"]) == ("ABORTED", "TURN_CHANGED", first.etag)
    assert (await runtime.threads.UpdateQueuedTurn(edit(first, "three"))).turn.etag != first.etag


async def test_a_turn_that_has_begun_cannot_be_edited(runtime: Runtime) -> None:
    live = await busy_thread(runtime)
    code, reason, metadata = await refused(runtime.threads.UpdateQueuedTurn(edit(live, "other")))
    assert (code, reason) == ("FAILED_PRECONDITION", "TURN_NOT_QUEUED")
    assert metadata == {"turn": live.name, "state": "RUNNING"}


async def test_fifty_long_inputs_in_a_queue_do_not_burden_those_who_look_at_it(runtime: Runtime) -> None:
    thread = thread_of(await busy_thread(runtime))
    long = content_pb2.Part(text=content_pb2.TextContent(text="x" * (MIB - 1024)))
    for _ in range(50):
        asked = start(request("echo", thread=thread, metadata={"k": "v" * 16_000}))
        asked.spec.input.parts.append(long)
        await runtime.turns.StartTurn(asked)
    found = await runtime.threads.GetThread(pb.GetThreadRequest(name=thread))
    assert found.thread.queue_length == 50
    assert len(found.queued_turns) == 50
    assert found.ByteSize() < MIB
    call = runtime.threads.WatchThread(
        pb.WatchThreadRequest(thread=thread, after_version=found.thread.version - 1)
    )
    last = await call.read()
    assert list(last.queue_changed.queued_turns) == list(found.queued_turns)
    call.cancel()
    assert (await refused(runtime.turns.StartTurn(start(request("echo", thread=thread)))))[:2] == (
        "RESOURCE_EXHAUSTED",
        "QUEUE_FULL",
    )


async def test_a_mask_says_what_of_a_thread_is_changed(runtime: Runtime) -> None:
    new = thread_pb2.Thread(title="old", metadata={"a": "b"}, labels={"team": "search"})
    thread = (await runtime.threads.CreateThread(pb.CreateThreadRequest(thread=new))).thread
    given = change(thread.name, "title", "labels", title="new", labels={"team": "ads"}, metadata={"c": "d"})
    changed = (await runtime.threads.UpdateThread(given)).thread
    assert (changed.title, dict(changed.metadata), dict(changed.labels)) == (
        "new",
        {"a": "b"},
        {"team": "ads"},
    )
    assert changed.version == 2
    same = (await runtime.threads.UpdateThread(given)).thread
    assert same.version == 2, "nothing has changed"
    emptied = (await runtime.threads.UpdateThread(change(thread.name, "metadata", "title"))).thread
    assert (emptied.title, dict(emptied.metadata), emptied.version) == ("", {}, 3)


async def test_a_change_may_name_the_version_that_it_is_of(runtime: Runtime) -> None:
    thread = (await runtime.threads.CreateThread(pb.CreateThreadRequest())).thread
    await runtime.threads.UpdateThread(change(thread.name, "title", title="one", expected=1))
    late = change(thread.name, "title", title="two", expected=1)
    code, reason, metadata = await refused(runtime.threads.UpdateThread(late))
    assert (code, reason, metadata["version"]) == ("ABORTED", "THREAD_CHANGED", "2")


@pytest.mark.parametrize("paths", [(), ("name",), ("title", "agent"), ("metadata.a",)])
async def test_only_four_fields_of_a_thread_can_be_changed(runtime: Runtime, paths: tuple[str, ...]) -> None:
    thread = (await runtime.threads.CreateThread(pb.CreateThreadRequest())).thread
    with pytest.raises(grpc.aio.AioRpcError, match="labels, metadata, permission_mode, title"):
        await runtime.threads.UpdateThread(change(thread.name, *paths))
