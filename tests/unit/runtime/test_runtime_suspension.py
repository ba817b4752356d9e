"""Letting go of a turn: nobody holds it, its readers know where they are, and a late owner is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from support.recovery_rig import answer_to
from support.resumed_turns import SEND
from support.runtime_fakes import FakeModel, agent, call
from support.runtime_rig import begin, command, end, events, history, kinds, open_store, take
from support.runtime_turns import rig
from turnwire.extend.actions import Action, ActionKind, ActionState
from turnwire.extend.events import (
    ActionRequired,
    EpisodeKind,
    Notice,
    NoticeSeverity,
    StepCommitted,
    ToolCallFinished,
    ToolCallStarted,
    ToolOutcome,
    TurnState,
)
from turnwire.extend.llm import Finish, FinishReason, TextDelta
from turnwire.runtime.domain.message import CallPart, ContentPart
from turnwire.runtime.domain.resumption import CallState, Progress
from turnwire.runtime.domain.turn import InputPart, TurnKey
from turnwire.runtime.ports import OwnerLost
from turnwire.runtime.store.journal import Journal
from turnwire.runtime.store.reader import LogReader
from turnwire.runtime.store.turn_store import TurnStore

WORD = Notice(NoticeSeverity.INFO, "word", "x")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[TurnStore]:
    async with open_store(tmp_path / "runtime.db") as opened:
        yield opened


def asked(key: TurnKey) -> Action:
    return Action(
        f"{key.name}/actions/action-1",
        ActionKind.APPROVAL,
        call_id="call-1",
        tool_name="send",
        digest="d",
        create_time=1,
        expire_time=2**62,
    )


async def begun(store: TurnStore) -> tuple[TurnKey, Journal, Action]:
    """Begin a turn and commit a step with a call that somebody has to allow."""
    key, journal = await begin(store)
    action = asked(key)
    journal.at(step=1)
    journal.begin_answer("answer-1")
    text = ContentPart(InputPart(kind="text", text="hello"), 1)
    parts = [text, CallPart("call-1", "p", "send", "{}", 1, 0)]
    told = [StepCommitted("m", ("call-1",)), ActionRequired(action)]
    journal.commit_step(parts, told, progress=Progress(finish_reason="tool_calls"), actions=[action])
    await journal.flush()
    return key, journal, action


async def suspended(store: TurnStore) -> tuple[TurnKey, Journal, Action]:
    key, journal, action = await begun(store)
    await journal.suspend()
    return key, journal, action


async def attached(store: TurnStore, key: TurnKey, after: int = 0, *, follow: bool = False) -> LogReader:
    row, log = await store.follow(key)
    last = max(row.last_sequence, log.committed) if log is not None else row.last_sequence
    return store.reader(key, log, after, last, follow)


async def rest(reading: LogReader) -> list[str]:
    async with asyncio.timeout(5):
        bodies = [page async for page in reading if page]
    reading.close()
    return kinds(events(bodies))


async def rows(store: TurnStore, sql: str, *values: object) -> list[tuple[object, ...]]:
    return await store.read(lambda db: db.execute(sql, values).fetchall())  # type: ignore[arg-type]


async def resumed(store: TurnStore, action: Action) -> Journal:
    await store.resolve_action(answer_to(action, "team", ActionState.APPROVED))
    (admitted,) = await take(store)
    assert isinstance(admitted.journal, Journal)
    assert admitted.resumption is not None
    admitted.journal.resume(admitted.resumption)
    return admitted.journal


async def test_a_turn_that_waits_is_held_by_nobody_and_takes_no_memory(store: TurnStore) -> None:
    key = (await suspended(store))[0]
    assert store.open_logs == 0
    (row,) = await rows(store, "SELECT owner, lease, live_turn FROM threads")
    assert row == ("", "", key.turn_id)
    assert (await store.get_turn(key)).state is TurnState.WAITING
    assert await take(store) == []


async def test_a_reader_of_a_turn_that_waits_ends_with_its_last_event(store: TurnStore) -> None:
    key, *_ = await suspended(store)
    reading = await attached(store, key)
    assert (await rest(reading))[-1] == "turn_suspended"
    assert await rest(await attached(store, key, 5)) == []


async def test_a_reader_that_was_there_before_ends_with_the_wait(store: TurnStore) -> None:
    key, journal, _ = await begun(store)
    reading = await attached(store, key)
    async with asyncio.TaskGroup() as tasks:
        told = tasks.create_task(rest(reading))
        await asyncio.sleep(0)
        await journal.suspend()
    assert told.result()[-1] == "turn_suspended"


async def test_a_reader_that_follows_on_sees_the_next_episodes_too(store: TurnStore) -> None:
    key, journal, action = await begun(store)
    reading = await attached(store, key, follow=True)
    late = await attached(store, key, follow=True)
    async with asyncio.TaskGroup() as tasks:
        told = tasks.create_task(rest(reading))
        await asyncio.sleep(0)
        await journal.suspend()
        from_then = tasks.create_task(rest(late))
        await asyncio.sleep(0)
        second = await resumed(store, action)
        await finish_call(second)
        await end(second)
    wanted = [
        *("turn_accepted", "turn_started", "step_committed", "action_required", "turn_suspended"),
        *("action_resolved", "turn_resumed", "tool_call_finished", "turn_finished"),
    ]
    assert told.result() == wanted
    assert from_then.result() == wanted
    assert store.open_logs == 0


async def finish_call(journal: Journal) -> None:
    done = CallPart("call-1", "p", "send", "{}", 1, 0, ToolOutcome.SUCCEEDED, "sent")
    journal.record_outcome(
        done, ToolCallFinished("call-1", "send", ToolOutcome.SUCCEEDED, "sent", False, 0.1, 1, 0)
    )
    await journal.flush()


async def test_a_replay_passes_a_wait_of_the_past(store: TurnStore) -> None:
    key, _, action = await suspended(store)
    journal = await resumed(store, action)
    reading = await attached(store, key)
    async with asyncio.TaskGroup() as tasks:
        told = tasks.create_task(rest(reading))
        await asyncio.sleep(0)
        await finish_call(journal)
        await end(journal)
    assert told.result()[-1] == "turn_finished"


async def test_code_that_an_episode_left_behind_writes_nothing_into_the_next(store: TurnStore) -> None:
    key, first, action = await suspended(store)
    second = await resumed(store, action)
    first.emit(TextDelta("left behind"))
    first.record_start(CallPart("call-1", "p", "send", "{}", 1, 0), ToolCallStarted("call-1", "send", 1, 9.0))
    second.emit(WORD)
    await finish_call(second)
    await end(second)
    told = await history(store, key)
    assert "text_delta" not in kinds(told)
    assert [e.sequence for e in told] == list(range(1, len(told) + 1))


async def test_an_answer_that_comes_before_the_wait_wakes_the_turn_at_once(store: TurnStore) -> None:
    key, journal, action = await begun(store)
    await store.resolve_action(answer_to(action, "team", ActionState.REJECTED))
    await journal.suspend()
    (admitted,) = await take(store)
    assert admitted.resumption is not None
    assert admitted.resumption.kind is EpisodeKind.RESUME
    (call,) = admitted.resumption.calls
    assert call.state is CallState.WAITING
    assert call.action is not None
    assert call.action.state is ActionState.REJECTED


async def test_a_turn_that_is_given_away_goes_on_at_once_and_counts_no_death(store: TurnStore) -> None:
    key, journal, _ = await begun(store)
    journal.emit(WORD)
    await journal.release()
    assert (await store.get_turn(key)).state is TurnState.RUNNING
    (admitted,) = await take(store)
    assert admitted.resumption is not None
    assert admitted.resumption.kind is EpisodeKind.RECOVERY
    assert admitted.resumption.message_id == "answer-1"
    assert admitted.resumption.part_index == 2
    assert admitted.resumption.progress.finish_reason == "tool_calls"
    assert await rows(store, "SELECT recoveries FROM turns") == [(0,)]


@pytest.mark.parametrize("leave", ["suspend", "release"])
async def test_an_owner_that_was_replaced_lets_go_of_nothing(store: TurnStore, leave: str) -> None:
    key, journal, _ = await begun(store)
    await store.change(
        key.thread,
        lambda db: [
            db.execute("UPDATE threads SET epoch = epoch + 1, owner = 'other'"),
            db.execute("UPDATE turn_heads SET epoch = epoch + 1"),
        ],
    )
    with pytest.raises(OwnerLost):
        await getattr(journal, leave)()
    assert await rows(store, "SELECT owner FROM threads") == [("other",)]
    assert (await store.get_turn(key)).state is TurnState.RUNNING


async def test_what_cannot_be_stored_does_not_keep_a_turn_from_being_given_away(store: TurnStore) -> None:
    _, journal, _ = await begun(store)
    journal.emit(TextDelta("\ud83d"))
    await journal.release()
    (admitted,) = await take(store)
    assert admitted.journal is not None


async def test_the_end_of_a_turn_withdraws_its_questions_in_the_same_unit(
    store: TurnStore,
) -> None:
    key, journal, _ = await begun(store)
    await finish_call(journal)
    await end(journal)
    told = kinds(await history(store, key))
    assert told[-2:] == ["action_resolved", "turn_finished"]
    assert await rows(store, "SELECT state, told FROM actions") == [("cancelled", 1)]


async def test_every_visible_change_has_a_version_of_its_own(store: TurnStore) -> None:
    key, journal, _ = await begun(store)
    versions = (
        "SELECT h.version, m.change_version, t.change_version FROM threads h"
        " JOIN messages m ON m.thread_id = h.thread_id AND m.role = 'assistant'"
        " JOIN turns t ON t.thread_id = h.thread_id"
    )
    (first,) = await rows(store, versions)
    assert first[0] == first[1]
    await finish_call(journal)
    (second,) = await rows(store, versions)
    assert second[:2] == (first[0] + 1, first[0] + 1)  # type: ignore[operator]
    assert second[2] == first[2]
    await end(journal)
    (third,) = await rows(store, versions)
    assert third == (second[0] + 2, second[0] + 1, second[0] + 2)  # type: ignore[operator]


async def test_a_refused_call_is_final_in_the_unit_of_its_step(store: TurnStore) -> None:
    key, journal = await begin(store)
    journal.at(step=1)
    journal.begin_answer("answer-1")
    refused = CallPart("call-1", "p", "fly", "{}", 1, 0, ToolOutcome.FAILED, "no such tool", True)
    told = ToolCallFinished("call-1", "fly", ToolOutcome.FAILED, "no such tool", True, 0.0, 1, 0)
    journal.commit_step(
        [refused, replace(refused, call_id="call-2", outcome=None)], [StepCommitted("m"), told]
    )
    await journal.flush()
    states = "SELECT call_id, state, outcome FROM tool_calls ORDER BY call_id"
    assert await rows(store, states) == [("call-1", "finished", "failed"), ("call-2", "ready", "")]


async def test_a_step_without_parts_is_committed_all_the_same(store: TurnStore) -> None:
    key, journal = await begin(store)
    journal.at(step=4)
    journal.commit_step([], [StepCommitted("m")], progress=Progress(finish_reason="stop"))
    await journal.flush()
    (row,) = await rows(store, "SELECT step, transcript_sequence FROM turns")
    assert row == (4, 3)


async def test_a_stop_in_the_moment_in_which_a_turn_begins_to_wait_still_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = FakeModel([call("send"), Finish(FinishReason.TOOL_CALLS)])
    async with rig(tmp_path, model, agent(organization_id="*")) as made:
        made.executor.tools = (SEND,)
        regular = Journal.suspend

        async def and_stop(self: Journal) -> None:
            await regular(self)
            made.supervisor.live[self.key].token.cancel("enough")

        monkeypatch.setattr(Journal, "suspend", and_stop)
        admitted = await made.supervisor.start(command())
        await made.observer.until(lambda: made.observer.closed == 2)
        assert await made.state(admitted.key) is TurnState.CANCELLED
        assert len(model.requests) == 1
        told = kinds(await history(made.store, admitted.key))
        assert told[-3:] == ["action_resolved", "tool_call_finished", "turn_finished"]
