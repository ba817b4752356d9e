"""The runtime's link: it comes back, repeats what was not stored, and reports turns in few messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from support.control_peers import SCOPE, FakeEngine, cancel, runtime_link, turn_key
from support.control_rig import ControlRig, control_service
from turnwire.api.control.v1 import command_pb2 as command_pb
from turnwire.api.control.v1 import control_service_pb2 as service_pb
from turnwire.api.control.v1.control_service_pb2_grpc import (
    ControlServiceServicer,
    add_ControlServiceServicer_to_server,
)
from turnwire.control.dispatch import Timing
from turnwire.runtime.control_link import ControlLink
from turnwire.runtime.domain.control import ControlDelivery, ControlOutcome
from turnwire.wire.channel import open_channel

TURN = turn_key("turn-1").name


class ScriptedControl(ControlServiceServicer):
    """Runs one script after the other, one per stream; the last one again and again."""

    def __init__(self, *scripts: Callable[[Any], Awaitable[None]]) -> None:
        self.scripts = list(scripts)
        self.streams = 0

    async def Attach(self, request_iterator: Any, context: Any) -> None:
        script = self.scripts[min(self.streams, len(self.scripts) - 1)]
        self.streams += 1
        await script(context)


@asynccontextmanager
async def scripted(*scripts: Callable[[Any], Awaitable[None]]) -> AsyncIterator[tuple[ScriptedControl, str]]:
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    control = ScriptedControl(*scripts)
    add_ControlServiceServicer_to_server(control, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield control, f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


@asynccontextmanager
async def link_to(target: str, engine: Any = None, **options: Any) -> AsyncIterator[ControlLink]:
    async with open_channel(target) as channel:
        link = ControlLink(channel, runtime_id="rt-1", handler=engine or FakeEngine(), **options)
        link.start()
        try:
            yield link
        finally:
            await link.stop()


async def greet(context: Any, interval: float = 5.0) -> Any:
    """Take the hello and welcome the runtime."""
    hello = (await context.read()).hello
    welcome = service_pb.Welcome(server_id="scripted")
    welcome.heartbeat_interval.FromNanoseconds(round(interval * 1e9))
    await context.write(service_pb.AttachResponse(delivery_id=1, welcome=welcome))
    return hello


async def until(context: Any, kind: str) -> Any:
    while (message := await context.read()) is not grpc.aio.EOF:
        if message.WhichOneof("message") == kind:
            return getattr(message, kind)
    raise AssertionError("the link has gone")


def delivery(command: command_pb.Command, mode: int = service_pb.DELIVERY_MODE_OWNED) -> Any:
    message = service_pb.Delivery(scope=SCOPE, command=command, mode=mode, subject="alice")
    message.remaining_timeout.FromSeconds(60)
    return service_pb.AttachResponse(delivery_id=2, delivery=message)


async def test_a_cancelled_stream_is_no_reason_to_stop(tmp_path: Path) -> None:
    back = asyncio.Event()

    async def refuse(context: Any) -> None:
        await context.abort(grpc.StatusCode.CANCELLED, "away")

    async def refuse_later(context: Any) -> None:
        await greet(context)
        await context.abort(grpc.StatusCode.CANCELLED, "away")

    async def stay(context: Any) -> None:
        await greet(context)
        back.set()
        await context.read()

    async with scripted(refuse, refuse_later, stay) as (control, target), link_to(target):
        async with asyncio.timeout(20):
            await back.wait()
        assert control.streams == 3


async def test_a_server_that_says_nothing_is_left(tmp_path: Path) -> None:
    async def mute(context: Any) -> None:
        await greet(context, interval=0.1)
        while await context.read() is not grpc.aio.EOF:
            pass

    async with scripted(mute) as (control, target), link_to(target):
        async with asyncio.timeout(20):
            while control.streams < 2:
                await asyncio.sleep(0)


async def test_hello_names_every_owned_turn_in_parts(tmp_path: Path) -> None:
    named: asyncio.Future[tuple[int, int, bool]] = asyncio.get_running_loop().create_future()

    async def count(context: Any) -> None:
        hello = (await context.read()).hello
        first, complete = len(hello.turns), hello.snapshot_complete
        more = 0
        while not complete:
            opened = (await context.read()).turns_opened
            more, complete = more + len(opened.turns), opened.snapshot_complete
        await context.write(service_pb.AttachResponse(delivery_id=1, welcome=service_pb.Welcome()))
        if not named.done():
            named.set_result((first, more, hello.snapshot_complete))
        await context.read()

    async with scripted(count) as (_, target), open_channel(target) as channel:
        link = ControlLink(channel, runtime_id="rt-1", handler=FakeEngine())
        for n in range(2500):
            link.turn_opened(turn_key(f"turn-{n:04}"), 1)
        link.start()
        async with asyncio.timeout(20):
            assert await named == (1000, 1500, False)
        await link.stop()


async def test_an_outcome_is_repeated_until_it_is_stored() -> None:
    told: list[str] = []
    done = asyncio.Event()
    engine = FakeEngine()

    async def drop(context: Any) -> None:
        await greet(context)
        await context.write(delivery(cancel("cancel-0001", turn=TURN)))
        told.append((await until(context, "delivery_outcome")).outcome.command_id)

    async def store(context: Any) -> None:
        await greet(context)
        told.append((await until(context, "delivery_outcome")).outcome.command_id)
        stored = service_pb.OutcomeStored(scope=SCOPE, command_id="cancel-0001")
        await context.write(service_pb.AttachResponse(delivery_id=2, outcome_stored=stored))
        done.set()
        await context.read()

    async with scripted(drop, store) as (_, target), link_to(target, engine) as link:
        async with asyncio.timeout(20):
            await done.wait()
        await link.stop()
        assert link.unstored == 0
    assert told == ["cancel-0001"] * 2
    assert len(engine.deliveries) == 1


async def test_work_on_a_delivery_outlives_the_stream_that_brought_it() -> None:
    engine = FakeEngine()
    engine.gate.clear()
    answered = asyncio.Event()

    async def drop(context: Any) -> None:
        await greet(context)
        await context.write(delivery(cancel("cancel-0001", turn=TURN)))
        await until(context, "delivery_ack")

    async def again(context: Any) -> None:
        await greet(context)
        await context.write(delivery(cancel("cancel-0001", turn=TURN)))
        await until(context, "delivery_ack")
        engine.gate.set()
        outcome = await until(context, "delivery_outcome")
        assert outcome.outcome.kind == command_pb.OUTCOME_KIND_APPLIED
        answered.set()
        await context.read()

    async with scripted(drop, again) as (_, target), link_to(target, engine):
        async with asyncio.timeout(20):
            await answered.wait()
    assert len(engine.deliveries) == 1


class Stumbling(FakeEngine):
    """Fails twice before it acts: once with an error, once with a stray cancellation."""

    async def deliver(self, delivery: ControlDelivery) -> ControlOutcome:
        if len(self.deliveries) < 2:
            self.deliveries.append(delivery)
            raise RuntimeError("no") if len(self.deliveries) == 1 else asyncio.CancelledError
        return await super().deliver(delivery)


@pytest.mark.filterwarnings("ignore")
async def test_a_handler_that_fails_is_asked_again_until_it_knows_the_outcome(tmp_path: Path) -> None:
    engine = Stumbling()
    async with control_service(tmp_path) as rig, runtime_link(rig.target, engine) as (link, _):
        link.turn_opened(turn_key("turn-1"), 1)
        outcome = await outcome_of(rig, cancel("cancel-0001", turn=TURN))
        assert outcome.kind == command_pb.OUTCOME_KIND_APPLIED
    assert len(engine.deliveries) == 3
    assert engine.deliveries[2].remaining_seconds < engine.deliveries[0].remaining_seconds


async def test_a_command_of_a_kind_the_runtime_does_not_know_is_rejected() -> None:
    answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def steer(context: Any) -> None:
        await greet(context)
        command = command_pb.Command(command_id="steer-00001", inject_steer=command_pb.InjectSteer(text="x"))
        await context.write(delivery(command))
        answered.set_result((await until(context, "delivery_outcome")).outcome)
        await context.read()

    async with scripted(steer) as (_, target), link_to(target):
        async with asyncio.timeout(20):
            outcome = await answered
    assert (outcome.kind, outcome.reason) == (command_pb.OUTCOME_KIND_REJECTED, "FEATURE_NOT_SERVED")


async def test_a_thread_wide_cancel_is_bound_to_the_turn_that_runs_here(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with control_service(tmp_path) as rig, runtime_link(rig.target, engine) as (link, _):
        link.turn_opened(turn_key("turn-1"), 1)
        outcome = await outcome_of(rig, cancel("cancel-0001", thread="threads/thread-1"))
        assert (outcome.kind, outcome.turn) == (command_pb.OUTCOME_KIND_APPLIED, TURN)
    assert engine.deliveries[0].bound_turn == TURN
    assert engine.deliveries[0].thread == "threads/thread-1"


async def test_ownership_reaches_control_in_few_messages(tmp_path: Path) -> None:
    async with control_service(tmp_path) as rig, runtime_link(rig.target, FakeEngine()) as (link, _):
        keys = [turn_key(f"turn-{n:04}") for n in range(1000)]
        for key in keys:
            link.turn_opened(key, 1)
        async with asyncio.timeout(20):
            while rig.hub.owned_turns < 1000:
                await asyncio.sleep(0)
        for key in keys:
            link.turn_closed(key, 1)
        link.turn_opened(keys[0], 2)
        link.turn_closed(keys[0], 1)
        async with asyncio.timeout(20):
            while rig.hub.owned_turns != 1:
                await asyncio.sleep(0)
        await outcome_of(rig, cancel("cancel-0001", turn=keys[0].name))


async def test_the_link_tells_when_it_goes_down_and_comes_back(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with control_service(tmp_path, timing=Timing(unowned=60.0)) as rig:
        async with runtime_link(rig.target, engine) as (link, state):
            assert link.connected
            link.turn_opened(turn_key("turn-1"), 1)
            rig.servicer.close()
            async with asyncio.timeout(20):
                await state.down.wait()
                await state.up.wait()
            # The new stream named the turn again.
            outcome = await outcome_of(rig, cancel("cancel-0001", turn=TURN))
            assert outcome.kind == command_pb.OUTCOME_KIND_APPLIED
        assert state.changes == [True, False, True, False]
        assert not link.connected


async def outcome_of(rig: ControlRig, command: command_pb.Command) -> Any:
    request = service_pb.SendCommandRequest(command=command)
    return (await rig.stub.SendCommand(request, timeout=30)).command.outcome


class Colliding(ControlLink):
    """A link whose stream fails in the moment it is cancelled, so that the failure hides the cancellation."""

    streams = 0

    async def _stream(self, work: asyncio.TaskGroup) -> None:
        self.streams += 1
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ExceptionGroup("parts", [RuntimeError("the write failed")]) from None


async def test_a_failure_in_the_moment_of_the_stop_does_not_keep_the_link_alive() -> None:
    async with open_channel("127.0.0.1:1") as channel:
        link = Colliding(channel, runtime_id="rt-1", handler=FakeEngine())
        link.start()
        async with asyncio.timeout(20):
            while not link.streams:
                await asyncio.sleep(0)
            await link.stop()
        assert link.streams == 1
