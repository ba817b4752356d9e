"""What drives deletions: running turns get their time, purges go on to the end, user code has its limit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from support.postgres import Location
from support.runtime_fakes import FakeModel
from support.runtime_rig import begin, command, open_store
from support.runtime_turns import Rig
from support.thread_edits import answer, rows, said, turn
from turnwire.core.errors import Unavailable
from turnwire.extend.llm import TextDelta
from turnwire.runtime.engine.deletion import ThreadDeleter
from turnwire.runtime.engine.rewrites import bounded
from turnwire.runtime.store.thread_edits import ThreadEdits
from turnwire.runtime.store.turn_store import TurnStore


class Results:
    """Notes which threads are purged; fails as often as told."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.purged: list[tuple[str, str]] = []
        self.tries = 0
        self.tried = asyncio.Event()

    async def purge_thread(self, scope: str, thread: str) -> None:
        self.tries += 1
        self.tried.set()
        if self.failures:
            self.failures -= 1
            raise Unavailable("not now", reason="EXECUTOR_UNAVAILABLE")
        self.purged.append((scope, thread))


@pytest.fixture(name="store")
async def _store(store_location: Location) -> AsyncIterator[TurnStore]:
    async with open_store(store_location) as store:
        yield store


@asynccontextmanager
async def deleting(rig: Rig, results: Results, grace: float = 10.0) -> AsyncIterator[ThreadDeleter]:
    """Run a deleter beside a supervisor."""
    deleter = ThreadDeleter(ThreadEdits(rig.store), rig.supervisor, results, grace=grace)
    task = asyncio.create_task(deleter.run())
    try:
        yield deleter
    finally:
        task.cancel()
        await asyncio.wait({task})


async def purged(store: TurnStore) -> None:
    """Wait until no purge is left."""
    async with asyncio.timeout(10):
        while await rows(store, "SELECT 1 FROM purges"):
            await asyncio.sleep(0)


async def test_a_turn_that_runs_here_is_stopped_and_its_end_is_waited_for(store: TurnStore) -> None:
    rig = Rig(store, FakeModel([TextDelta("so far"), asyncio.Event()]), max_live=10)
    results = Results()
    started = await rig.supervisor.start(command())
    await rig.observer.until(lambda: started.key in rig.observer.open)
    async with deleting(rig, results) as deleter, asyncio.timeout(10):
        version = await deleter.delete(started.key.thread, None)
        assert rig.observer.open == {}
        assert await deleter.delete(started.key.thread, None) == version
        await purged(store)
    assert results.purged == [("team", started.key.thread.name)]
    assert await rows(store, "SELECT 1 FROM turns") == []
    await rig.supervisor.drain(0.0)


async def test_a_turn_that_does_not_end_in_time_is_sealed_off(store: TurnStore) -> None:
    key, journal = await begin(store)
    await answer(journal, said("so far"))
    rig = Rig(store, FakeModel(), max_live=10)
    async with deleting(rig, Results(), grace=0.05) as deleter, asyncio.timeout(10):
        await deleter.delete(key.thread, None)
        assert await rows(store, "SELECT live_turn, owner FROM threads") == [("", "")]
        await purged(store)


async def test_what_a_former_process_left_is_removed_by_the_next(store: TurnStore) -> None:
    key, _ = await turn(store)
    running, _ = await begin(store)
    edits = ThreadEdits(store)
    await edits.begin_deletion(key.thread, None)
    # The process that was asked died while it waited for the turn.
    await edits.begin_deletion(running.thread, None)
    results = Results()
    rig = Rig(store, FakeModel(), max_live=10)
    async with deleting(rig, results, grace=0.05):
        await purged(store)
    assert sorted(results.purged) == sorted([("team", key.thread.name), ("team", running.thread.name)])
    assert await rows(store, "SELECT 1 FROM turns") == []


async def test_a_purge_that_fails_is_tried_again_and_holds_no_other_one_up(store: TurnStore) -> None:
    first, _ = await turn(store)
    second, _ = await turn(store)
    results = Results(failures=1)
    rig = Rig(store, FakeModel(), max_live=10)
    async with deleting(rig, results) as deleter, asyncio.timeout(10):
        await deleter.delete(first.thread, None)
        await results.tried.wait()
        await deleter.delete(second.thread, None)
        await purged(store)
    assert results.tries == 3
    assert results.purged == [("team", second.thread.name), ("team", first.thread.name)]


async def test_user_code_that_swallows_its_cancellation_holds_nobody() -> None:
    gate = asyncio.Event()

    async def stubborn() -> None:
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                continue

    async with asyncio.timeout(10):
        with pytest.raises(TimeoutError):
            await bounded(stubborn(), seconds=0.01)
        gate.set()


async def test_user_code_gives_its_result_or_its_error() -> None:
    async def four() -> int:
        return 4

    async def breaks() -> int:
        raise ValueError("no")

    assert await bounded(four()) == 4
    with pytest.raises(ValueError, match="no"):
        await bounded(breaks())
