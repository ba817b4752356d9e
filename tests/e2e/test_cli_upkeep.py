"""`turnwire migrate` and `turnwire admin`, on closed stores and beside a runtime that has its store open."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest
import pytest_asyncio

from support.cli_process import Finished, turnwire
from support.cluster import Cluster
from support.postgres import PostgresServer, plain_connection

pytestmark = pytest.mark.e2e
KEPT = Path(__file__).parents[1] / "data" / "runtime_schema_1.sql"
AGENT = 'model: \'scripted:{"calls": [[{"text": "hello"}]]}\'\n'


def change(store: Path, *statements: str) -> None:
    with closing(sqlite3.connect(store)) as db, db:
        for statement in statements:
            db.execute(statement)


def value(store: Path, sql: str) -> object:
    with closing(sqlite3.connect(store)) as db:
        return db.execute(sql).fetchone()[0]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with the kept store of schema 1."""
    with closing(sqlite3.connect(tmp_path / "runtime.db")) as db:
        db.executescript(KEPT.read_text("utf-8"))
    return tmp_path


async def command(data: Path, *words: str, target: str = "") -> Finished:
    async with asyncio.timeout(60):
        return await turnwire(*words, "--data", str(data), target=target)


async def test_migrate_says_what_a_store_has_and_brings_it_up_to_date(data: Path) -> None:
    store = data / "runtime.db"
    behind = await command(data, "migrate", "--check")
    assert behind.code == 8
    assert "schema 1, this version 2: behind: run `turnwire migrate`" in behind.out
    assert value(store, "SELECT max(version) FROM schema_version") == 1
    done = await command(data, "migrate")
    assert (done.code, done.out) == (0, f"{store}: schema 1 -> 2\n")
    assert value(store, "SELECT count(*) FROM turns") == 4
    again = await command(data, "migrate", "--check")
    assert again.code == 0
    assert "up to date" in again.out
    assert (await command(data, "migrate")).out == f"{store}: is at schema 2\n"


async def test_migrate_takes_the_stores_of_all_services(data: Path) -> None:
    change(data / "control.db", "CREATE TABLE other (x)")
    done = await command(data, "migrate")
    assert done.code == 0
    assert [Path(line.partition(":")[0]).name for line in done.out.splitlines()] == [
        "runtime.db",
        "control.db",
    ]


@pytest.mark.parametrize("words", [("migrate",), ("admin", "prune"), ("admin", "renew-log-id")], ids="-".join)
async def test_a_store_of_a_later_version_is_refused_with_a_way_out(data: Path, words: tuple[str]) -> None:
    await command(data, "migrate")
    change(data / "runtime.db", "INSERT INTO schema_version VALUES (99, 'later', 0)")
    refused = await command(data, *words)
    assert refused.code == 5
    assert refused.err.startswith("FAILED_PRECONDITION / SCHEMA_NEWER: ")
    assert "run the version that wrote it or a later one" in refused.err.replace("\n", " ")
    check = await command(data, "migrate", "--check")
    assert check.code == 8
    assert "newer than this program" in check.out


async def test_what_there_is_not_is_named(tmp_path: Path) -> None:
    assert (await command(tmp_path, "migrate")).code == 2
    assert (await command(tmp_path, "admin", "renew-log-id")).code == 2
    (tmp_path / "runtime.db").write_bytes(b"this is no store" * 100)
    broken = await command(tmp_path, "migrate")
    assert broken.code == 5
    assert broken.err.startswith("UNAVAILABLE / STORE_UNAVAILABLE: ")


async def test_prune_works_on_a_closed_store_of_this_version(data: Path) -> None:
    old = await command(data, "admin", "prune")
    assert old.code == 2
    assert "run `turnwire migrate` first" in old.err
    await command(data, "migrate")
    would = await command(data, "admin", "prune", "--older-than", "0", "--dry-run", "--json")
    assert json.loads(would.out) == {"turns": 2, "pages": 12, "bytes": 3730, "dryRun": True}
    assert value(data / "runtime.db", "SELECT count(*) FROM pages WHERE flags = 1") == 2
    done = await command(data, "admin", "prune", "--older-than", "0")
    assert (done.code, "deleted 12 pages (3730 bytes) of 2 turns" in done.out) == (0, True)
    assert value(data / "runtime.db", "SELECT count(*) FROM pages WHERE flags = 1") == 0
    assert (await command(data, "admin", "prune", "--older-than", "next week")).code == 2


async def test_a_store_on_a_server_is_migrated_pruned_and_renewed_by_its_url(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    url = postgres.fresh()

    async def at_url(*words: str) -> Finished:
        return await command(tmp_path, *words, "--url", url)

    behind = await at_url("migrate", "--check")
    assert (behind.code, "schema 0, this version 2: behind" in behind.out) == (8, True)
    assert "run `turnwire migrate` first" in (await at_url("admin", "prune")).err
    assert "schema 0 -> 2" in (await at_url("migrate")).out
    assert (await at_url("migrate", "--check")).code == 0
    assert "deleted 0 pages" in (await at_url("admin", "prune", "--older-than", "0")).out
    assert (await at_url("admin", "renew-log-id")).code == 0
    with closing(plain_connection(url)) as db:
        assert db.execute("SELECT count(*) FROM store_info").fetchone() == (1,)
    name = url.partition("@/")[2].partition("?")[0]
    postgres.sql(f"INSERT INTO owners VALUES ('a/b', 'a', {2**62})", database=name)
    alive = await at_url("admin", "renew-log-id")
    assert alive.code == 5
    assert alive.err.startswith("FAILED_PRECONDITION / STORE_LOCKED: ")
    unknown = await command(tmp_path, "migrate", "--url", url.replace(name, "nowhere"))
    assert unknown.code == 5
    assert unknown.err.startswith("UNAVAILABLE / STORE_UNAVAILABLE: ")
    postgres.drop(url)


@pytest_asyncio.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with Cluster(tmp_path, {"main": AGENT}) as cluster:
        yield cluster


async def test_a_store_in_use_is_pruned_through_its_runtime_and_else_left_alone(cluster: Cluster) -> None:
    target = cluster.runtime.target
    ran = await turnwire("run", "--agent", "main", "--json", "hi", target=target)
    turn = json.loads(ran.out.splitlines()[0])["turn"]
    for words in (("migrate",), ("admin", "renew-log-id")):
        refused = await command(cluster.data, *words)
        assert refused.code == 5
        assert refused.err.startswith("FAILED_PRECONDITION / STORE_LOCKED: ")
        assert str(cluster.runtime.pid) in refused.err
    assert (await command(cluster.data, "migrate", "--check")).code == 0
    done = await command(cluster.data, "admin", "prune", "--older-than", "0", target=target)
    assert (done.code, done.out.partition(":")[0]) == (0, target.partition(":")[0])
    assert "of 1 turns" in done.out
    gone = await turnwire("watch", turn, target=target)
    assert gone.code == 5
    assert gone.err.startswith("OUT_OF_RANGE / EVENTS_EXPIRED: ")
    assert "completed" in (await turnwire("turns", target=target)).out


async def test_a_restored_store_refuses_cursors_into_what_it_was(cluster: Cluster) -> None:
    def log_id() -> object:
        return value(cluster.data / "runtime.db", "SELECT log_id FROM store_info")

    before = log_id()
    await cluster.runtime.terminate()
    done = await command(cluster.data, "admin", "renew-log-id")
    assert done.code == 0
    assert log_id() != before
    assert str(log_id()) in done.out
