"""The command desk: each command has one outcome, the same one however often it is delivered."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from support.runtime_fakes import FakeModel
from support.runtime_rig import begin, command, open_store, queued
from support.runtime_turns import STOP, Rig, answers, rig
from turnwire.extend.events import TurnState
from turnwire.extend.llm import TextDelta
from turnwire.runtime.domain.control import ControlDelivery, ControlOutcome
from turnwire.runtime.domain.turn import TurnKey


def hanging() -> FakeModel:
    return FakeModel([TextDelta("so far"), asyncio.Event()], *[[STOP]] * 9)


async def deliver(made: Rig, command_id: str, key: TurnKey | None = None, **fields: Any) -> ControlOutcome:
    fields.setdefault("remaining_seconds", 30.0)
    turn = key.name if key is not None else ""
    async with asyncio.timeout(5):
        return await made.desk.deliver(ControlDelivery("team", command_id, turn=turn, **fields))


async def test_a_cancel_is_applied_with_the_end_and_names_its_sequence(tmp_path: Path) -> None:
    async with rig(tmp_path, hanging()) as made:
        key = (await made.supervisor.start(command())).key
        outcome = await deliver(made, "one", key)
        row = await made.store.get_turn(key)
        assert outcome == ControlOutcome("applied", key.name, row.last_sequence)
        assert row.state is TurnState.CANCELLED


async def test_the_same_command_again_has_the_same_outcome(tmp_path: Path) -> None:
    async with rig(tmp_path, hanging()) as made:
        key = (await made.supervisor.start(command())).key
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(deliver(made, "one", key)) for _ in range(5)]
        first = tasks[0].result()
        assert [t.result() for t in tasks] == [first] * 5
        assert await deliver(made, "one", key) == first
        assert await deliver(made, "one", key, mode="query-only") == first
        assert await deliver(made, "one", key, remaining_seconds=0.0) == first


async def test_another_cancel_of_the_same_turn_is_a_duplicate_of_the_first(tmp_path: Path) -> None:
    async with rig(tmp_path, hanging()) as made:
        key = (await made.supervisor.start(command())).key
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(deliver(made, name, key)) for name in ("one", "two")]
        assert tasks[0].result().kind == "applied"
        assert (tasks[1].result().kind, tasks[1].result().duplicate_of) == ("duplicate", "one")


async def test_a_second_cancel_is_a_duplicate_at_whatever_moment_of_the_first_it_comes(
    tmp_path: Path,
) -> None:
    scripts = [[TextDelta("so far"), asyncio.Event()] for _ in range(40)]
    async with rig(tmp_path, FakeModel(*scripts)) as made:
        for moment in range(40):
            key = (await made.supervisor.start(command())).key
            async with asyncio.TaskGroup() as group:
                first = group.create_task(deliver(made, f"first-{moment}", key))
                for _ in range(moment):
                    await asyncio.sleep(0)
                second = group.create_task(deliver(made, f"second-{moment}", key))
            assert first.result().kind == "applied"
            assert (second.result().kind, second.result().duplicate_of) == ("duplicate", f"first-{moment}")


async def test_the_same_command_has_one_outcome_at_whatever_moment_it_comes_again(tmp_path: Path) -> None:
    """Also where its turn ended, by itself, between two looks: it is no duplicate of itself."""
    scripts = [[TextDelta("so far"), asyncio.Event()] for _ in range(40)]
    async with rig(tmp_path, FakeModel(*scripts)) as made:
        for moment in range(40):
            key = (await made.supervisor.start(command())).key
            async with asyncio.TaskGroup() as group:
                first = group.create_task(deliver(made, f"one-{moment}", key))
                for _ in range(moment):
                    await asyncio.sleep(0)
                again = group.create_task(deliver(made, f"one-{moment}", key, mode="unowned"))
            assert first.result().kind == "applied"
            assert again.result() == first.result()


async def test_a_turn_that_has_ended_is_already_finished(tmp_path: Path) -> None:
    async with rig(tmp_path, answers(1)) as made:
        key = (await made.supervisor.start(command())).key
        await made.ended(key)
        await made.observer.until(lambda: not made.supervisor.live)
        assert (await deliver(made, "one", key)).kind == "already-finished"


async def test_a_turn_that_is_not_there_or_foreign_is_no_active_turn(tmp_path: Path) -> None:
    async with rig(tmp_path, hanging()) as made:
        key = (await made.supervisor.start(command())).key
        assert (
            await deliver(made, "one", TurnKey("team", key.thread_id, "nothing"))
        ).kind == "no-active-turn"
        foreign = ControlDelivery("other", "two", turn=key.name, remaining_seconds=30.0)
        assert (await made.desk.deliver(foreign)).kind == "no-active-turn"
        assert await made.state(key) is TurnState.RUNNING


async def test_a_question_changes_nothing(tmp_path: Path) -> None:
    async with rig(tmp_path, hanging()) as made:
        key = (await made.supervisor.start(command())).key
        assert (await deliver(made, "one", key, mode="query-only")).kind == "not-applied"
        assert await made.state(key) is TurnState.RUNNING


async def test_a_command_whose_time_has_passed_is_not_begun(tmp_path: Path) -> None:
    async with rig(tmp_path, hanging()) as made:
        key = (await made.supervisor.start(command())).key
        assert (await deliver(made, "one", key, remaining_seconds=0.0)).kind == "expired"
        assert await made.state(key) is TurnState.RUNNING


async def test_a_command_for_a_thread_cancels_its_live_turn(tmp_path: Path) -> None:
    async with rig(tmp_path, hanging()) as made:
        key = (await made.supervisor.start(command())).key
        outcome = await deliver(made, "one", thread=key.thread.name)
        assert (outcome.kind, outcome.turn) == ("applied", key.name)
        await made.observer.until(lambda: not made.supervisor.live)
        again = await deliver(made, "two", thread=key.thread.name)
        assert again.kind == "no-active-turn"


async def test_a_command_bound_to_a_turn_never_reaches_a_later_one(tmp_path: Path) -> None:
    async with rig(tmp_path, FakeModel([STOP], [asyncio.Event()])) as made:
        first = (await made.supervisor.start(command())).key
        await made.ended(first)
        await made.observer.until(lambda: not made.supervisor.live)
        second = (await made.supervisor.start(command(first.thread_id))).key
        outcome = await deliver(made, "one", thread=first.thread.name, bound_turn=first.name)
        assert outcome.kind == "stale"
        assert await made.state(second) is TurnState.RUNNING


async def test_a_queued_turn_is_cancelled_where_it_waits(tmp_path: Path) -> None:
    async with rig(tmp_path, hanging()) as made:
        first = (await made.supervisor.start(command())).key
        waiting = (await made.supervisor.start(command(first.thread_id))).key
        outcome = await deliver(made, "one", waiting)
        assert outcome == ControlOutcome("applied", waiting.name, 2)
        assert await deliver(made, "one", waiting) == outcome
        assert await made.state(first) is TurnState.RUNNING


async def test_a_cancel_may_take_the_queue_with_it(tmp_path: Path) -> None:
    async with rig(tmp_path, hanging()) as made:
        first = (await made.supervisor.start(command())).key
        rest = [(await made.supervisor.start(command(first.thread_id))).key for _ in range(3)]
        assert (await deliver(made, "one", first, clear_queue=True)).kind == "applied"
        assert {await made.state(k) for k in (first, *rest)} == {TurnState.CANCELLED}


async def test_a_cancel_without_that_lets_the_queue_go_on(tmp_path: Path) -> None:
    async with rig(tmp_path, hanging()) as made:
        first = (await made.supervisor.start(command())).key
        second = (await made.supervisor.start(command(first.thread_id))).key
        await deliver(made, "one", first)
        assert await made.ended(second) is TurnState.COMPLETED


async def test_a_cancel_that_loses_the_race_with_the_end_is_told_so(tmp_path: Path) -> None:
    async with rig(tmp_path, answers(20)) as made:
        for number in range(20):
            key = (await made.supervisor.start(command())).key
            for _ in range(number):
                await asyncio.sleep(0)
            outcome = await deliver(made, f"command-{number}", key)
            state = await made.ended(key)
            expected = "applied" if state is TurnState.CANCELLED else "already-finished"
            assert outcome.kind == expected


async def test_a_cancel_of_a_turn_that_waits_ends_it_without_asking_the_model(tmp_path: Path) -> None:
    async with open_store(tmp_path / "runtime.db") as store:
        key, journal = await begin(store)
        waiting = await queued(store, key)
        await journal.suspend()
    model = FakeModel([STOP])
    async with rig(tmp_path, model) as made:
        outcome = await deliver(made, "one", key, mode="unowned")
        assert outcome.kind == "applied"
        row = await made.store.get_turn(key)
        assert (row.state, row.stop_reason) == (TurnState.CANCELLED, "cancelled")
        assert outcome.applied_sequence == row.last_sequence
        assert await deliver(made, "one", key, mode="unowned") == outcome
        assert await made.ended(waiting) is TurnState.COMPLETED
        assert len(model.requests) == 1


async def test_a_cancel_of_a_turn_whose_owner_died_ends_it_without_asking_the_model(tmp_path: Path) -> None:
    async with open_store(tmp_path / "runtime.db") as store:
        key, journal = await begin(store)
        journal.emit(TextDelta("so far"))
        await journal.flush()
    model = FakeModel()
    async with rig(tmp_path, model) as made:
        assert (await deliver(made, "one", key)).kind == "applied"
        assert await made.state(key) is TurnState.CANCELLED
        assert model.requests == []


async def test_a_turn_that_is_superseded_while_it_waits_ends_as_that_and_the_new_one_runs(
    tmp_path: Path,
) -> None:
    async with open_store(tmp_path / "runtime.db") as store:
        key, journal = await begin(store)
        await journal.suspend()
    async with rig(tmp_path, answers(1)) as made:
        new = await made.supervisor.start(command(key.thread_id, on_waiting="cancel"))
        async with asyncio.timeout(5):
            assert await made.ended(new.key) is TurnState.COMPLETED
        row = await made.store.get_turn(key)
        assert (row.state, row.stop_reason) == (TurnState.CANCELLED, "superseded")


async def test_an_interrupt_ends_the_turn_that_runs_here_and_the_new_one_is_next(tmp_path: Path) -> None:
    async with rig(tmp_path, FakeModel([TextDelta("so far"), asyncio.Event()], [STOP], [STOP])) as made:
        key = (await made.supervisor.start(command())).key
        behind = await made.supervisor.start(command(key.thread_id))
        new = await made.supervisor.start(command(key.thread_id, busy_policy="interrupt"))
        async with asyncio.timeout(5):
            assert await made.ended(behind.key) is TurnState.COMPLETED
        rows = [await made.store.get_turn(k) for k in (key, new.key, behind.key)]
        assert (rows[0].state, rows[0].stop_reason) == (TurnState.CANCELLED, "superseded")
        assert rows[0].finish_time <= rows[1].start_time <= rows[1].finish_time <= rows[2].start_time
