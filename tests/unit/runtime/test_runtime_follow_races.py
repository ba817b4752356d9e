"""A reader that attaches while a turn ends: between its commit and the memory of this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from support.postgres import Location
from support.runtime_rig import begin, end, events, open_store
from turnwire.extend.llm import TextDelta
from turnwire.runtime.domain.turn import TurnKey, TurnRow
from turnwire.runtime.store.turn_store import TurnStore


@pytest.fixture
async def store(store_location: Location) -> AsyncIterator[TurnStore]:
    async with open_store(store_location) as opened:
        yield opened


async def test_a_second_reader_that_attaches_beside_a_late_first_one_ends_with_the_turn(
    store: TurnStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, journal = await begin(store)
    running = await store.get_turn(key)
    await end(journal)
    read = store.get_turn
    looked = asyncio.Event()
    rows = [running]

    async def late(wanted: TurnKey) -> TurnRow:
        """The first look came before the turn's end; the next one waits until the second reader is there."""
        if rows:
            return rows.pop()
        await looked.wait()
        return await read(wanted)

    monkeypatch.setattr(store, "get_turn", late)
    first = asyncio.create_task(store.follow(key))
    while store.log_of(key) is None:
        await asyncio.sleep(0)
    monkeypatch.setattr(store, "get_turn", read)
    row, log = await store.follow(key)
    reading = store.reader(key, log, 0, row.last_sequence)
    async with asyncio.timeout(5):
        found = events([page async for page in reading if page])
    reading.close()
    looked.set()
    await first
    assert [event.sequence for event in found] == [1, 2, 3]
    assert store.open_logs == 0


async def test_readers_that_come_and_go_leave_nothing_behind_in_a_silent_turn(store: TurnStore) -> None:
    key, journal = await begin(store)
    log = store.log_of(key)
    assert log is not None
    for _ in range(50):
        reading = store.reader(key, log, 0, 0)
        pages = aiter(reading)
        await anext(pages)
        waiting = asyncio.ensure_future(anext(pages))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})
        reading.close()
    assert log.waiters == 0
    assert store.ticker.readers == 0
    journal.emit(TextDelta("x"))
    await end(journal)
