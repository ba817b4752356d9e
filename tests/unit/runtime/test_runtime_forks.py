"""Copies of threads: whole, independent of their origin, and made once per request."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from support.postgres import Location
from support.runtime_rig import begin, end, open_store
from support.thread_edits import (
    answer,
    call,
    counts,
    edit,
    hide,
    regenerate,
    rows,
    said,
    settle,
    snapshot,
    suspended,
    texts,
    turn,
    version,
)
from turnwire.core.errors import AlreadyExists, NotFound, WrongState
from turnwire.extend.events import Overflow, ResultPart
from turnwire.runtime.domain.message import CallPart
from turnwire.runtime.domain.rewrites import ForkCommand
from turnwire.runtime.domain.turn import ThreadKey
from turnwire.runtime.store.deletion import purge_rows
from turnwire.runtime.store.thread_edits import ThreadEdits
from turnwire.runtime.store.turn_store import TurnStore

HANDLE = Overflow("sha256:" + "a" * 64, 9, "a" * 64, "text/plain")


@pytest.fixture(name="store")
async def _store(store_location: Location) -> AsyncIterator[TurnStore]:
    async with open_store(store_location) as store:
        yield store


def fork(thread: ThreadKey, message: str = "", thread_id: str = "") -> ForkCommand:
    return ForkCommand(thread, str(uuid.uuid4()), message, thread_id)


async def test_a_fork_has_what_can_be_read_up_to_the_message_and_lives_on_its_own(store: TurnStore) -> None:
    key, first = await turn(store, text="one", reply="1")
    await turn(store, key.thread_id, text="two", reply="2")
    at = await version(store, key.thread)
    row = await ThreadEdits(store).fork(fork(key.thread, first))
    assert row.forked_from == f"{key.thread.name}/messages/{first}"
    assert (row.version, row.agent) == (1, "agents/helper")
    assert await texts(store, row.key) == ["one", "1"]
    assert await version(store, key.thread) == at
    await turn(store, row.key.thread_id, text="three", reply="3")
    assert await texts(store, row.key) == ["one", "1", "three", "3"]
    assert await texts(store, key.thread) == ["one", "1", "two", "2"]


async def test_a_fork_leaves_out_what_was_hidden_or_superseded(store: TurnStore) -> None:
    key, first = await turn(store, text="one", reply="1")
    await turn(store, key.thread_id, text="two", reply="2")
    done = await edit(store, hide(key.thread, await version(store, key.thread), first))
    await edit(store, regenerate(key.thread, done.version))
    row = await ThreadEdits(store).fork(fork(key.thread))
    assert await texts(store, row.key) == ["one", "two"]
    assert (await counts(store, row.key))["turns"] == 0
    with pytest.raises(NotFound) as hidden:
        await ThreadEdits(store).fork(fork(key.thread, first))
    assert hidden.value.reason == "MESSAGE_NOT_FOUND"


async def test_a_fork_shows_long_results_and_keeps_no_handle_of_them(store: TurnStore) -> None:
    key, journal = await begin(store)
    part = call("call-1")
    await answer(journal, said("let me see"), part)
    parts = (ResultPart("image/png", b"tiny"), ResultPart("image/png", overflow=HANDLE))
    await settle(journal, part, "head ... tail", overflow=HANDLE, parts=parts)
    await end(journal)
    row = await ThreadEdits(store).fork(fork(key.thread))
    for thread, overflow, shown in ((key.thread, HANDLE, parts), (row.key, None, parts[:1])):
        (message,) = [m for m in await store.transcript(thread) if m.role == "assistant"]
        (copied,) = [p for p in message.parts if isinstance(p, CallPart)]
        assert (copied.content, copied.overflow, copied.parts) == ("head ... tail", overflow, shown)


async def test_a_fork_stays_when_its_origin_is_deleted_and_the_other_way_round(store: TurnStore) -> None:
    key, _ = await turn(store)
    edits = ThreadEdits(store)
    first, second = await edits.fork(fork(key.thread)), await edits.fork(fork(key.thread))
    for gone in (key.thread, second.key):
        await edits.begin_deletion(gone, None)
        while await store.change(gone, lambda db, gone=gone: purge_rows(db, gone)):  # type: ignore[misc]
            pass
    assert await texts(store, first.key) == ["hello", "hi"]


async def test_an_answer_of_a_fork_can_be_made_anew(store: TurnStore) -> None:
    key, _ = await turn(store)
    row = await ThreadEdits(store).fork(fork(key.thread))
    done = await edit(store, regenerate(row.key, 1))
    assert done.turn is not None
    admitted = await store.claim(row.key)
    assert admitted is not None
    assert [part.text for part in admitted.spec.parts] == ["hello"]
    assert await texts(store, row.key) == ["hello"]


async def test_the_same_request_makes_one_fork_and_another_body_is_refused(store: TurnStore) -> None:
    key, message = await turn(store)
    edits = ThreadEdits(store)
    asked = fork(key.thread, thread_id="my-copy")
    first = await edits.fork(asked)
    assert await edits.fork(asked) == first
    assert first.key.thread_id == "my-copy"
    with pytest.raises(AlreadyExists) as other:
        await edits.fork(replace(asked, message=message))
    assert other.value.reason == "REQUEST_ID_REUSED"
    with pytest.raises(AlreadyExists) as used:
        await edits.fork(fork(key.thread, thread_id="my-copy"))
    assert used.value.reason == "THREAD_ID_USED"


async def test_an_open_message_is_not_copied_and_an_empty_thread_is(store: TurnStore) -> None:
    key, opened = await suspended(store)
    for asked in (fork(key.thread), fork(key.thread, opened)):
        with pytest.raises(WrongState) as refused:
            await ThreadEdits(store).fork(asked)
        assert refused.value.reason == "MESSAGE_OPEN"
    ((said_first,),) = await rows(store, "SELECT message_id FROM messages WHERE role = 'user'")
    row = await ThreadEdits(store).fork(fork(key.thread, said_first))
    assert await texts(store, row.key) == ["hello"]
    empty = await ThreadEdits(store).fork(fork(ThreadKey("team", row.key.thread_id), said_first))
    assert empty.forked_from == f"{row.key.name}/messages/{said_first}"
    with pytest.raises(NotFound):
        await ThreadEdits(store).fork(fork(ThreadKey("other", key.thread_id)))


async def test_a_reader_of_a_fork_gets_it_as_a_snapshot(store: TurnStore) -> None:
    key, _ = await turn(store)
    row = await ThreadEdits(store).fork(fork(key.thread))
    reader = store.watch.reader(row.key, 0)
    try:
        change = await anext(aiter(reader))
    finally:
        reader.close()
    assert change is not None
    assert change.kind.value == "resnapshot"
    assert len((await snapshot(store, row.key)).messages) == 2


async def test_a_long_thread_is_copied_by_a_handful_of_statements(store: TurnStore) -> None:
    key, _ = await turn(store)
    # Two thousand messages, made of the one that is there.
    await store.change(
        key.thread,
        lambda db: [
            db.execute(
                "INSERT INTO messages (scope, thread_id, position, message_id, role, turn_id, status, origin,"
                " create_time, update_time) SELECT scope, thread_id, ?, ?, role, turn_id, status, origin,"
                " create_time, update_time FROM messages WHERE thread_id = ? AND position = 1",
                (number, f"message-{number}", key.thread_id),
            )
            and db.execute(
                "INSERT INTO message_parts (scope, thread_id, message_id, part_index, step, kind, text)"
                " VALUES (?, ?, ?, 0, 0, 'text', 'again')",
                (key.scope, key.thread_id, f"message-{number}"),
            )
            for number in range(3, 2001)
        ],
    )
    began = time.monotonic()
    row = await ThreadEdits(store).fork(fork(key.thread))
    assert time.monotonic() - began < 10
    assert (await counts(store, row.key))["messages"] == 2000
