"""From request to end: who starts, who joins, who waits, who is refused."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from support.executor_fakes import FakeBody, command, ended, house, outcome, told
from turnwire.core.errors import NotFound, Unavailable, WrongState
from turnwire.executor.domain import (
    Accepted,
    Call,
    Ending,
    ExecutionState,
    Heartbeat,
    Outcome,
    Progress,
    Result,
    ResumeInput,
    Started,
    Suspension,
)
from turnwire.executor.runs import Ended
from turnwire.executor.stopping import StopSwitch


async def answers(call: Call, stop: StopSwitch) -> Ending:
    return told("done")


async def test_a_call_is_accepted_started_and_ended_once(tmp_path: Path) -> None:
    work = FakeBody("work", answers)
    async with asyncio.timeout(10), house(tmp_path, work) as home:
        events = await home.follow(command())
        assert [type(event) for event in events] == [Accepted, Started, Result]
        assert outcome(events) is Outcome.SUCCEEDED
        again = await home.follow(command())
        assert again == [events[-1]]
        assert len(work.calls) == 1


async def test_the_start_is_durable_before_the_body_runs(tmp_path: Path) -> None:
    states: list[ExecutionState] = []

    async def look(call: Call, stop: StopSwitch) -> Ending:
        found = await home.ledger.snapshot(call.key.scope, call.key.execution_id)
        states.extend(record.state for record in found.attempts)
        return told("done")

    work = FakeBody("work", look)
    async with asyncio.timeout(10), house(tmp_path, work) as home:
        await home.follow(command())
    assert states == [ExecutionState.STARTED]


async def test_a_quick_harmless_call_has_one_commit(tmp_path: Path) -> None:
    quick = FakeBody("quick", answers, inline=True, repeatable=True)
    async with asyncio.timeout(10), house(tmp_path, quick) as home:
        before = home.database.stats.units
        events = await home.follow(command(tool="quick"))
        assert [type(event) for event in events] == [Accepted, Started, Result]
        assert home.database.stats.units == before + 1


async def test_a_slow_harmless_call_has_its_start_written_meanwhile(tmp_path: Path) -> None:
    slow = FakeBody("slow", inline=True, repeatable=True)
    async with asyncio.timeout(10), house(tmp_path, slow) as home:
        found = await home.runs.execute(command(tool="slow"))
        assert not isinstance(found, Ended)
        watch = found[0].watch(joined=False, heartbeat_seconds=30)
        async for event in watch:
            if isinstance(event, Started):
                break
        assert found[0].state is ExecutionState.STARTED
        found[0].stop.set("enough")
        assert outcome([event async for event in watch]) is Outcome.STOPPED


async def test_the_smallest_limit_counts(tmp_path: Path) -> None:
    work = FakeBody("work", answers)
    async with asyncio.timeout(10), house(tmp_path, work, default_timeout=50, max_timeout=60) as home:
        await home.follow(command("call-1"))
        await home.follow(command("call-2", execution_timeout=20))
        await home.follow(command("call-3", execution_timeout=500))
    assert [call.timeout for call in work.calls] == [50, 20, 50]


async def test_two_at_once_with_one_key_start_one(tmp_path: Path) -> None:
    work = FakeBody("work", answers)
    async with asyncio.timeout(10), house(tmp_path, work) as home:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(home.follow(command())) for _ in range(10)]
        assert {task.result()[-1] for task in tasks} == {tasks[0].result()[-1]}
    assert len(work.calls) == 1


async def test_a_key_stands_for_one_call_only(tmp_path: Path) -> None:
    work, other = FakeBody("work"), FakeBody("other")
    async with asyncio.timeout(10), house(tmp_path, work, other) as home:
        await home.runs.execute(command())
        for wrong in (command(tool="other"), command(arguments_json='{"a": 1}')):
            with pytest.raises(WrongState, match="another tool or other arguments") as caught:
                await home.runs.execute(wrong)
            assert caught.value.reason == "EXECUTION_EXISTS"


async def test_a_lower_epoch_starts_nothing_but_may_join(tmp_path: Path) -> None:
    work = FakeBody("work", answers)
    async with asyncio.timeout(10), house(tmp_path, work) as home:
        await home.follow(command("call-1", epoch=5))
        with pytest.raises(WrongState) as caught:
            await home.runs.execute(command("call-2", epoch=4))
        assert caught.value.reason == "EPOCH_STALE"
        assert isinstance(await home.runs.execute(command("call-1", epoch=4)), Ended)


async def test_the_fence_survives_the_process(tmp_path: Path) -> None:
    async with asyncio.timeout(10), house(tmp_path, FakeBody("work", answers)) as home:
        await home.follow(command("call-1", epoch=5))
    async with asyncio.timeout(10), house(tmp_path, FakeBody("work", answers)) as home:
        with pytest.raises(WrongState) as caught:
            await home.runs.execute(command("call-2", epoch=4))
        assert caught.value.reason == "EPOCH_STALE"


async def test_a_call_without_room_is_told_that_it_never_started(tmp_path: Path) -> None:
    work = FakeBody("work", room=1)
    async with asyncio.timeout(10), house(tmp_path, work) as home:
        first = await home.runs.execute(command("call-1"))
        await work.started.wait()
        events = await home.follow(command("call-2", queue_timeout=0.1))
        assert [type(event) for event in events] == [Accepted, Result]
        assert outcome(events) is Outcome.NOT_STARTED
        assert not isinstance(first, Ended)
        first[0].stop.set("enough")
        await ended(first[0])
        # The seat that nobody waited for any more is free again.
        third = await home.runs.execute(command("call-3"))
        assert not isinstance(third, Ended)
        third[0].stop.set("enough")
        assert outcome(await ended(third[0])) in (Outcome.STOPPED, Outcome.NOT_STARTED)
        assert (await home.follow(command("call-2"))) == [events[-1]]


async def test_a_stop_in_the_queue_never_starts_the_call(tmp_path: Path) -> None:
    work = FakeBody("work", room=1)
    async with asyncio.timeout(10), house(tmp_path, work) as home:
        await home.runs.execute(command("call-1"))
        await work.started.wait()
        second = await home.runs.execute(command("call-2"))
        assert not isinstance(second, Ended)
        await home.runs.cancel("default-org", command("call-2").key.execution_id, 0, "changed my mind")
        assert outcome(await ended(second[0])) is Outcome.NOT_STARTED
        assert len(work.calls) == 1


async def test_a_full_queue_refuses(tmp_path: Path) -> None:
    work = FakeBody("work", room=1)
    async with asyncio.timeout(10), house(tmp_path, work, max_queued=1) as home:
        await home.runs.execute(command("call-1"))
        await work.started.wait()
        await home.runs.execute(command("call-2"))
        await asyncio.sleep(0)
        with pytest.raises(Unavailable) as caught:
            await home.runs.execute(command("call-3"))
        assert caught.value.reason == "OVERLOADED"


async def test_a_suspended_call_needs_its_answer_to_go_on(tmp_path: Path) -> None:
    async def ask(call: Call, stop: StopSwitch) -> Ending:
        if call.resume is None:
            return Ending(Outcome.SUCCEEDED, suspension=Suspension("confirm", "{}", "{}", "1"))
        return told(call.resume.payload_json)

    async with asyncio.timeout(10), house(tmp_path, FakeBody("work", ask)) as home:
        events = await home.follow(command())
        assert isinstance(events[-1], Suspension)
        assert (await home.follow(command())) == [events[-1]]
        with pytest.raises(WrongState, match="needs its answer"):
            await home.runs.execute(command(attempt=2))
        answer = ResumeInput("confirm", '"yes"', "1")
        events = await home.follow(command(attempt=2, resume=answer))
        assert isinstance(events[-1], Result)
        assert events[-1].content == '"yes"'
        with pytest.raises(WrongState, match="may not be followed"):
            await home.runs.execute(command(attempt=3, resume=answer))


@pytest.mark.parametrize("repeatable", [True, False])
async def test_only_a_repeatable_lost_call_may_be_tried_again(tmp_path: Path, repeatable: bool) -> None:
    async def lose(call: Call, stop: StopSwitch) -> Ending:
        return told("so far", Outcome.OUTCOME_UNKNOWN, lost=True, is_error=True)

    work = FakeBody("work", lose, repeatable=repeatable)
    async with asyncio.timeout(10), house(tmp_path, work) as home:
        assert outcome(await home.follow(command())) is Outcome.OUTCOME_UNKNOWN
        if repeatable:
            assert outcome(await home.follow(command(attempt=2))) is Outcome.OUTCOME_UNKNOWN
        else:
            with pytest.raises(WrongState) as caught:
                await home.runs.execute(command(attempt=2))
            assert caught.value.reason == "EXECUTION_EXISTS"


async def test_started_rows_of_an_earlier_process_are_lost_and_accepted_ones_may_start(
    tmp_path: Path,
) -> None:
    work = FakeBody("work", answers)
    async with asyncio.timeout(10), house(tmp_path, work) as home:
        begin = home.ledger.start_statements(command("call-1"), "hash", False, Started(1, 1.0))
        await home.ledger.start(command("call-1").key, begin)
        await home.follow(command("call-3"))
        sha256 = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
        home.ledger.accept(command("call-2"), sha256, False)
        assert await home.ledger.lose_started() == 1
        lost = await home.ledger.snapshot("default-org", command("call-1").key.execution_id)
        assert lost.attempts[0].state is ExecutionState.LOST
        assert outcome(await home.follow(command("call-2"))) is Outcome.SUCCEEDED


async def test_a_defect_while_the_body_runs_is_an_unknown_end(tmp_path: Path) -> None:
    async def break_(call: Call, stop: StopSwitch) -> Ending:
        raise RuntimeError("a defect")

    async with asyncio.timeout(10), house(tmp_path, FakeBody("work", break_)) as home:
        assert outcome(await home.follow(command())) is Outcome.OUTCOME_UNKNOWN
        known = await home.ledger.snapshot("default-org", command().key.execution_id)
        assert known.attempts[0].state is ExecutionState.LOST
        await home.runs.finish(5.0)
        assert home.runs.live_count == 0


async def test_an_unknown_tool_and_an_unknown_call_are_not_found(tmp_path: Path) -> None:
    async with asyncio.timeout(10), house(tmp_path, FakeBody("work")) as home:
        with pytest.raises(NotFound) as caught:
            await home.runs.execute(command(tool="none"))
        assert caught.value.reason == "TOOL_NOT_FOUND"
        with pytest.raises(NotFound) as caught:
            await home.runs.cancel("default-org", command().key.execution_id, 0, "")
        assert caught.value.reason == "EXECUTION_NOT_FOUND"


async def test_a_leaving_supervisor_lets_repeats_join_and_starts_nothing(tmp_path: Path) -> None:
    work = FakeBody("work")
    async with asyncio.timeout(10), house(tmp_path, work) as home:
        first = await home.runs.execute(command("call-1"))
        await work.started.wait()
        await home.runs.refuse()
        joined = await home.runs.execute(command("call-1"))
        assert not isinstance(joined, Ended)
        assert joined[1]
        with pytest.raises(Unavailable) as caught:
            await home.runs.execute(command("call-2"))
        assert caught.value.reason == "DRAINING"
        await home.runs.finish(0.0)
        assert not isinstance(first, Ended)
        assert outcome(await ended(first[0])) is Outcome.STOPPED


async def test_a_silent_run_has_a_heartbeat(tmp_path: Path) -> None:
    work = FakeBody("work")
    async with asyncio.timeout(10), house(tmp_path, work) as home:
        found = await home.runs.execute(command())
        assert not isinstance(found, Ended)
        watch = found[0].watch(joined=True, heartbeat_seconds=0.01)
        async for event in watch:
            if isinstance(event, Heartbeat) and event.elapsed > 0:
                break
        watch.close()


async def test_progress_is_bounded_and_not_repeated_after_a_join(tmp_path: Path) -> None:
    async def chatter(call: Call, stop: StopSwitch) -> Ending:
        for number in range(1_000):
            call.report(f"{number} " + "x" * 5_000)
        await asyncio.wait((stop.future,))
        return told("done")

    async with asyncio.timeout(10), house(tmp_path, FakeBody("work", chatter)) as home:
        found = await home.runs.execute(command())
        assert not isinstance(found, Ended)
        run = found[0]
        watch = run.watch(joined=False, heartbeat_seconds=30)
        words = []
        async for event in watch:
            if isinstance(event, Progress):
                words.append(event.text)
            if len(words) == 2:
                break
        assert words[0].startswith("0 ")
        assert words[1].startswith("999 ")
        assert all(len(word.encode()) <= 2_048 for word in words)
        late = run.watch(joined=True, heartbeat_seconds=30)
        run.stop.set("enough")
        assert [type(event) for event in [event async for event in late]] == [Accepted, Started, Result]


async def test_expired_ends_go_and_the_fence_stays_while_the_thread_lives(tmp_path: Path) -> None:
    work = FakeBody("work", answers)
    async with asyncio.timeout(10), house(tmp_path, work) as home:
        await home.follow(command("call-1", epoch=3))
        kept = await home.ledger.expire(before=0)
        assert (kept.executions, kept.empty_threads) == (0, ())
        gone = await home.ledger.expire(before=2**62)
        assert (gone.executions, gone.empty_threads) == (1, (("default-org", "threads/thread"),))
        assert outcome(await home.follow(command("call-1", epoch=1))) is Outcome.SUCCEEDED
