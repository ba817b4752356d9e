"""Turns that take the place of others, or wait for their time, over the wire."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from support.runtime_server import Runtime, end, request, running, start
from turnwire.api.runtime.v1 import turn_pb2, turn_service_pb2
from turnwire.wire.rpc_errors import error_from_rpc

AGENTS = {
    "plain": [[{"text": "Hello, world", "size": 2}]],
    "hang": [[{"text": "so far "}, {"hang": True}]],
}


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[Runtime]:
    async with running(tmp_path, AGENTS) as made:
        yield made


async def test_an_interrupt_takes_the_place_of_the_turn_that_runs(runtime: Runtime) -> None:
    first = await runtime.turns.StartTurn(start(request("hang")))
    thread = first.turn.name.partition("/turns/")[0]
    asked = request("plain", thread=thread, busy_policy=turn_pb2.BUSY_POLICY_INTERRUPT)
    async with asyncio.timeout(20):
        assert end(await runtime.run(asked)).text == "Hello, world"
        ended = await runtime.turns.GetTurn(turn_service_pb2.GetTurnRequest(name=first.turn.name))
    assert (ended.turn.state, ended.turn.stop_reason) == (turn_pb2.TURN_STATE_CANCELLED, "superseded")


async def test_a_turn_does_not_begin_before_its_time(runtime: Runtime) -> None:
    asked = start(request("plain"))
    asked.not_before_time.FromNanoseconds(time.time_ns() + 400_000_000)
    admitted = await runtime.turns.StartTurn(asked)
    assert admitted.turn.state == turn_pb2.TURN_STATE_QUEUED
    assert (await runtime.turns.StartTurn(asked)).turn.name == admitted.turn.name
    async with asyncio.timeout(20):
        get = turn_service_pb2.GetTurnRequest(name=admitted.turn.name)
        get.wait_timeout.FromSeconds(15)
        ended = (await runtime.turns.GetTurn(get)).turn
    assert ended.state == turn_pb2.TURN_STATE_COMPLETED
    assert ended.start_time.ToNanoseconds() >= asked.not_before_time.ToNanoseconds()


@pytest.mark.parametrize(("seconds", "nanos"), [(-1, 0), (10**11, 0), (0, 2 * 10**9), (0, -1)])
async def test_a_time_to_begin_that_is_none_is_refused(runtime: Runtime, seconds: int, nanos: int) -> None:
    asked = start(request("plain"))
    asked.not_before_time.seconds, asked.not_before_time.nanos = seconds, nanos
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await runtime.turns.StartTurn(asked)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error_from_rpc(caught.value).reason == "INVALID_REQUEST"
