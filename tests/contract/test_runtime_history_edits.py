"""Edits of histories, forks and deletions over a real server, with user code that takes part in them."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from support.runtime_server import TERMINAL, Runtime, end, request, running, start
from support.thread_edits import rows
from turnwire.api.runtime.v1 import message_pb2, turn_pb2
from turnwire.api.runtime.v1 import thread_service_pb2 as pb
from turnwire.extend.errors import PolicyViolationError
from turnwire.extend.lifecycle import HistoryRewrite, HistoryRewritten, Lifecycle, MetadataPatch
from turnwire.wire.rpc_errors import error_from_rpc

HIDDEN = message_pb2.MESSAGE_VISIBILITY_HIDDEN
AGENTS = {
    "plain": [[{"text": "Hello"}]],
    "broken": [[{"text": "so f"}, {"fail": {"kind": "invalid-request"}}]],
    "hang": [[{"text": "so far"}, {"hang": True}]],
    "tools": [[{"tool_call": {"name": "wait", "arguments": {}}}], [{"text": "$result"}]],
}


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[Runtime]:
    async with running(tmp_path, AGENTS) as made:
        yield made


def new_id() -> str:
    return str(uuid.uuid4())


async def refused(call: Any) -> tuple[str, str]:
    """Return code and reason of a unary call that is refused."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code().name, error_from_rpc(caught.value).reason


async def thread_of(runtime: Runtime, agent: str = "plain", text: str = "hello") -> tuple[str, Any]:
    """Run a turn on a new thread; returns the thread's name and the stream."""
    messages = await runtime.run(request(agent, text=text))
    return messages[0].header.thread, messages


async def snapshot(runtime: Runtime, thread: str) -> pb.GetThreadResponse:
    found: pb.GetThreadResponse = await runtime.threads.GetThread(pb.GetThreadRequest(name=thread))
    return found


def texts(found: pb.GetThreadResponse) -> list[str]:
    return ["".join(part.content.text.text for part in message.parts) for message in found.messages]


async def test_an_answer_is_made_anew_and_the_request_may_be_repeated(runtime: Runtime) -> None:
    thread, _ = await thread_of(runtime)
    before = await snapshot(runtime, thread)
    asked = pb.RegenerateTurnRequest(
        thread=thread, request_id=new_id(), expected_version=before.thread.version
    )
    turn = (await runtime.threads.RegenerateTurn(asked)).turn
    ended = await runtime.ended(turn.name)
    assert ended.state == turn_pb2.TURN_STATE_COMPLETED
    after = await snapshot(runtime, thread)
    assert texts(after) == ["hello", "Hello"]
    assert after.messages[0] == before.messages[0]
    assert after.messages[1].name != before.messages[1].name
    assert (await runtime.threads.RegenerateTurn(asked)).turn.name == turn.name
    every = await runtime.threads.ListMessages(pb.ListMessagesRequest(parent=thread, include_hidden=True))
    assert [m.visibility for m in every.messages] == [
        message_pb2.MESSAGE_VISIBILITY_VISIBLE,
        message_pb2.MESSAGE_VISIBILITY_SUPERSEDED,
        message_pb2.MESSAGE_VISIBILITY_VISIBLE,
    ]
    asked.message = before.messages[1].name
    assert await refused(runtime.threads.RegenerateTurn(asked)) == ("ALREADY_EXISTS", "REQUEST_ID_REUSED")


async def test_a_failed_turn_is_tried_again(runtime: Runtime) -> None:
    thread, messages = await thread_of(runtime, "broken")
    assert end(messages).state == turn_pb2.TURN_STATE_FAILED
    before = await snapshot(runtime, thread)
    asked = pb.RetryTurnRequest(
        turn=messages[0].header.turn, request_id=new_id(), expected_version=before.thread.version
    )
    turn = (await runtime.threads.RetryTurn(asked)).turn
    assert turn.retry_of == messages[0].header.turn
    await runtime.ended(turn.name)
    assert texts(await snapshot(runtime, thread)) == ["hello", "so f"]


async def test_settings_of_the_model_are_those_of_the_request_and_are_checked(runtime: Runtime) -> None:
    thread, _ = await thread_of(runtime)
    at = (await snapshot(runtime, thread)).thread.version
    asked = pb.RegenerateTurnRequest(thread=thread, request_id=new_id(), expected_version=at)
    asked.model_options.model = "nosuch:model"
    assert await refused(runtime.threads.RegenerateTurn(asked)) == ("INVALID_ARGUMENT", "INVALID_REQUEST")
    asked.model_options.model = ""
    asked.model_options.temperature = 3
    assert await refused(runtime.threads.RegenerateTurn(asked)) == ("INVALID_ARGUMENT", "INVALID_REQUEST")
    asked.model_options.temperature = 0.5
    turn = (await runtime.threads.RegenerateTurn(asked)).turn
    (spec,) = await rows(
        runtime.store, "SELECT spec FROM turns WHERE turn_id = ?", turn.name.rpartition("/")[2]
    )
    assert json.loads(spec[0])["options"] == {"temperature": 0.5}


async def test_messages_are_hidden_and_shown(runtime: Runtime) -> None:
    thread, _ = await thread_of(runtime)
    before = await snapshot(runtime, thread)
    asked = pb.SetMessageVisibilityRequest(
        thread=thread,
        messages=[before.messages[1].name],
        visibility=HIDDEN,
        expected_version=before.thread.version,
    )
    changed = (await runtime.threads.SetMessageVisibility(asked)).thread
    assert changed.version == before.thread.version + 1
    assert texts(await snapshot(runtime, thread)) == ["hello"]
    asked.expected_version, asked.visibility = changed.version, message_pb2.MESSAGE_VISIBILITY_VISIBLE
    await runtime.threads.SetMessageVisibility(asked)
    assert texts(await snapshot(runtime, thread)) == ["hello", "Hello"]


async def test_a_thread_is_forked_once_per_request(runtime: Runtime) -> None:
    thread, _ = await thread_of(runtime)
    asked = pb.ForkThreadRequest(thread=thread, request_id=new_id())
    fork = (await runtime.threads.ForkThread(asked)).thread
    assert fork.forked_from.startswith(f"{thread}/messages/")
    assert (await runtime.threads.ForkThread(asked)).thread == fork
    found = await snapshot(runtime, fork.name)
    assert texts(found) == ["hello", "Hello"]
    assert [message.turn for message in found.messages] == ["", ""]
    again = pb.RegenerateTurnRequest(thread=fork.name, request_id=new_id(), expected_version=fork.version)
    turn = (await runtime.threads.RegenerateTurn(again)).turn
    assert (await runtime.ended(turn.name)).state == turn_pb2.TURN_STATE_COMPLETED
    assert texts(await snapshot(runtime, fork.name)) == ["hello", "Hello"]


async def test_a_deleted_thread_is_gone_and_what_the_executor_kept_too(runtime: Runtime) -> None:
    thread, messages = await thread_of(runtime)
    runtime.executor.refuse_purges = 1
    asked = pb.DeleteThreadRequest(name=thread)
    version = (await runtime.threads.DeleteThread(asked)).version
    assert (await runtime.threads.DeleteThread(asked)).version == version
    for call in (
        runtime.threads.GetThread(pb.GetThreadRequest(name=thread)),
        runtime.turns.StartTurn(start(request("plain", thread=thread))),
    ):
        assert await refused(call) == ("NOT_FOUND", "THREAD_NOT_FOUND")
    fork = pb.ForkThreadRequest(thread=thread, request_id=new_id())
    assert await refused(runtime.threads.ForkThread(fork)) == ("NOT_FOUND", "MESSAGE_NOT_FOUND")
    used = pb.CreateThreadRequest(thread_id=thread.rpartition("/")[2])
    assert await refused(runtime.threads.CreateThread(used)) == ("ALREADY_EXISTS", "THREAD_ID_USED")
    async with asyncio.timeout(10):
        await runtime.executor.asked_to_purge.wait()
    assert runtime.executor.purged == [("default-org", thread)]
    turn = messages[0].header.turn.rpartition("/")[2]
    assert await rows(runtime.store, "SELECT 1 FROM pages WHERE turn_id = ?", turn) == []
    assert await rows(runtime.store, "SELECT 1 FROM messages") == []


async def test_deleting_ends_the_running_turn_and_its_readers(runtime: Runtime) -> None:
    call = runtime.turns.RunTurn(request("hang"))
    seen = [await anext(aiter(call))]
    thread = seen[0].header.thread
    async with asyncio.timeout(20):
        deleting = asyncio.ensure_future(runtime.threads.DeleteThread(pb.DeleteThreadRequest(name=thread)))
        seen += [message async for message in call]
        assert end(seen).stop_reason == "deleted"
        await deleting
    assert await refused(runtime.threads.GetThread(pb.GetThreadRequest(name=thread))) == (
        "NOT_FOUND",
        "THREAD_NOT_FOUND",
    )


class Watching(Lifecycle):
    """Keeps what it saw; patches, refuses or breaks as told."""

    def __init__(self) -> None:
        self.prepared: list[HistoryRewrite] = []
        self.told: asyncio.Queue[HistoryRewritten] = asyncio.Queue()
        self.error: Exception | None = None
        self.gate: asyncio.Event | None = None

    async def prepare_history_rewrite(self, rewrite: HistoryRewrite) -> MetadataPatch | None:
        self.prepared.append(rewrite)
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            raise self.error
        return MetadataPatch({"edits": str(len(self.prepared))}, {"by": rewrite.subject})

    async def history_rewritten(self, rewritten: HistoryRewritten) -> None:
        self.told.put_nowait(rewritten)
        raise ValueError("the outside is away")


async def test_user_code_takes_part_in_an_edit_and_hears_of_it(tmp_path: Path) -> None:
    mine, other = Watching(), Watching()
    async with running(tmp_path, AGENTS, lifecycles=[mine, other]) as runtime:
        thread, messages = await thread_of(runtime)
        before = await snapshot(runtime, thread)
        asked = pb.RegenerateTurnRequest(
            thread=thread, request_id=new_id(), expected_version=before.thread.version
        )
        turn = (await runtime.threads.RegenerateTurn(asked)).turn
        async with asyncio.timeout(10):
            told = await mine.told.get()
            assert told == await other.told.get()
        (seen,) = mine.prepared
        assert (seen.messages, seen.base_version) == ((before.messages[1].name,), before.thread.version)
        assert (told.rewrite, told.turn) == (seen, turn.name)
        assert told.patch.public == {"edits": "1"}
        assert told.new_version > seen.base_version
        await runtime.ended(turn.name)
        found = (await snapshot(runtime, thread)).thread
        assert dict(found.metadata) == {"edits": "1"}
        async with asyncio.timeout(10):
            while not (noted := await _observed(runtime)):
                await asyncio.sleep(0)
        assert noted == ["Watching.history_rewritten failed: ValueError('the outside is away')"] * 2
    assert messages[0].header.thread == thread


async def _observed(runtime: Runtime) -> list[str]:
    ((time, errors),) = await rows(runtime.store, "SELECT observe_time, observe_errors FROM history_rewrites")
    return json.loads(errors) if time else []


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (PolicyViolationError("not this one"), ("FAILED_PRECONDITION", "REWRITE_REFUSED")),
        (ValueError("a defect"), ("INTERNAL", "INTERNAL")),
    ],
)
async def test_user_code_that_raises_refuses_the_edit_and_nothing_is_stored(
    tmp_path: Path, error: Exception, answer: tuple[str, str]
) -> None:
    mine = Watching()
    mine.error = error
    async with running(tmp_path, AGENTS, lifecycles=[mine]) as runtime:
        thread, _ = await thread_of(runtime)
        before = await snapshot(runtime, thread)
        asked = pb.RegenerateTurnRequest(
            thread=thread, request_id=new_id(), expected_version=before.thread.version
        )
        assert await refused(runtime.threads.RegenerateTurn(asked)) == answer
        assert await snapshot(runtime, thread) == before
        assert await rows(runtime.store, "SELECT owner, lease FROM threads") == [("", "")]
        assert mine.told.empty()
        mine.error = None
        turn = (await runtime.threads.RegenerateTurn(asked)).turn
        assert (await runtime.ended(turn.name)).state in TERMINAL


async def test_while_user_code_decides_no_other_edit_and_no_turn_begins(tmp_path: Path) -> None:
    mine = Watching()
    async with running(tmp_path, AGENTS, lifecycles=[mine]) as runtime:
        thread, _ = await thread_of(runtime)
        at = (await snapshot(runtime, thread)).thread.version
        mine.gate = asyncio.Event()
        asked = [
            pb.RegenerateTurnRequest(thread=thread, request_id=new_id(), expected_version=at)
            for _ in range(2)
        ]
        async with asyncio.timeout(20):
            first = asyncio.ensure_future(runtime.threads.RegenerateTurn(asked[0]))
            while not mine.prepared:
                await asyncio.sleep(0)
            assert await refused(runtime.threads.RegenerateTurn(asked[1])) == ("UNAVAILABLE", "THREAD_HELD")
            behind = (await runtime.turns.StartTurn(start(request("plain", thread=thread, text="two")))).turn
            assert behind.state == turn_pb2.TURN_STATE_QUEUED
            mine.gate.set()
            # What was queued meanwhile has changed the thread: the edit was of what it was before.
            with pytest.raises(grpc.aio.AioRpcError) as lost:
                await first
            assert error_from_rpc(lost.value).reason == "THREAD_CHANGED"
            await runtime.ended(behind.name)
        assert texts(await snapshot(runtime, thread)) == ["hello", "Hello", "two", "Hello"]


async def test_a_caller_that_leaves_does_not_undo_its_edit(tmp_path: Path) -> None:
    mine = Watching()
    async with running(tmp_path, AGENTS, lifecycles=[mine]) as runtime:
        thread, _ = await thread_of(runtime)
        mine.gate = asyncio.Event()
        asked = pb.RegenerateTurnRequest(
            thread=thread,
            request_id=new_id(),
            expected_version=(await snapshot(runtime, thread)).thread.version,
        )
        call = runtime.threads.RegenerateTurn(asked)
        async with asyncio.timeout(20):
            first = asyncio.ensure_future(_quietly(call))
            while not mine.prepared:
                await asyncio.sleep(0)
            call.cancel()
            await first
            mine.gate.set()
            await mine.told.get()
        turn = (await runtime.threads.RegenerateTurn(asked)).turn
        assert (await runtime.ended(turn.name)).state == turn_pb2.TURN_STATE_COMPLETED
        assert len(mine.prepared) == 1


async def _quietly(call: Any) -> None:
    try:
        await call
    except asyncio.CancelledError:
        return
