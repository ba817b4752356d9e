"""What one unit costs: CPU and latency of the group commit, beside a bare commit of the same statements.

Each unit is a compare-and-set UPDATE of a head row and an INSERT of a page.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sqlite3
import tempfile
import time
from functools import partial
from pathlib import Path

from turnwire.storage.checkpoint import Checkpointer
from turnwire.storage.committer import SqliteCommitter
from turnwire.storage.sqlite import Synchronous, connect
from turnwire.storage.stats import WriterStats
from turnwire.storage.units import Statement, Unit
from turnwire.storage.writer import GroupCommitWriter

BODY = os.urandom(1500)
SCHEMA = (
    "CREATE TABLE heads (turn TEXT PRIMARY KEY, next INTEGER NOT NULL, epoch INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE pages (turn TEXT, first INTEGER, last INTEGER, flags INTEGER, body BLOB,"
    " PRIMARY KEY (turn, first))",
)
HEAD = "UPDATE heads SET next = ? WHERE turn = ? AND next = ? AND epoch = ?"
PAGE = "INSERT INTO pages VALUES (?, ?, ?, 0, ?)"


class Turn:
    """One source of units: each take is one page of eight events."""

    def __init__(self, number: int) -> None:
        self.key = f"threads/bench/turns/turn-{number:08d}"
        self.next = 1

    def statements(self) -> list[Statement]:
        first, self.next = self.next, self.next + 8
        return [
            Statement(HEAD, (self.next, self.key, first, 1), 1),
            Statement(PAGE, (self.key, first, self.next - 1, BODY)),
        ]

    def take(self) -> Unit:
        return Unit(self.key, self.statements(), False, self._done)

    def refuse(self, error: Exception) -> None:
        raise error

    def _done(self, error: BaseException | None) -> None:
        if error is not None:
            raise error


def prepare(path: Path, synchronous: Synchronous, turns: list[Turn]) -> partial[sqlite3.Connection]:
    opener = partial(connect, path, synchronous=synchronous)
    db = opener()
    for statement in SCHEMA:
        db.execute(statement)
    db.executemany("INSERT INTO heads VALUES (?, 1, 1)", [(turn.key,) for turn in turns])
    db.close()
    return opener


def report(name: str, size: int, groups: int, wall: list[float], cpu: float) -> None:
    wall.sort()
    p50, p99 = (wall[int(len(wall) * f)] * 1e3 for f in (0.5, 0.99))
    group = cpu / groups * 1e6
    print(
        f"{name:22} {size:4} units  p50 {p50:7.2f}  p99 {p99:7.2f} ms"
        f"   CPU {group:7.0f} us a group {group / size:6.0f} us a unit",
        flush=True,
    )


def bare(path: Path, synchronous: Synchronous, size: int, groups: int) -> None:
    turns = [Turn(n) for n in range(size)]
    db = prepare(path, synchronous, turns)()
    wall = []
    started = time.process_time()
    for _ in range(groups):
        begun = time.perf_counter()
        db.execute("BEGIN IMMEDIATE")
        for turn in turns:
            for statement in turn.statements():
                db.execute(statement.sql, statement.params)
        db.execute("COMMIT")
        wall.append(time.perf_counter() - begun)
    report("bare commit", size, groups, wall, time.process_time() - started)
    db.close()


async def grouped(path: Path, synchronous: Synchronous, size: int, groups: int) -> None:
    turns = [Turn(n) for n in range(size)]
    stats = WriterStats()
    opener = prepare(path, synchronous, turns)

    def fatal(error: BaseException) -> None:
        raise error

    checkpointer = Checkpointer(opener, stats, fatal)
    committer = SqliteCommitter(
        opener, retry_for=30, stats=stats, checkpointer=checkpointer, on_health=lambda healthy: None
    )
    writer = GroupCommitWriter(committer, on_fatal=fatal, stats=stats)
    await writer.start()
    checkpointer.start()
    wall = []
    started = time.process_time()
    for _ in range(groups):
        begun = time.perf_counter()
        for turn in turns[1:]:
            writer.mark(turn)
        await writer.commit(turns[0].statements(), turns[0].key)
        wall.append(time.perf_counter() - begun)
    cpu = time.process_time() - started
    report(f"writer ({stats.groups} groups)", size, groups, wall, cpu)
    await writer.stop()
    checkpointer.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--directory", default=None, help="where the file lies; default: the temporary directory"
    )
    parser.add_argument("--groups", type=int, default=400)
    parser.add_argument("--synchronous", default="FULL", choices=["FULL", "NORMAL"])
    options = parser.parse_args()
    for size in (1, 5, 20):
        with tempfile.TemporaryDirectory(dir=options.directory) as directory:
            bare(Path(directory, "bare.db"), options.synchronous, size, options.groups)
        with tempfile.TemporaryDirectory(dir=options.directory) as directory:
            run = grouped(Path(directory, "grouped.db"), options.synchronous, size, options.groups)
            try:
                import uvloop
            except ImportError:
                asyncio.run(run)
            else:
                uvloop.run(run)


if __name__ == "__main__":
    main()
