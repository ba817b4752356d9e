"""The lease of a process: who counts as alive, and when renewing stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from support.owners import row, write
from support.postgres import Location
from support.runtime_rig import open_store
from turnwire.runtime.store.leases import Leases, LeaseTerms, enter, register, remove, renew
from turnwire.runtime.store.turn_store import TurnStore

OWNER = "mine/boot-2"


@pytest.fixture
async def store(store_location: Location) -> AsyncIterator[TurnStore]:
    async with open_store(store_location) as opened:
        yield opened


async def owners(store: TurnStore) -> list[str]:
    found = await store.read(lambda db: db.execute("SELECT owner FROM owners ORDER BY owner").fetchall())
    return [name for (name,) in found]


async def populate(store: TurnStore) -> None:
    await write(store, lambda db: db.execute("DELETE FROM owners"))
    for owner in ("mine/boot-1", "other/boot"):
        await write(store, lambda db, owner=owner: register(db, owner, 30.0))


async def test_who_has_a_store_alone_knows_that_all_others_are_dead(store: TurnStore) -> None:
    await populate(store)
    await write(store, lambda db: enter(db, OWNER, alone=True))
    assert await owners(store) == [OWNER]


async def test_who_holds_the_name_of_a_runtime_knows_that_earlier_boots_are_dead(
    store: TurnStore,
) -> None:
    await populate(store)
    await write(store, lambda db: enter(db, OWNER, alone=False, named=True))
    assert await owners(store) == [OWNER, "other/boot"]


async def test_who_does_not_hold_the_name_leaves_everyone_alone(store: TurnStore) -> None:
    await populate(store)
    await write(store, lambda db: enter(db, OWNER, alone=False))
    assert await owners(store) == ["mine/boot-1", OWNER, "other/boot"]


async def test_a_renewal_tells_whether_it_came_in_time(store: TurnStore) -> None:
    await write(store, lambda db: register(db, OWNER, 30.0))
    assert await write(store, lambda db: renew(db, OWNER, 30.0))
    await write(store, lambda db: register(db, OWNER, -1.0))
    assert not await write(store, lambda db: renew(db, OWNER, 30.0))
    assert await write(store, lambda db: renew(db, OWNER, 30.0))
    await write(store, lambda db: remove(db, OWNER))
    assert not await write(store, lambda db: renew(db, OWNER, 30.0))
    assert OWNER in await owners(store)


class Heard:
    """What the process is told of its lease."""

    def __init__(self) -> None:
        self.late = 0
        self.hung: list[bool] = []
        self.changed = asyncio.Event()

    def on_late(self) -> None:
        self.late += 1
        self.changed.set()

    def on_hung(self, hung: bool) -> None:
        self.hung.append(hung)
        self.changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(5):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


async def test_a_process_whose_loop_stands_still_loses_its_lease_and_says_so(
    store: TurnStore,
) -> None:
    heard = Heard()
    now = 100.0
    leases = Leases(OWNER, LeaseTerms(30.0, 10.0, 15.0), on_hung=heard.on_hung, clock=lambda: now)
    writer = store._database.writer

    async def expiry() -> int:
        return int((await row(store, "SELECT expire_time FROM owners WHERE owner = ?", OWNER))[0])

    await writer.run(leases.renew)  # before the start there is nothing to renew
    assert OWNER not in await owners(store)
    await leases.start(writer, heard.on_late, alone=False)
    first = await expiry()
    await writer.run(leases.renew)
    second = await expiry()
    assert second > first
    now += 16.0
    await writer.run(leases.renew)
    await writer.run(leases.renew)
    await heard.until(lambda: heard.hung == [True])
    assert await expiry() == second
    leases._tick()  # the loop is back
    assert heard.late == 1
    await writer.run(leases.renew)
    await heard.until(lambda: heard.hung == [True, False])
    assert await expiry() > second
    await leases.stop(writer)
    assert OWNER not in await owners(store)
    await writer.run(leases.renew)
    assert OWNER not in await owners(store)


async def test_a_renewal_that_came_too_late_has_the_turns_looked_up(store: TurnStore) -> None:
    heard = Heard()
    leases = Leases(OWNER, LeaseTerms(), on_hung=heard.on_hung)
    writer = store._database.writer
    await leases.start(writer, heard.on_late, alone=False)
    await writer.run(leases.renew)
    await write(store, lambda db: remove(db, OWNER))
    await writer.run(leases.renew)
    await heard.until(lambda: heard.late == 1)
    assert heard.hung == []
    await leases.stop(writer)
