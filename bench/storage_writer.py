"""What one unit costs: CPU and latency of the group commit, beside a bare commit of the same statements.

Each unit is a compare-and-set UPDATE of a head row and an INSERT of a page. With --postgres it measures the
same on a server; the CPU of its process for the writer is added where it can be seen on this machine.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sqlite3
import tempfile
import time
from collections.abc import Coroutine
from functools import partial
from pathlib import Path
from typing import Any

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


def fatal(error: BaseException) -> None:
    raise error


async def grouped(path: Path, synchronous: Synchronous, size: int, groups: int) -> None:
    turns = [Turn(n) for n in range(size)]
    stats = WriterStats()
    opener = prepare(path, synchronous, turns)
    checkpointer = Checkpointer(opener, stats, fatal)
    committer = SqliteCommitter(
        opener, retry_for=30, stats=stats, checkpointer=checkpointer, on_health=lambda healthy: None
    )
    writer = GroupCommitWriter(committer, on_fatal=fatal, stats=stats)
    await writer.start()
    checkpointer.start()
    await load(f"writer ({groups} groups)", writer, turns, groups)
    await writer.stop()
    checkpointer.stop()


async def load(
    name: str, writer: GroupCommitWriter, turns: list[Turn], groups: int, server: int | None = None
) -> None:
    wall = []
    before = server_cpu(server)
    started = time.process_time()
    for _ in range(groups):
        begun = time.perf_counter()
        for turn in turns[1:]:
            writer.mark(turn)
        await writer.commit(turns[0].statements(), turns[0].key)
        wall.append(time.perf_counter() - begun)
    report(name, len(turns), groups, wall, time.process_time() - started)
    if server is not None:
        used = (server_cpu(server) - before) / groups * 1e6
        print(f"{'':22} and {used:7.0f} us a group in the server's process for the writer", flush=True)


def server_cpu(pid: int | None) -> float:
    """Return the CPU seconds of a process of this machine, 0 for one that cannot be seen."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def on_server(url: str, size: int, groups: int) -> None:
    from turnwire.storage import postgres
    from turnwire.storage.postgres_committer import PgCommitter

    turns = [Turn(n) for n in range(size)]
    db = postgres.connect(url)
    for table in ("heads", "pages"):
        db.execute(f"DROP TABLE IF EXISTS {table}")
    for name, statement in db.own_tables.items():
        if not db.has_table(name):
            db.execute(statement)
    for statement in SCHEMA:
        spelled = (
            statement.replace("INTEGER", "BIGINT").replace("BLOB", "BYTEA").removesuffix(" WITHOUT ROWID")
        )
        db.execute(spelled)
    for turn in turns:
        db.execute("INSERT INTO heads VALUES (?, 1, 1)", (turn.key,))
    db.close()
    stats = WriterStats()
    committer = PgCommitter(
        lambda name: postgres.connect(url, name=name),
        retry_for=30,
        stats=stats,
        on_health=lambda healthy: None,
    )
    writer = GroupCommitWriter(committer, on_fatal=fatal, stats=stats)
    await writer.start()
    pid = await writer.run(lambda db: db.execute("SELECT pg_backend_pid()").fetchone()[0])
    await load("PostgreSQL writer", writer, turns, groups, int(pid))
    await writer.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--directory", default=None, help="where the file lies; default: the temporary directory"
    )
    parser.add_argument("--groups", type=int, default=400)
    parser.add_argument("--synchronous", default="FULL", choices=["FULL", "NORMAL"])
    parser.add_argument(
        "--postgres", default="", help="measure the database of this URL, which is written to"
    )
    options = parser.parse_args()
    if options.postgres:
        for size in (1, 5, 20):
            run(on_server(options.postgres, size, options.groups))
        return
    for size in (1, 5, 20):
        with tempfile.TemporaryDirectory(dir=options.directory) as directory:
            bare(Path(directory, "bare.db"), options.synchronous, size, options.groups)
        with tempfile.TemporaryDirectory(dir=options.directory) as directory:
            run(grouped(Path(directory, "grouped.db"), options.synchronous, size, options.groups))


def run(work: Coroutine[Any, Any, None]) -> None:
    try:
        import uvloop
    except ImportError:
        asyncio.run(work)
    else:
        uvloop.run(work)


if __name__ == "__main__":
    main()
