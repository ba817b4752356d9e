"""Pruning: what is gone is told, what is there can be read, and an unfinished turn loses nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.postgres import Location
from support.runtime_rig import begin, end, open_store, pages, queued, reader
from turnwire.core.errors import Expired
from turnwire.extend.events import TurnState
from turnwire.extend.llm import TextDelta
from turnwire.runtime.domain.turn import TurnKey
from turnwire.runtime.store import pruning
from turnwire.runtime.store.pruning import Pruned, Pruner, forget_keys, prune_pages
from turnwire.runtime.store.turn_store import TurnStore
from turnwire.storage.units import Connection

DAY = 86400.0


@pytest.fixture
async def store(store_location: Location) -> AsyncIterator[TurnStore]:
    async with open_store(store_location) as opened:
        yield opened


def pruner(store: TurnStore, retention: float = 7 * DAY) -> Pruner:
    database = store._database
    return Pruner(database.writer, database.reader, retention, pause=0)


async def ended(store: TurnStore, texts: int = 3, *, age: float = 0.0, scope: str = "team") -> TurnKey:
    """A turn that ended so many seconds ago; each text is a page of its own."""
    key, journal = await begin(store, scope=scope)
    for number in range(texts):
        journal.log.emit(TextDelta(f"{number}"))
        await journal.log.flush()
    await end(journal)
    await change(store, "UPDATE turns SET finish_time = finish_time - ? WHERE turn_id = ?", age, key.turn_id)
    return key


async def change(store: TurnStore, sql: str, age: float, *values: str) -> None:
    def update(db: Connection) -> None:
        db.execute(sql, (round(age * 1e9), *values))

    await store._database.writer.run(update)


async def count(store: TurnStore, table: str) -> int:
    return await store.read(lambda db: int(db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]))


async def expired(store: TurnStore, key: TurnKey, after: int = 0) -> dict[str, str]:
    """The metadata of the error that a reader gets."""
    with pytest.raises(Expired) as caught:
        await pages(store, key, after)
    assert caught.value.reason == "EVENTS_EXPIRED"
    return caught.value.metadata


async def test_events_of_a_turn_that_ended_long_ago_go_and_the_turn_stays(store: TurnStore) -> None:
    old, young = await ended(store, age=8 * DAY), await ended(store, age=6 * DAY)
    before = await pages(store, young)
    done = await pruner(store).prune()
    assert (done.turns, done.pages) == (1, 5)
    assert done.bytes > 100
    turn = await store.get_turn(old)
    assert turn.state is TurnState.COMPLETED
    assert turn.first_kept_sequence == turn.last_sequence + 1
    assert await expired(store, old) == {
        "oldest_sequence": str(turn.last_sequence + 1),
        "last_sequence": str(turn.last_sequence),
    }
    assert await pages(store, old, turn.last_sequence) == []
    assert await pages(store, young) == before
    assert await pruner(store).prune() == Pruned()


async def test_a_turn_that_has_not_ended_loses_nothing(store: TurnStore) -> None:
    key, journal = await begin(store)
    waiting = await queued(store, key)
    journal.log.emit(TextDelta("a"))
    await journal.log.flush()
    assert await pruner(store).prune(0.0) == Pruned()
    assert (await store.get_turn(key)).first_kept_sequence == 1
    assert (await store.get_turn(waiting)).first_kept_sequence == 1
    await end(journal)
    assert (await pruner(store).prune(0.0)).turns == 1


async def test_a_dry_run_counts_what_would_go_and_deletes_nothing(store: TurnStore) -> None:
    for _ in range(3):
        await ended(store, age=8 * DAY)
    await ended(store)
    would = await pruner(store).count()
    assert would == await pruner(store).count()
    assert await pruner(store).prune() == would
    assert (would.turns, would.pages) == (3, 15)
    assert await pruner(store).count() == Pruned()


async def test_counting_goes_on_where_one_read_ended(
    store: TurnStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "CHUNK_TURNS", 2)
    for _ in range(5):
        await ended(store, 1, age=8 * DAY)
    assert (await pruner(store).count()).turns == 5
    assert (await pruner(store).prune()).turns == 5


async def test_only_the_named_scope_is_pruned(store: TurnStore) -> None:
    ours, theirs = await ended(store, scope="team"), await ended(store, scope="others")
    assert (await pruner(store).count(0.0, "team")).turns == 1
    assert (await pruner(store).prune(0.0, "team")).turns == 1
    await expired(store, ours)
    assert await pages(store, theirs)


async def test_a_turn_of_which_a_part_is_gone_says_which(store: TurnStore) -> None:
    """What a crash between two transactions of a pass leaves."""
    key = await ended(store, 5)
    whole = await pages(store, key)
    done = await store._database.writer.run(lambda db: prune_pages(db, db.now_ns(), pages=3))
    assert (done.turns, done.pages) == (0, 3)
    kept = (await store.get_turn(key)).first_kept_sequence
    assert (await expired(store, key))["oldest_sequence"] == str(kept)
    assert (await expired(store, key, kept - 2))["oldest_sequence"] == str(kept)
    rest = b"".join(await pages(store, key, kept - 1))
    assert rest
    assert b"".join(whole).endswith(rest)
    assert (await pruner(store).prune(0.0)).turns == 1


async def test_a_reader_that_is_in_the_middle_hears_that_the_rest_is_gone(store: TurnStore) -> None:
    key, journal = await begin(store)
    for _ in range(20):
        journal.log.emit(TextDelta("x" * 30_000))
        await journal.log.flush()
    await end(journal)
    reading = await reader(store, key)
    took = aiter(reading)
    assert await anext(took)
    await pruner(store).prune(0.0)
    with pytest.raises(Expired) as caught:
        async for _ in took:
            pass
    assert caught.value.reason == "EVENTS_EXPIRED"
    reading.close()


async def test_keys_of_requests_go_after_a_day_and_those_of_commands_after_a_week(store: TurnStore) -> None:
    def fill(db: Connection) -> None:
        for number, age in enumerate((0.5, 1.5, 6.5, 7.5)):
            at = db.now_ns() - round(age * DAY * 1e9)
            db.execute(
                "INSERT INTO requests VALUES ('team', 'create_thread', ?, '', '', ?)", (str(number), at)
            )
            db.execute(
                "INSERT INTO applied_commands (scope, command_id, turn, kind, sequence, create_time)"
                " VALUES ('team', ?, 't', 'applied', 1, ?)",
                (str(number), at),
            )

    await store._database.writer.run(fill)
    assert await store._database.writer.run(forget_keys) == 4
    assert await store._database.writer.run(forget_keys) == 0
    assert await count(store, "requests") == 1
    assert await count(store, "applied_commands") == 3


async def test_room_in_the_file_is_given_back(tmp_path: Path) -> None:
    async with open_store(tmp_path / "runtime.db") as store:
        key, journal = await begin(store)
        for _ in range(40):
            journal.log.emit(TextDelta("x" * 60_000))
            await journal.log.flush()
        await end(journal)
        assert (await pruner(store).prune(0.0)).bytes > 2_000_000
        assert await store.read(lambda db: db.execute("PRAGMA freelist_count").fetchone()[0]) == 0
        assert await store.read(lambda db: db.execute("PRAGMA page_count").fetchone()[0]) < 200
        assert (await store.get_turn(key)).state is TurnState.COMPLETED


async def test_two_passes_at_once_do_the_work_of_one(store: TurnStore) -> None:
    for _ in range(10):
        await ended(store, 2)
    async with asyncio.TaskGroup() as group:
        passes = [group.create_task(pruner(store).prune(0.0)) for _ in range(2)]
    assert sum(task.result().turns for task in passes) == 10
    assert await count(store, "pages") == 0


async def test_the_job_prunes_at_once_and_then_at_each_interval(store: TurnStore) -> None:
    first = await ended(store, age=8 * DAY)
    job = asyncio.create_task(pruner(store).run(0.01))
    async with asyncio.timeout(5):
        await until_pruned(store, first)
        second = await ended(store, age=8 * DAY)
        await until_pruned(store, second)
    job.cancel()
    await asyncio.wait({job})
    assert job.cancelled()


async def until_pruned(store: TurnStore, key: TurnKey) -> None:
    while (await store.get_turn(key)).first_kept_sequence == 1:
        pass
