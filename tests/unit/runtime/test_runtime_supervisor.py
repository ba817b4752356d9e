"""The supervisor: what is claimed is run, what waits is claimed, what drains ends truthfully."""

from __future__ import annotations

import asyncio
import contextvars
from pathlib import Path

import pytest

from support.runtime_fakes import FakeModel, agent
from support.runtime_rig import admit, command, open_store
from support.runtime_turns import STOP, answers, rig
from turnwire.core.errors import InvalidRequest, NotFound, Unavailable
from turnwire.extend.events import TurnState
from turnwire.extend.llm import TextDelta
from turnwire.runtime.disconnect import DisconnectWatch
from turnwire.runtime.domain.turn import Disposition, TurnKey
from turnwire.runtime.engine import supervisor as supervisor_module

REQUEST = "7d3f2c1e-8f0a-4a37-9a55-0c6f3a1f9b10"


async def test_a_started_turn_runs_to_its_end_and_its_owner_is_told(tmp_path: Path) -> None:
    async with rig(tmp_path, answers(1)) as made:
        admitted = await made.supervisor.start(command())
        assert made.supervisor.live[admitted.key].agent == "agents/helper"
        assert await made.ended(admitted.key) is TurnState.COMPLETED
        await made.observer.until(lambda: made.observer.closed == 1)
        assert made.supervisor.live == {}
        assert made.observer.open == {}


async def test_a_caller_that_leaves_in_the_middle_of_the_admission_leaves_no_stuck_turn(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path, answers(1)) as made:
        asked = command(request_id=REQUEST)
        starting = asyncio.create_task(made.supervisor.start(asked))
        for _ in range(4):
            await asyncio.sleep(0)
        starting.cancel()
        await asyncio.wait({starting})
        assert starting.cancelled()
        await made.observer.until(lambda: made.observer.closed == 1)
        found = await made.store.find(asked)
        assert found is not None
        assert await made.state(found.key) is TurnState.COMPLETED


async def test_the_queue_goes_on_after_each_end(tmp_path: Path) -> None:
    gate = asyncio.Event()
    model = FakeModel([gate, STOP], *[[TextDelta(f"{n}"), STOP] for n in range(3)])
    async with rig(tmp_path, model) as made:
        first = await made.supervisor.start(command())
        rest = [await made.supervisor.start(command(first.key.thread_id)) for _ in range(3)]
        assert [a.disposition for a in rest] == [Disposition.QUEUED] * 3
        gate.set()
        await made.observer.until(lambda: made.observer.closed == 4)
        rows = [await made.store.get_turn(a.key) for a in (first, *rest)]
        assert all(r.state is TurnState.COMPLETED for r in rows)
        starts = [r.start_time for r in rows]
        assert starts == sorted(starts)


async def test_turns_that_come_while_others_end_are_all_run(tmp_path: Path) -> None:
    async with rig(tmp_path, answers(31)) as made:
        first = await made.supervisor.start(command())
        keys = [first.key]
        for burst in range(10):
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(made.supervisor.start(command(first.key.thread_id))) for _ in range(3)
                ]
            keys += [t.result().key for t in tasks]
            for _ in range(burst):
                await asyncio.sleep(0)
        await made.observer.until(lambda: made.observer.closed == len(keys))
        assert {await made.state(k) for k in keys} == {TurnState.COMPLETED}


async def test_a_queued_turn_whose_agent_is_gone_ends_and_the_next_one_runs(tmp_path: Path) -> None:
    gate = asyncio.Event()
    helper, other = (agent(name=n, organization_id="*", tools=[]) for n in ("helper", "other"))
    async with rig(tmp_path, FakeModel([gate, STOP], [STOP]), helper, other) as made:
        first = await made.supervisor.start(command(agent="helper"))
        thread = first.key.thread_id
        doomed = await made.supervisor.start(command(thread, agent="other"))
        last = await made.supervisor.start(command(thread, agent="helper"))
        made.agents._agents.pop("other")
        gate.set()
        await made.observer.until(lambda: made.observer.closed == 2)
        row = await made.store.get_turn(doomed.key)
        assert (row.state, row.error_reason) == (TurnState.FAILED, "AGENT_NOT_FOUND")
        assert await made.state(last.key) is TurnState.COMPLETED


async def test_a_queued_turn_keeps_the_agent_and_the_steps_of_its_admission(tmp_path: Path) -> None:
    gate = asyncio.Event()
    helper = agent(name="helper", organization_id="*", tools=[])
    async with rig(tmp_path, FakeModel([gate, STOP], [STOP]), helper) as made:
        first = await made.supervisor.start(command())
        waiting = await made.supervisor.start(command(first.key.thread_id, limits={"steps": 3}))
        made.agents._agents["other"] = agent(name="other", organization_id="*", tools=[])
        gate.set()
        assert await made.ended(waiting.key) is TurnState.COMPLETED
        row = await made.store.get_turn(waiting.key)
        assert (row.agent, row.max_steps) == ("agents/helper", 3)


async def test_a_queued_turn_starts_outside_the_context_of_the_turn_before_it(tmp_path: Path) -> None:
    caller: contextvars.ContextVar[str] = contextvars.ContextVar("caller", default="nobody")
    seen: list[str] = []
    gate = asyncio.Event()

    class Nosy(FakeModel):
        def stream(self, request, **events):  # type: ignore[no-untyped-def]
            seen.append(caller.get())
            return super().stream(request, **events)

    async with rig(tmp_path, Nosy([gate, STOP], [STOP])) as made:
        caller.set("alice")
        first = await made.supervisor.start(command())
        await made.supervisor.start(command(first.key.thread_id))
        gate.set()
        await made.observer.until(lambda: made.observer.closed == 2)
    assert seen == ["alice", "nobody"]


async def test_a_full_runtime_refuses_new_turns_and_still_joins_old_ones(tmp_path: Path) -> None:
    async with rig(tmp_path, FakeModel([asyncio.Event()]), max_live=1) as made:
        asked = command(request_id=REQUEST)
        first = await made.supervisor.start(asked)
        with pytest.raises(Unavailable) as caught:
            await made.supervisor.start(command())
        assert (caught.value.reason, caught.value.retry_after) == ("OVERLOADED", 1.0)
        joined = await made.supervisor.start(asked)
        assert (joined.key, joined.disposition) == (first.key, Disposition.ATTACHED)


async def test_a_repeat_joins_its_turn_whatever_has_become_of_its_agent(tmp_path: Path) -> None:
    async with rig(tmp_path, answers(1)) as made:
        asked = command(request_id=REQUEST, agent="helper")
        first = await made.supervisor.start(asked)
        made.agents._agents.clear()
        assert (await made.supervisor.start(asked)).key == first.key
        with pytest.raises(NotFound):
            await made.supervisor.start(command(agent="helper"))


async def test_a_request_beyond_the_agent_admits_nothing(tmp_path: Path) -> None:
    async with rig(tmp_path, answers(1)) as made:
        asked = command(request_id=REQUEST, limits={"steps": 31})
        with pytest.raises(InvalidRequest):
            await made.supervisor.start(asked)
        assert await made.store.find(asked) is None


async def test_a_drain_waits_for_turns_that_end_and_refuses_new_ones(tmp_path: Path) -> None:
    gate = asyncio.Event()
    async with rig(tmp_path, FakeModel([gate, TextDelta("done"), STOP])) as made:
        first = await made.supervisor.start(command())
        waiting = await made.supervisor.start(command(first.key.thread_id))
        draining = asyncio.create_task(made.supervisor.drain(5.0))
        await asyncio.sleep(0)
        with pytest.raises(Unavailable) as caught:
            await made.supervisor.start(command())
        assert caught.value.reason == "DRAINING"
        gate.set()
        async with asyncio.timeout(5):
            await draining
        assert await made.state(first.key) is TurnState.COMPLETED
        assert await made.state(waiting.key) is TurnState.QUEUED


async def test_a_drain_hands_over_what_does_not_end_by_itself_and_it_goes_on_uncounted(
    tmp_path: Path,
) -> None:
    for episode in range(1, 6):
        script = [TextDelta("so far"), asyncio.Event()] if episode < 5 else [TextDelta("whole"), STOP]
        async with rig(tmp_path, FakeModel(script)) as made:
            if episode == 1:
                key = (await made.supervisor.start(command())).key
            else:
                assert await made.supervisor.claim(key.thread)
            log = made.store.log_of(key)
            assert log is not None
            if episode == 5:
                assert await made.ended(key) is TurnState.COMPLETED
                break
            said = log.committed
            while log.committed <= said + 1:
                await log.wait()
            await made.supervisor.drain(0.0)
            assert not made.supervisor.live
            assert made.observer.closed == 1
            row = await made.store.get_turn(key)
            assert (row.state, row.epoch) == (TurnState.RUNNING, episode)
            assert await made.store.claimable(10) == [key.thread]


async def test_a_drain_waits_for_an_admission_under_way(tmp_path: Path) -> None:
    async with rig(tmp_path, answers(1)) as made:
        starting = asyncio.create_task(made.supervisor.start(command()))
        for _ in range(3):
            await asyncio.sleep(0)
        await made.supervisor.drain(5.0)
        assert starting.done()
        assert await made.state(starting.result().key) is TurnState.COMPLETED


async def test_a_cancelled_queued_turn_is_told_to_its_readers_even_when_the_caller_leaves(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path, FakeModel([asyncio.Event()])) as made:
        first = await made.supervisor.start(command())
        waiting = await made.supervisor.start(command(first.key.thread_id))
        _, log = await made.store.follow(waiting.key)
        assert log is not None
        cancelling = asyncio.create_task(made.supervisor.cancel_queued(waiting.key, "enough", "command-1"))
        for _ in range(3):
            await asyncio.sleep(0)
        cancelling.cancel()
        await log.wait_finished(5, lambda: False)
        assert log.finished
        assert await made.state(waiting.key) is TurnState.CANCELLED


async def test_recovered_threads_are_claimed(tmp_path: Path) -> None:
    async with open_store(tmp_path / "runtime.db") as store:
        first = await admit(store, command())
        waiting = await admit(store, command(first.key.thread_id))
    async with rig(tmp_path, answers(2)) as made:
        for thread in await made.store.claimable(10):
            await made.supervisor.claim(thread)
        assert await made.ended(waiting.key) is TurnState.COMPLETED


async def test_background_work_that_fails_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def fails() -> None:
        raise ValueError("a defect")

    async with rig(tmp_path, answers(0)) as made:
        task = made.supervisor.spawn(fails(), "work")
        await asyncio.wait({task})
        await asyncio.sleep(0)
    assert [r.message for r in caplog.records if r.name == supervisor_module.__name__] == ["task.failed"]


# --- cancel on disconnect ---

KEY = TurnKey("team", "thread-1", "turn-1")


async def test_the_last_reader_that_asked_takes_its_turn_with_it_after_the_grace() -> None:
    gone: list[TurnKey] = []
    fired = asyncio.Event()

    def cancel(key: TurnKey) -> None:
        gone.append(key)
        fired.set()

    watch = DisconnectWatch(cancel)
    one, two = watch.attach(KEY, 0.01), watch.attach(KEY, 0.01)
    silent = watch.attach(KEY, None)
    one()
    assert gone == []
    two()
    async with asyncio.timeout(5):
        await fired.wait()
    silent()
    assert gone == [KEY]


async def test_a_reader_that_comes_back_within_the_grace_keeps_the_turn() -> None:
    gone: list[TurnKey] = []
    watch = DisconnectWatch(gone.append)
    watch.attach(KEY, 0.01)()
    back = watch.attach(KEY, 0.01)
    later = asyncio.Event()
    asyncio.get_running_loop().call_later(0.03, later.set)
    await later.wait()
    assert gone == []
    watch.leave()
    back()
    later.clear()
    asyncio.get_running_loop().call_later(0.03, later.set)
    await later.wait()
    assert gone == []


async def test_new_turns_are_refused_at_once_while_the_store_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path, answers(2)) as made:
        asked = command(request_id=REQUEST)
        known = await made.supervisor.start(asked)
        await made.ended(known.key)
        with monkeypatch.context() as patch:
            patch.setattr(type(made.store), "healthy", False)
            with pytest.raises(Unavailable) as refused:
                await made.supervisor.start(command())
            assert refused.value.reason == "STORE_UNAVAILABLE"
            assert (await made.supervisor.start(asked)).key == known.key
        assert (await made.supervisor.start(command())).journal is not None
