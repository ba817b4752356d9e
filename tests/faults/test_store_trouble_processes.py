"""A whole runtime whose store is in trouble: full, read-only, locked, with a bad row, without its writer.

What a reader has seen is never taken back, nothing acknowledged is lost, and others never notice a bad row.
"""

from __future__ import annotations

import asyncio
import resource
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub

from support.cluster import Cluster
from support.small_disk import breakable_disk, small_disk
from support.strict_provider import Hold, says, strict_provider
from support.turn_rig import AGENT, QUIET, Stream, TurnRig, arms, serialised
from turnwire.api.runtime.v1 import turn_event_pb2, turn_pb2

SECONDS = 110
SERVICE = "turnwire.api.runtime.v1.TurnService"
SERVING, NOT_SERVING = (
    health_pb2.HealthCheckResponse.SERVING,
    health_pb2.HealthCheckResponse.NOT_SERVING,
)
# More than a disk of 6 MiB holds, in words that are a page each.
WORD = "x" * 30_000
FLOOD = [f"{number} {WORD}" for number in range(240)]
STORE_FAILED = 70


@asynccontextmanager
async def store_in(
    folder: Path, data: Path, *, retry: float = 60.0, module: str = ""
) -> AsyncIterator[TurnRig]:
    """Three services, of which the runtime has its store in `data`."""
    async with asyncio.timeout(SECONDS), strict_provider() as provider:
        settings = {
            **QUIET,
            "OPENAI_BASE_URL": f"{provider.url}/v1",
            "TURNWIRE_RUNTIME_STORE__RETRY_SECONDS": str(retry),
            "PYTHONPATH": ":".join(entry for entry in sys.path if entry),
        }
        cluster = Cluster(folder, {"main": AGENT}, runtime=settings)
        cluster.runtime._data = data
        cluster.runtime.module = module or cluster.runtime.module
        async with cluster:
            yield TurnRig(cluster, provider)


class Health:
    """What readiness says, as it changes."""

    def __init__(self, rig: TurnRig) -> None:
        self._watch = HealthStub(rig.cluster.channel()).Watch(
            health_pb2.HealthCheckRequest(service=SERVICE), wait_for_ready=True
        )

    async def until(self, status: int) -> None:
        while (await self._watch.read()).status != status:
            pass


async def refused(rig: TurnRig) -> str:
    """The code and reason that a new turn gets."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await rig.run(rig.request("openai:new")).rest()
    details = dict(caught.value.trailing_metadata() or ())["grpc-status-details-bin"]
    info = error_details_pb2.ErrorInfo()
    assert any(any_.Unpack(info) for any_ in status_pb2.Status.FromString(details).details)
    return f"{caught.value.code().name} / {info.reason}"


def said(events: list[turn_event_pb2.TurnEvent]) -> str:
    return "".join(event.llm.text_delta.text for event in events if event.llm.HasField("text_delta"))


async def check_whole(stream: Stream, words: list[str]) -> None:
    """Read to the end: every event once and in order, the words as the model said them."""
    events = await stream.rest()
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert events[-1].turn_finished.state == turn_pb2.TURN_STATE_COMPLETED
    assert said(events) == "".join(words)


async def answers(rig: TurnRig) -> None:
    """A new turn runs as ever."""
    rig.provider.queue("new", says("as ever"))
    events = await rig.run(rig.request("openai:new")).rest()
    assert events[-1].turn_finished.text == "as ever"


async def test_on_a_full_disk_turns_wait_and_go_on_when_there_is_room(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 6) as disk:
        async with store_in(tmp_path, disk.path) as rig:
            await answers(rig)
            ended = rig.run(rig.request("openai:first"))
            rig.provider.queue("first", says("before"))
            before = serialised(await ended.rest())
            health = Health(rig)
            rig.provider.queue("flood", says(*FLOOD))
            flood = rig.run(rig.request("openai:flood"))
            await health.until(NOT_SERVING)
            assert disk.free < 100_000
            assert await refused(rig) == "UNAVAILABLE / STORE_UNAVAILABLE"
            assert serialised(await rig.watch(ended.header.turn).rest()) == before
            disk.resize(64)
            await health.until(SERVING)
            await check_whole(flood, FLOOD)
            await answers(rig)


async def test_after_the_retries_the_process_leaves_and_the_next_start_takes_the_turn_up(
    tmp_path: Path,
) -> None:
    with small_disk(tmp_path / "disk", 6) as disk:
        async with store_in(tmp_path, disk.path, retry=1) as rig:
            rig.provider.queue("flood", says(*FLOOD), says("once more"))
            flood = rig.run(rig.request("openai:flood"))
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await flood.rest()
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            assert await rig.cluster.runtime.wait() == STORE_FAILED
            assert "store.failed" in rig.cluster.runtime.told()
            disk.resize(64)
            await rig.cluster.runtime.start()
            rig.connect()
            events = await rig.watch(flood.header.turn).rest()
            assert serialised(events[: len(flood.events)]) == serialised(flood.events)
            assert events[-1].turn_finished.text == "once more"


async def test_on_a_disk_that_became_read_only_what_there_is_can_be_read(tmp_path: Path) -> None:
    with breakable_disk(tmp_path / "disk", 48) as disk:
        hold = Hold()
        async with store_in(tmp_path, disk.path, retry=4) as rig:
            rig.provider.queue("first", says("before"))
            ended = rig.run(rig.request("openai:first"))
            before = serialised(await ended.rest())
            rig.provider.queue("second", says("one ", hold, "two"), says("all of it"))
            running = rig.run(rig.request("openai:second"))
            await running.until("text_delta")
            health = Health(rig)
            disk.breaks()
            hold.set()
            await health.until(NOT_SERVING)
            assert await refused(rig) == "UNAVAILABLE / STORE_UNAVAILABLE"
            assert serialised(await rig.watch(ended.header.turn).rest()) == before
            assert await rig.cluster.runtime.wait() == STORE_FAILED
            disk.repair()
            await rig.cluster.runtime.start()
            rig.connect()
            assert serialised(await rig.watch(ended.header.turn).rest()) == before
            events = await rig.watch(running.header.turn).rest()
            assert serialised(events[: len(running.events)]) == serialised(running.events)
            assert events[-1].turn_finished.text == "all of it"
            await rig.cluster.runtime.terminate()


async def test_writes_that_fail_for_a_while_cost_nothing(tmp_path: Path) -> None:
    """A limit on the size of files fails like a disk, and needs no root."""
    async with store_in(tmp_path, tmp_path / "store") as rig:
        hold = Hold()
        rig.provider.queue("first", says("one ", hold, "two"))
        running = rig.run(rig.request("openai:first"))
        await running.until("text_delta")
        health = Health(rig)
        pid = rig.cluster.runtime.pid
        _, most = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (4096, most))
        hold.set()
        await health.until(NOT_SERVING)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (most, most))
        await health.until(SERVING)
        await check_whole(running, ["one ", "two"])
        await answers(rig)


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_a_database_that_another_program_locks_for_20_seconds_costs_nothing(tmp_path: Path) -> None:
    async with store_in(tmp_path, tmp_path / "store", retry=30) as rig:
        await check_lock(rig, tmp_path / "store" / "runtime.db", 20)


async def test_a_database_that_another_program_locks_costs_nothing(tmp_path: Path) -> None:
    async with store_in(tmp_path, tmp_path / "store") as rig:
        await check_lock(rig, tmp_path / "store" / "runtime.db", 1)


async def check_lock(rig: TurnRig, store: Path, seconds: float) -> None:
    hold = Hold()
    rig.provider.queue("first", says("one ", hold, "two"))
    running = rig.run(rig.request("openai:first"))
    await running.until("text_delta")
    health = Health(rig)
    released = asyncio.Event()
    with closing(sqlite3.connect(store, timeout=10, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        asyncio.get_running_loop().call_later(seconds, released.set)
        hold.set()
        await health.until(NOT_SERVING)
        assert await refused(rig) == "UNAVAILABLE / STORE_UNAVAILABLE"
        await released.wait()
        assert rig.cluster.runtime.running
        other.execute("ROLLBACK")
    await health.until(SERVING)
    await check_whole(running, ["one ", "two"])
    await answers(rig)


async def test_a_row_that_cannot_be_stored_ends_its_own_turn_and_no_other(tmp_path: Path) -> None:
    async with store_in(tmp_path, tmp_path / "store") as rig:
        holds = Hold(), Hold()
        rig.provider.queue("good", says("one ", holds[0], "two"))
        rig.provider.queue("bad", says("some ", holds[1], "poison", "rest"))
        good, bad = rig.run(rig.request("openai:good")), rig.run(rig.request("openai:bad"))
        await good.until("text_delta")
        await bad.until("text_delta")
        with closing(sqlite3.connect(tmp_path / "store" / "runtime.db", timeout=10)) as db:
            db.execute(
                # The page with the end that the failure makes may repeat the text.
                "CREATE TRIGGER no_poison BEFORE INSERT ON pages WHEN instr(NEW.body, CAST('poison' AS BLOB))"
                " AND NOT instr(NEW.body, CAST('INTERNAL' AS BLOB)) BEGIN SELECT RAISE(ABORT, 'poison'); END"
            )
        for hold in holds:
            hold.set()
        await check_whole(good, ["one ", "two"])
        events = await bad.rest()
        end = events[-1].turn_finished
        assert end.state == turn_pb2.TURN_STATE_FAILED
        assert "INTERNAL" in str(end.error)
        assert said(events) == "some "
        assert arms(events).count("turn_finished") == 1
        await answers(rig)
        rig.provider.queue("next", says("goes on"))
        after = await rig.run(rig.request("openai:next", thread=bad.header.thread)).rest()
        assert after[-1].turn_finished.text == "goes on"


async def test_without_its_writer_the_process_leaves_and_the_next_start_goes_on(tmp_path: Path) -> None:
    async with store_in(tmp_path, tmp_path / "store", module="support.mortal_writer") as rig:
        hold = Hold()
        rig.provider.queue("first", says("one ", hold, "two"), says("all of it"))
        running = rig.run(rig.request("openai:first"))
        await running.until("text_delta")
        rig.cluster.runtime.signal(signal.SIGUSR1)
        hold.set()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await running.rest()
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert await rig.cluster.runtime.wait() == STORE_FAILED
        await rig.cluster.runtime.start()
        rig.connect()
        events = await rig.watch(running.header.turn).rest()
        assert serialised(events[: len(running.events)]) == serialised(running.events)
        assert events[-1].turn_finished.text == "all of it"
