"""Summaries in the store: written with their event, read by later turns, void when what they cover is."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from support.long_threads import head_of, says
from support.postgres import Location
from support.runtime_fakes import FakeModel, agent
from support.runtime_rig import begin, command, end, history, open_store
from support.runtime_turns import rig
from support.thread_edits import answer, edit, hide, regenerate, rows, said, turn, version
from turnwire.extend.events import Compacted, TurnState, UsageSummary
from turnwire.extend.llm import TokenUsage
from turnwire.runtime.domain.compaction import Compaction, CompactionRules, Measure
from turnwire.runtime.domain.resumption import Progress
from turnwire.runtime.domain.rewrites import ForkCommand
from turnwire.runtime.domain.turn import ThreadKey, TurnKey
from turnwire.runtime.store.thread_edits import ThreadEdits
from turnwire.runtime.store.turn_store import TurnStore

USED = UsageSummary(TokenUsage(70, 0, 0, 7), 1)


@pytest.fixture(name="store")
async def _store(store_location: Location) -> AsyncIterator[TurnStore]:
    async with open_store(store_location) as store:
        yield store


def summary(through: str, step: int = 0, number: int = 1, **fields: Any) -> Compaction:
    return Compaction(f"sum-{number}", through, step, 2 * number, f"summary {number}", **fields)


async def thread_of(store: TurnStore, turns: int) -> tuple[ThreadKey, list[str]]:
    """A thread of finished turns; returns the ids of its messages, too."""
    first, _ = await turn(store, text="q0", reply="a0")
    for number in range(1, turns):
        await turn(store, first.thread_id, text=f"q{number}", reply=f"a{number}")
    return first.thread, [m.message_id for m in await store.transcript(first.thread)]


async def compact(store: TurnStore, thread: ThreadKey, *made: Compaction) -> None:
    """Store summaries in a turn that then ends."""
    key, journal = await begin(store, thread.thread_id, text="again")
    for each in made:
        journal.compact(each, USED, Compacted(each.count, each.summary, "messages", 100, 10))
    await journal.flush()
    await answer(journal, said("so"))
    await end(journal)
    assert key.thread == thread


async def read_by(store: TurnStore, thread: ThreadKey) -> tuple[str, list[int]]:
    """What a later turn reads: the summary, and the positions of the messages behind it."""
    found = await store.history(thread)
    return (found.compaction.compaction_id if found.compaction else ""), [m.position for m in found.messages]


async def test_a_summary_and_its_event_are_one_unit_that_later_turns_read(store: TurnStore) -> None:
    thread, ids = await thread_of(store, 3)
    made = summary(
        ids[3], 1, constraints=("never x",), question="why?", kept=(ids[0],), after=Measure(3, 40, 20)
    )
    await compact(store, thread, made)
    found = await store.history(thread)
    assert found.compaction == made
    # The kept one, the one that the summary ends in, and all after it.
    assert [m.position for m in found.messages] == [1, 4, 5, 6, 7, 8]
    assert len(await store.transcript(thread)) == 8
    (last,) = await rows(store, "SELECT turn_id FROM compactions")
    log = await history(store, TurnKey(thread.scope, thread.thread_id, last[0]))
    (event,) = (e for e in log if e.HasField("compacted"))
    assert event.compacted.summary == "summary 1"
    assert (event.compacted.compacted_count, event.compacted.trigger) == (2, "messages")


async def test_what_a_summary_used_stands_with_its_turn_before_the_next_step(store: TurnStore) -> None:
    thread, ids = await thread_of(store, 1)
    key, journal = await begin(store, thread.thread_id)
    journal.begin_answer("answer-1")
    journal.commit_step([said("one")], [], progress=Progress(UsageSummary(), "tool-calls", step_attempt=2))
    journal.compact(summary(ids[0]), USED, Compacted(1, "s", "tokens"))
    await journal.flush()
    (progress,) = await rows(store, "SELECT progress FROM turns WHERE turn_id = ?", key.turn_id)
    assert '"input_tokens":70' in progress[0]
    assert '"finish_reason":"tool-calls"' in progress[0]
    assert '"step_attempt":2' in progress[0]
    await end(journal)


async def test_the_summary_that_reaches_furthest_is_read(store: TurnStore) -> None:
    thread, ids = await thread_of(store, 3)
    await compact(store, thread, summary(ids[1], 1), summary(ids[3], 1, 2), summary(ids[3], 2, 3))
    assert (await read_by(store, thread))[0] == "sum-3"


async def test_few_summaries_of_a_thread_are_kept(store: TurnStore) -> None:
    thread, ids = await thread_of(store, 6)
    await compact(store, thread, *(summary(ids[i], 1, i + 1) for i in range(12)))
    kept = await rows(store, "SELECT compaction_id FROM compactions ORDER BY through_position")
    assert [row[0] for row in kept] == [f"sum-{n}" for n in range(5, 13)]


async def test_an_answer_made_anew_voids_the_summaries_that_reach_it_and_no_others(store: TurnStore) -> None:
    thread, ids = await thread_of(store, 3)
    await compact(store, thread, summary(ids[1], 1), summary(ids[3], 1, 2))
    await edit(store, regenerate(thread, await version(store, thread), ids[3]))
    name, positions = await read_by(store, thread)
    assert name == "sum-1"
    assert positions == [2, 3]


@pytest.mark.parametrize("visible_again", [False, True])
async def test_hiding_and_showing_a_message_voids_the_summaries_that_reach_it(
    store: TurnStore, visible_again: bool
) -> None:
    thread, ids = await thread_of(store, 3)
    if visible_again:
        await edit(store, hide(thread, await version(store, thread), ids[2]))
    await compact(store, thread, summary(ids[1], 1), summary(ids[3], 1, 2))
    visibility = "visible" if visible_again else "hidden"
    await edit(store, hide(thread, await version(store, thread), ids[2], visibility=visibility))
    assert (await read_by(store, thread))[0] == "sum-1"


async def test_an_edit_behind_a_summary_leaves_it(store: TurnStore) -> None:
    thread, ids = await thread_of(store, 3)
    await compact(store, thread, summary(ids[1], 1))
    await edit(store, hide(thread, await version(store, thread), ids[4]))
    assert await read_by(store, thread) == ("sum-1", [2, 3, 4, 6, 7, 8])


async def test_a_fork_has_the_summaries_that_reach_no_further_than_it(store: TurnStore) -> None:
    thread, ids = await thread_of(store, 3)
    await compact(store, thread, summary(ids[1], 1), summary(ids[5], 1, 2))
    copy = await ThreadEdits(store).fork(ForkCommand(thread, str(uuid.uuid4()), ids[3], ""))
    assert await read_by(store, copy.key) == ("sum-1", [2, 3, 4])
    await edit(store, hide(thread, await version(store, thread), ids[0]))
    assert (await read_by(store, thread))[0] == ""
    assert (await read_by(store, copy.key))[0] == "sum-1"


async def test_a_deleted_thread_keeps_no_summary(store: TurnStore) -> None:
    thread, ids = await thread_of(store, 1)
    await compact(store, thread, summary(ids[1], 1))
    edits = ThreadEdits(store)
    await edits.begin_deletion(thread, None)
    while await edits.purge_rows(thread):
        pass
    assert await rows(store, "SELECT 1 FROM compactions") == []


async def test_a_second_runtime_reads_the_summary_of_the_first(store_location: Location) -> None:
    fields: dict[str, Any] = {"compaction": CompactionRules(messages=8, keep_messages=4)}
    helper = agent(organization_id="*", tools=[])
    one = FakeModel(*[says(f"a{i}") for i in range(4)], says("what was said"), says("a4"))
    two = FakeModel(says("a5"))
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(rig(store_location, one, helper, runtime_id="one", **fields))
        thread = ""
        for number in range(5):
            started = await first.supervisor.start(command(thread, text=f"q{number}"))
            thread = started.key.thread_id
            assert await first.ended(started.key) is TurnState.COMPLETED
        if not isinstance(store_location, str):
            # A file has one runtime at a time.
            await stack.aclose()
        second = await stack.enter_async_context(rig(store_location, two, helper, runtime_id="two", **fields))
        started = await second.supervisor.start(command(thread, text="q5"))
        assert await second.ended(started.key) is TurnState.COMPLETED
    (request,) = two.requests
    assert "what was said" in head_of(request)
    assert head_of(request) == head_of(one.requests[-1])
    assert len(request.messages) < 10
