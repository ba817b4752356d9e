"""Structured answers and tasks over a real server: admission, retries, what readers see, what comes after."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from support.postgres import Location
from support.runtime_server import Runtime, end, events, request, running
from turnwire.api.runtime.v1 import (
    agent_service_pb2,
    content_pb2,
    message_pb2,
    turn_event_pb2,
    turn_pb2,
    turn_service_pb2,
)
from turnwire.api.runtime.v1 import thread_service_pb2 as pb
from turnwire.wire.rpc_errors import error_from_rpc

SCHEMA = json.dumps({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
REQUEST, REMINDER = turn_event_pb2.MESSAGE_ORIGIN_REQUEST, turn_event_pb2.MESSAGE_ORIGIN_REMINDER
AGENTS: dict[str, Any] = {
    "fits": [[{"text": '{"n": 1}'}]],
    "mends": {
        "by": "thread",
        "calls": [[{"text": '{"n": "one"}'}], [{"text": '```json\n{"n": 1}\n```', "size": 3}]],
    },
    "never": [[{"text": "no, I say"}]],
    "echo": [[{"text": "$user"}]],
}


@pytest.fixture
async def runtime(tmp_path: Path, store_location: Location) -> AsyncIterator[Runtime]:
    async with running(tmp_path, AGENTS, location=store_location) as made:
        yield made


def task(agent: str, **fields: Any) -> turn_service_pb2.RunTurnRequest:
    asked = request(agent)
    asked.spec.task.CopyFrom(turn_pb2.Task(**fields))
    return asked


async def snapshot(runtime: Runtime, thread: str) -> pb.GetThreadResponse:
    found: pb.GetThreadResponse = await runtime.threads.GetThread(pb.GetThreadRequest(name=thread))
    return found


async def test_an_answer_that_misses_is_mended_and_every_reader_sees_how(runtime: Runtime) -> None:
    header, *rest = await runtime.run(request("mends", response_schema_json=SCHEMA))
    finished = end(rest)
    assert (finished.stop_reason, finished.text, finished.steps) == ("completed", '{"n": 1}', 2)
    assert finished.usage.model_calls == 2
    found = events(rest)
    (applied,) = [e for e in found if e.HasField("steer_applied")]
    assert applied.steer_applied.origin == REMINDER
    assert (applied.step, applied.steer_applied.command_id) == (1, "")
    seen = await snapshot(runtime, header.header.thread)
    roles = [message_pb2.MESSAGE_ROLE_USER, message_pb2.MESSAGE_ROLE_ASSISTANT] * 2
    assert [m.role for m in seen.messages] == roles
    assert [m.origin for m in seen.messages] == [REQUEST, 0, REMINDER, 0]
    assert seen.messages[2].name == applied.steer_applied.message
    assert {m.turn for m in seen.messages} == {header.header.turn}
    assert finished.final_message == seen.messages[3].name
    assert {m.status for m in seen.messages} == {message_pb2.MESSAGE_STATUS_FINAL}
    listed = (
        await runtime.threads.ListMessages(pb.ListMessagesRequest(parent=header.header.thread))
    ).messages
    assert [m.origin for m in listed] == [0, REMINDER, 0, REQUEST]


async def test_a_watcher_of_the_thread_gets_the_reminder_with_its_origin(runtime: Runtime) -> None:
    header, *_ = await runtime.run(request("mends", response_schema_json=SCHEMA))
    thread = header.header.thread
    last = (await snapshot(runtime, thread)).thread.version
    versions, origins = [], {}
    call = runtime.threads.WatchThread(pb.WatchThreadRequest(thread=thread))
    async for change in call:
        versions.append(change.version)
        if change.HasField("message_added"):
            message = change.message_added.message
            origins[message.position] = message.origin
        if change.version == last:
            break
    call.cancel()
    assert versions == sorted(set(versions))
    assert [origins[at] for at in sorted(origins)] == [REQUEST, 0, REMINDER, 0]


async def test_a_turn_whose_answers_never_fit_fails_with_the_last_one(runtime: Runtime) -> None:
    header, *rest = await runtime.run(request("never", response_schema_json=SCHEMA))
    finished = end(rest)
    assert (finished.state, finished.stop_reason) == (turn_pb2.TURN_STATE_FAILED, "answer-invalid")
    assert (finished.text, finished.steps) == ("no, I say", 3)
    assert finished.error.code == grpc.StatusCode.FAILED_PRECONDITION.value[0]
    assert "it is not JSON" in finished.error.message
    turn = await runtime.ended(header.header.turn)
    assert (turn.stop_reason, turn.final_message) == ("answer-invalid", finished.final_message)


async def test_a_retry_of_a_failed_turn_is_held_to_the_same_schema(runtime: Runtime) -> None:
    header, *_ = await runtime.run(request("never", response_schema_json=SCHEMA))
    version = (await snapshot(runtime, header.header.thread)).thread.version
    asked = pb.RetryTurnRequest(
        turn=header.header.turn, request_id=str(uuid.uuid4()), expected_version=version
    )
    again = await runtime.ended((await runtime.threads.RetryTurn(asked)).turn.name)
    assert (again.stop_reason, again.step) == ("answer-invalid", 3)
    seen = await snapshot(runtime, header.header.thread)
    assert {m.turn for m in seen.messages[1:]} == {again.name}


async def test_get_turn_shows_task_and_schema_and_lists_do_not(runtime: Runtime) -> None:
    image = content_pb2.Part(blob=content_pb2.BlobContent(media_type="image/png", data=b"x"))
    asked = task("fits", description="Count.", expected_output="One number.", parts=[image])
    asked.spec.response_schema_json = SCHEMA
    header, *rest = await runtime.run(asked)
    assert end(rest).stop_reason == "completed"
    turn = await runtime.ended(header.header.turn)
    assert turn.task == turn_pb2.Task(description="Count.", expected_output="One number.")
    assert turn.response_schema_json == SCHEMA
    listed = (await runtime.turns.ListTurns(turn_service_pb2.ListTurnsRequest(parent="threads/-"))).turns
    assert [t.HasField("task") for t in listed] == [False]
    plain, *_ = await runtime.run(request("fits"))
    assert not (await runtime.ended(plain.header.turn)).HasField("task")


async def test_a_task_is_one_user_message_with_both_texts_and_its_files(runtime: Runtime) -> None:
    image = content_pb2.Part(blob=content_pb2.BlobContent(media_type="image/png", data=b"x"))
    asked = task("echo", description="if a < b: </task>", expected_output="<Expected_Output>", parts=[image])
    header, *rest = await runtime.run(asked)
    text = (
        "<task>\nif a < b: &lt;/task>\n</task>\n\n<expected_output>\n&lt;Expected_Output>\n</expected_output>"
    )
    assert end(rest).text == text
    (said, _) = (await snapshot(runtime, header.header.thread)).messages
    assert [p.content.WhichOneof("content") for p in said.parts] == ["text", "blob"]
    assert said.parts[0].content.text.text == text
    bare = await runtime.run(task("echo", description="Count."))
    assert end(bare[1:]).text == "<task>\nCount.\n</task>"


async def test_a_repeat_joins_and_another_task_or_schema_is_another_request(runtime: Runtime) -> None:
    asked = task("fits", description="Count.")
    asked.spec.response_schema_json = SCHEMA
    first = await runtime.run(asked)
    assert (await runtime.run(asked))[0].header.turn == first[0].header.turn
    for change in ({"expected_output": "More."}, {"description": "Count again."}):
        other = turn_service_pb2.RunTurnRequest.FromString(asked.SerializeToString())
        other.spec.task.MergeFrom(turn_pb2.Task(**change))
        assert await refusal(runtime, other) == ("ALREADY_EXISTS", "REQUEST_ID_REUSED", [])
    asked.spec.response_schema_json = "{}"
    assert await refusal(runtime, asked) == ("ALREADY_EXISTS", "REQUEST_ID_REUSED", [])


async def refusal(runtime: Runtime, asked: turn_service_pb2.RunTurnRequest) -> tuple[str, str, list[str]]:
    """Return code, reason and the wrong fields of a request that is refused."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await runtime.run(asked)
    error = error_from_rpc(caught.value)
    fields = [violation.field for violation in getattr(error, "violations", ())]
    return caught.value.code().name, error.reason, fields


@pytest.mark.parametrize(
    "schema",
    [
        "no schema",
        "[]",
        '{"type": "poem"}',
        '{"$ref": "https://example.com/schema.json"}',
        "{" + " " * 64 * 1024 + "}",
    ],
)
async def test_what_is_no_schema_is_refused_by_the_name_of_the_field(runtime: Runtime, schema: str) -> None:
    asked = request("fits", response_schema_json=schema)
    assert await refusal(runtime, asked) == (
        "INVALID_ARGUMENT",
        "INVALID_REQUEST",
        ["spec.response_schema_json"],
    )


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({}, "spec.task.description"),
        ({"description": " \n"}, "spec.task.description"),
        ({"description": "x" * (256 * 1024 + 1)}, "spec.task.description"),
        ({"description": "a\0b"}, "spec.task.description"),
        ({"description": "x", "expected_output": "x" * (64 * 1024 + 1)}, "spec.task.expected_output"),
        ({"description": "x", "parts": [content_pb2.Part()]}, "spec.task.parts[0]"),
        ({"description": "x", "parts": [{"text": {"text": "x"}}] * 33}, "spec.task.parts"),
    ],
)
async def test_a_task_beyond_its_limits_is_refused_by_the_name_of_the_field(
    runtime: Runtime, fields: dict[str, Any], field: str
) -> None:
    assert await refusal(runtime, task("fits", **fields)) == (
        "INVALID_ARGUMENT",
        "INVALID_REQUEST",
        [field],
    )


async def test_a_task_that_waits_becomes_a_message_when_it_gets_another_input(runtime: Runtime) -> None:
    thread = (await runtime.run(request("echo")))[0].header.thread
    later = turn_service_pb2.StartTurnRequest(
        request_id=str(uuid.uuid4()), spec=task("echo", description="x").spec
    )
    later.spec.ClearField("new_thread")
    later.spec.thread = thread
    later.not_before_time.FromSeconds(int(time.time()) + 3600)
    waiting = (await runtime.turns.StartTurn(later)).turn
    part = content_pb2.Part(text=content_pb2.TextContent(text="something else"))
    changed = pb.UpdateQueuedTurnRequest(
        name=waiting.name, etag=waiting.etag, input=turn_pb2.Input(parts=[part])
    )
    await runtime.threads.UpdateQueuedTurn(changed)
    found = (await runtime.turns.GetTurn(turn_service_pb2.GetTurnRequest(name=waiting.name))).turn
    assert not found.HasField("task")


async def test_the_agent_tells_how_often_an_answer_goes_back(runtime: Runtime) -> None:
    asked = agent_service_pb2.GetAgentRequest(name="agents/fits")
    assert (await runtime.agent_service.GetAgent(asked)).agent.limits.max_retry_limit == 2
