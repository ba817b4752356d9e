"""The store as a service opens it: lock, schema, identity, readers."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from turnwire.core.errors import WrongState
from turnwire.storage.checkpoint import LOG_BYTES
from turnwire.storage.database import Database, database_at
from turnwire.storage.lock import FileLock
from turnwire.storage.migrate import Migration, load_migrations, migrate, renew_log_id
from turnwire.storage.reader import Reader
from turnwire.storage.sqlite import connect
from turnwire.storage.units import Statement, StoreUnavailable

FIRST = "CREATE TABLE notes (body TEXT NOT NULL);\nCREATE INDEX by_body ON notes (body);"
SECOND = "ALTER TABLE notes ADD COLUMN author TEXT NOT NULL DEFAULT 'nobody';"

MakePackage = Callable[..., str]
Place = Path | str


@pytest.fixture
def place(fresh_location: Callable[..., Place]) -> Place:
    """Each test that asks for it runs on each engine."""
    return fresh_location("")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> MakePackage:
    monkeypatch.syspath_prepend(str(tmp_path))
    made: list[str] = []

    def make(**scripts: str) -> str:
        name = f"pkg_{abs(hash(request.node.name))}_{len(made)}"
        made.append(name)
        folder = tmp_path / name / "migrations"
        folder.mkdir(parents=True)
        (tmp_path / name / "__init__.py").touch()
        for script, text in scripts.items():
            (folder / f"{script.removeprefix('m')}.sql").write_text(text)
        return name

    return make


@asynccontextmanager
async def opened(path: Place, package: str) -> AsyncIterator[Database]:
    fatal: list[BaseException] = []
    database = database_at(path, package, on_fatal=fatal.append, synchronous="NORMAL")
    async with asyncio.timeout(30):
        await database.open()
        try:
            yield database
        finally:
            await database.close()
    assert fatal == []


async def test_what_is_written_is_read_and_survives_reopening(place: Place, package: MakePackage) -> None:
    name = package(m0001_notes=FIRST)
    path = place / "deep" / "er" / "runtime.db" if isinstance(place, Path) else place
    async with opened(path, name) as database:
        await database.writer.commit([Statement("INSERT INTO notes (body) VALUES (?)", ("hello",))])
        log_id = database.info.log_id
        assert len(bytes.fromhex(log_id)) == 8
    async with opened(path, name) as database:
        rows = await database.reader.read(lambda db: db.execute("SELECT body FROM notes").fetchall())
        assert rows == [("hello",)]
        assert database.info.log_id == log_id
        assert database.info.version == 1


async def test_the_file_is_set_up_for_durability_and_for_giving_space_back(
    tmp_path: Path, package: MakePackage
) -> None:
    path = tmp_path / "store.db"

    def pragmas(db: sqlite3.Connection) -> dict[str, object]:
        names = ("journal_mode", "synchronous", "auto_vacuum", "foreign_keys", "wal_autocheckpoint")
        return {name: db.execute(f"PRAGMA {name}").fetchone()[0] for name in names}

    expected = {
        "journal_mode": "wal",
        "synchronous": 2,
        "auto_vacuum": 2,
        "foreign_keys": 1,
        "wal_autocheckpoint": 0,
    }
    database = database_at(path, package(m0001_notes=FIRST), on_fatal=lambda error: None)
    await database.open()
    try:
        # foreign_keys reads as set; inside a transaction it cannot change
        assert await database.writer.run(pragmas) == expected
    finally:
        await database.close()


async def test_deleted_pages_can_be_given_back(tmp_path: Path, package: MakePackage) -> None:
    path = tmp_path / "store.db"
    async with opened(path, package(m0001_notes=FIRST)) as database:
        insert = Statement("INSERT INTO notes (body) VALUES (?)", ("x" * 50_000,))
        await database.writer.commit([insert] * 20)
        await database.writer.commit([Statement("DELETE FROM notes")])

        def free(db: sqlite3.Connection) -> int:
            return int(db.execute("PRAGMA freelist_count").fetchone()[0])

        before = await database.writer.run(free)
        assert await database.writer.run(lambda db: db.reclaim(100)) == 100
        assert before - await database.writer.run(free) == 100
        assert await database.writer.run(lambda db: db.reclaim(1_000)) == before - 100


async def test_migrations_run_forward_once_each(place: Place, package: MakePackage) -> None:
    path = place
    async with opened(path, package(m0001_notes=FIRST)) as database:
        await database.writer.commit([Statement("INSERT INTO notes (body) VALUES ('old')")])
    async with opened(path, package(m0001_notes=FIRST, m0002_author=SECOND)) as database:
        rows = await database.reader.read(lambda db: db.execute("SELECT body, author FROM notes").fetchall())
        assert rows == [("old", "nobody")]
        assert database.info.version == 2


async def test_a_newer_schema_is_refused_and_left_alone(place: Place, package: MakePackage) -> None:
    path = place
    async with opened(path, package(m0001_notes=FIRST, m0002_author=SECOND)):
        pass
    with pytest.raises(WrongState) as caught:
        async with opened(path, package(m0001_notes=FIRST)):
            pass
    assert caught.value.reason == "SCHEMA_NEWER"
    assert caught.value.metadata == {"found": "2", "known": "1"}
    async with opened(path, package(m0001_notes=FIRST, m0002_author=SECOND)):
        pass  # the refusal gave the lock back


def test_a_migration_that_fails_leaves_no_trace(tmp_path: Path) -> None:
    db = connect(tmp_path / "store.db")
    bad = Migration(2, "0002_bad.sql", "CREATE TABLE half (x);\nINSERT INTO nowhere VALUES (1);")
    with pytest.raises(sqlite3.OperationalError):
        migrate(db, [Migration(1, "0001_notes.sql", FIRST), bad])
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert tables == {"notes", "schema_version", "store_info"}
    assert migrate(db, [Migration(1, "0001_notes.sql", FIRST)]).version == 1
    db.close()


def test_migrations_with_a_gap_are_refused(package: MakePackage) -> None:
    with pytest.raises(ValueError, match="not numbered"):
        load_migrations(package(m0001_notes=FIRST, m0003_author=SECOND))


def test_a_restored_store_gets_a_new_identity(tmp_path: Path) -> None:
    db = connect(tmp_path / "store.db")
    first = migrate(db, [])
    renewed = renew_log_id(db)
    again = migrate(db, [])
    assert again.log_id == renewed != first.log_id
    assert again.created_at == first.created_at
    db.close()


def test_a_second_process_is_refused_with_the_pid_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    hold = (
        "import sys; from pathlib import Path; from turnwire.storage.lock import FileLock\n"
        "FileLock(Path(sys.argv[1])).acquire(); print('held', flush=True); sys.stdin.read()"
    )
    environment = {"PYTHONPATH": ":".join(entry for entry in sys.path if entry)}
    command = [sys.executable, "-c", hold, str(path)]
    lock = FileLock(path)
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        with pytest.raises(WrongState) as caught:
            lock.acquire()
        assert caught.value.reason == "STORE_LOCKED"
        assert caught.value.metadata["pid"] == str(process.pid)
        assert str(process.pid) in caught.value.message
        assert "PostgreSQL" in caught.value.message
        assert not lock.held
        process.kill()
        process.wait()
        lock.acquire()  # the kernel gave it back
    assert lock.held
    lock.acquire()
    lock.release()
    lock.release()
    assert not lock.held


async def test_two_databases_in_one_process_do_not_share_a_file(tmp_path: Path, package: MakePackage) -> None:
    path, name = tmp_path / "store.db", package(m0001_notes=FIRST)
    async with opened(path, name):
        with pytest.raises(WrongState):
            await database_at(path, name, on_fatal=lambda error: None).open()


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    db = connect(tmp_path / "notes.db", synchronous="NORMAL")
    migrate(db, [Migration(1, "0001_notes.sql", FIRST)])
    db.execute("INSERT INTO notes (body) VALUES ('one')")
    db.close()
    return tmp_path / "notes.db"


async def test_a_reader_cannot_write_and_stays_usable_after_an_error(notes: Path) -> None:
    reader = Reader(lambda: connect(notes, read_only=True), threads=1)
    with pytest.raises(sqlite3.OperationalError):
        await reader.read(lambda db: db.execute("SELECT * FROM nowhere"))
    with pytest.raises((sqlite3.OperationalError, StoreUnavailable)):
        await reader.read(lambda db: db.execute("DELETE FROM notes"))
    assert await reader.read(lambda db: db.execute("SELECT count(*) FROM notes").fetchone()) == (1,)
    await reader.close()


async def test_a_file_that_cannot_be_read_is_unavailable_and_tried_again_at_the_next_read(
    notes: Path,
) -> None:
    place = [notes.with_name("missing.db")]
    reader = Reader(lambda: connect(place[0], read_only=True), threads=1)
    with pytest.raises(StoreUnavailable):
        await reader.read(lambda db: None)
    place[0] = notes
    assert await reader.read(lambda db: db.execute("SELECT count(*) FROM notes").fetchone()) == (1,)
    await reader.close()
    with pytest.raises(StoreUnavailable):
        await reader.read(lambda db: None)


async def test_a_read_that_waits_holds_up_no_other_and_a_cancelled_one_is_left(notes: Path) -> None:
    release = threading.Event()
    entered = threading.Event()

    def slow(db: sqlite3.Connection) -> None:
        entered.set()
        release.wait(20)

    reader = Reader(lambda: connect(notes, read_only=True), threads=2)
    async with asyncio.timeout(20):
        waiting = asyncio.ensure_future(reader.read(slow))
        await asyncio.to_thread(entered.wait)
        assert await reader.read(lambda db: 1) == 1
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        release.set()
        await reader.close()


async def test_a_new_store_is_its_owners_alone(tmp_path: Path, package: MakePackage) -> None:
    path = tmp_path / "data" / "store.db"
    mask = os.umask(0o022)
    try:
        async with opened(path, package(m0001_notes=FIRST)) as database:
            await database.writer.commit([Statement("INSERT INTO notes (body) VALUES ('secret')")])
            assert path.parent.stat().st_mode & 0o077 == 0
            assert {p.name for p in path.parent.iterdir() if p.stat().st_mode & 0o077} == set()
    finally:
        os.umask(mask)


async def test_a_store_that_cannot_be_opened_is_told_in_one_sentence(
    tmp_path: Path, package: MakePackage
) -> None:
    name = package(m0001_notes=FIRST)
    (tmp_path / "damaged.db").write_text("this is no database, whatever its name says")
    (tmp_path / "folder.db").mkdir()
    (tmp_path / "file").touch()
    for path in (tmp_path / "damaged.db", tmp_path / "folder.db", tmp_path / "file" / "store.db"):
        database = database_at(path, name, on_fatal=lambda error: None)
        with pytest.raises(StoreUnavailable, match=f"the store {path} cannot be opened: "):
            await database.open()


async def test_the_log_has_its_length_before_the_first_commit_and_survives_a_copy(
    tmp_path: Path, package: MakePackage
) -> None:
    """Commits overwrite what is there; what was reserved is nothing to a reader of a copy."""
    async with opened(tmp_path / "store.db", package(m0001_notes=FIRST)) as database:
        log = tmp_path / "store.db-wal"
        assert log.stat().st_size >= LOG_BYTES
        await database.writer.commit([Statement("INSERT INTO notes (body) VALUES (?)", ("kept",))])
        assert log.stat().st_size == LOG_BYTES
        for name in ("store.db", "store.db-wal"):
            (tmp_path / f"copy-{name}").write_bytes((tmp_path / name).read_bytes())
    with closing(sqlite3.connect(tmp_path / "copy-store.db")) as copy:
        assert copy.execute("SELECT body FROM notes").fetchall() == [("kept",)]
        assert copy.execute("PRAGMA integrity_check").fetchone() == ("ok",)
