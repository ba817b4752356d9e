"""Deletion of threads in the store: at once for readers, little by little for the rows, and for ever."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from support.postgres import Location
from support.runtime_rig import DONE, admit, begin, command, end, history, kinds, open_store, queued
from support.thread_edits import answer, call, counts, rows, said, settle, suspended, texts, turn, version
from turnwire.core.errors import AlreadyExists, Conflict, NotFound
from turnwire.extend.events import TurnState
from turnwire.runtime.domain.turn import ThreadKey
from turnwire.runtime.ports import OwnerLost
from turnwire.runtime.store.deletion import purge_rows
from turnwire.runtime.store.thread_edits import ThreadEdits
from turnwire.runtime.store.turn_store import TurnStore

NOTHING = {
    "messages": 0,
    "message_parts": 0,
    "tool_calls": 0,
    "turns": 0,
    "actions": 0,
    "history_rewrites": 0,
    "compactions": 0,
}


@pytest.fixture(name="store")
async def _store(store_location: Location) -> AsyncIterator[TurnStore]:
    async with open_store(store_location) as store:
        yield store


async def purge(store: TurnStore, thread: ThreadKey, at_once: int = 500) -> int:
    """Remove all rows of a thread; returns the number of transactions."""
    count = 1
    while await store.change(thread, lambda db: purge_rows(db, thread, at_once)):
        count += 1
    return count


async def test_a_deleted_thread_is_gone_for_readers_and_requests_and_its_id_stays_used(
    store: TurnStore,
) -> None:
    key, _ = await turn(store)
    edits = ThreadEdits(store)
    before = await version(store, key.thread)
    marked = await edits.begin_deletion(key.thread, before)
    assert marked.running is None
    assert marked.version == before + 1
    with pytest.raises(NotFound) as refused:
        await admit(store, command(key.thread_id))
    assert refused.value.reason == "THREAD_NOT_FOUND"
    with pytest.raises(AlreadyExists) as used:
        await admit(store, command(new_thread={"thread_id": key.thread_id}))
    assert used.value.reason == "THREAD_ID_USED"
    await purge(store, key.thread)
    with pytest.raises(AlreadyExists):
        await admit(store, command(new_thread={"thread_id": key.thread_id}))


async def test_deleting_again_changes_nothing_and_gives_the_same_version(store: TurnStore) -> None:
    key, _ = await turn(store)
    edits = ThreadEdits(store)
    first = await edits.begin_deletion(key.thread, None)
    await purge(store, key.thread)
    assert await edits.begin_deletion(key.thread, 1) == first
    assert await edits.seal(key.thread) == first.version


async def test_a_stale_version_and_a_thread_that_never_was_are_refused(store: TurnStore) -> None:
    key, _ = await turn(store)
    edits = ThreadEdits(store)
    with pytest.raises(Conflict) as stale:
        await edits.begin_deletion(key.thread, 1)
    assert stale.value.reason == "THREAD_CHANGED"
    with pytest.raises(NotFound):
        await edits.begin_deletion(ThreadKey("team", "never-was"), None)
    with pytest.raises(NotFound):
        await edits.begin_deletion(ThreadKey("other", key.thread_id), None)
    assert await texts(store, key.thread) == ["hello", "hi"]


async def test_the_queue_and_a_waiting_turn_end_with_the_mark(store: TurnStore) -> None:
    key, _ = await suspended(store)
    behind = await queued(store, key)
    marked = await ThreadEdits(store).begin_deletion(key.thread, None)
    assert marked.running is None
    for ended in (key, behind):
        row = await store.get_turn(ended)
        assert (row.state, row.stop_reason) == (TurnState.CANCELLED, "deleted")
    found = await rows(store, "SELECT state FROM actions WHERE turn_id = ?", key.turn_id)
    assert found == [("cancelled",)]
    events = await history(store, key)
    assert kinds(events)[-3:] == ["action_resolved", "tool_call_finished", "turn_finished"]
    assert events[-1].turn_finished.stop_reason == "deleted"
    assert await store.claim(key.thread) is None


async def test_a_running_turn_is_told_and_may_still_end_by_itself(store: TurnStore) -> None:
    key, journal = await begin(store)
    await answer(journal, said("so far"))
    edits = ThreadEdits(store)
    marked = await edits.begin_deletion(key.thread, None)
    assert marked.running == key
    assert [(k, note.stop_reason) for k, note in await store.stops()] == [(key, "deleted")]
    assert await edits.live_turn_of_deleted(key.thread) == key.turn_id
    await end(journal, DONE)
    assert await edits.live_turn_of_deleted(key.thread) == ""
    sealed = await edits.seal(key.thread)
    assert (await edits.begin_deletion(key.thread, None)).version == sealed


async def test_a_sealed_turn_is_shut_out_and_its_late_pages_are_dropped(store: TurnStore) -> None:
    key, journal = await begin(store)
    part = call("call-1")
    await answer(journal, part)
    edits = ThreadEdits(store)
    await edits.begin_deletion(key.thread, None)
    sealed = await edits.seal(key.thread)
    row = await store.get_turn(key)
    assert (row.state, row.stop_reason) == (TurnState.CANCELLED, "deleted")
    with pytest.raises(OwnerLost):
        await settle(journal, part, "too late")
    await purge(store, key.thread)
    with pytest.raises(OwnerLost):
        await end(journal)
    assert await counts(store, key.thread) == NOTHING
    assert await version(store, key.thread) == sealed


async def test_only_the_rows_of_the_deleted_thread_go_and_the_tombstone_keeps_its_epoch(
    store: TurnStore,
) -> None:
    kept, _ = await turn(store, text="stays")
    key, _ = await turn(store)
    await store.change(
        key.thread,
        lambda db: db.execute(
            "UPDATE threads SET title = 'secret', metadata = ?, private_metadata = ?, labels = ?"
            " WHERE thread_id = ?",
            ('{"a":"b"}', '{"c":"d"}', '{"e":"f"}', key.thread_id),
        ),
    )
    await ThreadEdits(store).begin_deletion(key.thread, None)
    before = await rows(store, "SELECT epoch, version FROM threads WHERE thread_id = ?", key.thread_id)
    await purge(store, key.thread)
    assert await counts(store, key.thread) == NOTHING
    assert await rows(store, "SELECT 1 FROM pages WHERE turn_id = ?", key.turn_id) == []
    assert await rows(store, "SELECT 1 FROM turn_heads WHERE turn_id = ?", key.turn_id) == []
    found = await rows(
        store,
        "SELECT epoch, version, title, agent, metadata, private_metadata, labels FROM threads"
        " WHERE thread_id = ?",
        key.thread_id,
    )
    assert found == [(*before[0], "", "", "{}", "{}", "{}")]
    assert await texts(store, kept.thread) == ["stays", "hi"]
    assert kinds(await history(store, kept))[-1] == "turn_finished"


async def test_rows_go_in_small_transactions_that_may_stop_and_start_anywhere(store: TurnStore) -> None:
    key, _ = await turn(store)
    for _ in range(4):
        await turn(store, key.thread_id)
    await ThreadEdits(store).begin_deletion(key.thread, None)
    assert await purge(store, key.thread, 3) > 5
    assert await counts(store, key.thread) == NOTHING
    assert await rows(store, "SELECT 1 FROM pages") == []


async def test_a_purge_is_listed_until_it_is_done(store: TurnStore) -> None:
    key, journal = await begin(store)
    edits = ThreadEdits(store)
    await edits.begin_deletion(key.thread, None)
    (purge_,) = await edits.purges()
    assert (purge_.thread, purge_.live_turn) == (key.thread, key.turn_id)
    assert 0 <= purge_.age < 60
    await end(journal)
    await edits.end_purge(key.thread)
    assert await edits.purges() == []


async def test_a_watcher_of_the_thread_hears_of_its_deletion_and_a_later_one_is_refused(
    store: TurnStore,
) -> None:
    key, _ = await turn(store)
    reader = store.watch.reader(key.thread, await version(store, key.thread))
    changes = aiter(reader)
    first = anext(changes)
    try:
        await ThreadEdits(store).begin_deletion(key.thread, None)
        # The watcher opened after the deletion is too late; one that was there hears it.
        with pytest.raises(NotFound) as refused:
            await first
        assert refused.value.reason == "THREAD_DELETED"
    finally:
        reader.close()
