"""The pieces of the client that need no network."""

from __future__ import annotations

import json

import grpc
import pytest
from google.protobuf.descriptor_pool import Default

import turnwire_client
import turnwire_client.messages
from turnwire.api.common.v1.error_reason_pb2 import ErrorReason
from turnwire.api.control.v1 import control_service_pb2  # noqa: F401  registers the service
from turnwire.api.runtime.v1.turn_pb2 import NewThread, Task, TurnState
from turnwire.core import errors as core_errors
from turnwire_client import AsyncClient, Client, InvalidRequest, TurnwireError, errors, operations, turn_spec
from turnwire_client.backoff import Backoff
from turnwire_client.connection import ConnectionOptions, Tls, is_local
from turnwire_client.operations import Operation
from turnwire_client.result import TurnResult
from turnwire_client.spec import agent_name, duration, run_turn_request, thread_name


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_delays_grow_stay_bounded_and_end_with_the_time() -> None:
    clock = Clock()
    backoff = Backoff(10.0, first=0.1, cap=2.0, clock=clock)
    delays = []
    while (delay := backoff.next_delay()) is not None:
        delays.append(delay)
        clock.now += delay
    assert all(0.05 <= delay <= 2.0 for delay in delays)
    assert clock.now - 100.0 <= 10.0
    assert len(delays) > 5
    backoff.reset()
    assert backoff.next_delay() is not None


def test_the_servers_delay_is_never_undercut() -> None:
    backoff = Backoff(60.0)
    assert backoff.next_delay(7.0) == 7.0


def test_no_time_means_no_second_attempt() -> None:
    assert Backoff(0.0).next_delay() is None


@pytest.mark.parametrize(
    "target", ["127.0.0.1:50051", "localhost:1", "[::1]:50051", "dns:///localhost:1", "unix:/x"]
)
def test_local_targets_are_known(target: str) -> None:
    assert is_local(target)


@pytest.mark.parametrize(
    "target", ["runtime:50051", "127.example.com:1", "10.0.0.1:1", "dns:///runtime:50051"]
)
def test_other_targets_are_not_local(target: str) -> None:
    assert not is_local(target)


def test_a_token_never_travels_in_clear_unless_somebody_says_so() -> None:
    with pytest.raises(ValueError, match="in clear"):
        Client("runtime.example.com:50051", token="secret")
    ConnectionOptions("runtime.example.com:50051", token="secret", insecure=True)
    ConnectionOptions("runtime.example.com:50051", token="secret", tls=Tls())


@pytest.mark.parametrize("value", ["чат", "line\nbreak", "tab\t"])
def test_metadata_outside_ascii_is_refused_by_name(value: str) -> None:
    with pytest.raises(ValueError, match="token"):
        AsyncClient(token=value)
    with pytest.raises(ValueError, match="scope"):
        AsyncClient(scope=value)
    with pytest.raises(ValueError, match="token"):
        ConnectionOptions("127.0.0.1:1", token=lambda: value).metadata()


def test_secrets_are_not_shown_by_repr() -> None:
    options = ConnectionOptions("127.0.0.1:1", token="hunter2", tls=Tls(key=b"PRIVATE"))
    assert "hunter2" not in repr(options)
    assert "PRIVATE" not in repr(options)


def test_keepalive_is_no_faster_than_the_servers_accept() -> None:
    options = dict(ConnectionOptions("127.0.0.1:1").channel_options())
    assert options["grpc.keepalive_time_ms"] == 10_000


def test_short_names_are_completed_and_full_ones_kept() -> None:
    assert agent_name("demo") == "agents/demo"
    assert agent_name("agents/demo") == "agents/demo"
    assert agent_name("") == ""
    assert thread_name("-") == "threads/-"
    assert thread_name("threads/a/turns/b") == "threads/a/turns/b"


def test_work_is_either_text_or_a_task() -> None:
    with pytest.raises(ValueError, match="either text"):
        turn_spec(agent="demo")
    with pytest.raises(ValueError, match="either text"):
        turn_spec(agent="demo", text="hello", task="do it")
    with pytest.raises(ValueError, match="either thread"):
        turn_spec(text="hello", thread="my-thread", new_thread=NewThread())
    spec = turn_spec(agent="demo", task=Task(description="do it", expected_output="a list"))
    assert spec.task.expected_output == "a list"
    assert spec.HasField("new_thread")


def test_further_fields_of_the_spec_go_by_their_names() -> None:
    assert list(turn_spec(text="x", allowed_tools=["multiply"]).allowed_tools) == ["multiply"]
    with pytest.raises(ValueError, match="no_such_field"):
        turn_spec(text="x", no_such_field=1)


def test_a_schema_goes_as_it_is_or_as_its_json() -> None:
    assert turn_spec(text="x", schema='{"type": "null"}').response_schema_json == '{"type": "null"}'
    spec = turn_spec(task="x", schema={"type": "object", "title": "é"})
    assert json.loads(spec.response_schema_json) == {"type": "object", "title": "é"}
    assert turn_spec(text="x").response_schema_json == ""


def test_the_answer_of_a_completed_turn_can_be_read_as_json_and_no_other() -> None:
    def result(text: str, state: TurnState, reason: str) -> TurnResult:
        return TurnResult(text, state, reason, None, "", "")

    assert result('{"a": [1]}', TurnState.TURN_STATE_COMPLETED, "completed").parsed() == {"a": [1]}
    with pytest.raises(ValueError, match="answer-invalid"):
        result('{"a": 1}', TurnState.TURN_STATE_FAILED, "answer-invalid").parsed()
    with pytest.raises(ValueError):
        result("hello", TurnState.TURN_STATE_COMPLETED, "completed").parsed()


def test_request_ids_are_new_unless_given() -> None:
    spec = turn_spec(text="x")
    assert run_turn_request(spec).request_id != run_turn_request(spec).request_id
    assert run_turn_request(spec, request_id="mine").request_id == "mine"


def test_durations_keep_fractions() -> None:
    assert duration(1.25).ToMilliseconds() == 1250


def test_families_are_named_as_on_the_server() -> None:
    ours = {name for name in errors.__all__ if name != "from_rpc_error"}
    assert ours == set(core_errors.__all__)
    assert {family.default_code for family in TurnwireError.__subclasses__()} <= set(grpc.StatusCode)


def test_reasons_made_here_stand_in_the_catalog() -> None:
    for reason in errors._BARE_REASONS.values():
        assert f"ERROR_REASON_{reason}" in ErrorReason.keys()  # noqa: SIM118  an enum wrapper, no dict


def test_an_error_says_code_reason_and_text() -> None:
    error = InvalidRequest("steps must be at least 1", reason="INVALID_REQUEST")
    assert str(error) == "INVALID_ARGUMENT / INVALID_REQUEST: steps must be at least 1"


def test_an_error_that_is_no_call_is_still_mapped() -> None:
    assert turnwire_client.from_rpc_error(grpc.RpcError("odd")).code is grpc.StatusCode.UNKNOWN


OPERATIONS: list[Operation[object]] = [  # type: ignore[type-var]
    operations.server_info(),
    operations.get_agent("demo"),
    operations.list_agents(0)(""),
    operations.start_turn(turn_spec(text="x"), None, 1.5),
    operations.get_turn("t", 1.0, True),
    operations.list_turns("-", "", 0)(""),
    operations.continue_turn("t", 1, None),
    operations.get_action("threads/t/turns/u/actions/a"),
    operations.list_actions("-", "", 0)(""),
    operations.create_thread(turnwire_client.messages.Thread(), "", None),
    operations.get_thread("my-thread", 0),
    operations.delete_thread("my-thread", 3),
    operations.fork_thread("my-thread", "", "", None),
    operations.regenerate_turn("my-thread", 3, "", None, None),
    operations.retry_turn("threads/t/turns/u", 3, None),
    operations.set_message_visibility("my-thread", 3, ["threads/my-thread/messages/m"], True),
    operations.list_threads("", 0)(""),
    operations.list_messages("my-thread", False, 0)(""),
    operations.list_commands("", 0)(""),
]


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.path)
def test_each_operation_is_a_method_of_the_contract(operation: Operation[object]) -> None:  # type: ignore[type-var]
    service, method = operation.path.strip("/").split("/")
    descriptor = Default().FindServiceByName(service).methods_by_name[method]
    assert descriptor.input_type is operation.request.DESCRIPTOR
    assert descriptor.output_type is operation.response.DESCRIPTOR  # type: ignore[attr-defined]
