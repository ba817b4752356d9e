"""ThreadService and AgentService over a real server: create, read, list, and what the agents can do."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from support.postgres import Location
from support.runtime_server import Runtime, request, running
from turnwire.api.common.v1 import tool_pb2
from turnwire.api.runtime.v1 import agent_service_pb2, message_pb2, thread_pb2, thread_service_pb2, turn_pb2
from turnwire.wire.rpc_errors import error_from_rpc

AGENTS = {
    "plain": [[{"reasoning": "hm"}, {"text": "Hello"}]],
    "tools": [
        [{"text": "Let me see."}, {"tool_call": {"name": "echo", "arguments": {"n": 1}}}],
        [{"text": "$result"}],
    ],
    "hang": [[{"text": "so far"}, {"hang": True}]],
    "large": [[{"text": "x" * 700_000}]],
}


@pytest.fixture
async def runtime(tmp_path: Path, store_location: Location) -> AsyncIterator[Runtime]:
    async with running(tmp_path, AGENTS, location=store_location) as made:
        yield made


async def refused(call: object) -> tuple[str, str]:
    """Return code and reason of a unary call that is refused."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call  # type: ignore[misc]
    return caught.value.code().name, error_from_rpc(caught.value).reason


def create(**fields: object) -> thread_service_pb2.CreateThreadRequest:
    thread = thread_pb2.Thread(title="mine", labels={"team": "search"}, metadata={"a": "b"})
    return thread_service_pb2.CreateThreadRequest(thread=thread, **fields)  # type: ignore[arg-type]


async def test_a_thread_is_created_once_per_request(runtime: Runtime) -> None:
    asked = create(request_id=str(uuid.uuid4()))
    first = (await runtime.threads.CreateThread(asked)).thread
    assert (first.title, first.version, dict(first.labels)) == ("mine", 1, {"team": "search"})
    assert (await runtime.threads.CreateThread(asked)).thread == first
    asked.thread.title = "other"
    assert await refused(runtime.threads.CreateThread(asked)) == ("ALREADY_EXISTS", "REQUEST_ID_REUSED")


async def test_a_chosen_id_is_the_name_and_cannot_be_used_twice(runtime: Runtime) -> None:
    asked = create(thread_id="mine-1")
    assert (await runtime.threads.CreateThread(asked)).thread.name == "threads/mine-1"
    assert await refused(runtime.threads.CreateThread(asked)) == ("ALREADY_EXISTS", "THREAD_ID_USED")


async def test_private_metadata_is_never_sent_back(runtime: Runtime) -> None:
    asked = create(thread_id="mine-1", private_metadata={"secret": "value"})
    await runtime.threads.CreateThread(asked)
    found = await runtime.threads.GetThread(thread_service_pb2.GetThreadRequest(name="threads/mine-1"))
    assert b"secret" not in found.SerializeToString()


async def test_a_thread_with_an_agent_gives_it_to_its_turns(runtime: Runtime) -> None:
    asked = create(thread_id="mine-1")
    asked.thread.agent = "agents/plain"
    await runtime.threads.CreateThread(asked)
    run = request("plain", thread="threads/mine-1")
    run.spec.agent = ""
    messages = await runtime.run(run)
    assert messages[0].header.agent == "agents/plain"
    asked.thread_id, asked.thread.agent = "mine-2", "agents/nobody"
    assert await refused(runtime.threads.CreateThread(asked)) == ("NOT_FOUND", "AGENT_NOT_FOUND")


async def test_a_thread_is_read_with_its_messages_live_turn_and_queue(runtime: Runtime) -> None:
    call = runtime.turns.RunTurn(request("hang"))
    header = (await call.read()).header
    while not any(e.llm.text_delta.text for e in (await call.read()).events):
        pass
    waiting = runtime.turns.RunTurn(request("plain", thread=header.thread))
    queued = (await waiting.read()).header
    found = await runtime.threads.GetThread(thread_service_pb2.GetThreadRequest(name=header.thread))
    assert found.thread.live_turn == header.turn == found.live_turn.name
    assert found.live_turn.state == turn_pb2.TURN_STATE_RUNNING
    assert found.thread.queue_length == 1
    assert [(t.name, t.queue_position) for t in found.queued_turns] == [(queued.turn, 1)]
    assert [m.role for m in found.messages] == [message_pb2.MESSAGE_ROLE_USER]
    call.cancel()
    waiting.cancel()


async def test_messages_hold_what_was_said_called_and_answered(runtime: Runtime) -> None:
    messages = await runtime.run(request("tools", text="what is it?"))
    thread = messages[0].header.thread
    asked = thread_service_pb2.ListMessagesRequest(parent=thread)
    answer, said = (await runtime.threads.ListMessages(asked)).messages
    assert said.parts[0].content.text.text == "what is it?"
    kinds = [(p.WhichOneof("part"), p.step) for p in answer.parts]
    assert kinds == [("content", 1), ("tool_call", 1), ("content", 2)]
    called = answer.parts[1].tool_call
    assert (called.tool_name, called.content) == ("echo", '{"n": 1}')
    assert called.outcome == tool_pb2.TOOL_OUTCOME_SUCCEEDED
    assert answer.turn == messages[0].header.turn
    assert answer.status == message_pb2.MESSAGE_STATUS_FINAL


async def test_messages_are_listed_in_pages_newest_first(runtime: Runtime) -> None:
    thread = ""
    for number in range(3):
        messages = await runtime.run(request("plain", thread=thread, text=f"number {number}"))
        thread = messages[0].header.thread
    asked = thread_service_pb2.ListMessagesRequest(parent=thread, page_size=4)
    first = await runtime.threads.ListMessages(asked)
    asked.page_token = first.next_page_token
    second = await runtime.threads.ListMessages(asked)
    positions = [m.position for m in (*first.messages, *second.messages)]
    assert positions == [6, 5, 4, 3, 2, 1]
    assert second.next_page_token == ""
    asked.include_hidden = True
    assert await refused(runtime.threads.ListMessages(asked)) == ("INVALID_ARGUMENT", "PAGE_TOKEN_MISMATCH")


async def test_a_page_of_messages_also_ends_at_its_size(runtime: Runtime) -> None:
    thread = ""
    for _ in range(2):
        messages = await runtime.run(request("large", thread=thread))
        thread = messages[0].header.thread
    asked = thread_service_pb2.ListMessagesRequest(parent=thread)
    count = 0
    while True:
        page = await runtime.threads.ListMessages(asked)
        assert page.ByteSize() < 1024 * 1024
        count += len(page.messages)
        if not page.next_page_token:
            break
        asked.page_token = page.next_page_token
    assert count == 4


async def test_threads_are_listed_latest_first_by_filter(runtime: Runtime) -> None:
    for number in range(3):
        await runtime.threads.CreateThread(create(thread_id=f"mine-{number}"))
    await runtime.run(request("plain", thread="threads/mine-0"))
    asked = thread_service_pb2.ListThreadsRequest(page_size=2)
    first = await runtime.threads.ListThreads(asked)
    asked.page_token = first.next_page_token
    second = await runtime.threads.ListThreads(asked)
    names = [t.name for t in (*first.threads, *second.threads)]
    assert names == ["threads/mine-0", "threads/mine-2", "threads/mine-1"]
    where = thread_service_pb2.ListThreadsRequest(filter="label.team=search AND agent=agents/plain")
    assert not (await runtime.threads.ListThreads(where)).threads


async def test_a_thread_that_is_not_there_is_not_found(runtime: Runtime) -> None:
    name = "threads/nowhere"
    for call in (
        runtime.threads.GetThread(thread_service_pb2.GetThreadRequest(name=name)),
        runtime.threads.ListMessages(thread_service_pb2.ListMessagesRequest(parent=name)),
    ):
        assert await refused(call) == ("NOT_FOUND", "THREAD_NOT_FOUND")


async def test_agents_are_listed_in_pages_and_read_with_their_tools(runtime: Runtime) -> None:
    asked = agent_service_pb2.ListAgentsRequest(page_size=3)
    first = await runtime.agent_service.ListAgents(asked)
    asked.page_token = first.next_page_token
    second = await runtime.agent_service.ListAgents(asked)
    assert [a.name for a in (*first.agents, *second.agents)] == [f"agents/{n}" for n in sorted(AGENTS)]
    found = (
        await runtime.agent_service.GetAgent(agent_service_pb2.GetAgentRequest(name="agents/plain"))
    ).agent
    assert [t.name for t in found.tools] == ["echo", "long", "wait"]
    assert found.tools[0].execution_mode == tool_pb2.EXECUTION_MODE_EXCLUSIVE
    assert found.limits.steps == 30
    assert found.digest
    assert found.uid
    missing = agent_service_pb2.GetAgentRequest(name="agents/nobody")
    assert await refused(runtime.agent_service.GetAgent(missing)) == ("NOT_FOUND", "AGENT_NOT_FOUND")


async def test_the_server_tells_where_control_is_and_what_it_allows(runtime: Runtime) -> None:
    info = await runtime.agent_service.GetServerInfo(agent_service_pb2.GetServerInfoRequest())
    assert info.control_target == "127.0.0.1:50052"
    assert info.log_id == runtime.store.log_id
    assert info.limits.max_event_bytes == 1024 * 1024
    assert info.version
