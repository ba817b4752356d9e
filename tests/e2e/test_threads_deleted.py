"""A deleted thread leaves nothing behind: not in the stores, not among the stored results."""

from __future__ import annotations

import asyncio
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import grpc
import pytest

from support.strict_provider import Hold, says
from support.turn_rig import TurnRig, turn_rig
from turnwire.api.runtime.v1 import thread_service_pb2 as thread_pb

pytestmark = pytest.mark.e2e

MARKER = "x7q-" + uuid.uuid4().hex
KEPT = "k3p-" + uuid.uuid4().hex
SMALL = {"TURNWIRE_EXECUTOR_RESULT__MAX_CHARS": "1000"}


def files(folder: Path) -> Iterator[Path]:
    """Every file below a folder."""
    return (path for path in folder.rglob("*") if path.is_file())


def holders(folder: Path, text: str) -> list[str]:
    """The files that hold a text anywhere among their bytes."""
    return sorted(path.name for path in files(folder) if text.encode() in path.read_bytes())


async def said_and_read(rig: TurnRig, marker: str) -> str:
    """Run a turn whose input, answer and stored result hold a marker; returns the thread."""
    workspace = rig.cluster.data / "workspace"
    workspace.mkdir(exist_ok=True)
    name = f"{marker}.txt"
    (workspace / name).write_text(f"{marker} and more\n" * 4000, encoding="utf-8")
    rig.provider.queue("usual", says(f"I read {marker}", calls=[("read_file", {"path": name})]))
    rig.provider.queue("usual", says(f"it says {marker}"))
    stream = rig.run(rig.request("openai:usual", f"read {marker}"))
    await stream.rest()
    (workspace / name).unlink()
    return stream.header.thread


def written_back(folder: Path) -> None:
    """Write the logs of all stores back into their files, as checkpoints do sooner or later."""
    for path in folder.glob("*.db"):
        with closing(sqlite3.connect(path)) as db:
            assert db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0


async def purged(rig: TurnRig) -> None:
    """Wait until nothing is left to be removed."""
    path = rig.cluster.data / "runtime.db"
    async with asyncio.timeout(30):
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10)) as db:
            while db.execute("SELECT count(*) FROM purges").fetchone()[0]:
                await asyncio.sleep(0)


async def test_no_byte_of_a_deleted_thread_is_left_in_the_stores_or_among_the_results(tmp_path: Path) -> None:
    async with turn_rig(tmp_path, executor=SMALL) as rig:
        kept = await said_and_read(rig, KEPT)
        thread = await said_and_read(rig, MARKER)
        overflow = rig.cluster.data / "overflow"
        assert holders(overflow, MARKER)
        hold = Hold()
        rig.provider.queue("usual", says(f"once more {MARKER}", hold))
        running = rig.run(rig.request("openai:usual", "again", thread=thread))
        await running.until("text_delta")
        await hold.reached.wait()
        await rig.threads.DeleteThread(thread_pb.DeleteThreadRequest(name=thread))
        assert (await running.rest())[-1].turn_finished.stop_reason == "deleted"
        with pytest.raises(grpc.aio.AioRpcError) as gone:
            await rig.threads.GetThread(thread_pb.GetThreadRequest(name=thread))
        assert gone.value.code() is grpc.StatusCode.NOT_FOUND
        await purged(rig)
        assert holders(overflow, MARKER) == []
        assert holders(overflow, KEPT)
        for process in (rig.cluster.runtime, rig.cluster.executor, rig.cluster.control):
            assert await process.terminate() == 0
        written_back(rig.cluster.data)
        assert holders(rig.cluster.data, MARKER) == []
        assert {"executor.db", "runtime.db"} <= set(holders(rig.cluster.data, KEPT))
        for process in (rig.cluster.control, rig.cluster.executor, rig.cluster.runtime):
            await process.start()
        rig.connect()
        again = await rig.threads.GetThread(thread_pb.GetThreadRequest(name=kept), wait_for_ready=True)
        assert again.messages


async def test_a_deletion_that_a_crash_cut_off_is_done_by_the_next_start(tmp_path: Path) -> None:
    async with turn_rig(tmp_path, executor=SMALL) as rig:
        thread = await said_and_read(rig, MARKER)
        overflow = rig.cluster.data / "overflow"
        await rig.cluster.executor.kill()
        await rig.threads.DeleteThread(thread_pb.DeleteThreadRequest(name=thread))
        await rig.cluster.runtime.kill()
        assert holders(overflow, MARKER)
        await rig.cluster.executor.start()
        await rig.cluster.runtime.start()
        await purged(rig)
        assert holders(overflow, MARKER) == []
