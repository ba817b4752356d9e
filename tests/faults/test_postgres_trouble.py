"""A PostgreSQL server in trouble: crashed, cut off in a COMMIT, full, read-only, deadlocked.

Whatever happens, each unit hears the truth: what was told as stored is there once, and nothing else is.
"""

from __future__ import annotations

import asyncio
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any

import psycopg
import pytest
from psycopg import errors, pq

from support.postgres import PostgresServer
from turnwire.storage.database import database_at
from turnwire.storage.postgres import PgConnection
from turnwire.storage.postgres_committer import PgCommitter
from turnwire.storage.units import Connection, StoreUnavailable, UnitFenced
from unit.storage.storage_rig import INSERT, Gathering, Rig, advance, create, entries, insert, running

KEYS = [f"key-{n}" for n in range(6)]


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    return postgres.fresh()


class Load:
    """Producers that hand in one numbered unit or call after the other, and remember what they were told."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.told = dict.fromkeys([*KEYS, "calls"], 0)
        self.changed = asyncio.Event()
        self.stopping = False

    async def produce(self, key: str) -> None:
        while not self.stopping:
            number = self.told[key] + 1
            await self.rig.writer.commit([advance(key, number), insert(key, number, "x" * 300)], key)
            self._note(key, number)

    async def call(self) -> None:
        def put(db: Connection) -> int:
            (last,) = db.execute(
                "SELECT coalesce(max(number), 0) FROM entries WHERE key = 'calls'"
            ).fetchone()
            db.execute(INSERT, ("calls", last + 1, "body"))
            return int(last + 1)

        while not self.stopping:
            number = await self.rig.writer.run(put)
            assert number == self.told["calls"] + 1
            self._note("calls", number)

    def _note(self, key: str, number: int) -> None:
        self.told[key] = number
        self.changed.set()

    async def beyond(self, count: int) -> None:
        """Wait until so many more were told as stored."""
        wanted = sum(self.told.values()) + count
        while sum(self.told.values()) < wanted:
            self.changed.clear()
            await self.changed.wait()

    async def under(self, trouble: Callable[[Load], Any]) -> None:
        """Run the load while the trouble happens, and a little longer."""
        async with asyncio.TaskGroup() as group:
            for key in KEYS:
                group.create_task(self.produce(key))
            group.create_task(self.call())
            await self.beyond(20)
            await trouble(self)
            await self.beyond(20)
            self.stopping = True

    def check(self) -> None:
        """Compare what is stored with what was told."""
        stored: dict[str, list[int]] = {key: [] for key in self.told}
        assert isinstance(self.rig.place, str)
        for key, number in entries(self.rig.place):
            stored[key].append(number)
        assert stored == {key: list(range(1, told + 1)) for key, told in self.told.items()}
        assert self.rig.fatal == []
        assert self.rig.stats.fenced == self.rig.stats.rejected == 0


async def test_a_server_that_crashes_under_load_and_comes_back_loses_and_repeats_nothing(
    postgres: PostgresServer, url: str
) -> None:
    async with asyncio.timeout(60), running(url, keys=KEYS) as rig:

        async def crash(load: Load) -> None:
            for _ in range(3):
                await asyncio.to_thread(postgres.restart)
                await load.beyond(30)

        load = Load(rig)
        await load.under(crash)
        load.check()
        assert rig.health[:2] == [False, True]
        assert rig.stats.retries > 0


@pytest.mark.parametrize("seed", range(2))
async def test_connections_that_are_ended_at_random_moments_lose_and_repeat_nothing(
    postgres: PostgresServer, url: str, seed: int
) -> None:
    chance = random.Random(seed)
    async with asyncio.timeout(60), running(url, keys=KEYS) as rig:

        async def strike(load: Load) -> None:
            for _ in range(25):
                await load.beyond(chance.randrange(1, 12))
                await asyncio.to_thread(
                    postgres.sql,
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE application_name LIKE 'turnwire-writer-%'",
                )

        load = Load(rig)
        await load.under(strike)
        load.check()
        assert len(rig.connections) > 5


class Cut:
    """Cuts the writer's connection in its n-th COMMIT: before it is sent, or before its answer."""

    def __init__(self, nth: int, *, sent: bool) -> None:
        self._left = nth
        self._sent = sent

    def __call__(self, committer: PgCommitter) -> PgCommitter:
        connect = committer._connect

        def watched(name: str) -> PgConnection:
            db = connect(name)
            command = db.command

            def commanded(sql: str) -> pq.abc.PGresult:
                if sql == "COMMIT":
                    self._left -= 1
                    if self._left == 0:
                        return self._cut(db, command)
                return command(sql)

            db.command = commanded  # type: ignore[method-assign]
            return db

        committer._connect = watched
        return committer

    def _cut(self, db: PgConnection, command: Callable[[str], pq.abc.PGresult]) -> pq.abc.PGresult:
        line = socket.socket(fileno=db.pgconn.socket)
        try:
            if not self._sent:
                line.shutdown(socket.SHUT_RDWR)
                return command("COMMIT")
            db.pgconn.send_query(b"COMMIT")
            db.pgconn.flush()
            line.shutdown(socket.SHUT_RD)
            db.pgconn.get_result()
            raise psycopg.OperationalError("the connection is lost")
        finally:
            line.detach()


@pytest.mark.parametrize("sent", [True, False], ids=["answer-lost", "never-sent"])
async def test_a_commit_without_an_answer_is_looked_up_and_not_repeated(url: str, sent: bool) -> None:
    calls: list[int] = []

    def put(db: Connection) -> str:
        calls.append(1)
        db.execute(INSERT, ("call", 1, "body"))
        return f"the result of run {len(calls)}"

    async with asyncio.timeout(30), running(url, keys=KEYS, wrap=Cut(2, sent=sent)) as rig:
        await rig.unit("first", insert("first", 1))
        result = asyncio.ensure_future(rig.writer.run(put))
        units = [rig.unit(key, advance(key, 1), insert(key, 1)) for key in KEYS]
        for unit in units:
            await unit
        assert await result == f"the result of run {1 if sent else 2}"
        assert rig.stats.groups == 2
        await rig.well.wait()
        assert sorted(entries(url)) == sorted([("first", 1), ("call", 1), *((key, 1) for key in KEYS)])
        with pytest.raises(UnitFenced):
            await rig.unit("stale", advance(KEYS[0], 1))


async def test_a_commit_that_the_server_is_still_at_is_waited_for_or_ended(url: str) -> None:
    """The COMMIT takes long, by a deferred trigger, and the connection is cut meanwhile."""
    slow = (
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN PERFORM pg_sleep(1); RETURN NULL; END $$",
        "CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON entries DEFERRABLE INITIALLY DEFERRED"
        " FOR EACH ROW WHEN (NEW.key = 'slow') EXECUTE FUNCTION slow()",
    )
    async with asyncio.timeout(30), running(url, wrap=Cut(1, sent=True)) as rig:
        with closing(psycopg.connect(url, autocommit=True)) as other:
            for statement in slow:
                other.execute(statement.encode())
        await rig.unit("slow", insert("slow", 1))
        assert entries(url) == [("slow", 1)]


async def test_a_deadlock_costs_a_repeat_and_nobody_their_unit(url: str) -> None:
    locked = threading.Event()
    waiting = threading.Event()

    def lock_one_then_two(db: Connection) -> int:
        db.execute("UPDATE heads SET next = next + 10 WHERE key = 'one'")
        locked.set()
        assert waiting.wait(20)
        db.execute("UPDATE heads SET next = next + 10 WHERE key = 'two'")
        return 7

    def lock_two_then_one() -> None:
        with psycopg.connect(url) as other:
            other.execute("SET deadlock_timeout = '60s'")  # so that the writer is the one to be undone
            other.execute("UPDATE heads SET next = next + 100 WHERE key = 'two'")
            assert locked.wait(20)
            timer = threading.Timer(0.05, waiting.set)
            timer.start()
            other.execute("UPDATE heads SET next = next + 100 WHERE key = 'one'")

    async with asyncio.timeout(30), running(url, keys=["one", "two"]) as rig:
        other = asyncio.ensure_future(asyncio.to_thread(lock_two_then_one))
        unit = rig.unit("a", insert("a", 1))
        assert await rig.writer.run(lock_one_then_two) == 7
        await unit
        await other
        assert rig.stats.retries >= 1
        assert rig.health == []
        heads = await rig.writer.run(lambda db: db.execute("SELECT key, next FROM heads").fetchall())
        assert sorted(heads) == [("one", 111), ("two", 111)]
        assert entries(url) == [("a", 1)]


@pytest.mark.parametrize(
    ("error", "times", "health"),
    [
        (errors.SerializationFailure, 1, []),
        (errors.DeadlockDetected, 2, []),
        (errors.DiskFull, 2, [False, True]),
        (errors.LockNotAvailable, 1, [False, True]),
        (errors.AdminShutdown, 1, [False, True]),
    ],
)
async def test_trouble_that_passes_is_outlasted(
    url: str, error: type[psycopg.Error], times: int, health: list[bool]
) -> None:
    tries: list[int] = []

    def troubled(db: Connection) -> int:
        db.execute(INSERT, ("run", 1, "body"))
        tries.append(1)
        if len(tries) <= times:
            raise error("injected")
        return len(tries)

    async with asyncio.timeout(30), running(url) as rig:
        unit = rig.unit("a", insert("a", 1))
        assert await rig.writer.run(troubled) == times + 1
        await unit
        if health:
            await rig.well.wait()
        assert rig.health == health
        assert sorted(entries(url)) == [("a", 1), ("run", 1)]


async def test_a_server_that_only_reads_for_a_while_is_waited_for(postgres: PostgresServer, url: str) -> None:
    name = url.partition("@/")[2].partition("?")[0]
    end = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        f" WHERE datname = '{name}' AND application_name LIKE 'turnwire-writer-%'"
    )
    async with asyncio.timeout(30), running(url, keys=["a"]) as rig:
        await rig.unit("a", advance("a", 1), insert("a", 1))
        postgres.sql(f"ALTER DATABASE {name} SET default_transaction_read_only = on", end)
        unit = rig.unit("a", advance("a", 2), insert("a", 2))
        await rig.sick.wait()
        assert not unit.done()
        postgres.sql(f"ALTER DATABASE {name} RESET default_transaction_read_only", end)
        await unit
        await rig.well.wait()
        assert entries(url) == [("a", 1), ("a", 2)]


async def test_after_the_retries_the_writer_ends_and_everyone_hears_it(
    postgres: PostgresServer, url: str
) -> None:
    async with asyncio.timeout(60), running(url, retry_for=0.2) as rig:
        await rig.unit("a", insert("a", 1))
        try:
            await asyncio.to_thread(postgres.stop)
            unit = rig.unit("a", insert("a", 2), size=10)
            await rig.sick.wait()
            source = Gathering(rig, "s")
            source.add()
            await rig.died.wait()
        finally:
            await asyncio.to_thread(postgres.start)
        for waiting in (unit, rig.unit("a", insert("a", 3))):
            with pytest.raises(StoreUnavailable):
                await waiting
        assert isinstance(source.refused[0], StoreUnavailable)
        assert isinstance(rig.fatal[0], psycopg.OperationalError)
        assert len(rig.fatal) == 1
    assert entries(url) == [("a", 1)]


async def test_readers_go_on_after_a_restart_and_say_so_while_there_is_no_server(
    postgres: PostgresServer, url: str
) -> None:
    def count(db: Connection) -> int:
        return int(db.execute("SELECT count(*) FROM store_info").fetchone()[0])

    database = database_at(url, "turnwire.control", on_fatal=lambda error: None)
    async with asyncio.timeout(60):
        await database.open()
        try:
            assert await database.reader.read(count) == 1
            await asyncio.to_thread(postgres.restart)
            assert await database.reader.read(count) == 1
            try:
                await asyncio.to_thread(postgres.stop)
                with pytest.raises(StoreUnavailable):
                    await database.reader.read(count)
            finally:
                await asyncio.to_thread(postgres.start)
            assert await database.reader.read(count) == 1
        finally:
            await database.close()


LOAD = """
import asyncio, sys
from turnwire.storage.postgres import connect
from turnwire.storage.postgres_committer import PgCommitter
from turnwire.storage.stats import WriterStats
from turnwire.storage.writer import GroupCommitWriter
from unit.storage.storage_rig import advance, insert

async def load(url, keys):
    stats = WriterStats()
    committer = PgCommitter(
        lambda name: connect(url, name=name), retry_for=1, stats=stats, on_health=print
    )
    writer = GroupCommitWriter(committer, on_fatal=print, stats=stats, spacing=0)
    await writer.start()

    async def produce(key):
        number = 1
        while True:
            await writer.commit([advance(key, number), insert(key, number, "x" * 700)], key)
            print(key, number, flush=True)
            number += 1

    async with asyncio.TaskGroup() as group:
        for key in keys:
            group.create_task(produce(key))

asyncio.run(load(sys.argv[1], sys.argv[2].split(",")))
"""


@pytest.mark.parametrize("seed", range(2))
def test_everything_acknowledged_before_a_kill_of_the_process_is_there(url: str, seed: int) -> None:
    create(url, KEYS)
    wanted = random.Random(seed).randrange(100, 400)
    told = dict.fromkeys(KEYS, 0)
    command = [sys.executable, "-c", LOAD, url, ",".join(KEYS)]
    environment = {"PYTHONPATH": ":".join(entry for entry in sys.path if entry)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        for count, line in enumerate(process.stdout):
            if count == wanted:
                process.send_signal(signal.SIGKILL)
            if line.endswith("\n"):  # the last line may be cut
                key, number = line.split()
                told[key] = int(number)
    stored: dict[str, list[int]] = {key: [] for key in KEYS}
    for key, number in entries(url):
        stored[key].append(int(number))
    for key in KEYS:
        assert stored[key] == list(range(1, len(stored[key]) + 1))
        assert told[key] <= len(stored[key]) <= told[key] + 1
