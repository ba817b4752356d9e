"""Admission, queue, claim and recovery on a real file."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from support.postgres import Location
from support.runtime_rig import (
    CANCELLED,
    DONE,
    admit,
    begin,
    command,
    end,
    history,
    kinds,
    open_store,
    queued,
    reader,
    take,
)
from turnwire.core.errors import AlreadyExists, Conflict, Exhausted, NotFound, WrongState
from turnwire.extend.events import (
    EpisodeKind,
    StepCommitted,
    StepStarted,
    ToolCallFinished,
    ToolCallStarted,
    ToolOutcome,
    TurnState,
)
from turnwire.extend.llm import TextDelta
from turnwire.runtime.domain.admission import AppliedCommand
from turnwire.runtime.domain.message import BegunTools, CallPart, ContentPart, ReasoningText
from turnwire.runtime.domain.resumption import CallState
from turnwire.runtime.domain.thread import NewThreadCommand
from turnwire.runtime.domain.turn import BusyPolicy, Disposition, InputPart, ThreadKey, TurnKey
from turnwire.runtime.store import queries
from turnwire.runtime.store.queries import Filter
from turnwire.runtime.store.turn_store import TurnStore

REQUEST = "7d3f2c1e-8f0a-4a37-9a55-0c6f3a1f9b10"


@pytest.fixture
async def store(store_location: Location) -> AsyncIterator[TurnStore]:
    async with open_store(store_location) as opened:
        yield opened


def text(content: str, step: int = 1) -> ContentPart:
    return ContentPart(InputPart(kind="text", text=content), step)


def call(call_id: str, index: int = 0, step: int = 1) -> CallPart:
    return CallPart(call_id, "p", "send", '{"a":1}', step, index)


# --- admission ---


async def test_a_turn_on_an_idle_thread_begins_in_its_admission(store: TurnStore) -> None:
    admitted = await admit(store, command(new_thread={"title": "t"}))
    assert admitted.disposition is Disposition.STARTED
    assert admitted.first
    row = await store.get_turn(admitted.key)
    assert (row.state, row.epoch, row.last_sequence) == (TurnState.RUNNING, 1, 2)
    (message,) = await store.transcript(admitted.key.thread)
    assert (message.role, message.turn_id) == ("user", admitted.key.turn_id)


async def test_the_same_request_joins_its_turn_and_another_body_is_refused(store: TurnStore) -> None:
    thread = ThreadKey("team", "thread-1")
    await store.create_thread(NewThreadCommand("team", thread_id=thread.thread_id))
    first = await admit(store, command("thread-1", request_id=REQUEST))
    again = await admit(store, command("thread-1", request_id=REQUEST))
    assert (again.key, again.disposition, again.journal) == (first.key, Disposition.ATTACHED, None)
    with pytest.raises(AlreadyExists) as caught:
        await admit(store, command("thread-1", request_id=REQUEST, text="other"))
    assert caught.value.reason == "REQUEST_ID_REUSED"
    assert caught.value.metadata["turn"] == first.key.name


async def test_a_request_is_known_after_a_restart(store_location: Location) -> None:
    path = store_location
    asked = command(new_thread={}, request_id=REQUEST)
    async with open_store(path) as store:
        key, journal = (await admit(store, asked)).key, None
        assert journal is None
    async with open_store(path) as store:
        assert (await admit(store, asked)).key == key
        found = await store.find(asked)
        assert found is not None
        assert found.key == key


async def test_request_ids_of_two_scopes_have_nothing_to_do_with_each_other(store: TurnStore) -> None:
    one = await admit(store, command(request_id=REQUEST, scope="one"))
    two = await admit(store, command(request_id=REQUEST, scope="two"))
    assert one.key.turn_id != two.key.turn_id


async def test_twenty_equal_requests_at_once_are_one_turn(store: TurnStore) -> None:
    asked = command(request_id=REQUEST)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(admit(store, asked)) for _ in range(20)]
    found = [t.result() for t in tasks]
    assert len({f.key for f in found}) == 1
    assert sum(f.journal is not None for f in found) == 1
    assert [f.disposition for f in found].count(Disposition.STARTED) == 1


async def test_twenty_different_requests_at_once_are_one_running_turn_and_a_queue(store: TurnStore) -> None:
    await store.create_thread(NewThreadCommand("team", thread_id="thread-1"))
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(admit(store, command("thread-1"))) for _ in range(20)]
    found = [t.result().disposition for t in tasks]
    assert found.count(Disposition.STARTED) == 1
    assert found.count(Disposition.QUEUED) == 19


async def test_a_thread_that_is_not_there_or_foreign_takes_nothing(store: TurnStore) -> None:
    key, _ = await begin(store)
    for asked in (command("nowhere"), command(key.thread_id, scope="other")):
        with pytest.raises(NotFound) as caught:
            await admit(store, asked)
        assert caught.value.reason == "THREAD_NOT_FOUND"
    assert len(await store.transcript(key.thread)) == 1


async def test_a_thread_id_in_use_is_refused(store: TurnStore) -> None:
    await admit(store, command(new_thread={"thread_id": "mine-1"}))
    with pytest.raises(AlreadyExists) as caught:
        await admit(store, command(new_thread={"thread_id": "mine-1"}))
    assert caught.value.reason == "THREAD_ID_USED"


async def test_an_expected_version_that_has_passed_is_refused_and_names_the_present_one(
    store: TurnStore,
) -> None:
    key, journal = await begin(store)
    await end(journal)
    now = await store.read(lambda db: queries.get_thread(db, key.thread))
    with pytest.raises(Conflict) as caught:
        await admit(store, command(key.thread_id, expected_version=1))
    assert caught.value.metadata["version"] == str(now.version)
    assert (await admit(store, command(key.thread_id, expected_version=now.version))).journal


async def test_a_refused_admission_leaves_nothing(store: TurnStore) -> None:
    key, _ = await begin(store)
    before = await store.read(lambda db: queries.get_thread(db, key.thread))
    with pytest.raises(WrongState) as caught:
        await admit(store, command(key.thread_id, busy_policy="reject"))
    assert caught.value.reason == "THREAD_BUSY"
    assert caught.value.metadata["turn"] == key.name
    assert await store.read(lambda db: queries.get_thread(db, key.thread)) == before


async def test_a_full_queue_is_refused(store_location: Location) -> None:
    async with open_store(store_location, queue_limit=2) as store:
        key, _ = await begin(store)
        await queued(store, key)
        await queued(store, key)
        with pytest.raises(Exhausted) as caught:
            await admit(store, command(key.thread_id))
        assert caught.value.reason == "QUEUE_FULL"


async def test_a_created_thread_is_remembered_by_its_request(store: TurnStore) -> None:
    new = NewThreadCommand("team", REQUEST, title="one", labels={"a": "b"})
    first = await store.create_thread(new)
    assert (await store.create_thread(new)).key == first.key
    with pytest.raises(AlreadyExists) as caught:
        await store.create_thread(NewThreadCommand("team", REQUEST, title="two"))
    assert caught.value.reason == "REQUEST_ID_REUSED"


# --- queue ---


async def test_queued_turns_run_in_the_order_they_came_and_say_their_place(store: TurnStore) -> None:
    key, journal = await begin(store)
    waiting = [await queued(store, key, text=f"number {n}") for n in range(3)]
    assert [(await store.get_turn(k)).queue_position for k in waiting] == [1, 2, 3]
    await end(journal)
    for index, expected in enumerate(waiting):
        admitted = await store.claim_next(key.thread)
        assert admitted is not None
        assert admitted.key == expected
        assert (admitted.agent, admitted.max_steps, admitted.first) == ("agents/helper", 30, False)
        places = [(await store.get_turn(k)).queue_position for k in waiting[index + 1 :]]
        assert places == list(range(1, len(places) + 1))
        assert admitted.journal is not None
        await admitted.journal.finish(DONE, interrupted_reason="", applied=())
    assert await store.claim_next(key.thread) is None


async def test_the_message_of_a_queued_turn_enters_the_thread_when_it_begins(store: TurnStore) -> None:
    key, journal = await begin(store, text="one")
    await queued(store, key, text="two")
    assert len(await store.transcript(key.thread)) == 1
    await end(journal)
    await store.claim_next(key.thread)
    said = [m.parts[0].content.text for m in await store.transcript(key.thread)]  # type: ignore[union-attr]
    assert said == ["one", "two"]


async def test_nothing_is_claimed_while_a_turn_is_live(store: TurnStore) -> None:
    key, _ = await begin(store)
    await queued(store, key)
    assert await store.claim_next(key.thread) is None
    assert await store.claim_next(key.thread) is None


async def test_a_turn_queued_behind_one_that_slipped_in_is_found_when_that_one_ends(
    store: TurnStore,
) -> None:
    # A ends; before its owner looks for the next turn, B has begun and C waits behind it.
    key, journal = await begin(store)
    await end(journal)
    _, second = await begin(store, key.thread_id)
    third = await queued(store, key)
    assert await store.claim_next(key.thread) is None
    await end(second)
    admitted = await store.claim_next(key.thread)
    assert admitted is not None
    assert admitted.key == third


async def test_an_admission_under_way_is_seen_by_the_end_of_the_turn_before(store: TurnStore) -> None:
    key, journal = await begin(store)
    await journal.finish(DONE, interrupted_reason="", applied=())
    _, second = await begin(store, key.thread_id)
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(admit(store, command(key.thread_id)))
        await asyncio.sleep(0)
        group.create_task(end(second))
    admitted = await store.claim_next(key.thread)
    late = waiting.result()
    assert admitted is not None or late.journal is not None


async def test_a_queued_turn_can_be_cancelled_and_its_readers_hear_it(store: TurnStore) -> None:
    key, _ = await begin(store)
    waiting = await queued(store, key)
    reading = await reader(store, waiting)
    applied = (AppliedCommand("command-1", "applied"),)
    assert await store.cancel_queued(waiting, CANCELLED, applied) == 2
    async with asyncio.timeout(5):
        assert [p async for p in reading]
    reading.close()
    assert kinds(await history(store, waiting)) == ["turn_accepted", "turn_finished"]
    row = await store.get_turn(waiting)
    assert (row.state, row.stop_reason, row.queue_position) == (TurnState.CANCELLED, "cancelled", 0)
    assert await store.applied_command("team", "command-1") == (waiting.name, "applied", "", 2)
    assert await store.cancel_queued(waiting, CANCELLED, ()) is None
    assert store.open_logs == 1


async def test_a_running_turn_is_not_cancelled_as_a_queued_one(store: TurnStore) -> None:
    key, _ = await begin(store)
    assert await store.cancel_queued(key, CANCELLED, ()) is None


# --- what a turn leaves ---


async def test_a_turn_with_a_step_is_read_back_as_it_was_written(store: TurnStore) -> None:
    key, journal = await begin(store)
    parts = [ReasoningText("hm", 1, "[1]", "fake"), text("let me see"), call("call-1")]
    journal.begin_answer("answer-1")
    journal.commit_step(parts, [StepCommitted("m", ("call-1",))])
    journal.record_start(call("call-1"), ToolCallStarted("call-1", "send", 1, 9.0))
    done = CallPart("call-1", "p", "send", '{"a":1}', 1, 0, ToolOutcome.SUCCEEDED, "sent")
    journal.record_outcome(
        done, ToolCallFinished("call-1", "send", ToolOutcome.SUCCEEDED, "sent", False, 0.1, 1, 0)
    )
    journal.commit_step([text("done", 2), BegunTools(("add",), 2)], [StepCommitted("m")])
    await end(journal)
    _, answer = await store.transcript(key.thread)
    assert answer.parts == (*parts[:2], done, text("done", 2), BegunTools(("add",), 2))
    assert not answer.open
    row = await store.get_turn(key)
    assert (row.state, row.step) == (TurnState.COMPLETED, 1)
    thread = await store.read(lambda db: queries.get_thread(db, key.thread))
    assert thread.live_turn == ""
    assert store.open_logs == 0


async def test_the_snapshot_of_a_live_thread_names_the_sequence_its_messages_reach(store: TurnStore) -> None:
    key, journal = await begin(store)
    journal.emit(TextDelta("hello"))
    journal.begin_answer("answer-1")
    journal.commit_step([text("hello")], [StepCommitted("m")])
    journal.emit(TextDelta("not yet in the transcript"))
    await journal.flush()
    found = await store.read(lambda db: queries.thread_snapshot(db, key.thread, 10))
    assert found.transcript_sequence == 4
    assert found.live_turn is not None
    assert found.live_turn.last_sequence == 5
    assert [m.role for m in found.messages] == ["user", "assistant"]


async def test_each_visible_change_makes_the_version_of_the_thread_grow(store: TurnStore) -> None:
    key, journal = await begin(store)

    async def version() -> int:
        return (await store.read(lambda db: queries.get_thread(db, key.thread))).version

    seen = [await version()]
    journal.begin_answer("answer-1")
    journal.commit_step([text("a")], [StepCommitted("m")])
    await journal.flush()
    seen.append(await version())
    await queued(store, key)
    seen.append(await version())
    await end(journal)
    seen.append(await version())
    assert seen == sorted(set(seen))


async def test_lists_are_of_one_scope_and_go_on_where_they_stopped(store: TurnStore) -> None:
    keys = [(await begin(store))[0] for _ in range(5)]
    await begin(store, scope="other")
    everything = ThreadKey("team", "-")
    found = await store.read(lambda db: queries.list_turns(db, everything, Filter(), None, 3))
    last = (found[-1].create_time, found[-1].key.turn_id)
    rest = await store.read(lambda db: queries.list_turns(db, everything, Filter(), last, 3))
    assert [r.key for r in [*found, *rest]] == keys[::-1]


# --- restart ---


async def test_a_turn_that_a_crash_left_running_goes_on_where_it_stood(store_location: Location) -> None:
    path = store_location
    async with open_store(path) as store:
        key, journal = await begin(store)
        calls = [call("call-1", 0), call("call-2", 1), call("call-3", 2)]
        journal.begin_answer("answer-1")
        journal.commit_step([text("working"), *calls], [StepCommitted("m", ("call-1", "call-2", "call-3"))])
        done = CallPart("call-1", "p", "send", '{"a":1}', 1, 0, ToolOutcome.SUCCEEDED, "sent")
        journal.record_outcome(
            done, ToolCallFinished("call-1", "send", ToolOutcome.SUCCEEDED, "sent", False, 0.1, 1, 0)
        )
        journal.record_start(calls[1], ToolCallStarted("call-2", "send", 1, 9.0))
        await queued(store, key)
        await journal.flush()
    async with open_store(path) as store:
        (admitted,) = await take(store)
        assert admitted.key == key
        assert admitted.journal is not None
        assert admitted.journal.epoch == 2
        found = admitted.resumption
        assert found is not None
        assert (found.episode, found.kind, found.step, found.settled) == (2, EpisodeKind.RECOVERY, 1, False)
        assert (found.message_id, found.part_index, found.last_text) == ("answer-1", 4, "working")
        assert [(c.part.call_id, c.state) for c in found.calls] == [
            ("call-1", CallState.FINISHED),
            ("call-2", CallState.STARTED),
            ("call-3", CallState.READY),
        ]
        assert found.calls[0].part == done
        row = await store.get_turn(key)
        assert (row.state, row.epoch) == (TurnState.RUNNING, 2)
        assert await store.claim_next(key.thread) is None


async def test_model_output_of_a_step_that_was_not_committed_is_void_after_a_restart(
    store_location: Location,
) -> None:
    path = store_location
    async with open_store(path) as store:
        key, journal = await begin(store)
        journal.at(step=1)
        journal.emit(StepStarted(1, 30, "fake:model"))
        for word in ("one ", "two ", "three"):
            journal.emit(TextDelta(word))
        await journal.flush()
    async with open_store(path) as store:
        (admitted,) = await take(store)
        assert admitted.resumption is not None
        assert (admitted.resumption.step, admitted.resumption.next_attempt) == (0, 2)
        assert admitted.journal is not None
        await admitted.journal.finish(DONE, interrupted_reason="", applied=())
        *_, resumed, reset, _ = await history(store, key)
        assert (resumed.turn_resumed.episode, resumed.turn_resumed.epoch) == (2, 2)
        assert (reset.step_reset.from_sequence, reset.step_reset.to_sequence) == (4, 6)
        assert reset.step_reset.cause == "recovery"


async def test_a_turn_that_kills_its_owner_three_times_ends(
    store_location: Location,
) -> None:
    path = store_location
    async with open_store(path) as store:
        key, journal = await begin(store)
        journal.begin_answer("answer-1")
        journal.commit_step([text("working"), call("call-1")], [StepCommitted("m", ("call-1",))])
        waiting = await queued(store, key)
        await journal.flush()
    for episode in (2, 3):
        async with open_store(path) as store:
            (admitted,) = await take(store)
            assert admitted.resumption is not None
            assert (admitted.key, admitted.resumption.episode) == (key, episode)
    async with open_store(path) as store:
        (admitted,) = await take(store)
        assert admitted.key == waiting
        row = await store.get_turn(key)
        assert (row.state, row.stop_reason) == (TurnState.FAILED, "recovery-exhausted")
        assert (row.error_reason, row.epoch) == ("RUNTIME_RESTARTED", 4)
        *_, lost, finished = await history(store, key)
        assert (lost.tool_call_finished.call_id, lost.tool_call_finished.is_error) == ("call-1", True)
        assert finished.turn_finished.text == "working"
        answer = (await store.transcript(key.thread))[1]
        assert [p.outcome for p in answer.parts if isinstance(p, CallPart)] == [ToolOutcome.OUTCOME_UNKNOWN]
        assert (answer.open, answer.interrupted_reason) == (False, "error")


async def test_a_queue_without_a_running_turn_is_found_after_a_restart(store_location: Location) -> None:
    path = store_location
    async with open_store(path) as store:
        key, journal = await begin(store)
        waiting = await queued(store, key)
        await end(journal)
    async with open_store(path) as store:
        (admitted,) = await take(store)
        assert admitted.key == waiting


async def test_a_reader_of_a_queued_turn_from_before_a_restart_follows_it_to_its_end(
    store_location: Location,
) -> None:
    path = store_location
    async with open_store(path) as store:
        key, _ = await begin(store)
        waiting = await queued(store, key)
    async with open_store(path) as store:
        (former,) = await take(store)
        assert former.journal is not None
        await former.journal.finish(DONE, interrupted_reason="", applied=())
        reading = await reader(store, waiting)
        admitted = await store.claim_next(key.thread)
        assert admitted is not None
        assert admitted.journal is not None
        admitted.journal.emit(TextDelta("hello"))
        await admitted.journal.finish(DONE, interrupted_reason="", applied=())
        async with asyncio.timeout(5):
            found = [p async for p in reading]
        reading.close()
        assert len(found) >= 1
        assert kinds(await history(store, waiting)) == [
            "turn_accepted",
            "turn_started",
            "text_delta",
            "turn_finished",
        ]


# --- attach at the wrong moment ---


async def test_a_turn_that_ends_between_the_read_of_its_row_and_the_attach_is_no_hung_reader(
    store: TurnStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, _ = await begin(store)
    waiting = await queued(store, key)
    read_row = store.get_turn
    reads = 0

    async def late(asked: TurnKey):  # type: ignore[no-untyped-def]
        nonlocal reads
        row = await read_row(asked)
        reads += 1
        if reads == 1:
            await store.cancel_queued(waiting, CANCELLED, ())
        return row

    monkeypatch.setattr(store, "get_turn", late)
    row, log = await store.follow(waiting)
    assert row.state is TurnState.CANCELLED
    assert log is None
    assert store.open_logs == 1


async def test_a_turn_that_is_not_there_cannot_be_followed(store: TurnStore) -> None:
    key, _ = await begin(store)
    for wrong in (TurnKey("other", key.thread_id, key.turn_id), TurnKey("team", key.thread_id, "nothing")):
        with pytest.raises(NotFound) as caught:
            await store.follow(wrong)
        assert caught.value.reason == "TURN_NOT_FOUND"
    assert store.open_logs == 1


async def test_a_request_without_a_busy_policy_gets_that_of_its_agent(store: TurnStore) -> None:
    first = await admit(store, command())
    waiting = command(first.key.thread_id)
    with pytest.raises(WrongState) as caught:
        await store.admit(waiting, "agents/helper", "digest", 30, BusyPolicy.REJECT)
    assert caught.value.reason == "THREAD_BUSY"
    own_word = command(first.key.thread_id, busy_policy=BusyPolicy.QUEUE)
    admitted = await store.admit(own_word, "agents/helper", "digest", 30, BusyPolicy.REJECT)
    assert admitted.disposition is Disposition.QUEUED
