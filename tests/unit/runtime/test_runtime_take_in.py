"""Messages that a running turn takes in: one unit, one place, and part of the turn ever after."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator

import pytest

from support.postgres import Location
from support.recovery_rig import invariants
from support.runtime_rig import begin, end, history, kinds, open_store, take
from support.thread_edits import answer, edit, hide, regenerate, retry, rows, said, turn, version
from turnwire.extend.events import MessageOrigin, SteerApplied, StepSettled, TurnFinished, TurnState
from turnwire.runtime.domain.message import ContentPart
from turnwire.runtime.domain.resumption import Progress
from turnwire.runtime.domain.rewrites import ForkCommand
from turnwire.runtime.domain.turn import InputPart, TurnKey
from turnwire.runtime.engine.history import model_messages
from turnwire.runtime.store import queries
from turnwire.runtime.store.changes import ChangeKind, read_changes
from turnwire.runtime.store.journal import Journal
from turnwire.runtime.store.thread_edits import ThreadEdits
from turnwire.runtime.store.turn_store import TurnStore

STOPPED = TurnFinished(TurnState.CANCELLED, "cancelled", 0.1, 1)
TAKEN = Progress(answer_retries=1, taken_in=1)


@pytest.fixture(name="store")
async def _store(store_location: Location) -> AsyncIterator[TurnStore]:
    async with open_store(store_location) as store:
        yield store


async def add(
    journal: Journal, text: str = "again", origin: MessageOrigin = MessageOrigin.REMINDER, *more: InputPart
) -> str:
    """Add a message to the turn; returns its id."""
    message_id = uuid.uuid4().hex[:20]
    applied = SteerApplied(f"{journal.key.thread.name}/messages/{message_id}", origin)
    parts = [InputPart(kind="text", text=text), *more]
    journal.take_in(message_id, origin, parts, [applied], progress=TAKEN)
    await journal.flush()
    return message_id


async def asked_twice(
    store: TurnStore, thread: str = "", text: str = "hello", how: TurnFinished | None = None
) -> tuple[TurnKey, str, str, str]:
    """Run a turn that answers, takes a message in and answers again; returns it and the three messages."""
    key, journal = await begin(store, thread, text=text)
    first = await answer(journal, said("one"))
    added = await add(journal)
    second = await answer(journal, said("two", 2))
    await (end(journal) if how is None else end(journal, how))
    return key, first, added, second


async def test_the_open_answer_is_closed_and_the_message_stands_behind_it(store: TurnStore) -> None:
    key, journal = await begin(store)
    await answer(journal, said("one"))
    await add(journal)
    _, first, added = await store.transcript(key.thread)
    assert (first.role, first.open, first.interrupted_reason) == ("assistant", False, "")
    assert (added.role, added.origin, added.turn_id) == ("user", MessageOrigin.REMINDER, key.turn_id)
    assert not added.open
    assert added.position > first.position
    await answer(journal, said("two", 2))
    *_, last = await store.transcript(key.thread)
    assert (last.role, last.open) == ("assistant", True)
    await end(journal)
    found = await history(store, key)
    assert kinds(found)[-4:] == ["step_committed", "steer_applied", "step_committed", "turn_finished"]
    applied = next(e.steer_applied for e in found if e.HasField("steer_applied"))
    assert applied.message == f"{key.thread.name}/messages/{added.message_id}"


@pytest.mark.parametrize("origin", [o for o in MessageOrigin if o is not MessageOrigin.REQUEST])
async def test_every_origin_and_every_kind_of_part_is_kept(store: TurnStore, origin: MessageOrigin) -> None:
    key, journal = await begin(store)
    image = InputPart(kind="blob", data=b"\x89PNG", media_type="image/png", filename="a.png")
    # Before the first answer there is nothing to close.
    await add(journal, "look", origin, image)
    _, added = await store.transcript(key.thread)
    assert added.origin is origin
    assert added.parts == (ContentPart(InputPart(kind="text", text="look")), ContentPart(image))
    await end(journal)


async def test_a_reader_of_the_thread_is_told_of_both_changes_and_may_stop_between_them(
    store: TurnStore,
) -> None:
    key, journal = await begin(store)
    await answer(journal, said("one"))
    before = await version(store, key.thread)
    await add(journal)
    assert await version(store, key.thread) == before + 2
    page = await store.read(lambda db: read_changes(db, key.thread, before, told=before))
    assert [(c.version, c.kind) for c in page.changes] == [
        (before + 1, ChangeKind.MESSAGE_CHANGED),
        (before + 2, ChangeKind.MESSAGE_ADDED),
    ]
    rest = await store.read(lambda db: read_changes(db, key.thread, before + 1, told=before))
    assert [c.kind for c in rest.changes] == [ChangeKind.MESSAGE_ADDED]
    await end(journal)


async def test_the_snapshot_of_the_thread_reaches_the_event_that_tells_of_the_message(
    store: TurnStore,
) -> None:
    key, journal = await begin(store)
    await answer(journal, said("one"))
    journal.emit(StepSettled(TAKEN.usage))
    await add(journal)
    found = await store.read(lambda db: queries.thread_snapshot(db, key.thread, 10))
    assert found.live_turn is not None
    assert found.transcript_sequence == found.live_turn.last_sequence
    await end(journal)


async def test_the_model_reads_it_as_a_user_message(store: TurnStore) -> None:
    key, *_ = await asked_twice(store)
    told = model_messages(await store.transcript(key.thread), "fake")
    assert [type(m).__name__ for m in told] == [
        "UserMessage",
        "AssistantMessage",
        "UserMessage",
        "AssistantMessage",
    ]


async def test_a_turn_that_goes_on_after_it_knows_that_it_was_taken_in(store_location: Location) -> None:
    async with open_store(store_location) as store:
        key, journal = await begin(store)
        first = await answer(journal, said("one"))
        await add(journal)
    invariants(store_location)
    async with open_store(store_location) as store:
        (admitted,) = await take(store)
        left = admitted.resumption
        assert left is not None
        assert (left.message_id, left.answer_id, left.last_text) == ("", first, "one")
        assert (left.step, left.progress.taken_in, left.progress.answer_retries) == (1, 1, 1)
        assert isinstance(admitted.journal, Journal)
        admitted.journal.resume(left)
        second = await answer(admitted.journal, said("two", 2))
        await end(admitted.journal)
        assert [m.message_id for m in await store.transcript(key.thread)][1:4:2] == [first, second]
    invariants(store_location)


async def test_a_stop_after_it_leaves_nothing_open(store: TurnStore) -> None:
    key, journal = await begin(store)
    await answer(journal, said("one"))
    await add(journal)
    before = await version(store, key.thread)
    await end(journal, STOPPED)
    # The end of the turn is the one change: no message was open.
    assert await version(store, key.thread) == before + 1
    assert not any(m.open for m in await store.transcript(key.thread))


# --- part of its turn ---


@pytest.mark.parametrize("named", ["first", "second", "latest"])
async def test_regenerate_makes_the_whole_turn_anew_whichever_of_its_answers_is_named(
    store: TurnStore, named: str
) -> None:
    key, *_ = await turn(store, text="before", reply="so")
    _, first, added, second = await asked_twice(store, key.thread_id)
    message = {"first": first, "second": second, "latest": ""}[named]
    done = await edit(store, regenerate(key.thread, await version(store, key.thread), message))
    visible = [m.message_id for m in await store.transcript(key.thread)]
    assert not {first, added, second} & set(visible)
    assert len(visible) == 3
    (asked,) = await rows(store, "SELECT input_message FROM turns WHERE turn_id = ?", done.turn.turn_id)  # type: ignore[union-attr]
    assert asked[0] == visible[-1]


async def test_a_retry_begins_at_the_request_and_not_at_what_was_added(store: TurnStore) -> None:
    key, first, added, second = await asked_twice(store, how=STOPPED)
    done = await edit(store, retry(key, await version(store, key.thread)))
    (request,) = await store.transcript(key.thread)
    assert request.origin is MessageOrigin.REQUEST
    assert done.turn is not None
    admitted = await store.claim(key.thread)
    assert admitted is not None
    assert admitted.spec.parts[0].text == "hello"


@pytest.mark.parametrize("later", [False, True])
async def test_a_copy_keeps_the_origin_and_regenerates_the_whole_turn_too(
    store: TurnStore, later: bool
) -> None:
    key, first, added, second = await asked_twice(store)
    if later:
        await asked_twice(store, key.thread_id, "more")
    copy = (await ThreadEdits(store).fork(ForkCommand(key.thread, str(uuid.uuid4())))).key
    origins = [m.origin for m in await store.transcript(copy)]
    assert origins[:4] == [MessageOrigin.REQUEST, None, MessageOrigin.REMINDER, None]
    await edit(store, regenerate(copy, await version(store, copy), second))
    (request,) = await store.transcript(copy)
    assert request.origin is MessageOrigin.REQUEST


async def test_an_added_message_can_be_hidden_like_any_other(store: TurnStore) -> None:
    key, first, added, second = await asked_twice(store)
    await edit(store, hide(key.thread, await version(store, key.thread), added))
    assert [m.message_id for m in await store.transcript(key.thread)][1:] == [first, second]
