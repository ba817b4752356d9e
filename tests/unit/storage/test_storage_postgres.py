"""What only a server does: several processes on one store, names, word between them, wire forms of values."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.postgres import PostgresServer
from turnwire.storage.database import Database, database_at
from turnwire.storage.postgres import PgConnection, connect
from turnwire.storage.postgres_text import encode_values, translate
from turnwire.storage.units import Connection, Statement, StoreUnavailable, UnitRejected
from unit.storage.storage_rig import INSERT, Gate, advance, entries, insert, running


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    return postgres.fresh()


@asynccontextmanager
async def opened(url: str, package: str = "turnwire.control", **options: Any) -> AsyncIterator[Database]:
    fatal: list[BaseException] = []
    database = database_at(url, package, on_fatal=fatal.append, **options)
    async with asyncio.timeout(60):
        await database.open()
        try:
            yield database
        finally:
            await database.close()
    assert fatal == []


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT ? + ?", "SELECT $1 + $2"),
        ("SELECT '?', ?", "SELECT '?', $1"),
        ("SELECT 'it''s ?' || ?", "SELECT 'it''s ?' || $1"),
        (
            "SELECT \"a?\" FROM t WHERE x LIKE '%' AND y = ?",
            "SELECT \"a?\" FROM t WHERE x LIKE '%' AND y = $1",
        ),
        ("SELECT 1 -- why?\n, ?", "SELECT 1 -- why?\n, $1"),
        ("SELECT /* ? */ ?", "SELECT /* ? */ $1"),
        ("SELECT $$ ? $$, $f$ ? $f$, ?", "SELECT $$ ? $$, $f$ ? $f$, $1"),
    ],
)
def test_places_are_numbered_and_what_stands_in_quotes_is_left(sql: str, expected: str) -> None:
    text, count = translate(sql)
    assert text.decode() == expected
    assert count == expected.count("$1") + expected.count("$2")


@pytest.mark.parametrize(
    "values", [("a\0b",), ("\ud800",), (2**63,), (-(2**63) - 1,), (object(),), (), ("a", "b")]
)
def test_values_that_cannot_be_stored_are_refused_before_they_are_sent(values: Any) -> None:
    with pytest.raises((ValueError, OverflowError, TypeError)):
        encode_values(values, 1)


@pytest.fixture(scope="module")
def db(postgres: PostgresServer) -> Any:
    made = connect(postgres.fresh())
    made.execute("CREATE TABLE kept (i BIGINT, r DOUBLE PRECISION, t TEXT, b BYTEA)")
    yield made
    made.close()


VALUES = st.tuples(
    st.none() | st.integers(-(2**63), 2**63 - 1) | st.booleans(),
    st.none() | st.floats(allow_nan=False) | st.integers(-(2**53), 2**53),
    st.none() | st.text(st.characters(exclude_characters="\0", codec="utf-8")),
    st.none() | st.binary(),
)


@given(VALUES)
def test_every_value_comes_back_as_it_was_stored(db: PgConnection, values: Any) -> None:
    row = db.execute("INSERT INTO kept VALUES (?, ?, ?, ?) RETURNING i, r, t, b", values).fetchone()
    assert row == values
    assert isinstance(row[3], bytes | None)


def test_numbers_are_the_same_kinds_as_in_a_file(db: PgConnection) -> None:
    row = db.execute("SELECT sum(x), count(*), max(x), avg(x) FROM (VALUES (1), (2)) v(x)").fetchone()
    assert row == (3, 2, 2, 1.5)
    assert [type(value) for value in row] == [int, int, int, float]
    rows = db.execute("SELECT x FROM (VALUES (1), (2), (3)) v(x) WHERE x > ?", (1,))
    assert list(rows) == [(2,), (3,)]
    assert rows.fetchone() is None
    assert db.execute("DELETE FROM kept WHERE i = ?", (2**62,)).rowcount == 0
    assert db.reclaim() == 0


def test_the_statements_that_are_kept_prepared_are_bounded(postgres: PostgresServer) -> None:
    db = connect(postgres.fresh())
    for number in range(600):
        db.read(lambda db, number=number: db.execute(f"SELECT {number}").fetchone())
    (kept,) = db.execute("SELECT count(*) FROM pg_prepared_statements").fetchone()
    assert kept < 520
    db.close()


async def test_many_processes_may_open_a_new_store_at_once(url: str) -> None:
    databases = [database_at(url, "turnwire.runtime", on_fatal=lambda error: None) for _ in range(4)]
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for database in databases:
            group.create_task(database.open())
    assert len({database.info.log_id for database in databases}) == 1
    assert databases[0].shared
    for database in databases:
        await database.close()


async def test_a_name_is_one_process_at_a_time(url: str) -> None:
    async with opened(url) as first:
        async with opened(url) as second:
            assert await first.claim_name("runtime-1")
            assert await first.claim_name("runtime-1")
            assert not await second.claim_name("runtime-1")
            assert await second.claim_name("runtime-2")
            assert not await first.claim_name("runtime-2")
        assert await first.claim_name("runtime-2")


class Heard:
    """Collects word of other processes."""

    def __init__(self, database: Database) -> None:
        self.payloads: list[str] = []
        self.changed = asyncio.Event()
        database.listen(self.hear)

    def hear(self, payload: str) -> None:
        self.payloads.append(payload)
        self.changed.set()

    async def until(self, condition: Callable[[list[str]], bool]) -> None:
        while not condition(self.payloads):
            self.changed.clear()
            await self.changed.wait()


async def _acquainted(first: Database, second: Database, heard: Heard) -> None:
    """Wait until the second one listens: word before that is lost, as it may be."""
    while not heard.payloads:
        first.notify("are you there")
        try:
            async with asyncio.timeout(0.2):
                await heard.until(bool)
        except TimeoutError:
            continue
    first.notify("begin")
    await heard.until(lambda payloads: "begin" in payloads)
    heard.payloads.clear()


async def test_word_reaches_the_other_processes_and_not_the_one_that_gave_it(url: str) -> None:
    async with opened(url) as first, opened(url) as second:
        echo, heard = Heard(first), Heard(second)
        await _acquainted(first, second, heard)
        long = [f"scope/thread/turn-{n:06d}-{'x' * 100}" for n in range(300)]
        for payload in [*long, *long, "last é"]:
            first.notify(payload)
        await heard.until(lambda payloads: "last é" in payloads)
        assert set(heard.payloads) == {*long, "last é"}
        assert echo.payloads == []


async def test_word_that_comes_while_a_signal_is_taken_is_no_signal_lost(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(url) as first, opened(url) as second:
        heard = Heard(second)
        await _acquainted(first, second, heard)
        read, met = os.read, []

        def reading(fd: int, size: int) -> bytes:
            if threading.current_thread().name == "storage-session" and not met:
                met.append(fd)
                first.notify("in between")
            return read(fd, size)

        monkeypatch.setattr(os, "read", reading)
        first.notify("before")
        await heard.until(lambda payloads: "in between" in payloads)
        assert met
        first.notify("after")
        await heard.until(lambda payloads: "after" in payloads)


async def test_names_and_word_come_back_after_a_lost_connection(postgres: PostgresServer, url: str) -> None:
    async with opened(url) as first, opened(url) as second:
        heard = Heard(second)
        await _acquainted(first, second, heard)
        assert await first.claim_name("runtime-1")
        postgres.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'turnwire-session' AND datname = current_database()",
            database=url.partition("@/")[2].partition("?")[0],
        )
        await heard.until(lambda payloads: "" in payloads)  # some may be lost: look everywhere
        heard.payloads.clear()
        await _acquainted(first, second, heard)
        assert await first.claim_name("runtime-1")
        assert not await second.claim_name("runtime-1")


async def test_a_store_that_cannot_be_opened_says_what_helps_and_no_secret(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    latin = "latin_store"
    postgres.sql(f"CREATE DATABASE {latin} TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")
    cases = {
        postgres.tcp_url("postgres", "wr0ng-word"): "refuses the user or password",
        postgres.tcp_url("nowhere"): "does not exist: CREATE DATABASE",
        "postgresql://someone:s3cret-word@127.0.0.1:1/name": "cannot be reached",
        "postgresql://someone:s3cret-word@127.0.0.1:x/name": "cannot be read|cannot be reached",
        "postgresql://someone:s3cret%word@127.0.0.1/name": "cannot be read",
        postgres.url(latin): "ENCODING 'UTF8'",
    }
    for url, text in cases.items():
        with pytest.raises(StoreUnavailable, match=text) as caught:
            async with opened(url):
                pass
        assert "wr0ng" not in str(caught.value)
        assert "s3cret" not in str(caught.value)
        assert caught.value.reason == "STORE_UNAVAILABLE"
    monkeypatch.setitem(sys.modules, "turnwire.storage.postgres_database", None)
    with pytest.raises(StoreUnavailable, match=r"turnwire\[server,postgresql\]"):
        database_at("postgresql://localhost/x", "turnwire.control", on_fatal=lambda error: None)


async def test_the_clock_is_the_servers_and_one_moment_in_a_call(url: str) -> None:
    def twice(db: Connection) -> tuple[int, int, int]:
        first = db.now_ns()
        db.execute("SELECT pg_sleep(0.01)")
        (server,) = db.execute("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint").fetchone()
        return first, db.now_ns(), server * 1000

    async with running(url) as rig:
        first, second, server = await rig.writer.run(twice)
        assert first == second
        assert 0 < server - first < 5 * 10**9
        later, *_ = await rig.writer.run(twice)
        assert later > server


async def test_a_call_that_was_second_with_a_key_runs_again_and_sees_the_first(url: str) -> None:
    """Two processes admit the same request: one makes the row, the other joins it."""
    entered, go = threading.Event(), threading.Event()
    runs: list[int] = []

    def admit(db: Connection) -> str:
        runs.append(1)
        known = db.execute("SELECT body FROM entries WHERE key = ?", ("request",)).fetchone()
        if known is not None:
            return f"joined {known[0]}"
        entered.set()
        assert go.wait(20)
        db.execute(INSERT, ("request", 1, "mine"))
        return "made"

    async with running(url) as rig:
        result = asyncio.ensure_future(rig.writer.run(admit))
        assert await asyncio.to_thread(entered.wait, 20)
        with psycopg.connect(url, autocommit=True) as other:
            other.execute("INSERT INTO entries (key, number, body) VALUES ('request', 1, 'theirs')")
        go.set()
        assert await result == "joined theirs"
        assert len(runs) == 2
        assert entries(url) == [("request", 1)]


async def test_a_call_that_hits_the_same_constraint_twice_is_rejected(url: str) -> None:
    async with running(url) as rig:
        await rig.unit("a", insert("a", 1))
        with pytest.raises(UnitRejected):
            await rig.writer.run(lambda db: db.execute(INSERT, ("a", 1, "again")))
        good = rig.unit("b", insert("b", 1))
        with pytest.raises(UnitRejected):
            await rig.writer.run(lambda db: _ignoring(db))
        await good
        assert entries(url) == [("a", 1), ("b", 1)]


def _ignoring(db: Connection) -> None:
    """Go on after an error, which here has failed the transaction."""
    try:
        db.execute("SELECT * FROM nowhere")
    except psycopg.Error:
        return


async def test_units_of_one_key_keep_their_order_and_keys_are_written_in_theirs(url: str) -> None:
    gates: list[Gate] = []

    def wrap(committer: Any) -> Gate:
        gates.append(Gate(committer))
        return gates[0]

    async with running(url, keys=["a", "b"], wrap=wrap) as rig:
        first = rig.unit("z", insert("z", 1))
        await gates[0].reached()
        waiting = [
            rig.unit("b", advance("b", 1), insert("b", 1)),
            rig.unit("a", advance("a", 1), insert("a", 1)),
            rig.unit("b", advance("b", 2), insert("b", 2)),
            rig.unit("a", advance("a", 2), insert("a", 2)),
        ]
        gates[0].go.release(2)
        for future in [first, *waiting]:
            await future
        assert entries(url) == [("z", 1), ("a", 1), ("a", 2), ("b", 1), ("b", 2)]
        assert rig.stats.groups == 2


async def test_a_group_that_writes_nothing_leaves_no_mark(url: str) -> None:
    async with running(url) as rig:
        await rig.unit("a", insert("a", 1))
        assert await rig.writer.run(lambda db: db.execute("SELECT 7").fetchone()) == (7,)
        (number,) = await rig.writer.run(lambda db: db.execute("SELECT number FROM writer_groups").fetchone())
        assert number == 1
    with psycopg.connect(url) as other:
        assert other.execute("SELECT count(*) FROM writer_groups").fetchone() == (0,)


async def test_large_groups_and_large_rows_go_through_the_pipeline(url: str) -> None:
    async with running(url) as rig:
        body = "x" * 200_000
        units = [
            rig.unit(f"k{n:03d}", insert(f"k{n:03d}", 1, body), insert(f"k{n:03d}", 2)) for n in range(200)
        ]
        for unit in units:
            await unit
        assert len(entries(url)) == 400


async def test_a_statement_with_no_text_left_to_prepare_is_a_rejection(url: str) -> None:
    async with running(url) as rig:
        with pytest.raises(UnitRejected):
            await rig.unit("a", Statement("INSERT INTO entries (key) VALUES (?)", ("a",)))
        await rig.unit("a", insert("a", 1))


async def test_errors_quote_nothing_of_what_was_to_be_stored(url: str) -> None:
    secret = "what somebody wrote"
    async with running(url) as rig:
        bad = [
            Statement("INSERT INTO entries (key, number, body) VALUES (?, ?, NULL)", (secret, 1)),
            Statement("INSERT INTO entries (key, number, body) VALUES (?, ?::bigint, ?)", ("k", secret, "")),
            Statement(
                "INSERT INTO entries (key, number, body) VALUES (?, 1, ''), (?, 1, '')", (secret, secret)
            ),
        ]
        for statement in bad:
            with pytest.raises(UnitRejected) as caught:
                await rig.unit("a", statement)
            assert isinstance(caught.value.__cause__, psycopg.Error)
            assert caught.value.__cause__.sqlstate
            assert secret not in "".join(traceback.format_exception(caught.value))
