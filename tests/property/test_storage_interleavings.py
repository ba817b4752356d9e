"""Any interleaving of units, sources and calls, under injected trouble: outcomes true, rows once."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import errors

from support.postgres import PostgresServer
from turnwire.storage import postgres as postgres_engine
from turnwire.storage import sqlite
from turnwire.storage.committer import Item, Outcome, SqliteCommitter
from turnwire.storage.postgres_committer import PgCommitter, _Doubt
from turnwire.storage.stats import WriterStats
from turnwire.storage.units import Connection, Statement, Unit, UnitFenced, UnitRejected
from turnwire.storage.worker import Committer
from turnwire.storage.writer import GroupCommitWriter
from unit.storage.storage_rig import INSERT, SCHEMA, advance, create, insert

KEYS = ["a", "b", "c"]
SOURCES = ["s", "t"]

operations = st.one_of(
    st.tuples(st.sampled_from(["unit", "bad", "late-bad", "stale", "late-stale", "call", "call-fails"]),
              st.sampled_from(KEYS)),
    st.tuples(st.just("gather"), st.sampled_from(SOURCES)),
    st.tuples(st.just("yield"), st.just("")),
)  # fmt: skip
faults = st.lists(st.sampled_from(["none", "none", "busy", "full-at-commit"]), max_size=6)


server_faults = st.lists(
    st.sampled_from(["none", "none", "busy", "conflict", "full-at-commit", "answer-lost", "never-sent"]),
    max_size=6,
)


class Troubled(SqliteCommitter):
    """Meets one planned fault per transaction, then runs well."""

    plan: list[str]
    fault = "none"

    def _transaction(self, items: Sequence[Item]) -> list[Outcome]:
        self.fault = self.plan.pop(0) if self.plan else "none"
        if self.fault == "busy":
            raise _error(sqlite3.SQLITE_BUSY)
        return super()._transaction(items)

    def _end(self, items: Sequence[Item], outcomes: list[Outcome]) -> None:
        if self.fault == "full-at-commit":
            raise _error(sqlite3.SQLITE_FULL)
        super()._end(items, outcomes)


def _error(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("injected")
    error.sqlite_errorcode = code
    error.sqlite_errorname = "INJECTED"
    return error


class PgTroubled(PgCommitter):
    """Meets one planned fault per transaction, then runs well."""

    plan: list[str]
    fault = "none"

    def _attempt(self, items: Sequence[Item]) -> list[Outcome]:
        self.fault = self.plan.pop(0) if self.plan else "none"
        if self.fault == "busy":
            raise errors.LockNotAvailable("injected")
        if self.fault == "conflict":
            raise errors.DeadlockDetected("injected")
        return super()._attempt(items)

    def _end(self, items: Sequence[Item], outcomes: list[Outcome]) -> None:
        if self.fault == "full-at-commit":
            raise errors.DiskFull("injected")
        if self.fault not in ("answer-lost", "never-sent"):
            super()._end(items, outcomes)
            return
        pid = self._db.backend_pid
        if self.fault == "answer-lost":
            super()._end(items, outcomes)
        self._db.close()
        self._doubt = _Doubt(items, outcomes, self._number, pid)
        raise psycopg.OperationalError("injected")


class Refusal(Exception):
    pass


@dataclass
class Load:
    """Hands operations in and remembers what each must lead to."""

    writer: GroupCommitWriter
    numbers: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KEYS + SOURCES, 0))
    expected: dict[str, list[int]] = field(default_factory=lambda: {key: [] for key in KEYS + SOURCES})
    outcomes: list[tuple[asyncio.Future[Any], type[Exception] | None]] = field(default_factory=list)
    heard: dict[str, list[int]] = field(default_factory=lambda: {key: [] for key in KEYS + SOURCES})

    def number(self, key: str) -> int:
        self.numbers[key] += 1
        return self.numbers[key]

    def submit(
        self, key: str, statements: list[Statement], wanted: type[Exception] | None, number: int
    ) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(error: BaseException | None) -> None:
            if error is None:
                self.heard[key].append(number)
                future.set_result(None)
            else:
                future.set_exception(error)

        if wanted is None:
            self.expected[key].append(number)
        self.outcomes.append((future, wanted))
        self.writer.submit(Unit(key, statements, number % 2 == 0, done, 10))

    def apply(self, kind: str, key: str) -> None:
        number = self.number(key)
        write, stale = insert(key, number), advance(key, 10_000)
        broken = insert(key, number, None)
        if kind == "unit":
            self.submit(key, [write], None, number)
        elif kind == "bad":
            self.submit(key, [broken], UnitRejected, number)
        elif kind == "late-bad":
            self.submit(key, [write, broken], UnitRejected, number)
        elif kind == "stale":
            self.submit(key, [stale, write], UnitFenced, number)
        elif kind == "late-stale":
            self.submit(key, [write, stale], UnitFenced, number)
        else:
            self.call(key, number, fails=kind == "call-fails")

    def call(self, key: str, number: int, *, fails: bool) -> None:
        def fn(db: Connection) -> int:
            db.execute(INSERT, (key, number, "body"))
            if fails:
                raise Refusal
            return number

        if not fails:
            self.expected[key].append(number)
        future = asyncio.ensure_future(self.writer.run(fn, key))
        self.outcomes.append((future, Refusal if fails else None))


class Gatherer:
    """A source whose unit holds everything gathered."""

    def __init__(self, load: Load, key: str) -> None:
        self.load = load
        self.key = key
        self.gathered: list[int] = []

    def add(self) -> None:
        number = self.load.number(self.key)
        self.gathered.append(number)
        self.load.expected[self.key].append(number)
        self.load.writer.mark(self, False, 10)

    def take(self) -> Unit | None:
        numbers, self.gathered = self.gathered, []
        return Unit(
            self.key, [insert(self.key, n) for n in numbers], False, lambda error: self.done(numbers, error)
        )

    def done(self, numbers: list[int], error: BaseException | None) -> None:
        assert error is None
        self.load.heard[self.key] += numbers

    def refuse(self, error: Exception) -> None:
        raise error


def in_memory(plan: list[str], stats: WriterStats) -> Troubled:
    db = sqlite3.connect(
        ":memory:", isolation_level=None, check_same_thread=False, factory=sqlite.SqliteConnection
    )
    for statement in SCHEMA:
        db.execute(statement)
    db.executemany("INSERT INTO heads VALUES (?, 1)", [(key,) for key in KEYS])
    committer = Troubled(
        lambda: db, retry_for=20, stats=stats, checkpointer=None, on_health=lambda healthy: None
    )
    committer.plan = list(plan)
    return committer


def on_server(url: str, plan: list[str], stats: WriterStats) -> PgTroubled:
    with closing(postgres_engine.connect(url)) as db:
        db.command("TRUNCATE heads, entries RESTART IDENTITY")
        for key in KEYS:
            db.execute("INSERT INTO heads VALUES (?, 1)", (key,))
    committer = PgTroubled(
        lambda name: postgres_engine.connect(url, name=name),
        retry_for=20,
        stats=stats,
        on_health=lambda healthy: None,
    )
    committer.plan = list(plan)
    return committer


async def play(committer: Committer, stats: WriterStats, script: list[tuple[str, str]]) -> None:
    fatal: list[BaseException] = []
    writer = GroupCommitWriter(committer, on_fatal=fatal.append, stats=stats, spacing=0.001)
    await writer.start()
    load = Load(writer)
    sources = {key: Gatherer(load, key) for key in SOURCES}
    loop = asyncio.get_running_loop()
    for kind, key in script:
        if kind == "gather":
            sources[key].add()
        elif kind == "yield":
            turn = loop.create_future()
            loop.call_later(0.002, turn.set_result, None)
            await turn
        else:
            load.apply(kind, key)
    await check(load)
    assert writer.pending_bytes == 0
    await writer.stop()
    assert fatal == []


async def check(load: Load) -> None:
    for future, wanted in load.outcomes:
        await asyncio.wait((future,))
        error = future.exception()
        assert (type(error) if error is not None else None) is wanted

    def stored(db: Connection) -> list[tuple[str, int]]:
        return db.execute("SELECT key, number FROM entries ORDER BY id").fetchall()

    await load.writer.run(lambda db: None)  # behind every source that was marked
    rows = await load.writer.run(stored)
    for key in KEYS + SOURCES:
        numbers = [number for k, number in rows if k == key]
        assert sorted(numbers) == sorted(load.expected[key])
        if key in SOURCES:
            assert numbers == load.heard[key] == load.expected[key]
        else:
            assert [n for n in numbers if n in set(load.heard[key])] == load.heard[key]
            assert load.heard[key] == sorted(load.heard[key])


async def bounded(committer: Committer, stats: WriterStats, script: list[tuple[str, str]]) -> None:
    async with asyncio.timeout(30):
        await play(committer, stats, script)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(plan=faults, script=st.lists(operations, max_size=40))
def test_every_interleaving_commits_in_order_once_and_alone(
    plan: list[str], script: list[tuple[str, str]]
) -> None:
    stats = WriterStats()
    asyncio.run(bounded(in_memory(plan, stats), stats, script))


@pytest.fixture(scope="module")
def url(postgres: PostgresServer) -> str:
    made = postgres.fresh()
    create(made)
    return made


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(plan=server_faults, script=st.lists(operations, max_size=40))
def test_every_interleaving_does_so_on_a_server_too(
    url: str, plan: list[str], script: list[tuple[str, str]]
) -> None:
    stats = WriterStats()
    asyncio.run(bounded(on_server(url, plan, stats), stats, script))
