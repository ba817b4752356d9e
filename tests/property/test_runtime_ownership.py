"""Any interleaving of claims, deaths, renewals, pauses and edits leaves one owner a thread, and one story."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.owners import claimant, die, live, row, write
from support.postgres import Location
from support.runtime_rig import DONE, admit, command, events, open_store
from turnwire.extend.events import StepCommitted, TurnState
from turnwire.extend.llm import TextDelta
from turnwire.runtime.domain.message import ContentPart
from turnwire.runtime.domain.turn import InputPart, ThreadKey, TurnKey
from turnwire.runtime.event_codec import encode_event
from turnwire.runtime.ports import OwnerLost
from turnwire.runtime.store import claims
from turnwire.runtime.store.claimed import Claimed
from turnwire.runtime.store.journal import Journal
from turnwire.runtime.store.log import TurnLog
from turnwire.runtime.store.turn_store import TurnStore

OWNERS = ("one/boot", "two/boot", "three/boot")
MOVES = (
    "admit",
    "claim",
    "claim",
    "say",
    "step",
    "die",
    "renew",
    "release",
    "finish",
    "suspend",
    "wake",
    "edit",
    "unedit",
)
moves = st.lists(st.tuples(st.sampled_from(MOVES), st.integers(0, len(OWNERS) - 1)), min_size=8, max_size=40)


@dataclass
class Holding:
    """A claim as its owner remembers it, whether it still holds or not."""

    journal: Journal
    epoch: int
    steps: int
    lost: bool = False


@dataclass
class World:
    """One thread and its owners."""

    store: TurnStore
    thread: ThreadKey
    holdings: dict[str, Holding] = field(default_factory=dict)
    edits: dict[str, int] = field(default_factory=dict)
    epochs: list[int] = field(default_factory=list)
    turns: list[TurnKey] = field(default_factory=list)

    def journal(self, claimed: Claimed) -> Journal:
        log = TurnLog(
            self.store._database.writer, encode_event, claimed.key, claimed.epoch, claimed.next_sequence
        )
        journal = Journal(log, lambda: None)
        if claimed.resumption is not None:
            journal.resume(claimed.resumption)
        return journal

    async def admit(self, owner: str) -> None:
        if len(self.turns) < 4:
            admitted = await admit(self.store, command(self.thread.thread_id))
            self.turns.append(admitted.key)
            if isinstance(admitted.journal, Journal):
                # The store's own process took it, and never says anything more.
                self.epochs.append(admitted.journal.epoch)
                await die(self.store, self.store.owner)

    async def claim(self, owner: str) -> None:
        before = await self.held()
        found = await write(self.store, lambda db: claims.claim(db, self.thread, claimant(owner)))
        claimed = found.claimed
        if claimed is None:
            return
        assert before == "" or before not in await self.alive() or before == owner
        assert before != owner, "an owner took what it had"
        self.epochs.append(claimed.epoch)
        steps = claimed.resumption.step if claimed.resumption is not None else 0
        self.holdings[owner] = Holding(self.journal(claimed), claimed.epoch, steps)

    async def act(self, owner: str, work: Callable[[Holding], Any]) -> bool:
        """Write as an owner; it comes through exactly when nobody has taken the turn since."""
        holding = self.holdings.get(owner)
        if holding is None or holding.lost:
            return False
        mine = await self.epoch() == holding.epoch and await self.running(holding.journal.key)
        try:
            await work(holding)
        except OwnerLost:
            assert not mine, "an owner was shut out of its own turn"
            holding.lost = True
            return False
        assert mine, "a former owner has written"
        return True

    async def say(self, owner: str) -> None:
        async def work(holding: Holding) -> None:
            holding.journal.emit(TextDelta(f"{owner} "))
            await holding.journal.flush()

        await self.act(owner, work)

    async def step(self, owner: str) -> None:
        async def work(holding: Holding) -> None:
            holding.steps += 1
            if not holding.journal._message_open:
                holding.journal.begin_answer(f"answer-{holding.journal.key.turn_id}")
            part = ContentPart(InputPart(kind="text", text=f"{owner}@{holding.epoch}"), holding.steps)
            holding.journal.commit_step([part], [StepCommitted("m")])
            await holding.journal.flush()

        await self.act(owner, work)

    async def finish(self, owner: str) -> None:
        async def work(holding: Holding) -> None:
            await holding.journal.finish(DONE, interrupted_reason="", applied=())

        if await self.act(owner, work):
            del self.holdings[owner]

    async def release(self, owner: str) -> None:
        if await self.act(owner, lambda holding: holding.journal.release()):
            del self.holdings[owner]

    async def suspend(self, owner: str) -> None:
        if await self.act(owner, lambda holding: holding.journal.suspend()):
            del self.holdings[owner]

    async def wake(self, owner: str) -> None:
        await write(
            self.store,
            lambda db: db.execute(
                "UPDATE turns SET wake_time = 1 WHERE thread_id = ? AND state = 'waiting'",
                (self.thread.thread_id,),
            ),
        )

    async def die(self, owner: str) -> None:
        await die(self.store, owner)

    async def renew(self, owner: str) -> None:
        await live(self.store, owner)

    async def edit(self, owner: str) -> None:
        epoch = await write(self.store, lambda db: claims.acquire_admin(db, self.thread, owner))
        if epoch is not None:
            assert not await self.any_running()
            self.epochs.append(epoch)
            self.edits[owner] = epoch

    async def unedit(self, owner: str) -> None:
        epoch = self.edits.pop(owner, None)
        if epoch is not None:
            freed = await write(self.store, lambda db: claims.release_admin(db, self.thread, owner, epoch))
            assert not freed or await self.held() == ""

    async def held(self) -> str:
        return await self.store.holder(self.thread)

    async def alive(self) -> set[str]:
        found = await self.store.read(
            lambda db: db.execute("SELECT owner FROM owners WHERE expire_time > ?", (db.now_ns(),)).fetchall()
        )
        return {name for (name,) in found}

    async def epoch(self) -> int:
        found = await row(self.store, "SELECT epoch FROM threads WHERE thread_id = ?", self.thread.thread_id)
        return int(found[0])

    async def running(self, key: TurnKey) -> bool:
        return (await self.store.get_turn(key)).state is TurnState.RUNNING and await self.held() != ""

    async def any_running(self) -> bool:
        found = await row(
            self.store,
            "SELECT count(*) FROM turns WHERE thread_id = ? AND state = 'running'",
            self.thread.thread_id,
        )
        return bool(found[0])

    async def check(self) -> None:
        """Hold what is stored to what must be true after any move."""
        assert self.epochs == sorted(set(self.epochs)), "an epoch was given twice"
        states = [(await self.store.get_turn(key)).state for key in self.turns]
        assert sum(s in (TurnState.RUNNING, TurnState.WAITING) for s in states) <= 1
        for key in self.turns:
            stored = await self.store.pages_after(key, 0)
            found = events([page for _, _, page in stored])
            assert [e.sequence for e in found] == list(range(1, len(found) + 1))
            epochs = [e.turn_resumed.epoch or e.turn_started.epoch for e in found]
            assert [e for e in epochs if e] == sorted({e for e in epochs if e})
            assert sum(e.HasField("turn_finished") for e in found) <= 1


async def play(location: Location, script: list[tuple[str, int]]) -> None:
    async with open_store(location) as store:
        first = await admit(store, command())
        assert isinstance(first.journal, Journal)
        await first.journal.finish(DONE, interrupted_reason="", applied=())
        world = World(store, first.key.thread)
        # What is admitted waits in the queue: these owners take it.
        await write(
            store,
            lambda db: db.execute(
                "UPDATE threads SET owner = 'nobody/boot', lease = 'admin' WHERE thread_id = ?",
                (world.thread.thread_id,),
            ),
        )
        world.epochs.append(await world.epoch())
        for owner in OWNERS:
            await live(store, owner)
        await world.admit(OWNERS[0])
        for move, number in script:
            await getattr(world, move)(OWNERS[number])
            await world.check()
        await drained(world)


async def drained(world: World) -> None:
    """Whatever has happened, an owner that lives brings every turn to its end."""
    last = "last/boot"
    for owner in (*OWNERS, world.store.owner):
        await die(world.store, owner)
    await live(world.store, last)
    for _ in range(20):
        await world.wake(last)
        await world.claim(last)
        await world.finish(last)
        await world.check()
    for key in world.turns:
        assert (await world.store.get_turn(key)).state.terminal
    assert await world.store.claimable(10) == []


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(script=moves)
def test_any_interleaving_has_one_owner_at_a_time(
    fresh_location: Callable[..., Location], engine: str, script: list[tuple[str, int]]
) -> None:
    asyncio.run(play(fresh_location(), script))
