"""How a turn enters a thread that is busy, waits, or belongs to another process; on both engines."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator

import pytest

from support.owners import claim, live, orphan, row, write
from support.postgres import Location
from support.runtime_rig import CANCELLED, admit, begin, command, end, open_store, queued
from turnwire.core.errors import WrongState
from turnwire.runtime.domain.admission import Admitted
from turnwire.runtime.domain.turn import Disposition, StartCommand, TurnKey
from turnwire.runtime.store import claims, queries
from turnwire.runtime.store.admission import SUPERSEDED
from turnwire.runtime.store.turn_store import TurnStore


@pytest.fixture
async def store(store_location: Location) -> AsyncIterator[TurnStore]:
    async with open_store(store_location) as opened:
        yield opened


async def interrupt(store: TurnStore, key: TurnKey, **fields: object) -> Admitted:
    return await admit(store, command(key.thread_id, busy_policy="interrupt", **fields))


async def order(store: TurnStore, key: TurnKey) -> list[TurnKey]:
    return list(await store.queued_turns(key.thread))


async def versions(store: TurnStore, key: TurnKey) -> tuple[int, int, int, int]:
    """Return the versions of the thread, its queue, the turn's change and its message's."""
    found = await row(
        store,
        "SELECT h.version, h.queue_version, t.change_version, coalesce((SELECT max(m.change_version)"
        " FROM messages m WHERE m.scope = t.scope AND m.thread_id = t.thread_id"
        " AND m.turn_id = t.turn_id), 0)"
        " FROM turns t JOIN threads h ON h.scope = t.scope AND h.thread_id = t.thread_id WHERE t.turn_id = ?",
        key.turn_id,
    )
    return tuple(found)


async def test_an_interrupt_goes_to_the_head_of_the_queue_and_stops_the_turn_that_runs(
    store: TurnStore,
) -> None:
    key, journal = await begin(store)
    first = await queued(store, key)
    second = await queued(store, key)
    admitted = await interrupt(store, key)
    assert (admitted.disposition, admitted.superseded) == (Disposition.QUEUED, key)
    assert await order(store, key) == [admitted.key, first, second]
    assert (await store.get_turn(admitted.key)).queue_position == 1
    assert await store.stops() == [(key, SUPERSEDED)]
    again = await interrupt(store, key)
    assert await order(store, key) == [again.key, admitted.key, first, second]
    await end(journal, CANCELLED)
    taken = await store.claim_next(key.thread)
    assert taken is not None
    assert taken.key == again.key


async def test_an_interrupt_of_an_idle_thread_begins_at_once(store: TurnStore) -> None:
    key, journal = await begin(store)
    await end(journal)
    admitted = await interrupt(store, key)
    assert (admitted.disposition, admitted.superseded) == (Disposition.STARTED, None)


async def test_an_interrupt_of_a_waiting_turn_has_it_claimed_to_end(store: TurnStore) -> None:
    key, journal = await begin(store)
    await journal.suspend()
    admitted = await interrupt(store, key)
    assert admitted.superseded == key
    assert await store.claimable(10) == [key.thread]
    taken = await store.claim(key.thread)
    assert taken is not None
    assert (taken.key, taken.stop) == (key, SUPERSEDED)


async def test_a_turn_that_waits_is_replaced_only_by_who_asks_for_that(store: TurnStore) -> None:
    key, journal = await begin(store)
    while_running = await admit(store, command(key.thread_id, on_waiting="cancel"))
    assert while_running.superseded is None
    await journal.suspend()
    patient = await admit(store, command(key.thread_id))
    assert (patient.disposition, patient.superseded) == (Disposition.QUEUED, None)
    assert await store.claimable(10) == []
    asked = await admit(store, command(key.thread_id, on_waiting="cancel"))
    assert asked.superseded == key
    assert await order(store, key) == [asked.key, while_running.key, patient.key]
    taken = await store.claim(key.thread)
    assert taken is not None
    assert (taken.key, taken.stop) == (key, SUPERSEDED)


async def test_a_turn_that_is_to_begin_later_lets_others_pass(store: TurnStore) -> None:
    now = await store.read(lambda db: db.now_ns())
    key, journal = await begin(store)
    await end(journal)

    async def later(asked: StartCommand, seconds: int) -> Admitted:
        given = StartCommand(asked.scope, asked.request_id, asked.spec, not_before=now + seconds * 10**9)
        return await admit(store, given)

    admitted = await later(command(key.thread_id), 3600)
    assert (admitted.disposition, admitted.idle) == (Disposition.QUEUED, False)
    assert await store.claimable(10) == []
    assert await store.claim(key.thread) is None
    other = await admit(store, command(key.thread_id, busy_policy="reject"))
    assert other.disposition is Disposition.STARTED
    past = await later(command(), -3600)
    assert past.disposition is Disposition.STARTED
    alone = await later(command(), 3600)
    assert alone.disposition is Disposition.QUEUED
    assert (await store.get_turn(alone.key)).queue_position == 1
    await write(store, lambda db: db.execute("UPDATE turns SET wake_time = 1 WHERE wake_time > 0"))
    assert await store.claimable(10) == [alone.key.thread]
    taken = await store.claim(alone.key.thread)
    assert taken is not None
    assert (taken.key, taken.first) == (alone.key, True)


async def test_a_thread_that_is_held_for_an_edit_is_busy(store: TurnStore) -> None:
    key, journal = await begin(store)
    await end(journal)
    await live(store, "other/boot")
    await write(store, lambda db: claims.acquire_admin(db, key.thread, "other/boot"))
    with pytest.raises(WrongState):
        await admit(store, command(key.thread_id, busy_policy="reject"))
    admitted = await admit(store, command(key.thread_id))
    assert (admitted.disposition, admitted.idle) == (Disposition.QUEUED, False)


async def test_a_turn_behind_a_dead_owners_one_waits_for_its_recovery(store: TurnStore) -> None:
    key, _ = await begin(store)
    await orphan(store)
    await write(store, lambda db: db.execute("UPDATE threads SET owner = 'gone/boot'"))
    admitted = await admit(store, command(key.thread_id))
    assert admitted.disposition is Disposition.QUEUED
    taken = await store.claim(key.thread)
    assert taken is not None
    assert taken.key == key


async def test_each_visible_change_takes_a_number_and_its_row_keeps_it(store: TurnStore) -> None:
    key, journal = await begin(store)
    assert await versions(store, key) == (3, 0, 3, 2)
    waiting = await queued(store, key)
    assert await versions(store, waiting) == (4, 4, 4, 0)
    await end(journal)
    version = (await store.read(lambda db: queries.get_thread(db, key.thread))).version
    taken = await store.claim_next(key.thread)
    assert taken is not None
    # The message, the turn, and the queue that it leaves.
    assert await versions(store, waiting) == (version + 3, version + 3, version + 2, version + 1)
    await orphan(store)
    await write(store, lambda db: db.execute("UPDATE threads SET owner = 'gone/boot'"))
    assert await store.claim(key.thread) is not None
    assert (await versions(store, waiting))[::2] == (version + 4, version + 4)


async def test_the_limit_of_a_turn_is_counted_from_its_beginning(store: TurnStore) -> None:
    key, journal = await begin(store)
    admitted = await store.admit(command(key.thread_id), "agents/helper", "digest", 30, turn_timeout=90.0)
    assert admitted.time_left is None
    assert (await row(store, "SELECT deadline FROM turns WHERE turn_id = ?", admitted.key.turn_id))[0] == 0
    await end(journal)
    taken = await store.claim_next(key.thread)
    assert taken is not None
    assert taken.time_left == 90.0
    at_once = await store.admit(command(), "agents/helper", "digest", 30, turn_timeout=90.0)
    assert at_once.time_left == 90.0


@pytest.mark.parametrize("engine", ["postgresql"])
async def test_twenty_equal_requests_on_two_processes_are_one_turn(
    store: TurnStore, store_location: Location
) -> None:
    async with open_store(store_location, runtime_id="second") as second:
        for thread in ("", (await begin(store))[0].thread_id):
            asked = command(thread, request_id=str(uuid.uuid4()))
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(admit((store, second)[n % 2], asked)) for n in range(20)]
            found = [t.result() for t in tasks]
            assert len({f.key for f in found}) == 1
            assert [f.disposition for f in found].count(Disposition.ATTACHED) == 19


@pytest.mark.parametrize("engine", ["postgresql"])
async def test_twenty_requests_on_two_processes_for_one_thread_are_one_turn_and_a_queue(
    store: TurnStore, store_location: Location
) -> None:
    key, journal = await begin(store)
    await end(journal)
    async with open_store(store_location, runtime_id="second") as second:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(admit((store, second)[n % 2], command(key.thread_id))) for n in range(20)
            ]
        found = [t.result().disposition for t in tasks]
        assert (found.count(Disposition.STARTED), found.count(Disposition.QUEUED)) == (1, 19)
        assert len(await order(store, key)) == 19
        assert await second.claim(key.thread) is None
        assert (await claim(store, key.thread, "third/boot")) is claims.NOTHING
