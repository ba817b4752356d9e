"""kill -9 in the middle of a load: whatever was acknowledged is in the file, in order and once."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from unit.storage.storage_rig import create, entries

LOAD = """
import asyncio, sys
from functools import partial
from pathlib import Path
from turnwire.storage.checkpoint import Checkpointer
from turnwire.storage.committer import SqliteCommitter
from turnwire.storage.sqlite import connect
from turnwire.storage.stats import WriterStats
from turnwire.storage.writer import GroupCommitWriter
from unit.storage.storage_rig import advance, insert

async def load(path, keys):
    stats = WriterStats()
    connect_ = partial(connect, path, synchronous="NORMAL")
    limits = dict(interval=0.005, restart_bytes=200_000, restart_retry=0.01)
    checkpoints = Checkpointer(connect_, stats, print, **limits)
    committer = SqliteCommitter(
        connect_, retry_for=1, stats=stats, checkpointer=checkpoints, on_health=print
    )
    writer = GroupCommitWriter(committer, on_fatal=print, stats=stats, spacing=0)
    await writer.start()
    checkpoints.start()

    async def produce(key):
        number = 1
        while True:
            await writer.commit([advance(key, number), insert(key, number, "x" * 700)], key)
            print(key, number, flush=True)
            number += 1

    async with asyncio.TaskGroup() as group:
        for key in keys:
            group.create_task(produce(key))

asyncio.run(load(Path(sys.argv[1]), sys.argv[2].split(",")))
"""

KEYS = [f"key-{n}" for n in range(6)]


@pytest.mark.parametrize("seed", range(3))
def test_everything_acknowledged_before_a_kill_is_there_afterwards(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "store.db"
    create(path, KEYS)
    wanted = random.Random(seed).randrange(150, 600)
    acknowledged: dict[str, int] = dict.fromkeys(KEYS, 0)
    command = [sys.executable, "-c", LOAD, str(path), ",".join(KEYS)]
    environment = {"PYTHONPATH": ":".join(entry for entry in sys.path if entry)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        for count, line in enumerate(process.stdout):
            if count == wanted:
                process.send_signal(signal.SIGKILL)
            if line.endswith("\n"):  # the last line may be cut
                key, number = line.split()
                acknowledged[key] = int(number)
    assert process.returncode == -signal.SIGKILL
    assert sum(acknowledged.values()) >= wanted

    stored: dict[str, list[int]] = {key: [] for key in KEYS}
    for key, number in entries(path):
        stored[key].append(number)
    for key in KEYS:
        assert stored[key] == list(range(1, len(stored[key]) + 1))
        assert acknowledged[key] <= len(stored[key]) <= acknowledged[key] + 1
