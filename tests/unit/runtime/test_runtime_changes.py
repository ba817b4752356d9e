"""Changes of a thread as the store gives them: pages, ends, other processes, stores of an older schema."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from support.postgres import Location, PostgresServer
from support.runtime_rig import begin, end, open_store, queued
from turnwire.core.errors import Conflict, Expired, NotFound, WrongState
from turnwire.extend.events import StepCommitted
from turnwire.runtime.domain.message import ContentPart
from turnwire.runtime.domain.thread import NewThreadCommand, ThreadPatch
from turnwire.runtime.domain.turn import InputPart, ThreadKey, TurnKey
from turnwire.runtime.store import changes, queries, queue, threads
from turnwire.runtime.store.changes import ChangeKind, ChangePage, read_changes
from turnwire.runtime.store.thread_watch import ThreadReader, ThreadWatch
from turnwire.runtime.store.turn_store import TurnStore
from turnwire.storage.units import Connection

KEPT = Path(__file__).parents[2] / "data" / "runtime_schema_1.sql"


async def new(store: TurnStore, **fields: str) -> ThreadKey:
    return (await store.create_thread(NewThreadCommand("team", **fields))).key


async def rename(store: TurnStore, key: ThreadKey, title: str) -> None:
    patch = ThreadPatch(title=title)
    await store.change(key, lambda db: threads.update_thread(db, key, patch, None))


async def after(store: TurnStore, key: ThreadKey, version: int, told: int | None = None) -> ChangePage:
    return await store.read(lambda db: read_changes(db, key, version, told=told))


async def titles(reader: ThreadReader, count: int) -> list[str]:
    """Take in so many changes of the title."""
    found: list[str] = []
    try:
        async with asyncio.timeout(20):
            async for change in reader:
                if change is not None:
                    found.append(change.value.title)  # type: ignore[union-attr]
                if len(found) == count:
                    break
    finally:
        reader.close()
    return found


async def test_a_page_ends_at_its_count_and_goes_on_from_its_last_version(
    store_location: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "MAX_CHANGES", 2)
    async with open_store(store_location) as store:
        key, journal = await begin(store)
        await end(journal)
        await queued(store, await _live(store, key.thread))
        seen: list[int] = []
        version = 0
        while True:
            page = await after(store, key.thread, version)
            assert len(page.changes) <= 2
            seen += [change.version for change in page.changes]
            if not page.more:
                break
            version = seen[-1]
        assert seen == sorted(set(seen))
        assert seen[-1] == page.version


async def _live(store: TurnStore, thread: ThreadKey) -> TurnKey:
    """Begin a turn that stays, in a thread that has none."""
    key, _ = await begin(store, thread.thread_id)
    return key


async def test_a_page_ends_at_a_mebibyte_of_messages(store_location: Location) -> None:
    async with open_store(store_location) as store:
        key = await new(store)
        for _ in range(4):
            turn, journal = await begin(store, key.thread_id, text="x" * 400_000)
            journal.begin_answer(f"answer-{turn.turn_id}")
            journal.at(step=1)
            text = ContentPart(InputPart(kind="text", text="y" * 400_000), 1)
            journal.commit_step([text], [StepCommitted("m")])
            await end(journal)
        page = await after(store, key, 0)
        weight = sum(getattr(change.value, "weight", 0) for change in page.changes)
        assert 0 < weight <= changes.MAX_PAGE_BYTES
        assert page.more


async def test_an_end_of_a_thread_is_told_to_those_who_were_there(store_location: Location) -> None:
    async with open_store(store_location) as store:
        key = await new(store)
        await store.change(
            key,
            lambda db: db.execute(
                "UPDATE threads SET delete_time = 1, version = version + 1 WHERE thread_id = ?",
                (key.thread_id,),
            ),
        )
        with pytest.raises(NotFound, match="was deleted"):
            await after(store, key, 1)
        (last,) = (await after(store, key, 1, told=1)).changes
        assert (last.kind, last.version) == (ChangeKind.DELETED, 2)


async def test_a_version_ahead_is_refused(store_location: Location) -> None:
    async with open_store(store_location) as store:
        key = await new(store)
        with pytest.raises(Expired) as caught:
            await after(store, key, 2)
        assert caught.value.metadata == {"version": "1"}


async def test_watchers_are_woken_by_commits_and_nobody_is_left_behind(store_location: Location) -> None:
    async with open_store(store_location) as store:
        key, other = await new(store, title="0"), await new(store, title="other")
        readers = [store.watch.reader(key, 0) for _ in range(50)]
        still = store.watch.reader(other, 1)
        async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
            watching = [tasks.create_task(titles(reader, 4)) for reader in readers]
            for n in range(1, 4):
                # Told one by one: a watcher sees each title only when it looks between two changes.
                while not all(r._cursor == n for r in readers):
                    await asyncio.sleep(0)
                await rename(store, key, str(n))
        assert [task.result() for task in watching] == [["0", "1", "2", "3"]] * 50
        assert store.watch.watched == 1
        still.close()
        assert (store.watch.watched, store.ticker.readers) == (0, 0)


async def test_a_change_during_a_look_is_looked_at_again(
    store_location: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_store(store_location) as store:
        key = await new(store, title="0")
        read, raced = store.watch.read, [True]

        async def late(query):  # type: ignore[no-untyped-def]
            """Answer with what was there before a change that commits meanwhile."""
            found = await read(query)
            if raced.pop() if raced else False:
                await rename(store, key, "1")
            return found

        monkeypatch.setattr(store.watch, "read", late)
        assert await titles(store.watch.reader(key, 0), 2) == ["0", "1"]


async def test_changes_of_another_process_are_found_by_the_poll(postgres: PostgresServer) -> None:
    url = postgres.fresh("turnwire.runtime")
    try:
        async with open_store(url, runtime_id="one") as one, open_store(url, runtime_id="two") as two:
            key = await new(one, title="0")
            watch = ThreadWatch(one.read, one.ticker, poll=0.05)
            async with asyncio.TaskGroup() as tasks:
                watching = tasks.create_task(titles(watch.reader(key, 0), 2))
                while watch.watched == 0 or next(iter(watch._watched.values())).version == 0:
                    await asyncio.sleep(0)
                await rename(two, key, "1")
            assert watching.result() == ["0", "1"]
    finally:
        postgres.drop(url)


async def test_a_kept_store_tells_its_watchers_to_read_it_anew(tmp_path: Path) -> None:
    path = tmp_path / "runtime.db"
    with sqlite3.connect(path) as db:
        db.executescript(KEPT.read_text("utf-8"))
        scope, thread_id, version = db.execute("SELECT scope, thread_id, version FROM threads").fetchone()
    key = ThreadKey(scope, thread_id)
    async with open_store(path) as store:
        page = await after(store, key, 0)
        assert [(c.kind, c.version) for c in page.changes] == [(ChangeKind.RESNAPSHOT, version)]
        assert (await after(store, key, version)).changes == ()
        await rename(store, key, "new")
        (change,) = (await after(store, key, version)).changes
        assert (change.kind, change.version) == (ChangeKind.METADATA_CHANGED, version + 1)


async def test_an_edit_of_a_waiting_turn_is_checked_and_keeps_its_request(store_location: Location) -> None:
    async with open_store(store_location) as store:
        live, journal = await begin(store)
        waiting = await queued(store, live, request_id="3f1f9b9a-0000-4000-8000-000000000001", text="one")
        before = await store.get_turn(waiting)
        parts = [InputPart(kind="text", text="two")]

        async def edit(etag: str) -> str:
            row = await store.change(
                waiting.thread, lambda db: queue.update_queued_turn(db, waiting, etag, parts)
            )
            assert row.fingerprint == before.fingerprint
            return row.etag

        etag = await edit(before.etag)
        with pytest.raises(Conflict):
            await edit(before.etag)
        assert await edit(etag) != etag
        again = await queued(store, live, request_id=before.request_id, text="one")
        assert again == waiting
        page = await after(store, live.thread, 0)
        assert [c.kind for c in page.changes].count(ChangeKind.QUEUE_CHANGED) == 1
        await end(journal)
        claimed = await store.claim_next(live.thread)
        assert claimed is not None
        assert claimed.spec.parts == tuple(parts)
        with pytest.raises(WrongState):
            await edit(etag)
        missing = TurnKey("other", waiting.thread_id, waiting.turn_id)
        with pytest.raises(NotFound):
            await store.change(missing.thread, lambda db: queue.update_queued_turn(db, missing, etag, parts))


async def test_a_queue_is_read_from_any_place(store_location: Location) -> None:
    async with open_store(store_location) as store:
        live, _ = await begin(store)
        turns = [await queued(store, live) for _ in range(4)]
        rows = await store.read(lambda db: queries.list_queue(db, live.thread, None, 3))
        assert [row.key for _, row in rows] == turns[:3]
        rest = await store.read(lambda db: queries.list_queue(db, live.thread, rows[-1][0], 3))
        assert [row.key for _, row in rest] == turns[3:]


async def test_the_row_that_changed_last_is_told_last_and_is_new_to_who_has_not_seen_it(
    store_location: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "MAX_CHANGES", 2)
    async with open_store(store_location) as store:
        key = await new(store)
        for _ in range(4):
            _, journal = await begin(store, key.thread_id)
            await end(journal)
        first = (await store.transcript(key))[0].message_id
        await store.change(key, lambda db: _hide(db, key, first))
        kinds: list[tuple[ChangeKind, str]] = []
        version, more = 0, True
        while more:
            page = await after(store, key, version, told=0)
            version, more = page.changes[-1].version, page.more
            kinds += [(c.kind, c.value.message_id) for c in page.changes if hasattr(c.value, "message_id")]
        assert {kind for kind, _ in kinds} == {ChangeKind.MESSAGE_ADDED}
        assert kinds[-1][1] == first
        (again,) = (await after(store, key, version - 1)).changes
        assert again.kind is ChangeKind.MESSAGE_CHANGED


def _hide(db: Connection, key: ThreadKey, message_id: str) -> None:
    place = (key.scope, key.thread_id)
    db.execute("UPDATE threads SET version = version + 1 WHERE scope = ? AND thread_id = ?", place)
    db.execute(
        "UPDATE messages SET visibility = 'hidden', change_version = (SELECT version FROM threads"
        " WHERE scope = ? AND thread_id = ?) WHERE scope = ? AND thread_id = ? AND message_id = ?",
        (*place, *place, message_id),
    )
