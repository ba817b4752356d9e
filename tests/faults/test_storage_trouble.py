"""A store in trouble: locked, full, damaged, its writer gone. Nothing acknowledged is lost, nothing hangs."""

from __future__ import annotations

import asyncio
import ctypes
import sqlite3
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest

from turnwire.storage.checkpoint import Checkpointer
from turnwire.storage.committer import Item, Outcome, SqliteCommitter
from turnwire.storage.sqlite import connect
from turnwire.storage.units import StoreUnavailable
from unit.storage.storage_rig import Gathering, Rig, create, entries, insert, running


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


async def test_a_locked_file_is_tried_again_until_it_is_free(path: Path) -> None:
    async with running(path) as rig:
        other = connect(path)
        other.execute("BEGIN IMMEDIATE")
        unit = rig.unit("a", insert("a", 1))
        called = asyncio.ensure_future(rig.writer.run(lambda db: 7))
        await rig.sick.wait()
        assert not rig.writer.healthy
        assert not unit.done()
        other.execute("ROLLBACK")
        other.close()
        await unit
        assert await called == 7
        await rig.well.wait()
        assert rig.health == [False, True]
        assert rig.writer.healthy
        assert entries(path) == [("a", 1)]
        assert rig.fatal == []


async def test_a_full_disk_makes_the_writer_unhealthy_until_there_is_space(path: Path) -> None:
    async with running(path) as rig:
        await rig.unit("a", insert("a", 1))
        writers = rig.connections[0]
        (pages,) = writers.execute("PRAGMA page_count").fetchone()
        writers.execute(f"PRAGMA max_page_count={pages}")
        unit = rig.unit("a", insert("a", 2, "x" * 100_000), size=100_000)
        small = rig.unit("b", insert("b", 1))
        await rig.sick.wait()
        assert not unit.done()
        writers.execute("PRAGMA max_page_count=100000")
        await unit
        await small
        await rig.well.wait()
        assert rig.stats.retries >= 1
        assert entries(path) == [("a", 1), ("a", 2), ("b", 1)]
        assert rig.writer.pending_bytes == 0


async def test_after_the_retries_the_writer_ends_and_everyone_hears_it(path: Path) -> None:
    async with running(path, retry_for=0.1) as rig:
        other = connect(path)
        other.execute("BEGIN IMMEDIATE")
        unit = rig.unit("a", insert("a", 1), size=10)
        await rig.sick.wait()
        source = Gathering(rig, "s")
        source.add()
        await rig.died.wait()
        other.close()
        for waiting in (unit, rig.unit("a", insert("a", 2))):
            with pytest.raises(StoreUnavailable) as caught:
                await waiting
            assert caught.value.reason == "STORE_UNAVAILABLE"
        assert isinstance(source.refused[0], StoreUnavailable)
        assert isinstance(rig.fatal[0], sqlite3.OperationalError)
        assert len(rig.fatal) == 1
        assert not rig.writer.healthy
        assert rig.writer.pending_bytes == 0


class Interfering(SqliteCommitter):
    """Runs `fault` before each transaction of the writer."""

    def __init__(self, inner: SqliteCommitter, fault: Callable[[], None]) -> None:
        self.__dict__ = inner.__dict__
        self._fault = fault

    def _transaction(self, items: Sequence[Item]) -> list[Outcome]:
        self._fault()
        return super()._transaction(items)


def driver_error(kind: type[sqlite3.Error], code: int) -> sqlite3.Error:
    error = kind("injected")
    error.sqlite_errorcode = code
    error.sqlite_errorname = "INJECTED"
    return error


async def test_an_input_output_error_opens_a_new_connection(path: Path) -> None:
    faults = [driver_error(sqlite3.OperationalError, sqlite3.SQLITE_IOERR_FSYNC)]

    def fail_once() -> None:
        if faults:
            raise faults.pop()

    async with running(path, wrap=lambda committer: Interfering(committer, fail_once)) as rig:
        await rig.unit("a", insert("a", 1))
        await rig.well.wait()
        assert len(rig.connections) == 2
        assert entries(path) == [("a", 1)]


class Doubtful(SqliteCommitter):
    """Has the answer to one COMMIT told as an error, after the commit or instead of it."""

    def __init__(self, inner: SqliteCommitter, done: bool) -> None:
        self.__dict__ = inner.__dict__
        self._done: bool | None = done

    def open(self) -> None:
        super().open()
        self._cursor = Told(self._cursor, self)  # type: ignore[assignment]

    def told(self, cursor: sqlite3.Cursor) -> None:
        done, self._done = self._done, None
        if done is not None:
            cursor.execute("COMMIT" if done else "ROLLBACK")
            raise driver_error(sqlite3.OperationalError, sqlite3.SQLITE_IOERR_FSYNC)


class Told:
    """A cursor that asks before each COMMIT of rows."""

    def __init__(self, cursor: sqlite3.Cursor, committer: Doubtful) -> None:
        self._inner, self._committer = cursor, committer

    def execute(self, sql: str, *values: Sequence[object]) -> object:
        if sql == "COMMIT" and entries_in(self._inner):
            self._committer.told(self._inner)
        return self._inner.execute(sql, *values)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)


def entries_in(cursor: sqlite3.Cursor) -> bool:
    return bool(cursor.execute("SELECT count(*) FROM entries").fetchone()[0])


@pytest.mark.parametrize("done", [True, False])
async def test_a_group_whose_commit_is_told_as_failed_is_committed_once(path: Path, done: bool) -> None:
    calls: list[int] = []
    async with running(path, wrap=lambda committer: Doubtful(committer, done)) as rig:
        unit = rig.unit("a", insert("a", 1))
        ran = rig.writer.run(lambda db: calls.append(1) or len(calls))
        assert await ran == (1 if done else 2)
        # A second insert of the same row would be refused.
        await unit
        await rig.well.wait()
        assert len(rig.connections) == 2
        assert entries(path) == [("a", 1)]


async def test_a_damaged_file_ends_the_writer_without_a_second_try(path: Path) -> None:
    def damaged() -> None:
        raise driver_error(sqlite3.DatabaseError, sqlite3.SQLITE_CORRUPT)

    async with running(path, wrap=lambda committer: Interfering(committer, damaged)) as rig:
        unit = rig.unit("a", insert("a", 1))
        await rig.died.wait()
        with pytest.raises(StoreUnavailable):
            await unit
        assert rig.stats.retries == 0


async def test_a_writer_thread_that_is_killed_ends_the_process(path: Path) -> None:
    """The thread is idle when it is killed, so it dies at the next group it is given."""
    async with running(path) as rig:
        ident = await rig.writer.run(lambda db: threading.get_ident())
        set_error = ctypes.pythonapi.PyThreadState_SetAsyncExc
        assert set_error(ctypes.c_ulong(ident), ctypes.py_object(SystemExit)) == 1
        unit = rig.unit("a", insert("a", 1))
        await rig.died.wait()
        with pytest.raises(StoreUnavailable):
            await unit
        assert isinstance(rig.fatal[0], SystemExit)
    assert entries(path) == []


async def test_a_commit_that_never_ends_counts_as_the_end_of_the_writer(path: Path) -> None:
    release = threading.Event()

    def hang() -> None:
        release.wait(20)

    wrap = partial(Interfering, fault=hang)
    async with running(path, wrap=wrap, stuck_after=0.05) as rig:
        try:
            unit = rig.unit("a", insert("a", 1))
            await rig.died.wait()
            with pytest.raises(StoreUnavailable):
                await unit
            assert isinstance(rig.fatal[0], TimeoutError)
        finally:
            release.set()


async def test_whoever_waits_for_room_hears_that_the_writer_has_ended(path: Path) -> None:
    def broken() -> None:
        raise driver_error(sqlite3.DatabaseError, sqlite3.SQLITE_CORRUPT)

    async with running(path, key_limit=5, wrap=lambda committer: Interfering(committer, broken)) as rig:
        unit = rig.unit("a", insert("a", 1), size=5)
        waiting = asyncio.ensure_future(rig.writer.room("a"))
        await rig.died.wait()
        for future in (waiting, unit):
            with pytest.raises(StoreUnavailable):
                await future


def checkpointer(rig: Rig, *, on_pass: Callable[[], None], restart_bytes: int) -> Checkpointer:
    class Watched(Checkpointer):
        def _checkpoint(self, db: sqlite3.Connection, mode: str) -> bool:
            blocked = super()._checkpoint(db, mode)
            on_pass()
            return blocked

    return Watched(
        rig.open, rig.stats, rig.on_fatal, interval=0.01, restart_bytes=restart_bytes, restart_retry=0.01
    )


async def test_the_log_starts_anew_when_it_is_too_long_once_no_reader_is_in_the_way(path: Path) -> None:
    passed = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_pass() -> None:
        loop.call_soon_threadsafe(passed.set)

    make = partial(checkpointer, on_pass=on_pass, restart_bytes=50_000)
    async with running(path, checkpointer=make) as rig:
        reader = connect(path, read_only=True)
        await rig.unit("a", insert("a", 1))
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM entries").fetchone()
        number = 1
        while rig.stats.wal_bytes < 100_000:
            number += 1
            await rig.unit("a", insert("a", number, "x" * 20_000))
            passed.clear()
            await passed.wait()
        assert rig.stats.wal_restarts == 0
        reader.execute("ROLLBACK")
        reader.close()
        while rig.stats.wal_restarts == 0:
            number += 1
            await rig.unit("a", insert("a", number))
        assert rig.fatal == []
    assert len(entries(path)) == number


async def test_an_idle_store_makes_no_checkpoints(path: Path) -> None:
    passes: list[None] = []
    seen = threading.Event()

    def on_pass() -> None:
        passes.append(None)
        seen.set()

    make = partial(checkpointer, on_pass=on_pass, restart_bytes=1 << 30)
    async with running(path, checkpointer=make) as rig:
        await rig.unit("a", insert("a", 1))
        assert await asyncio.to_thread(seen.wait, 10)
        seen.clear()
        assert not await asyncio.to_thread(seen.wait, 0.2)  # twenty intervals
        assert rig.stats.checkpoints == len(passes) <= 2


async def test_a_checkpoint_thread_that_ends_is_fatal(path: Path) -> None:
    def broken(rig: Rig) -> Checkpointer:
        def refuse() -> sqlite3.Connection:
            raise driver_error(sqlite3.DatabaseError, sqlite3.SQLITE_NOTADB)

        return Checkpointer(refuse, rig.stats, lambda error: rig.writer.report_fatal(error))

    async with running(path, checkpointer=broken) as rig:
        await rig.died.wait()
        assert isinstance(rig.fatal[0], sqlite3.DatabaseError)


async def test_the_checkpoint_thread_waits_for_a_file_that_cannot_be_opened_yet(path: Path) -> None:
    create(path)
    tries: list[int] = []
    opened = threading.Event()

    def make(rig: Rig) -> Checkpointer:
        def slowly() -> sqlite3.Connection:
            tries.append(1)
            if len(tries) < 3:
                raise driver_error(sqlite3.OperationalError, sqlite3.SQLITE_CANTOPEN)
            opened.set()
            return rig.open()

        return Checkpointer(slowly, rig.stats, rig.on_fatal, restart_retry=0.01)

    async with running(path, checkpointer=make) as rig:
        assert await asyncio.to_thread(opened.wait, 10)
        assert rig.fatal == []
