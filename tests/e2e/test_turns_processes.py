"""The services as processes: they leave without breaking a turn, tell how they are, refuse a wrong start."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.reflection_pb2_grpc import ServerReflectionStub

from support.cluster import Process
from support.strict_provider import Hold, says
from support.turn_rig import Stream, TurnRig, arms, turn_rig
from turnwire.api.runtime.v1.turn_pb2 import TurnState

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
RUNTIME_V1 = "turnwire.api.runtime.v1"
SERVICES = {
    "runtime": [f"{RUNTIME_V1}.{name}Service" for name in ("Agent", "Graph", "Thread", "Turn")],
    "control": ["turnwire.api.control.v1.ControlService"],
    "executor": ["turnwire.api.executor.v1.ToolExecutorService"],
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def rig(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[TurnRig]:
    async with turn_rig(tmp_path_factory.mktemp("processes")) as rig:
        yield rig


@pytest_asyncio.fixture(loop_scope="module")
async def leaving(rig: TurnRig) -> AsyncIterator[TurnRig]:
    """The rig, for a test that ends the runtime: it runs again afterwards."""
    yield rig
    if not rig.cluster.runtime.running:
        await rig.cluster.runtime.start()
        rig.connect()


async def watch_health(channel: grpc.aio.Channel, name: str, state: int) -> None:
    """Wait until a name has a state."""
    call = HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=name))
    async for answer in call:
        if answer.status == state:
            call.cancel()
            return
    raise AssertionError(f"the watch of {name} ended")


async def states(channel: grpc.aio.Channel, name: str) -> list[int]:
    """Every state of a name until the server ends the watch."""
    call = HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=name))
    return [answer.status async for answer in call]


async def begun(rig: TurnRig, model: str) -> tuple[Stream, Hold]:
    """A turn in the middle of its model stream."""
    hold = Hold()
    rig.provider.queue(model, says("one ", hold, "two"))
    stream = rig.run(rig.request(f"openai:{model}"))
    await stream.until("text_delta")
    return stream, hold


def reason_of(error: grpc.aio.AioRpcError) -> str:
    trailer: Any = dict(error.trailing_metadata() or ())["grpc-status-details-bin"]
    info = error_details_pb2.ErrorInfo()
    assert status_pb2.Status.FromString(trailer).details[0].Unpack(info)
    return info.reason


async def test_on_term_health_goes_first_and_the_running_turn_finishes(leaving: TurnRig) -> None:
    rig, runtime = leaving, leaving.cluster.runtime
    channel = rig.cluster.channel()
    async with asyncio.timeout(90), asyncio.TaskGroup() as tasks:
        watched = tasks.create_task(states(channel, "liveness"))
        stream, hold = await begun(rig, "leave-whole")
        queued = rig.run(rig.request("openai:leave-queued", thread=stream.header.thread))
        await queued.opened()
        runtime.signal(signal.SIGTERM)
        for name in ("", *SERVICES["runtime"], "link.control"):
            await watch_health(channel, name, NOT_SERVING)
        await watch_health(channel, "liveness", SERVING)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await rig.whole("openai:leave-new")
        assert refused.value.code() == grpc.StatusCode.UNAVAILABLE
        assert reason_of(refused.value) == "DRAINING"
        hold.set()
        end = (await stream.rest())[-1].turn_finished
        assert (end.state, end.text) == (TurnState.TURN_STATE_COMPLETED, "one two")
        # Whoever reads a turn that waits is sent away with the word that makes clients attach again.
        with pytest.raises(grpc.aio.AioRpcError) as sent_away:
            await queued.rest()
        assert reason_of(sent_away.value) == "DRAINING"
        ended = time.monotonic()
        assert await runtime.wait() == 0
        # Neither readers nor watches of health have held it for the ten seconds that open calls get.
        assert time.monotonic() - ended < 8
        assert await watched == [SERVING]
        # What waited was not begun and not lost.
        assert rig.provider.requests["leave-queued"] == []
        await runtime.start()
        rig.connect()
        assert (await rig.watch(queued.header.turn).rest())[-1].turn_finished.text == "done"


async def goes_on(rig: TurnRig, turn: str) -> None:
    """What the leaving runtime had of a step is voided; the next runtime asks again, and ends the turn."""
    await rig.cluster.runtime.start()
    rig.connect()
    events = await rig.watch(turn).rest()
    assert arms(events).count("step_reset") == 1
    end = events[-1].turn_finished
    assert (end.state, end.text) == (TurnState.TURN_STATE_COMPLETED, "done")


async def test_a_second_term_ends_it_quickly_and_the_turn_goes_on_after_it(leaving: TurnRig) -> None:
    rig, runtime = leaving, leaving.cluster.runtime
    async with asyncio.timeout(90):
        stream, _ = await begun(rig, "leave-now")
        runtime.signal(signal.SIGTERM)
        await watch_health(rig.cluster.channel(), "", NOT_SERVING)
        asked = time.monotonic()
        runtime.signal(signal.SIGTERM)
        assert await runtime.wait() == 1
        assert time.monotonic() - asked < 5
        await goes_on(rig, stream.header.turn)


async def test_a_turn_that_outlives_the_grace_is_handed_over(leaving: TurnRig) -> None:
    rig, runtime = leaving, leaving.cluster.runtime
    async with asyncio.timeout(90):
        await runtime.kill()
        runtime.environment["TURNWIRE_RUNTIME_DRAIN__STOP_GRACE_SECONDS"] = "12"
        await runtime.start()
        rig.connect()
        stream, _ = await begun(rig, "leave-late")
        assert await runtime.terminate() == 0
        # Its reader is sent away with the word that makes clients attach again.
        with pytest.raises(grpc.aio.AioRpcError) as sent_away:
            await stream.rest()
        assert reason_of(sent_away.value) == "DRAINING"
        del runtime.environment["TURNWIRE_RUNTIME_DRAIN__STOP_GRACE_SECONDS"]
        await goes_on(rig, stream.header.turn)


@pytest.mark.parametrize("name", SERVICES)
async def test_health_and_reflection_know_each_service_by_its_full_name(rig: TurnRig, name: str) -> None:
    process = next(p for p in rig.cluster.processes if p.name == name)
    channel = rig.cluster.channel(process)
    async with asyncio.timeout(30):
        for service in ("", "liveness", *SERVICES[name]):
            request = health_pb2.HealthCheckRequest(service=service)
            assert (await HealthStub(channel).Check(request)).status == SERVING
        with pytest.raises(grpc.aio.AioRpcError) as unknown:
            await HealthStub(channel).Check(health_pb2.HealthCheckRequest(service="turnwire.Nothing"))
        assert unknown.value.code() == grpc.StatusCode.NOT_FOUND
        listing = reflection_pb2.ServerReflectionRequest(list_services="")
        call = ServerReflectionStub(channel).ServerReflectionInfo(iter([listing]))
        answers = [answer async for answer in call]
    listed = {service.name for answer in answers for service in answer.list_services_response.service}
    assert {*SERVICES[name], "grpc.health.v1.Health"} <= listed
    assert (
        not {service for services in SERVICES.values() for service in services} - {*SERVICES[name]} & listed
    )


async def refused_start(process: Process, *words: str) -> str:
    """Start a process that must refuse; returns its last words."""
    await process.launch(*words)
    assert await process.wait() == 2, process.told()
    text = process.told()
    assert "Traceback" not in text
    start = text.index(f"turnwire-{process.name} cannot start:")
    return text[start:]


@pytest.mark.parametrize("name", SERVICES)
async def test_a_second_process_on_the_same_store_is_refused_and_the_first_is_not_touched(
    rig: TurnRig, name: str, tmp_path: Path
) -> None:
    running = next(p for p in rig.cluster.processes if p.name == name)
    async with asyncio.timeout(60):
        text = await refused_start(Process(name, tmp_path, running.environment, rig.cluster.data))
        assert f"{name}.db is in use by process {running.pid}" in text
        request = health_pb2.HealthCheckRequest(service=SERVICES[name][0])
        assert (await HealthStub(rig.cluster.channel(running)).Check(request)).status == SERVING


async def test_a_port_in_use_and_an_open_address_are_refused_in_clear_words(
    rig: TurnRig, tmp_path: Path
) -> None:
    running = rig.cluster.runtime
    taken, exposed = (Process("runtime", tmp_path / n, running.environment, tmp_path / n) for n in "ab")
    taken.port = running.port
    for process in (taken, exposed):
        process.log.parent.mkdir()
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        texts = [
            tasks.create_task(refused_start(taken)),
            tasks.create_task(refused_start(exposed, "--host", "0.0.0.0")),
        ]
    assert f"127.0.0.1:{running.port}" in texts[0].result()
    for word in ("refusing to listen on 0.0.0.0", "tls_cert", "tokens_file"):
        assert word in texts[1].result()


async def test_an_agent_file_with_a_mistake_is_named_with_its_field(rig: TurnRig, tmp_path: Path) -> None:
    agents = tmp_path / "agents"
    agents.mkdir()
    (agents / "wrong.yaml").write_text("model: 'demo:'\nverbose: true\n", encoding="utf-8")
    environment = {**rig.cluster.runtime.environment, "TURNWIRE_RUNTIME_AGENTS": str(agents)}
    async with asyncio.timeout(60):
        text = await refused_start(Process("runtime", tmp_path, environment, tmp_path / "data"))
    assert "wrong.yaml" in text
    assert "verbose" in text
