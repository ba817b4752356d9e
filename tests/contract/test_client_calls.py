"""The async client's unary calls, lists, commands and byte streams against a scripted server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest

from support.scripted_runtime import CUT, Failure, Leg, ScriptedRuntime, serving
from support.turn_story import THREAD, TURN, multiplication
from turnwire.api.control.v1 import control_service_pb2 as control
from turnwire.api.runtime.v1 import agent_service_pb2 as agents
from turnwire.api.runtime.v1 import turn_service_pb2 as turns
from turnwire.api.runtime.v1.agent_pb2 import Agent
from turnwire.api.runtime.v1.content_pb2 import BlobContent, Part
from turnwire.api.runtime.v1.turn_pb2 import Turn, TurnState
from turnwire_client import (
    AlreadyExists,
    AsyncClient,
    Conflict,
    Exhausted,
    Expired,
    Forbidden,
    InvalidRequest,
    NotFound,
    NotServed,
    Patience,
    TurnwireError,
    Unauthenticated,
    Unavailable,
    WrongState,
)

STORY = multiplication().events


@pytest.fixture
def runtime() -> ScriptedRuntime:
    return ScriptedRuntime(STORY)


@pytest.fixture
async def client(runtime: ScriptedRuntime) -> AsyncIterator[AsyncClient]:
    async with (
        asyncio.timeout(30),
        serving(runtime) as target,
        AsyncClient(target, token="secret", patience=Patience(connect_time=1.0)) as opened,
    ):
        yield opened


@pytest.mark.parametrize(
    ("code", "reason", "family"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST", InvalidRequest),
        (grpc.StatusCode.NOT_FOUND, "TURN_NOT_FOUND", NotFound),
        (grpc.StatusCode.ALREADY_EXISTS, "REQUEST_ID_REUSED", AlreadyExists),
        (grpc.StatusCode.FAILED_PRECONDITION, "TURN_ALREADY_TERMINAL", WrongState),
        (grpc.StatusCode.ABORTED, "THREAD_CHANGED", Conflict),
        (grpc.StatusCode.OUT_OF_RANGE, "EVENTS_EXPIRED", Expired),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL", Exhausted),
        (grpc.StatusCode.UNAUTHENTICATED, "TOKEN_EXPIRED", Unauthenticated),
        (grpc.StatusCode.PERMISSION_DENIED, "ROLE_MISSING", Forbidden),
        (grpc.StatusCode.UNIMPLEMENTED, "FEATURE_NOT_SERVED", NotServed),
        (grpc.StatusCode.INTERNAL, "INTERNAL", TurnwireError),
    ],
)
async def test_each_code_becomes_its_family_with_everything_the_server_said(
    runtime: ScriptedRuntime,
    client: AsyncClient,
    code: grpc.StatusCode,
    reason: str,
    family: type[TurnwireError],
) -> None:
    runtime.answers["GetTurn"] = Failure(
        code,
        "nein, Überraschung",
        reason,
        metadata={"turn": TURN},
        retry_delay=1.5,
        violations={"name": "must look like a turn"},
    )
    with pytest.raises(family) as caught:
        await client.get_turn(TURN)
    error = caught.value
    assert type(error) is family
    assert (error.code, error.reason, error.message) == (code, reason, "nein, Überraschung")
    assert error.metadata == {"turn": TURN}
    assert error.retry_delay == 1.5
    assert [violation.field for violation in error.violations] == ["name"]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "MESSAGE_TOO_LARGE"),
        (grpc.StatusCode.UNIMPLEMENTED, "METHOD_UNKNOWN"),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED"),
    ],
)
async def test_a_bare_status_gets_a_reason_here(
    runtime: ScriptedRuntime, client: AsyncClient, code: grpc.StatusCode, reason: str
) -> None:
    runtime.answers["GetTurn"] = Failure(code)
    with pytest.raises(TurnwireError) as caught:
        await client.get_turn(TURN)
    assert caught.value.reason == reason


async def test_a_method_the_server_does_not_have_is_method_unknown(client: AsyncClient) -> None:
    with pytest.raises(NotServed) as caught:
        await client.get_thread("some-thread")
    assert caught.value.reason == "METHOD_UNKNOWN"


async def test_an_answer_above_the_limit_is_message_too_large_and_not_repeated(
    runtime: ScriptedRuntime, client: AsyncClient
) -> None:
    runtime.answers["GetTurn"] = turns.GetTurnResponse(
        turn=Turn(metadata={"long": "x" * (4 * 1024 * 1024 + 1)})
    )
    with pytest.raises(Exhausted) as caught:
        await client.get_turn(TURN)
    assert caught.value.reason == "MESSAGE_TOO_LARGE"
    assert len(runtime.requests) == 1


async def test_a_request_above_the_limit_is_refused_before_it_is_sent(
    runtime: ScriptedRuntime, client: AsyncClient
) -> None:
    blob = Part(blob=BlobContent(media_type="image/png", data=bytes(4 * 1024 * 1024)))
    with pytest.raises(Exhausted) as caught:
        client.run_turn(agent="demo", text="look", parts=[blob])
    assert caught.value.reason == "MESSAGE_TOO_LARGE"
    assert int(caught.value.metadata["size"]) > int(caught.value.metadata["limit"]) == 4 * 1024 * 1024
    with pytest.raises(Exhausted):
        await client.start_turn(agent="demo", text="look", parts=[blob])
    assert not runtime.requests


async def test_an_unavailable_server_is_asked_again(runtime: ScriptedRuntime, client: AsyncClient) -> None:
    runtime.answers["GetTurn"] = [CUT, CUT, turns.GetTurnResponse(turn=Turn(name=TURN))]
    assert (await client.get_turn(TURN)).name == TURN
    assert len(runtime.requests) == 3


async def test_a_repeat_carries_the_same_idempotency_key(
    runtime: ScriptedRuntime, client: AsyncClient
) -> None:
    runtime.answers["StartTurn"] = [CUT, turns.StartTurnResponse(turn=Turn(name=TURN))]
    await client.start_turn(agent="demo", text="hello")
    first, second = runtime.requests
    assert first == second


async def test_a_command_goes_to_the_control_service_that_the_runtime_names(
    runtime: ScriptedRuntime, client: AsyncClient
) -> None:
    outcome = await client.cancel(TURN, cause="enough")
    assert outcome is not None
    assert outcome.turn == TURN
    kinds = [type(request).__name__ for request in runtime.requests]
    assert kinds == ["GetServerInfoRequest", "SendCommandRequest"]
    command = runtime.requests[1].command
    assert command.target.turn == TURN
    assert command.cancel_turn.cause == "enough"
    await client.steer(THREAD, "and faster")
    assert runtime.requests[2].command.target.thread == THREAD


async def test_an_outcome_that_is_not_known_in_time_is_none(
    runtime: ScriptedRuntime, client: AsyncClient
) -> None:
    runtime.answers["SendCommand"] = control.SendCommandResponse()
    assert await client.cancel(TURN, wait=0) is None


async def test_a_runtime_that_names_no_control_service_is_told_plainly(
    runtime: ScriptedRuntime, client: AsyncClient
) -> None:
    runtime.target = ""
    with pytest.raises(WrongState) as caught:
        await client.cancel(TURN)
    assert caught.value.reason == "CONTROL_TARGET_UNKNOWN"


async def test_lists_follow_their_pages(runtime: ScriptedRuntime, client: AsyncClient) -> None:
    runtime.answers["ListAgents"] = [
        agents.ListAgentsResponse(agents=[Agent(name="agents/demo")], next_page_token="two"),
        agents.ListAgentsResponse(agents=[Agent(name="agents/other")]),
    ]
    assert [agent.name async for agent in client.list_agents(page_size=1)] == ["agents/demo", "agents/other"]
    assert [request.page_token for request in runtime.requests] == ["", "two"]


async def test_a_long_wait_is_several_calls(runtime: ScriptedRuntime, client: AsyncClient) -> None:
    running = turns.GetTurnResponse(turn=Turn(name=TURN, state=TurnState.TURN_STATE_RUNNING))
    done = turns.GetTurnResponse(turn=Turn(name=TURN, state=TurnState.TURN_STATE_FAILED))
    runtime.answers["GetTurn"] = [running, running, done]
    turn = await client.get_turn(TURN, wait=1000)
    assert turn.state == TurnState.TURN_STATE_FAILED
    assert all(request.wait_timeout.seconds <= 300 for request in runtime.requests)


async def test_token_and_scope_travel_as_metadata(runtime: ScriptedRuntime) -> None:
    tokens = iter(["one", "two"])
    async with (
        serving(runtime) as target,
        AsyncClient(target, token=lambda: next(tokens), scope="acme") as client,
    ):
        await client.server_info()
        await client.server_info()
    assert [pairs["authorization"] for pairs in runtime.metadata] == ["Bearer one", "Bearer two"]
    assert {pairs["turnwire-scope"] for pairs in runtime.metadata} == {"acme"}


async def test_stored_results_stream_and_their_call_ends_with_the_reader(
    runtime: ScriptedRuntime, client: AsyncClient
) -> None:
    chunks = [chunk async for chunk in client.read_tool_result(TURN, "call-0001", offset=0, length=8)]
    assert b"".join(chunks) == b"bytes..."
    assert runtime.requests[0].range.length == 8
    runtime.answers["ReadToolResult"] = "silent"
    stream = client.read_tool_result(TURN, "call-0001")
    assert await anext(stream) == b"byte"
    await stream.aclose()  # type: ignore[attr-defined]
    await runtime.detached.wait()


async def test_run_gives_text_state_usage_and_names(client: AsyncClient) -> None:
    result = await client.run("demo", "6 times 7?")
    assert result.text == "6 times 7 is 42."
    assert (result.turn, result.thread, result.stop_reason) == (TURN, THREAD, "completed")


async def test_run_takes_a_task_in_place_of_text(runtime: ScriptedRuntime, client: AsyncClient) -> None:
    await client.run("demo", task="Multiply 6 by 7.")
    assert runtime.requests[0].spec.task.description == "Multiply 6 by 7."


async def test_a_stream_asks_for_a_new_thread_unless_one_is_named(
    runtime: ScriptedRuntime, client: AsyncClient
) -> None:
    await client.run("demo", "hello")
    await client.run("demo", "hello", thread="my-thread")
    assert runtime.requests[0].spec.HasField("new_thread")
    assert runtime.requests[1].spec.thread == "threads/my-thread"
    assert not runtime.requests[1].spec.HasField("new_thread")


async def test_unavailable_after_the_connect_time_is_raised(
    runtime: ScriptedRuntime, client: AsyncClient
) -> None:
    runtime.answers["GetTurn"] = Failure(grpc.StatusCode.UNAVAILABLE, reason="OVERLOADED", retry_delay=60)
    with pytest.raises(Unavailable) as caught:
        await client.get_turn(TURN)
    assert caught.value.retry_delay == 60
    assert len(runtime.requests) == 1


async def test_a_leg_without_a_header_still_streams(runtime: ScriptedRuntime, client: AsyncClient) -> None:
    runtime.legs.append(Leg(until=4, failure=CUT))
    runtime.legs.append(Leg(header=False))
    async with client.run_turn(agent="demo", text="hello") as stream:
        assert len([event async for event in stream]) == len(STORY)
