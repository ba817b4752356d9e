"""Who has a thread, on both engines: claims, takeovers, waits, stops and the lease for edits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from support.owners import claim, die, live, orphan, row, suspend_row, write
from support.postgres import Location
from support.runtime_rig import DONE, begin, end, history, kinds, open_store, queued
from turnwire.extend.events import EpisodeKind, StepCommitted, TurnState
from turnwire.extend.llm import TextDelta
from turnwire.runtime.domain.admission import StopNote
from turnwire.runtime.domain.message import ContentPart
from turnwire.runtime.domain.turn import InputPart, ThreadKey, TurnKey
from turnwire.runtime.ports import OwnerLost
from turnwire.runtime.store import claims
from turnwire.runtime.store.journal import Journal
from turnwire.runtime.store.turn_store import TurnStore

OTHER = "other/boot"
STOP = StopNote("cancelled", "enough", "command-1")


@pytest.fixture
async def store(store_location: Location) -> AsyncIterator[TurnStore]:
    async with open_store(store_location) as opened:
        yield opened


def text(content: str, step: int = 1) -> ContentPart:
    return ContentPart(InputPart(kind="text", text=content), step)


async def waiting_turn(store: TurnStore) -> tuple[TurnKey, Journal]:
    """Begin a turn and let it wait for somebody."""
    key, journal = await begin(store)
    journal.begin_answer("answer-1")
    journal.commit_step([text("may I?")], [StepCommitted("m")])
    await journal.suspend()
    return key, journal


async def counted(store: TurnStore, key: TurnKey) -> tuple[int, int, int, int]:
    """Return epochs of thread and log, episode and recoveries."""
    found = await row(
        store,
        "SELECT h.epoch, p.epoch, t.episode, t.recoveries FROM turns t"
        " JOIN threads h ON h.scope = t.scope AND h.thread_id = t.thread_id"
        " JOIN turn_heads p ON p.scope = t.scope AND p.turn_id = t.turn_id"
        " WHERE t.scope = ? AND t.turn_id = ?",
        key.scope,
        key.turn_id,
    )
    return tuple(found)


async def test_a_turn_of_a_living_owner_is_nobody_elses(store: TurnStore) -> None:
    key, _ = await begin(store)
    assert (await claim(store, key.thread, OTHER)) is claims.NOTHING
    assert await store.claimable(10) == []
    assert await counted(store, key) == (1, 1, 1, 0)


async def test_eight_claimers_of_a_dead_owners_turn_are_one_winner(store: TurnStore) -> None:
    key, _ = await begin(store)
    await orphan(store)
    for number in range(8):
        await live(store, f"other-{number}/boot")
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(claim(store, key.thread, f"other-{n}/boot")) for n in range(8)]
    won = [t.result().claimed for t in tasks if t.result().claimed is not None]
    assert len(won) == 1
    assert won[0].resumption is not None
    assert (won[0].epoch, won[0].resumption.kind) == (2, EpisodeKind.RECOVERY)
    assert await counted(store, key) == (2, 2, 2, 1)


async def test_a_paused_owner_that_wakes_after_a_takeover_writes_nothing_more(store: TurnStore) -> None:
    key, journal = await begin(store)
    journal.emit(TextDelta("kept"))
    await journal.flush()
    await orphan(store)
    await live(store, OTHER)
    taken = (await claim(store, key.thread, OTHER)).claimed
    assert taken is not None
    journal.emit(TextDelta("too late"))
    journal.begin_answer("answer-1")
    journal.commit_step([text("too late")], [StepCommitted("m")])
    with pytest.raises(OwnerLost):
        await journal.flush()
    with pytest.raises(OwnerLost):
        await journal.finish(DONE, interrupted_reason="", applied=())
    found = await store.pages_after(key, 0)
    assert found[-1][1] == taken.next_sequence - 1
    assert len(await store.transcript(key.thread)) == 1
    assert (await store.get_turn(key)).state is TurnState.RUNNING


async def test_expiry_alone_takes_nothing_away(store: TurnStore) -> None:
    key, journal = await begin(store)
    await orphan(store)
    journal.emit(TextDelta("still mine"))
    await end(journal)
    assert (await store.get_turn(key)).state is TurnState.COMPLETED


async def test_a_turn_that_was_handed_over_is_taken_without_being_counted(store: TurnStore) -> None:
    key, journal = await begin(store)
    await journal.release()
    assert await store.claimable(10) == [key.thread]
    taken = (await claim(store, key.thread, OTHER)).claimed
    assert taken is not None
    assert taken.resumption is not None
    assert taken.resumption.kind is EpisodeKind.RECOVERY
    assert await counted(store, key) == (2, 2, 2, 0)
    with pytest.raises(OwnerLost):
        await journal.release()


async def test_a_committed_step_forgets_the_takeovers_before_it(store: TurnStore) -> None:
    key, _ = await begin(store)
    for episode in range(2, 8):
        await orphan(store)
        await write(store, lambda db: db.execute("UPDATE threads SET owner = 'gone/boot' WHERE owner <> ''"))
        admitted = await store.claim(key.thread)
        assert admitted is not None
        assert isinstance(admitted.journal, Journal)
        assert admitted.resumption is not None
        assert admitted.resumption.episode == episode
        journal = admitted.journal
        journal.resume(admitted.resumption)
        if not admitted.resumption.message_id:
            journal.begin_answer("answer-1")
        journal.commit_step([text("on", episode)], [StepCommitted("m")])
        await journal.flush()
        assert (await counted(store, key))[3] == 0


async def test_a_turn_that_waits_is_taken_when_its_time_has_come(store: TurnStore) -> None:
    key, _ = await waiting_turn(store)
    later = await queued(store, key)
    assert await store.claimable(10) == []
    assert await store.claim(key.thread) is None
    await suspend_row(store, key, 1)
    assert await store.claimable(10) == [key.thread]
    admitted = await store.claim(key.thread)
    assert admitted is not None
    assert admitted.resumption is not None
    assert (admitted.key, admitted.resumption.kind) == (key, EpisodeKind.RESUME)
    assert await counted(store, key) == (2, 2, 2, 0)
    assert (await store.get_turn(later)).state is TurnState.QUEUED
    assert isinstance(admitted.journal, Journal)
    await end(admitted.journal)
    assert "turn_resumed" in kinds(await history(store, key))


async def test_the_time_that_a_turn_waits_is_not_its_own(store: TurnStore) -> None:
    key, journal = await begin(store)
    await journal.suspend()
    await write(
        store,
        lambda db: db.execute(
            "UPDATE turns SET deadline = ?, suspend_time = ?, wake_time = 1 WHERE turn_id = ?",
            (db.now_ns() - 50 * 10**9, db.now_ns() - 60 * 10**9, key.turn_id),
        ),
    )
    admitted = await store.claim(key.thread)
    assert admitted is not None
    assert admitted.time_left == pytest.approx(10.0, abs=1.0)


async def test_a_stop_takes_a_waiting_turn_to_end_it_and_only_that(store: TurnStore) -> None:
    key, _ = await waiting_turn(store)
    other = TurnKey(key.scope, key.thread_id, "another")
    assert await store.claim(key.thread, (other, STOP)) is None
    admitted = await store.claim(key.thread, (key, STOP))
    assert admitted is not None
    assert admitted.stop == STOP
    assert await store.claim(key.thread, (key, STOP)) is None


async def test_a_stop_of_a_turn_whose_owner_died_survives_the_next_death(store: TurnStore) -> None:
    key, _ = await begin(store)
    await orphan(store)
    first = (await claim(store, key.thread, OTHER, (key, STOP))).claimed
    assert first is not None
    assert first.stop == STOP
    second = (await claim(store, key.thread, "third/boot")).claimed
    assert second is not None
    assert second.stop == STOP


async def test_a_stop_that_somebody_asked_for_is_seen_by_the_owner_once(store: TurnStore) -> None:
    key, journal = await begin(store)
    assert await store.stops() == []
    assert await store.request_stop(key, STOP)
    assert not await store.request_stop(key, StopNote("superseded"))
    assert await store.stops() == [(key, STOP)]
    await end(journal)
    assert await store.stops() == []
    assert not await store.request_stop(key, STOP)


async def test_a_lease_for_edits_and_a_running_turn_exclude_each_other(store: TurnStore) -> None:
    key, journal = await begin(store)
    thread = key.thread

    async def acquire(owner: str) -> int | None:
        found: int | None = await write(store, lambda db: claims.acquire_admin(db, thread, owner))
        return found

    assert await acquire(OTHER) is None
    assert await acquire(store.owner) is None
    await orphan(store)
    assert await acquire(OTHER) is None  # its turn runs, and is to be recovered
    await end(journal)
    await live(store, OTHER)
    epoch = await acquire(OTHER)
    assert epoch == 2
    assert await acquire(store.owner) is None
    waiting = await queued(store, key)
    assert await store.claim(thread) is None
    assert await store.claimable(10) == []
    release = claims.release_admin
    assert not await write(store, lambda db: release(db, thread, OTHER, epoch - 1))
    assert await write(store, lambda db: release(db, thread, OTHER, epoch))
    assert not await write(store, lambda db: release(db, thread, OTHER, epoch))
    admitted = await store.claim(thread)
    assert admitted is not None
    assert admitted.key == waiting


async def test_the_lease_of_an_editor_that_died_is_free_again(store: TurnStore) -> None:
    key, _ = await waiting_turn(store)
    await live(store, OTHER)
    epoch = await write(store, lambda db: claims.acquire_admin(db, key.thread, OTHER))
    assert epoch == 2
    assert await store.claimable(10) == []
    await die(store, OTHER)
    assert await store.claimable(10) == [key.thread]
    assert await store.claim(key.thread) is None
    assert await store.claimable(10) == []
    assert await store.holder(key.thread) == ""


async def test_what_is_owned_is_read_with_its_epochs(store: TurnStore) -> None:
    one, _ = await begin(store)
    two, journal = await begin(store)
    assert await store.owned() == {one: 1, two: 1}
    await end(journal)
    assert await store.owned() == {one: 1}


async def test_the_next_moment_to_look_is_the_first_of_leases_and_waits(store: TurnStore) -> None:
    assert await store.next_due() is None
    await live(store, OTHER)
    due = await store.next_due()
    assert due is not None
    assert 25 < due <= 30
    key, _ = await waiting_turn(store)
    now = await store.read(lambda db: db.now_ns())
    await suspend_row(store, key, now + 5 * 10**9)
    due = await store.next_due()
    assert due is not None
    assert 1 < due <= 5


async def test_a_thread_that_is_not_there_has_nothing_to_claim(store: TurnStore) -> None:
    assert await store.claim(ThreadKey("team", "nowhere")) is None
    assert await store.holder(ThreadKey("team", "nowhere")) == ""
