"""Edits of histories in the store: all of an edit or nothing, at one version, and nothing is lost by it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest

from support.postgres import Location
from support.runtime_rig import CANCELLED, admit, begin, command, end, history, kinds, open_store, queued
from support.thread_edits import (
    FAILED,
    answer,
    call,
    edit,
    hide,
    regenerate,
    retry,
    rows,
    said,
    settle,
    snapshot,
    suspended,
    texts,
    turn,
    version,
    visibilities,
)
from turnwire.core.errors import AlreadyExists, Conflict, NotFound, TurnwireError, Unavailable, WrongState
from turnwire.extend.events import TurnState
from turnwire.extend.lifecycle import MetadataPatch
from turnwire.runtime.domain.rewrites import NewTurn
from turnwire.runtime.domain.turn import TurnKey
from turnwire.runtime.store.rewrites import Hold, Patched, commit_rewrite
from turnwire.runtime.store.thread_edits import ThreadEdits
from turnwire.runtime.store.turn_store import TurnStore
from turnwire.storage.units import Connection, Rows, SqlValue


@pytest.fixture(name="store")
async def _store(store_location: Location) -> AsyncIterator[TurnStore]:
    async with open_store(store_location) as store:
        yield store


async def refused(store: TurnStore, asked: object, error: type[TurnwireError], reason: str) -> None:
    """An edit is refused and has changed nothing."""
    thread = asked.thread  # type: ignore[attr-defined]
    before = await rows(
        store, "SELECT version, owner, lease, epoch, metadata FROM threads ORDER BY thread_id"
    )
    with pytest.raises(error) as caught:
        await edit(store, asked)  # type: ignore[arg-type]
    assert caught.value.reason == reason
    assert before == await rows(
        store, "SELECT version, owner, lease, epoch, metadata FROM threads ORDER BY thread_id"
    )
    assert await rows(store, "SELECT 1 FROM history_rewrites WHERE thread_id = ?", thread.thread_id) == []


async def test_an_answer_whose_question_is_hidden_is_not_made_anew_from_an_older_one(
    store: TurnStore,
) -> None:
    first, _ = await turn(store, text="one", reply="1")
    await turn(store, first.thread_id, text="two", reply="2")
    _, _, question, answer_2 = [m.message_id for m in await store.transcript(first.thread)]
    await edit(store, hide(first.thread, await version(store, first.thread), question))
    at = await version(store, first.thread)
    with pytest.raises(NotFound) as caught:
        await edit(store, regenerate(first.thread, at, answer_2))
    assert caught.value.reason == "MESSAGE_NOT_FOUND"
    assert await version(store, first.thread) == at


async def test_regenerate_supersedes_from_the_answer_on_and_asks_the_same_message_again(
    store: TurnStore,
) -> None:
    first, answer_1 = await turn(store, text="one", reply="1")
    await turn(store, first.thread_id, text="two", reply="2")
    at = await version(store, first.thread)
    done = await edit(store, regenerate(first.thread, at, answer_1))
    assert await texts(store, first.thread) == ["one"]
    assert await visibilities(store, first.thread) == ["visible", "superseded", "superseded", "superseded"]
    assert done.turn is not None
    row = await store.get_turn(done.turn)
    assert (row.state, row.retry_of, row.queue_position) == (TurnState.QUEUED, "", 1)
    # One change for the messages, one for the queue.
    assert done.version == at + 2
    admitted = await store.claim(first.thread)
    assert admitted is not None
    assert admitted.key == done.turn
    assert not admitted.first
    assert admitted.journal is not None
    await answer(admitted.journal, said("1, better"))  # type: ignore[arg-type]
    await end(admitted.journal)  # type: ignore[arg-type]
    assert await texts(store, first.thread) == ["one", "1, better"]
    events = await history(store, done.turn)
    (asked,) = [e.turn_started.input_message for e in events if e.HasField("turn_started")]
    (said_first,) = await rows(store, "SELECT input_message FROM turns WHERE turn_id = ?", first.turn_id)
    assert asked == f"{first.thread.name}/messages/{said_first[0]}"


async def test_regenerate_takes_the_latest_answer_when_none_is_named(store: TurnStore) -> None:
    key, _ = await turn(store, text="one", reply="1")
    await turn(store, key.thread_id, text="two", reply="2")
    await edit(store, regenerate(key.thread, await version(store, key.thread)))
    assert await texts(store, key.thread) == ["one", "1", "two"]


async def test_the_same_request_makes_one_turn_and_another_body_is_refused(store: TurnStore) -> None:
    key, message = await turn(store)
    asked = regenerate(key.thread, await version(store, key.thread), message)
    first = await edit(store, asked)
    again = await edit(store, replace(asked, expected_version=1))
    assert again.turn == first.turn
    with pytest.raises(AlreadyExists) as other:
        await edit(store, replace(asked, message=""))
    assert other.value.reason == "REQUEST_ID_REUSED"
    assert len(await rows(store, "SELECT 1 FROM turns WHERE origin = 'regenerate'")) == 1


async def test_the_request_id_of_a_turn_is_not_taken_for_an_edit(store: TurnStore) -> None:
    given = command()
    admitted = await admit(store, given)
    assert admitted.journal is not None
    await end(admitted.journal)  # type: ignore[arg-type]
    with pytest.raises(AlreadyExists):
        await edit(store, regenerate(admitted.key.thread, 1, request_id=given.request_id))


@pytest.mark.parametrize("partial", ["so f", ""])
async def test_a_failed_turn_is_tried_again_with_and_without_a_partial_answer(
    store: TurnStore, partial: str
) -> None:
    key, _ = await turn(store, text="one", reply=partial, how=FAILED)
    at = await version(store, key.thread)
    done = await edit(store, retry(key, at))
    assert await texts(store, key.thread) == ["one"]
    assert done.turn is not None
    row = await store.get_turn(done.turn)
    assert row.retry_of == key.turn_id
    assert done.version == at + (2 if partial else 1)
    admitted = await store.claim(key.thread)
    assert admitted is not None
    assert await texts(store, key.thread) == ["one"]


async def test_a_turn_that_was_cancelled_in_the_queue_brings_its_message_when_it_is_tried_again(
    store: TurnStore,
) -> None:
    key, journal = await begin(store, text="one")
    behind = await queued(store, key, text="two")
    await store.cancel_queued(behind, CANCELLED, ())
    await answer(journal, said("1"))
    await end(journal)
    done = await edit(store, retry(behind, await version(store, key.thread)))
    assert await store.claim(key.thread) is not None
    assert await texts(store, key.thread) == ["one", "1", "two"]
    assert done.turn is not None
    assert (await store.get_turn(done.turn)).retry_of == behind.turn_id


async def test_only_failed_and_cancelled_turns_are_tried_again(store: TurnStore) -> None:
    key, _ = await turn(store)
    at = await version(store, key.thread)
    await refused(store, retry(key, at), WrongState, "TURN_NOT_RETRYABLE")
    await refused(store, retry(replace(key, turn_id="no-such"), at), NotFound, "TURN_NOT_FOUND")
    failed, _ = await turn(store, key.thread_id, text="two", how=FAILED)
    ((said_two,),) = await rows(store, "SELECT input_message FROM turns WHERE turn_id = ?", failed.turn_id)
    await edit(store, hide(key.thread, await version(store, key.thread), said_two))
    with pytest.raises(WrongState) as hidden:
        await edit(store, retry(failed, await version(store, key.thread)))
    assert hidden.value.reason == "TURN_NOT_RETRYABLE"


async def test_while_a_turn_runs_nothing_is_edited(store: TurnStore) -> None:
    key, message = await turn(store)
    failed, _ = await turn(store, key.thread_id, how=FAILED)
    running, journal = await begin(store, key.thread_id)
    await answer(journal, said("so far"))
    at = await version(store, key.thread)
    for asked in (regenerate(key.thread, at), retry(failed, at), hide(key.thread, at, message)):
        await refused(store, asked, WrongState, "TURN_RUNNING")
    await end(journal)
    assert (await store.get_turn(running)).state is TurnState.COMPLETED


async def test_an_edit_of_another_version_is_refused(store: TurnStore) -> None:
    key, message = await turn(store)
    at = await version(store, key.thread)
    for asked in (regenerate(key.thread, at - 1), hide(key.thread, at + 1, message)):
        await refused(store, asked, Conflict, "THREAD_CHANGED")


async def test_messages_that_cannot_be_meant_are_not_found(store: TurnStore) -> None:
    key, message = await turn(store)
    other, elsewhere = await turn(store)
    ((said_first,),) = await rows(
        store, "SELECT message_id FROM messages WHERE thread_id = ? AND role = 'user'", key.thread_id
    )
    at = await version(store, key.thread)
    for asked in (
        regenerate(key.thread, at, elsewhere),
        regenerate(key.thread, at, said_first),
        hide(key.thread, at, message, elsewhere),
        regenerate(replace(key.thread, scope="other"), at),
    ):
        await refused(store, asked, NotFound, "MESSAGE_NOT_FOUND")
    await edit(store, regenerate(key.thread, at))
    with pytest.raises(NotFound):
        await edit(store, hide(key.thread, await version(store, key.thread), message))
    assert await texts(store, other.thread) == ["hello", "hi"]


async def test_a_waiting_turn_is_ended_by_the_edit_and_its_calls_get_their_result(store: TurnStore) -> None:
    key, _ = await suspended(store, text="one")
    done = await edit(store, regenerate(key.thread, await version(store, key.thread)))
    row = await store.get_turn(key)
    assert (row.state, row.stop_reason, row.open_actions) == (TurnState.CANCELLED, "superseded", ())
    ((outcome, content),) = await rows(store, "SELECT outcome, content FROM tool_calls")
    assert outcome == "not-started"
    assert content.startswith("<tool_not_started")
    assert await rows(store, "SELECT state FROM actions") == [("cancelled",)]
    assert await rows(store, "SELECT status, visibility FROM messages WHERE role = 'assistant'") == [
        ("final", "superseded")
    ]
    assert kinds(await history(store, key))[-3:] == ["action_resolved", "tool_call_finished", "turn_finished"]
    assert await texts(store, key.thread) == ["one"]
    admitted = await store.claim(key.thread)
    assert admitted is not None
    assert admitted.key == done.turn


async def test_the_new_turn_runs_before_those_that_wait(store: TurnStore) -> None:
    key, _ = await suspended(store, text="one")
    behind = await queued(store, key, text="two")
    done = await edit(store, regenerate(key.thread, await version(store, key.thread)))
    found = await snapshot(store, key.thread)
    assert [row.key for row in found.queued] == [done.turn, behind]
    first = await store.claim(key.thread)
    assert first is not None
    assert first.key == done.turn
    assert first.journal is not None
    await answer(first.journal, said("1"))  # type: ignore[arg-type]
    await end(first.journal)  # type: ignore[arg-type]
    second = await store.claim_next(key.thread)
    assert second is not None
    assert second.key == behind
    assert await texts(store, key.thread) == ["one", "1", "two"]


async def test_hidden_messages_leave_the_view_and_come_back_whole(store: TurnStore) -> None:
    key, journal = await begin(store, text="one")
    part = call("call-1")
    message = await answer(journal, said("let me see"), part)
    await settle(journal, part, "seen")
    await end(journal)
    at = await version(store, key.thread)
    hidden = await edit(store, hide(key.thread, at, message))
    assert hidden.version == at + 1
    assert await texts(store, key.thread) == ["one"]
    assert [m.message_id for m in (await snapshot(store, key.thread)).messages] != [message]
    shown = await edit(store, hide(key.thread, hidden.version, message, visibility="visible"))
    assert shown.version == at + 2
    (back,) = [m for m in await store.transcript(key.thread) if m.message_id == message]
    assert len(back.parts) == 2


async def test_hiding_what_is_hidden_changes_nothing(store: TurnStore) -> None:
    key, message = await turn(store)
    hidden = await edit(store, hide(key.thread, await version(store, key.thread), message))
    again = await edit(store, hide(key.thread, hidden.version, message))
    assert again.version == hidden.version
    assert len(await rows(store, "SELECT 1 FROM history_rewrites")) == 1


async def test_the_open_message_of_a_waiting_turn_cannot_be_hidden_and_others_can(store: TurnStore) -> None:
    first, message = await turn(store)
    waiting, opened = await suspended(store, first.thread_id)
    at = await version(store, first.thread)
    await refused(store, hide(first.thread, at, message, opened), WrongState, "MESSAGE_OPEN")
    await edit(store, hide(first.thread, at, message))
    assert (await store.get_turn(waiting)).state is TurnState.WAITING


async def test_metadata_and_history_change_together_and_are_noted(store: TurnStore) -> None:
    key, message = await turn(store)
    at = await version(store, key.thread)
    patch = MetadataPatch({"title": "edited"}, {"secret": "1"})
    done = await edit(store, regenerate(key.thread, at, message, subject="ann"), patch=patch)
    assert done.version == at + 3
    ((public, private),) = await rows(
        store, "SELECT metadata, private_metadata FROM threads WHERE thread_id = ?", key.thread_id
    )
    assert (json.loads(public), json.loads(private)) == ({"title": "edited"}, {"secret": "1"})
    found = await rows(
        store, "SELECT kind, subject, base_version, new_version, changes, observe_time FROM history_rewrites"
    )
    ((kind, subject, base, new, changes, observed),) = found
    assert (kind, subject, base, new, observed) == ("regenerate", "ann", at, done.version, 0)
    assert done.turn is not None
    assert json.loads(changes) == {"messages": [message], "turn": done.turn.turn_id}
    patch = MetadataPatch({"title": None}, {"secret": None})
    await edit(store, hide(key.thread, done.version, await _user_message(store, key)), patch=patch)
    assert await rows(store, "SELECT metadata, private_metadata FROM threads") == [("{}", "{}")]


async def _user_message(store: TurnStore, key: TurnKey) -> str:
    ((message,),) = await rows(store, "SELECT input_message FROM turns WHERE turn_id = ?", key.turn_id)
    return str(message)


class Breaking:
    """A connection that breaks at its n-th statement."""

    def __init__(self, db: Connection, at: int) -> None:
        self.now_ns = db.now_ns
        self.reclaim = db.reclaim
        self._db = db
        self._left = at

    def execute(self, sql: str, params: Sequence[SqlValue] = (), /) -> Rows:
        if not self._left:
            raise RuntimeError("broken")
        self._left -= 1
        return self._db.execute(sql, params)


async def everything(store: TurnStore) -> list[list[tuple[object, ...]]]:
    tables = ("threads", "turns", "turn_heads", "messages", "tool_calls", "actions", "history_rewrites")
    return [sorted(await rows(store, f"SELECT * FROM {table}"), key=repr) for table in tables]


async def test_an_edit_that_breaks_at_any_statement_has_changed_nothing(store: TurnStore) -> None:
    key, _ = await suspended(store)
    asked = regenerate(key.thread, await version(store, key.thread))
    base = await ThreadEdits(store).study(asked)
    assert base.spec is not None
    turn_key = replace(key, turn_id="turn-anew")
    new = NewTurn(turn_key, base.spec, base.agent, "digest", 30, 0.0)
    patch = MetadataPatch({"title": "edited"}, {"secret": "1"})
    given = Patched("rewrite-1", new, patch, None, store.owner)
    before = await everything(store)
    for at in range(100):
        try:
            done, _ = await store.change(
                key.thread,
                lambda db, at=at: commit_rewrite(Breaking(db, at), asked, given, store.encode_page),  # type: ignore[misc]
            )
        except RuntimeError:
            assert await everything(store) == before
        else:
            break
    assert at > 15
    assert done.turn == turn_key
    assert await everything(store) != before


async def test_of_two_edits_of_one_version_one_wins(store: TurnStore) -> None:
    key, message = await turn(store)
    at = await version(store, key.thread)
    edits = ThreadEdits(store)
    first, second = regenerate(key.thread, at), hide(key.thread, at, message)
    await edits.study(second)
    await edit(store, first)
    with pytest.raises(Conflict) as lost:
        await edits.commit_rewrite(second, "rewrite-2", None, MetadataPatch({"a": "b"}), None)
    assert lost.value.reason == "THREAD_CHANGED"
    assert await rows(store, "SELECT metadata FROM threads") == [("{}",)]


async def test_a_held_thread_takes_no_other_edit_and_no_turn_until_it_is_given_back(store: TurnStore) -> None:
    key, message = await turn(store)
    at = await version(store, key.thread)
    edits = ThreadEdits(store)
    asked = hide(key.thread, at, message)
    epoch = await edits.hold(asked)
    await refused_held(edits, hide(key.thread, at, message))
    behind = await admit(store, command(key.thread_id, text="two"))
    assert behind.journal is None
    assert await store.claim(key.thread) is None
    await edits.release(key.thread, epoch)
    claimed = await store.claim(key.thread)
    assert claimed is not None
    assert claimed.key == behind.key


async def refused_held(edits: ThreadEdits, asked: object) -> None:
    with pytest.raises(Unavailable) as held:
        await edits.hold(asked)  # type: ignore[arg-type]
    assert held.value.reason == "THREAD_HELD"
    assert held.value.retry_after


async def test_an_edit_under_its_lease_gives_the_thread_back_with_its_commit(store: TurnStore) -> None:
    key, message = await turn(store)
    asked = hide(key.thread, await version(store, key.thread), message)
    epoch = await ThreadEdits(store).hold(asked)
    await edit(store, asked, held=Hold(store.owner, epoch))
    assert await rows(store, "SELECT owner, lease FROM threads") == [("", "")]
    assert await texts(store, key.thread) == ["hello"]


async def test_an_edit_whose_thread_was_deleted_meanwhile_finds_no_thread(store: TurnStore) -> None:
    key, message = await turn(store)
    edits = ThreadEdits(store)
    asked = hide(key.thread, await version(store, key.thread), message)
    epoch = await edits.hold(asked)
    await edits.begin_deletion(key.thread, None)
    with pytest.raises(NotFound):
        await edits.commit_rewrite(asked, "rewrite-1", None, MetadataPatch(), epoch)
