"""What appending to logs costs in shipped settings: `python -m bench.append`.

The unit is the runtime's own: a page of a turn's log with its fence. Shown and gated are the CPU of a unit in
groups of several turns, hand-over to the writer's thread included; the commits a second under 4,000 events a
second; and the slowest commits beside bare ones of the same units, while checkpoints run.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import Any

from bench.figures import Gate, percentile, spread
from bench.meter import NOMINAL_SPEED, machine, machine_speed
from bench.settings import synchronous
from turnwire.extend.llm import TextDelta
from turnwire.runtime.domain.turn import TurnKey
from turnwire.runtime.event_codec import encode_event
from turnwire.runtime.store.log import TurnLog
from turnwire.storage.database import Database, database_at
from turnwire.storage.migrate import load_migrations, migrate
from turnwire.storage.sqlite import Synchronous, connect

UNIT_FIGURE_US = 150.0
GROUP_SIZES = (1, 5, 20)
GATED_FROM = 5
DELTAS = 8
RATE = 4_000
COMMITS_FIGURE = 210.0
LATENCY_FIGURE = 4.0
TURNS = 8
TICK_SECONDS = 0.002
MODE: Synchronous = "FULL" if synchronous() == "FULL" else "NORMAL"


class NoWriter:
    """Stands for the writer of a log whose units are committed by hand."""

    healthy = True

    def mark(self, source: Any, urgent: bool = False, size: int = 0) -> None:
        """Nothing is to be done."""

    def has_room(self, key: str) -> bool:
        """Always."""
        return True


def keys(count: int) -> list[TurnKey]:
    """Turns, one in each of so many threads."""
    return [TurnKey("bench-org", f"thread-{n:08d}", f"turn-{n:08d}") for n in range(count)]


def logs(writer: Any, count: int) -> list[TurnLog]:
    """The logs of so many turns."""
    return [TurnLog(writer, encode_event, key, 1, 1) for key in keys(count)]


def add_heads(db: Any, count: int) -> None:
    """Make the rows that the fences of these logs need."""
    for key in keys(count):
        db.execute("INSERT INTO turn_heads VALUES (?, ?, 1, 1, 1)", (key.scope, key.turn_id))


def say(log: TurnLog, deltas: int) -> None:
    """Append so many deltas."""
    for _ in range(deltas):
        log.emit(TextDelta("token "))


@asynccontextmanager
async def opened(folder: Path, turns: int) -> AsyncIterator[tuple[Database, list[TurnLog]]]:
    """A store as the runtime opens it, with so many logs."""

    def fatal(error: BaseException) -> None:
        raise error

    database = database_at(folder / "runtime.db", "turnwire.runtime", on_fatal=fatal, synchronous=MODE)
    await database.open()
    try:
        await database.writer.run(partial(add_heads, count=turns))
        yield database, logs(database.writer, turns)
    finally:
        await database.close()


async def unit_cpu(size: int, groups: int, folder: Path) -> float:
    """CPU microseconds a unit in groups of so many turns."""
    async with opened(folder, size) as (database, written):
        begun, before = time.process_time(), database.stats.groups
        for _ in range(groups):
            for log in written:
                say(log, DELTAS)
            for log in written[1:]:
                database.writer.mark(log)
            await written[0].flush()
        used = time.process_time() - begun
        for log in written:
            await log.flush()
        made = database.stats.groups - before
    print(
        f"  groups of {size:<3} CPU {used / groups / size * 1e6:6.0f} us a unit ({made} commits)", flush=True
    )
    return used / groups / size * 1e6


async def paced(seconds: float, folder: Path) -> tuple[float, list[float]]:
    """Append 4,000 events a second; returns the commits a second and how long each commit took."""
    async with opened(folder, TURNS) as (database, written):
        loop = asyncio.get_running_loop()
        before = database.stats.groups
        begun, sent, turn = loop.time(), 0, 0
        while (now := loop.time()) < begun + seconds:
            for _ in range(round((now - begun) * RATE) - sent):
                say(written[turn], 1)
                turn = (turn + 1) % TURNS
                sent += 1
            await asyncio.sleep(TICK_SECONDS)
        rate = (database.stats.groups - before) / (loop.time() - begun)
        slow = [database.stats.latency.percentile(share) for share in (0.5, 0.99)]
        restarts = database.stats.wal_restarts
        for log in written:
            await log.flush()
    took = " ".join(f"{name} {value * 1e3:.2f}" for name, value in zip(("p50", "p99"), slow, strict=True))
    print(
        f"  {sent / seconds:.0f} events/s: {rate:.0f} commits/s, {took} ms, {restarts} log restarts",
        flush=True,
    )
    return rate, slow


def bare(commits: int, folder: Path) -> float:
    """Seconds that 99 of 100 bare commits of the same units do not exceed, at the same distance."""
    taken: list[float] = []
    with closing(connect(folder / "runtime.db", synchronous=MODE)) as db:
        migrate(db, load_migrations("turnwire.runtime"))
        add_heads(db, TURNS)
        written = logs(NoWriter(), TURNS)
        due = time.perf_counter()
        for _ in range(commits):
            due += 1 / 200
            time.sleep(max(0.0, due - time.perf_counter()))
            begun = time.perf_counter()
            db.execute("BEGIN IMMEDIATE")
            for log in written:
                say(log, RATE // 200 // TURNS + 1)
                unit = log.take()
                assert unit is not None
                for statement in unit.statements:
                    db.execute(statement.sql, statement.params)
            db.execute("COMMIT")
            taken.append(time.perf_counter() - begun)
    p50, p99 = percentile(taken, 0.5), percentile(taken, 0.99)
    print(f"  bare commits: p50 {p50 * 1e3:.2f} p99 {p99 * 1e3:.2f} ms", flush=True)
    return p99


async def run(options: argparse.Namespace) -> int:
    """Measure all of it; returns 1 when a gate is closed."""
    print(machine())
    speed = machine_speed()
    units: dict[int, list[float]] = {size: [] for size in GROUP_SIZES}
    rates: list[float] = []
    ratios: list[float] = []
    for _ in range(options.rounds):
        for size in GROUP_SIZES:
            with tempfile.TemporaryDirectory(dir=options.directory) as folder:
                units[size].append(await unit_cpu(size, options.groups, Path(folder)))
        with tempfile.TemporaryDirectory(dir=options.directory) as folder:
            slowest = await asyncio.to_thread(bare, round(options.seconds * 200), Path(folder))
        with tempfile.TemporaryDirectory(dir=options.directory) as folder:
            rate, slow = await paced(options.seconds, Path(folder))
        rates.append(rate)
        ratios.append(slow[1] / slowest)
    speed = min(speed, machine_speed())
    print(f"  CPU is scaled to a machine whose speed probe takes {NOMINAL_SPEED * 1e3:.0f} ms")
    gates = [
        Gate(
            f"CPU a unit in groups of {size}, scaled",
            spread(units[size]).median * NOMINAL_SPEED / speed,
            UNIT_FIGURE_US,
            " us",
        )
        for size in GROUP_SIZES
        if size >= GATED_FROM
    ]
    gates.append(Gate("commits a second at 4,000 events a second", max(rates), COMMITS_FIGURE, slack=1.0))
    gates.append(Gate("p99 of commits over bare ones", spread(ratios).median, LATENCY_FIGURE, " x"))
    print("\n".join(f"  {gate.show()}" for gate in gates), flush=True)
    return int(not all(gate.passed for gate in gates))


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the options."""
    parser = argparse.ArgumentParser(description="Measure what appending to logs costs.")
    parser.add_argument("--directory", default=None, help="where the files lie; the temporary directory")
    parser.add_argument("--groups", type=int, default=300, help="groups of a measurement (300)")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long events are paced (5)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds (3)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    import uvloop

    sys.exit(uvloop.run(run(parse())))
