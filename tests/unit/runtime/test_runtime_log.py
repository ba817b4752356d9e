"""The log of a turn: durable before visible, fenced, bounded, and loud about what cannot be stored."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from support.postgres import Location
from support.runtime_rig import (
    DONE,
    begin,
    end,
    events,
    history,
    kinds,
    open_store,
    pages,
    reader,
)
from turnwire.core.errors import Unavailable
from turnwire.extend.events import StepCommitted, ToolCallFinished, ToolCallStarted, ToolOutcome, TurnState
from turnwire.extend.llm import ReasoningDelta, TextDelta, ToolCallComplete
from turnwire.runtime.domain.admission import AppliedCommand
from turnwire.runtime.domain.message import CallPart, ContentPart
from turnwire.runtime.domain.turn import InputPart
from turnwire.runtime.ports import OwnerLost
from turnwire.runtime.store.log import (
    MAX_KEPT_BYTES,
    MAX_KEPT_PAGES,
    MAX_PAGE_BYTES,
    MAX_PAGE_EVENTS,
    TurnLog,
)
from turnwire.runtime.store.turn_store import TurnStore
from turnwire.storage.units import StoreUnavailable, UnitRejected


@pytest.fixture
async def store(store_location: Location) -> AsyncIterator[TurnStore]:
    async with open_store(store_location) as opened:
        yield opened


def execute(store: TurnStore, sql: str, *values: object):  # type: ignore[no-untyped-def]
    return store._database.writer.run(lambda db: db.execute(sql, values).fetchall())


async def stored(store: TurnStore, turn_id: str) -> list[tuple[int, int, int, int]]:
    return await execute(
        store,
        "SELECT first_sequence, last_sequence, flags, length(body) FROM pages WHERE turn_id = ?"
        " ORDER BY first_sequence",
        turn_id,
    )


async def test_an_event_is_visible_only_after_it_is_committed(store: TurnStore) -> None:
    key, journal = await begin(store)
    log = store.log_of(key)
    assert log is not None
    journal.emit(TextDelta("a"))
    assert (log.next_sequence, log.committed) == (4, 2)
    await journal.flush()
    assert log.committed == 3
    assert (await store.get_turn(key)).last_sequence == 3


async def test_pages_close_at_their_limits_and_leave_no_gap(store: TurnStore) -> None:
    key, journal = await begin(store)
    for _ in range(600):
        journal.emit(TextDelta("x"))
    for _ in range(5):
        journal.emit(TextDelta("y" * 30_000))
    await end(journal)
    found = await stored(store, key.turn_id)
    assert [f for f, *_ in found] == [1, *(last + 1 for _, last, *_ in found[:-1])]
    assert max(last - first + 1 for first, last, *_ in found) == MAX_PAGE_EVENTS
    assert all(size <= MAX_PAGE_BYTES for *_, size in found)
    assert [flags for _, _, flags, _ in found] == [0] * (len(found) - 1) + [1]


async def test_an_event_above_a_page_is_a_page_of_its_own(store: TurnStore) -> None:
    key, journal = await begin(store)
    journal.emit(TextDelta("a"))
    journal.emit(ToolCallComplete("p", "write", '"' + "x" * 100_000 + '"', "call-1"))
    journal.emit(TextDelta("b"))
    await end(journal)
    sizes = {first: (last, size) for first, last, _, size in await stored(store, key.turn_id)}
    assert sizes[4][0] == 4
    assert sizes[4][1] > MAX_PAGE_BYTES
    assert kinds(await history(store, key))[2:5] == ["text_delta", "tool_call_complete", "text_delta"]


@pytest.mark.parametrize("bad", ["x" * (1024 * 1024 + 1), "\ud83d"], ids=["too large", "no character"])
async def test_an_event_that_cannot_be_stored_fails_its_turn_alone(
    store: TurnStore, bad: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    key, journal = await begin(store)
    other, neighbour = await begin(store)
    journal.emit(TextDelta("kept"))
    await journal.flush()
    journal.emit(TextDelta("with it"))
    journal.emit(TextDelta(bad))
    neighbour.emit(TextDelta("fine"))
    await neighbour.flush()
    assert journal.crowded
    with pytest.raises(UnitRejected):
        await journal.room()
    await end(journal)
    await end(neighbour)
    found = await history(store, key)
    assert kinds(found) == ["turn_accepted", "turn_started", "text_delta", "turn_finished"]
    assert [e.sequence for e in found] == [1, 2, 3, 4]
    row = await store.get_turn(key)
    assert (row.state, row.error_reason) == (TurnState.FAILED, "INTERNAL")
    assert (await store.get_turn(other)).state is TurnState.COMPLETED


async def test_a_turn_never_completes_over_a_part_that_was_lost(store: TurnStore) -> None:
    # The end is handed in before anybody has heard that something before it could not be stored.
    key, journal = await begin(store)
    journal.emit(TextDelta("\ud83d"))
    await end(journal)
    assert (await store.get_turn(key)).state is TurnState.FAILED


async def test_events_after_a_rejection_do_not_make_the_owner_doubt_its_ownership(store: TurnStore) -> None:
    key, journal = await begin(store)
    _, neighbour = await begin(store)
    journal.emit(TextDelta("\ud83d"))
    for _ in range(3):
        neighbour.emit(TextDelta("x"))
        await neighbour.flush()
        journal.emit(TextDelta("more"))
    await end(journal)
    assert (await store.get_turn(key)).error_reason == "INTERNAL"


async def test_a_state_that_violates_the_schema_fails_its_turn_alone(store: TurnStore) -> None:
    key, journal = await begin(store)
    other, neighbour = await begin(store)
    journal.begin_answer("answer-1")
    twice = CallPart("call-1", "p", "send", "{}", 1, 0)
    journal.commit_step([twice, twice], [StepCommitted("m", ("call-1",))])
    neighbour.emit(TextDelta("fine"))
    await neighbour.flush()
    await end(journal)
    await end(neighbour)
    assert kinds(await history(store, key)) == ["turn_accepted", "turn_started", "turn_finished"]
    assert (await store.get_turn(key)).final_message == ""
    assert (await store.get_turn(other)).state is TurnState.COMPLETED


async def test_calls_whose_results_could_not_be_stored_still_have_one(store: TurnStore) -> None:
    key, journal = await begin(store)
    calls = [CallPart(f"call-{n}", "p", "send", "{}", 1, n) for n in range(3)]
    journal.begin_answer("answer-1")
    journal.commit_step(calls, [StepCommitted("m", tuple(c.call_id for c in calls))])
    for index, content in enumerate(["fine", "\ud83d"]):
        done = CallPart(f"call-{index}", "p", "send", "{}", 1, index, ToolOutcome.SUCCEEDED, content)
        journal.record_outcome(
            done,
            ToolCallFinished(
                done.call_id, "send", ToolOutcome.SUCCEEDED, content, False, 0.1, index + 1, index
            ),
        )
        if index == 0:
            await journal.flush()
    await end(journal)
    finished = [e.tool_call_finished for e in await history(store, key) if e.HasField("tool_call_finished")]
    assert [(f.call_id, f.settle_order) for f in finished] == [("call-0", 1), ("call-1", 2), ("call-2", 3)]
    _, answer = await store.transcript(key.thread)
    outcomes = [p.outcome for p in answer.parts if isinstance(p, CallPart)]
    assert outcomes == [ToolOutcome.SUCCEEDED, *[ToolOutcome.OUTCOME_UNKNOWN] * 2]


async def test_a_log_with_another_owner_takes_nothing_more(store: TurnStore) -> None:
    key, journal = await begin(store)
    reading = await reader(store, key)
    await execute(store, "UPDATE turn_heads SET epoch = epoch + 1 WHERE turn_id = ?", key.turn_id)
    journal.emit(TextDelta("a"))
    with pytest.raises(OwnerLost):
        await journal.flush()
    with pytest.raises(OwnerLost):
        await end(journal)
    row = await store.get_turn(key)
    assert (row.state, row.last_sequence) == (TurnState.RUNNING, 2)
    async with asyncio.timeout(5):
        with pytest.raises(Unavailable, match="attach again"):
            _ = [p async for p in reading]
    reading.close()


async def test_a_store_that_is_gone_is_told_to_owner_and_readers(store_location: Location) -> None:
    async with open_store(store_location) as store:
        key, journal = await begin(store)
        reading = await reader(store, key)
    journal.emit(TextDelta("a"))
    with pytest.raises(StoreUnavailable):
        await journal.flush()
    async with asyncio.timeout(5):
        with pytest.raises(StoreUnavailable):
            _ = [p async for p in reading]
    reading.close()


async def test_nothing_follows_the_end_whatever_is_still_emitted(store: TurnStore) -> None:
    key, journal = await begin(store)
    ending = asyncio.create_task(end(journal))
    await asyncio.sleep(0)
    journal.emit(TextDelta("left behind, in the same group"))
    await ending
    journal.emit(TextDelta("left behind, later"))
    journal.record_start(
        CallPart("call-1", "p", "send", "{}", 1, 0), ToolCallStarted("call-1", "send", 1, 9.0)
    )
    _, neighbour = await begin(store)
    await end(neighbour)
    found = await history(store, key)
    assert kinds(found) == ["turn_accepted", "turn_started", "turn_finished"]
    assert (await store.get_turn(key)).last_sequence == 3


async def test_commands_take_effect_with_the_end_and_never_without_it(store: TurnStore) -> None:
    key, journal = await begin(store)
    applied = (AppliedCommand("one", "applied"), AppliedCommand("two", "duplicate", "one"))
    await journal.finish(DONE, interrupted_reason="", applied=applied)
    assert await store.applied_command("team", "one") == (key.name, "applied", "", 3)
    assert await store.applied_command("team", "two") == (key.name, "duplicate", "one", 3)
    assert await store.applied_command("other", "one") is None


async def test_an_interrupted_answer_is_closed_with_its_reason(store: TurnStore) -> None:
    key, journal = await begin(store)
    journal.begin_answer("answer-1")
    part = ContentPart(InputPart(kind="text", text="so far"), 1)
    journal.commit_step([part], [StepCommitted("m")])
    await journal.finish(DONE, interrupted_reason="cancelled", applied=())
    _, answer = await store.transcript(key.thread)
    assert (answer.open, answer.interrupted_reason) == (False, "cancelled")


async def test_memory_holds_a_bounded_tail_and_readers_find_the_rest(store: TurnStore) -> None:
    key, journal = await begin(store)
    log = store.log_of(key)
    assert log is not None
    for _ in range(20):
        journal.emit(TextDelta("x" * 30_000))
        await journal.flush()
    assert sum(len(body) for *_, body in log.pages) <= MAX_KEPT_BYTES
    assert log.pages[0][0] > 1
    await end(journal)
    assert [e.sequence for e in await history(store, key)] == list(range(1, 24))


async def test_many_small_pages_are_bounded_by_their_number(store: TurnStore) -> None:
    key, journal = await begin(store)
    log = store.log_of(key)
    assert log is not None
    for _ in range(MAX_KEPT_PAGES + 6):
        journal.emit(TextDelta("x"))
        await journal.flush()
    assert len(log.pages) == MAX_KEPT_PAGES
    assert log.pages[0][0] > 1
    await end(journal)
    assert [e.sequence for e in await history(store, key)] == list(range(1, MAX_KEPT_PAGES + 10))


async def test_a_full_log_asks_its_model_to_wait_and_has_room_again(store_location: Location) -> None:
    async with open_store(store_location, spacing=0.01) as store:
        _, journal = await begin(store)
        emitted = 0
        while not journal.crowded:
            journal.emit(TextDelta("x"))
            emitted += 1
            assert emitted < 100_000
        async with asyncio.timeout(5):
            await journal.room()
        assert not journal.crowded
        await end(journal)


async def test_a_wait_for_the_end_has_an_end_of_its_own(store: TurnStore) -> None:
    key, journal = await begin(store)
    log = store.log_of(key)
    assert log is not None
    await log.wait_finished(0.01, lambda: False)
    assert not log.finished
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        group.create_task(log.wait_finished(60, lambda: False))
        await end(journal)


async def test_the_bytes_that_are_stored_are_the_bytes_that_readers_get(store: TurnStore) -> None:
    key, journal = await begin(store)
    live = await reader(store, key)
    got: list[bytes] = []

    async def read() -> None:
        async for page in live:
            got.append(page)
        live.close()

    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        group.create_task(read())
        for n in range(10):
            journal.emit(ReasoningDelta(f"{n}"))
            await journal.flush()
        await end(journal)
    bodies = await execute(
        store, "SELECT body FROM pages WHERE turn_id = ? ORDER BY first_sequence", key.turn_id
    )
    assert b"".join(got) == b"".join(b for (b,) in bodies) == b"".join(await pages(store, key))
    assert len(got) == len(bodies)


async def test_a_silent_reader_gets_heartbeats_and_a_busy_one_none(store_location: Location) -> None:
    async with open_store(store_location, heartbeat=0.04) as store:
        key, journal = await begin(store)
        beats: list[int] = []
        reading = await reader(store, key)
        beat = asyncio.Event()

        async def read() -> None:
            async for page in reading:
                if not page:
                    beats.append(1)
                    beat.set()
            reading.close()

        async with asyncio.timeout(5), asyncio.TaskGroup() as group:
            group.create_task(read())
            await beat.wait()
            await end(journal)
        assert beats
        assert store.ticker.readers == 0


async def test_a_wake_without_news_is_no_heartbeat(store: TurnStore) -> None:
    key, journal = await begin(store)
    log = store.log_of(key)
    assert log is not None
    reading = await reader(store, key, 2)
    got: list[bytes] = []

    async def read() -> None:
        async for page in reading:
            got.append(page)
        reading.close()

    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        group.create_task(read())
        for _ in range(3):
            await asyncio.sleep(0)
            log.wake()
        await end(journal)
    assert all(got)


async def test_a_closed_reader_is_forgotten_at_once_and_twice_is_fine(store: TurnStore) -> None:
    key, _ = await begin(store)
    reading = await reader(store, key)
    assert store.ticker.readers == 1
    reading.close()
    reading.close()
    assert store.ticker.readers == 0


async def test_a_log_that_nobody_owns_is_only_waited_on(store: TurnStore) -> None:
    key, _ = await begin(store)
    log = TurnLog(store._database.writer, lambda name, record: b"", key, 0, 3)
    assert log.take() is None
    assert log.committed == 2


async def test_joined_pages_keep_to_the_limits_of_a_page(store: TurnStore) -> None:
    key, journal = await begin(store)
    for _ in range(700):
        journal.emit(TextDelta("x"))
        if not journal.next_sequence % 50:
            await journal.flush()
    await end(journal)
    messages = await pages(store, key)
    assert len(messages) > 1
    for message in messages:
        assert len(message) <= MAX_PAGE_BYTES
        assert len(events(message)) <= MAX_PAGE_EVENTS


async def test_an_event_that_waits_for_company_is_committed_with_the_next_one(store: TurnStore) -> None:
    key, journal = await begin(store)
    assert journal.emit_soon(TextDelta("first")) == 3
    assert journal.emit(TextDelta("second")) == 4
    await journal.flush()
    assert (3, 4) in [(first, last) for first, last, *_ in await stored(store, key.turn_id)]


async def test_an_event_that_waits_for_company_in_vain_is_committed_alone(store: TurnStore) -> None:
    key, journal = await begin(store)
    log = store.log_of(key)
    assert log is not None
    journal.emit_soon(TextDelta("alone"))
    async with asyncio.timeout(5):
        while log.committed < 3:
            await log.wait()


async def test_a_flush_does_not_wait_for_company(store: TurnStore) -> None:
    _, journal = await begin(store)
    journal.emit_soon(TextDelta("alone"))
    async with asyncio.timeout(5):
        await journal.flush()
    assert journal.log.committed == 3


async def test_company_that_never_comes_after_the_end_is_nothing(store: TurnStore) -> None:
    key, journal = await begin(store)
    journal.emit_soon(TextDelta("last words"))
    await end(journal)
    journal.emit_soon(TextDelta("too late"))
    assert kinds(await history(store, key))[2:] == ["text_delta", "turn_finished"]


async def test_a_process_that_leaves_sends_readers_away_after_what_they_lack(store: TurnStore) -> None:
    key, journal = await begin(store)
    journal.emit(TextDelta("all there is"))
    await journal.flush()
    reading = await reader(store, key)
    got: list[bytes] = []
    with pytest.raises(Unavailable) as caught:
        async with asyncio.timeout(5):
            async for page in reading:
                got.append(page)
                store.ticker.send_away()
    reading.close()
    assert caught.value.reason == "DRAINING"
    assert [e.sequence for e in events(got)] == [1, 2, 3]
