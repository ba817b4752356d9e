"""Between wire and domain nothing is lost: every field of every message is written or read."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.message import Message

from turnwire.api.executor.v1 import execution_pb2 as ex
from turnwire.api.executor.v1 import tool_executor_service_pb2 as pb
from turnwire.core.errors import InvalidRequest
from turnwire.executor import codec
from turnwire.executor.domain import (
    Accepted,
    ExecutionContext,
    ExecutionKey,
    ExecutionRecord,
    ExecutionState,
    Heartbeat,
    Outcome,
    Part,
    Progress,
    Result,
    ResumeInput,
    Started,
    StoredBytes,
    Suspension,
)
from turnwire.executor.overflow import Unit
from turnwire.extend.tools import Mode, Risk, SuspendStep, ToolSpec

STORED = StoredBytes("sha256:" + "0" * 64, 5, "0" * 64, "text/plain")
RESULT = Result(
    Outcome.FAILED,
    "text",
    True,
    STORED,
    (Part("image/png", b"x"), Part("image/png", b"", STORED)),
    1.5,
    2.5,
    0,
    "note",
    7,
)
SUSPENSION = Suspension("step", "{}", "{}", "1", 60.0)


def unset_fields(message: Message) -> set[str]:
    """Name the fields that are not set, in the message and below it."""
    present = {field.name for field, _ in message.ListFields()}
    found = {
        field.name
        for field in message.DESCRIPTOR.fields
        if field.name not in present and field.containing_oneof is None
    }
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.full_name.startswith("google."):
            continue
        if field.message_type.GetOptions().map_entry:
            continue
        for item in value if not isinstance(value, Message) else [value]:
            if field.name != "parts":
                found |= unset_fields(item)
    return found


def test_every_field_of_a_result_and_of_a_question_is_written() -> None:
    record = ExecutionRecord(
        ExecutionKey("default-org", "threads/abcd/turns/abcd/c", 2),
        ExecutionState.FINISHED,
        "tool",
        "ab",
        True,
        end=RESULT,
    )
    assert unset_fields(codec.lookup_to_proto(record)) == {"suspended"}
    assert unset_fields(codec.suspension_to_proto(SUSPENSION)) == set()
    assert codec.lookup_to_proto(None).state == ex.EXECUTION_STATE_NOT_FOUND


def test_the_events_fill_every_arm() -> None:
    events = [Accepted(True, 3), Started(5, 1.0), Progress("x"), Heartbeat(2.0), SUSPENSION, RESULT]
    messages = [codec.event_to_proto(event) for event in events]
    arms = {message.WhichOneof("event") for message in messages}
    assert arms == {field.name for field in pb.ExecuteResponse.DESCRIPTOR.fields}
    for message in messages:
        assert unset_fields(message) == set()


def test_every_field_of_a_tool_is_written() -> None:
    spec = ToolSpec(
        "name",
        "description",
        {"type": "object"},
        {"type": "string"},
        "digest",
        Mode.PARALLEL,
        None,
        True,
        Risk.SENSITIVE,
        "note",
        (SuspendStep("step", {"a": 1}, {"b": 1}),),
    )
    assert unset_fields(codec.tool_to_proto(spec, 540.0)) == set()


def test_every_field_of_a_request_is_read() -> None:
    request = pb.ExecuteRequest(
        scope="default-org",
        execution_id="threads/abcd/turns/efgh/call_1",
        attempt=2,
        epoch=3,
        tool_name="tool",
        arguments_json='{"a": 1}',
        max_result_chars=9,
        context=ex.ExecutionContext(
            thread="t",
            turn="u",
            call_id="c",
            agent="a",
            workspace="w/x",
            traceparent="p",
            variables={"N": "v"},
        ),
        resume=ex.ResumeInput(step="s", payload_json="1", state_json="2"),
    )
    request.execution_timeout.FromMilliseconds(1_500)
    request.queue_timeout.FromMilliseconds(0)
    assert unset_fields(request) == set()
    command = codec.execute_command_from_proto(request)
    assert command.key == ExecutionKey("default-org", "threads/abcd/turns/efgh/call_1", 2)
    assert (command.key.thread, command.key.turn) == ("threads/abcd", "threads/abcd/turns/efgh")
    assert (command.execution_timeout, command.queue_timeout) == (1.5, 0.0)
    assert command.context == ExecutionContext("t", "u", "c", "a", "w/x", "p", {"N": "v"})
    assert command.resume == ResumeInput("s", "1", "2")
    assert (command.epoch, command.tool_name, command.max_result_chars) == (3, "tool", 9)


def test_absent_limits_are_the_executors() -> None:
    request = pb.ExecuteRequest(
        scope="default-org", execution_id="threads/abcd/turns/efgh/c", attempt=1, tool_name="t"
    )
    command = codec.execute_command_from_proto(request)
    assert (command.execution_timeout, command.queue_timeout, command.resume) == (None, None, None)


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("arguments_json", {"arguments_json": '"\0"'}),
        ("context.turn", {"context": ex.ExecutionContext(turn="\0")}),
        ("context.variables", {"context": ex.ExecutionContext(variables={"A": "x" * 5_000})}),
        ("context.workspace", {"context": ex.ExecutionContext(workspace="/etc")}),
        ("execution_id", {"execution_id": "threads/abcd/turns/efgh/../x"}),
        ("resume.state_json", {"resume": ex.ResumeInput(state_json="[" * 100_000)}),
    ],
)
def test_what_does_not_fit_is_refused_with_its_path(field: str, change: dict[str, Any]) -> None:
    fields: dict[str, Any] = {
        "scope": "default-org",
        "execution_id": "threads/abcd/turns/efgh/c",
        "attempt": 1,
        "tool_name": "t",
        **change,
    }
    with pytest.raises(InvalidRequest) as caught:
        codec.execute_command_from_proto(pb.ExecuteRequest(**fields))
    assert caught.value.violations[0].field == field


def test_ranges_and_pages() -> None:
    request = pb.ReadResultRequest()
    assert codec.range_from_proto(request.range) == (Unit.BYTES, 0, 0)
    request.range.unit = 9  # type: ignore[assignment]
    with pytest.raises(InvalidRequest):
        codec.range_from_proto(request.range)
    assert codec.page_from_proto(pb.ListToolsRequest(page_size=500), "d" * 64) == ("", 200)
    token = codec.page_token("zebra", "d" * 64)
    assert codec.page_from_proto(pb.ListToolsRequest(page_token=token), "d" * 64) == ("zebra", 50)
    for wrong in (pb.ListToolsRequest(page_token=token), pb.ListToolsRequest(page_token="!")):
        with pytest.raises(InvalidRequest) as caught:
            codec.page_from_proto(wrong, "e" * 64)
        assert caught.value.reason == "PAGE_TOKEN_MISMATCH"
