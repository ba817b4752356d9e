"""A real control process: cancels arrive fast, and what it accepted survives its death."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.cluster import Process
from support.control_peers import FakeEngine, cancel, connect, runtime_link, turn_key
from turnwire.api.control.v1 import command_pb2 as command_pb
from turnwire.api.control.v1 import control_service_pb2 as service_pb
from turnwire.api.control.v1.control_service_pb2_grpc import ControlServiceStub
from turnwire.wire.channel import open_channel

pytestmark = pytest.mark.e2e


@pytest.fixture
async def control(tmp_path: Path) -> AsyncIterator[Process]:
    process = Process("control", tmp_path, {}, tmp_path / "data")
    await process.start()
    yield process
    await process.kill()


async def test_a_cancel_goes_round_in_milliseconds(
    control: Process, record_property: pytest.RecordProperty
) -> None:
    engine, rounds = FakeEngine(), 60
    async with runtime_link(control.target, engine) as (link, _), open_channel(control.target) as channel:
        stub = ControlServiceStub(channel)
        for n in range(rounds):
            link.turn_opened(turn_key(f"turn-{n:03}"), 1)
        took = []
        for n in range(rounds):
            command = cancel(f"cancel-{n:04}", turn=turn_key(f"turn-{n:03}").name)
            started = time.perf_counter()
            answer = await stub.SendCommand(service_pb.SendCommandRequest(command=command), timeout=20)
            took.append((time.perf_counter() - started) * 1000)
            assert answer.command.outcome.kind == command_pb.OUTCOME_KIND_APPLIED
        assert {d.mode for d in engine.deliveries} == {"owned"}
    took.sort()
    median, p90 = statistics.median(took), took[int(len(took) * 0.9)]
    record_property("cancel_round_trip_ms", f"p50 {median:.2f} p90 {p90:.2f}")
    print(f"\ncancel round trip: p50 {median:.2f} ms, p90 {p90:.2f} ms, worst {took[-1]:.2f} ms")


async def test_a_command_accepted_before_a_kill_has_its_outcome_once_after_the_restart(
    control: Process,
) -> None:
    engine = FakeEngine()
    engine.gate.clear()
    turn = turn_key("turn-1")
    async with runtime_link(control.target, engine) as (link, state):
        link.turn_opened(turn, 1)
        async with connect(control.target) as client:
            await client.send(cancel("cancel-kill-1", turn=turn.name))
            assert (await client.expect("accepted")).command_id == "cancel-kill-1"
            token = client.token
            async with asyncio.timeout(20):
                await engine.arrived.wait()
            await control.kill()
        async with asyncio.timeout(20):
            await state.down.wait()
        engine.gate.set()
        await control.start()
        async with connect(control.target, resume_token=token) as client:
            outcome = (await client.expect("outcome")).outcome
            assert outcome.command_id == "cancel-kill-1"
            assert outcome.kind == command_pb.OUTCOME_KIND_APPLIED
            assert outcome.applied_sequence == 1
            # Nothing else comes: the next message is the answer to a ping.
            await client.call.write(service_pb.ConnectRequest(ping=service_pb.Ping(nonce=7)))
            assert (await client.expect("pong")).nonce == 7
        async with asyncio.timeout(20):
            await state.up.wait()
            await link.stop()
        assert link.unstored == 0
        assert len(engine.applied) == 1


async def test_a_pending_command_is_delivered_after_a_kill_when_its_runtime_comes(control: Process) -> None:
    turn = turn_key("turn-2")
    async with open_channel(control.target) as channel:
        request = service_pb.SendCommandRequest(command=cancel("cancel-kill-2", turn=turn.name))
        request.wait_timeout.FromSeconds(0)
        answer = await ControlServiceStub(channel).SendCommand(request, timeout=20)
        assert answer.command.state == command_pb.COMMAND_STATE_ACCEPTED
    await control.kill()
    await control.start()
    engine = FakeEngine()
    async with runtime_link(control.target, engine) as (link, _), open_channel(control.target) as channel:
        link.turn_opened(turn, 1)
        request.wait_timeout.FromSeconds(20)
        answer = await ControlServiceStub(channel).SendCommand(request, timeout=30)
        assert answer.already_known
        assert answer.command.outcome.kind == command_pb.OUTCOME_KIND_APPLIED


async def test_sigterm_tells_every_stream_to_go_and_ends_with_exit_code_zero(control: Process) -> None:
    engine = FakeEngine()
    async with runtime_link(control.target, engine) as (_, state), connect(control.target) as client:
        ending = asyncio.create_task(control.terminate())
        away = await client.expect("go_away")
        assert away.grace_timeout.ToMilliseconds() > 0
        await client.send(cancel("cancel-late-1", turn=turn_key("turn-3").name))
        assert (await client.expect("refused")).command_id == "cancel-late-1"
        async with asyncio.timeout(30):
            assert await ending == 0
            await state.down.wait()
