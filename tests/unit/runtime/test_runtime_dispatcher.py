"""What finds work that nobody runs, over a scripted store and over two processes on one PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from support.owners import orphan
from support.postgres import Location
from support.runtime_fakes import FakeModel
from support.runtime_rig import command, history, kinds, pages
from support.runtime_turns import STOP, Rig, answers, rig
from turnwire.extend.events import TurnState
from turnwire.extend.llm import TextDelta
from turnwire.runtime.domain.admission import StopNote
from turnwire.runtime.domain.control import ControlDelivery
from turnwire.runtime.domain.turn import ThreadKey, TurnKey
from turnwire.runtime.engine.dispatcher import Dispatcher
from turnwire.storage.units import StoreUnavailable

ONE, TWO = ThreadKey("team", "thread-1"), ThreadKey("team", "thread-2")
NOTE = StopNote("cancelled", "enough")


class Work:
    """A store and who claims from it, in one."""

    def __init__(self, *, shared: bool = False, room: int = 10) -> None:
        self.shared = shared
        self.room = room
        self.found: list[ThreadKey] = []
        self.due: float | None = None
        self.to_stop: list[tuple[TurnKey, StopNote]] = []
        self.mine: dict[TurnKey, int] = {}
        self.runs: dict[TurnKey, int] = {}
        self.claimed: list[ThreadKey] = []
        self.stopped: list[TurnKey] = []
        self.lost: dict[TurnKey, int] = {}
        self.looks = 0
        self.followed = 0
        self.fails = 0
        self.changed = asyncio.Event()
        self.tasks: set[asyncio.Task[Any]] = set()

    async def claimable(self, limit: int) -> Sequence[ThreadKey]:
        self.looks += 1
        self.changed.set()
        if self.fails:
            self.fails -= 1
            raise StoreUnavailable("not now")
        return self.found[:limit]

    async def next_due(self) -> float | None:
        return self.due

    async def stops(self) -> Sequence[tuple[TurnKey, StopNote]]:
        return self.to_stop

    async def owned(self) -> Mapping[TurnKey, int]:
        return self.mine

    async def look_after_watched(self) -> None:
        self.followed += 1
        self.changed.set()

    async def claim(self, thread: ThreadKey) -> bool:
        self.claimed.append(thread)
        self.changed.set()
        return True

    def stop(self, key: TurnKey, note: StopNote) -> None:
        self.stopped.append(key)

    def running(self) -> Mapping[TurnKey, int]:
        return self.runs

    def lose(self, lost: Mapping[TurnKey, int]) -> None:
        self.lost.update(lost)
        self.changed.set()

    def spawn(self, work: Coroutine[Any, Any, object], name: str) -> asyncio.Task[Any]:
        task = asyncio.create_task(work, name=name)
        self.tasks.add(task)
        return task

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(5):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


@asynccontextmanager
async def dispatching(work: Work, sweep: float = 60.0) -> AsyncIterator[Dispatcher]:
    dispatcher = Dispatcher(work, work, sweep=sweep)
    dispatcher.start()
    try:
        yield dispatcher
    finally:
        await dispatcher.stop()
    assert all(task.done() for task in work.tasks)


async def test_the_first_look_takes_what_a_former_process_left() -> None:
    work = Work()
    work.found = [ONE, TWO]
    async with dispatching(work):
        await work.until(lambda: work.claimed == [ONE, TWO])


async def test_a_hint_is_followed_at_once_and_a_lost_one_costs_only_time() -> None:
    work = Work()
    async with dispatching(work) as dispatcher:
        await work.until(lambda: work.looks == 1)
        dispatcher.wake(ONE)
        await work.until(lambda: work.claimed == [ONE])
    late = Work()
    async with dispatching(late, sweep=0.05):
        await late.until(lambda: late.looks == 1)
        late.found = [TWO]
        await late.until(lambda: TWO in late.claimed)


async def test_the_next_look_is_when_something_becomes_due() -> None:
    work = Work()
    work.due = 0.05
    async with dispatching(work):
        await work.until(lambda: work.looks >= 3)


async def test_no_more_is_taken_than_there_is_room_for() -> None:
    work = Work(room=1)
    work.found = [ONE, TWO]
    async with dispatching(work) as dispatcher:
        await work.until(lambda: work.claimed == [ONE])
        work.room = 0
        looks = work.looks
        dispatcher.wake(TWO)
        await asyncio.sleep(0)
        assert (work.looks, work.claimed) == (looks, [ONE])


async def test_a_store_that_fails_is_asked_again() -> None:
    work = Work()
    work.fails, work.found = 2, [ONE]
    async with dispatching(work, sweep=0.01):
        await work.until(lambda: ONE in work.claimed)


async def test_stops_and_watched_turns_matter_only_where_others_write_too() -> None:
    key = TurnKey("team", "thread-1", "turn-1")
    alone, shared = Work(), Work(shared=True)
    for work in (alone, shared):
        work.to_stop = [(key, NOTE)]
        async with dispatching(work) as dispatcher:
            await work.until(lambda work=work: work.looks >= 1)  # type: ignore[misc]
            dispatcher.look()
            await work.until(lambda work=work: work.looks >= 2)  # type: ignore[misc]
    assert (alone.stopped, alone.followed) == ([], 0)
    assert shared.stopped[0] == key
    assert shared.followed >= 1


async def test_after_a_late_renewal_only_what_is_still_owned_goes_on() -> None:
    kept, taken, again = (TurnKey("team", "thread-1", f"turn-{n}") for n in range(3))
    work = Work(shared=True)
    work.runs, work.mine = {kept: 1, taken: 1, again: 1}, {kept: 1, again: 3}
    async with dispatching(work) as dispatcher:
        dispatcher.check_ownership()
        await work.until(lambda: bool(work.lost))
    assert work.lost == {taken: 1, again: 1}


# --- two processes ---


@asynccontextmanager
async def two(location: Location, one: FakeModel, other: FakeModel) -> AsyncIterator[tuple[Rig, Rig]]:
    """Two runtimes on one server, each with its dispatcher."""
    assert isinstance(location, str)
    async with (
        rig(location, one, runtime_id="one") as a,
        rig(location, other, runtime_id="two") as b,
        ready(a),
        ready(b),
    ):
        yield a, b


@asynccontextmanager
async def ready(made: Rig) -> AsyncIterator[None]:
    dispatcher = Dispatcher(made.store, made.supervisor, sweep=0.1)
    made.store.listen(dispatcher)
    dispatcher.start()
    try:
        yield
    finally:
        made.supervisor.refuse_new()
        await dispatcher.stop()


def delivery(key: TurnKey, mode: str) -> ControlDelivery:
    return ControlDelivery(
        scope="team",
        command_id=f"command-{mode}",
        turn=key.name,
        thread="",
        cause="enough",
        clear_queue=False,
        remaining_seconds=30.0,
        mode=mode,  # type: ignore[arg-type]
        bound_turn="",
        subject="",
    )


@pytest.mark.parametrize("engine", ["postgresql"])
async def test_a_reader_on_another_process_follows_a_turn_to_its_end(store_location: Location) -> None:
    gate = asyncio.Event()
    async with two(
        store_location, FakeModel([TextDelta("so "), gate, TextDelta("far"), STOP]), answers(0)
    ) as (
        a,
        b,
    ):
        key = (await a.supervisor.start(command())).key
        async with asyncio.TaskGroup() as group, asyncio.timeout(20):
            reading = group.create_task(pages(b.store, key))
            waiting = group.create_task(b.ended(key))
            joined = await b.supervisor.start(command(request_id=(await a.store.get_turn(key)).request_id))
            assert joined.key == key
            gate.set()
        found = kinds(await history(a.store, key))
        assert reading.result()
        assert waiting.result() is TurnState.COMPLETED
        assert found[-1] == "turn_finished"
        assert kinds(await history(b.store, key)) == found


@pytest.mark.parametrize("engine", ["postgresql"])
async def test_a_queue_goes_on_in_the_process_that_ends_the_turn_before(store_location: Location) -> None:
    gate = asyncio.Event()
    async with two(store_location, FakeModel([gate, STOP], [STOP]), answers(1)) as (a, b):
        key = (await a.supervisor.start(command())).key
        waiting = await b.supervisor.start(command(key.thread_id))
        assert waiting.journal is None
        gate.set()
        async with asyncio.timeout(20):
            assert await b.ended(waiting.key) is TurnState.COMPLETED


@pytest.mark.parametrize("engine", ["postgresql"])
async def test_a_turn_whose_process_stalls_goes_on_in_another_and_the_stalled_one_lets_go(
    store_location: Location,
) -> None:
    async with two(store_location, FakeModel([TextDelta("lost"), asyncio.Event()]), answers(1)) as (a, b):
        key = (await a.supervisor.start(command())).key
        live = a.supervisor.live[key]
        log = a.store.log_of(key)
        assert log is not None
        while log.committed < 4:
            await log.wait()
        await orphan(a.store)
        async with asyncio.timeout(20):
            assert await b.ended(key) is TurnState.COMPLETED
            assert await a.store.owned() == {}
            a.supervisor.lose(a.supervisor.running())
            await live.finished
        assert a.observer.open == {}
        assert (await b.store.get_turn(key)).epoch == 2
        found = kinds(await history(b.store, key))
        assert found.count("turn_finished") == 1
        assert "step_reset" in found


@pytest.mark.parametrize("engine", ["postgresql"])
async def test_a_turn_that_one_process_hands_over_is_finished_by_the_other(store_location: Location) -> None:
    async with two(store_location, FakeModel([TextDelta("half"), asyncio.Event()]), answers(1)) as (a, b):
        key = (await a.supervisor.start(command())).key
        await a.supervisor.drain(0.0)
        async with asyncio.timeout(20):
            assert await b.ended(key) is TurnState.COMPLETED


@pytest.mark.parametrize("engine", ["postgresql"])
async def test_an_interrupt_ends_the_turn_that_another_process_runs(store_location: Location) -> None:
    async with two(store_location, FakeModel([asyncio.Event()], [STOP]), answers(1)) as (a, b):
        key = (await a.supervisor.start(command())).key
        new = await b.supervisor.start(command(key.thread_id, busy_policy="interrupt"))
        assert new.superseded == key
        async with asyncio.timeout(20):
            assert await b.ended(key) is TurnState.CANCELLED
            assert await b.ended(new.key) is TurnState.COMPLETED
        assert (await b.store.get_turn(key)).stop_reason == "superseded"


@pytest.mark.parametrize("engine", ["postgresql"])
async def test_a_cancel_is_applied_by_the_owner_and_by_nobody_else(store_location: Location) -> None:
    async with two(store_location, FakeModel([asyncio.Event()]), answers(0)) as (a, b):
        key = (await a.supervisor.start(command())).key
        async with asyncio.timeout(20):
            assert (await b.desk.deliver(delivery(key, "unowned"))).kind == "not-applied"
            assert (await b.desk.deliver(delivery(key, "owned"))).kind == "not-applied"
            assert (await a.desk.deliver(delivery(key, "owned"))).kind == "applied"


@pytest.mark.parametrize("engine", ["postgresql"])
async def test_a_turn_that_nobody_reads_any_more_is_cancelled_wherever_it_runs(
    store_location: Location,
) -> None:
    async with two(store_location, FakeModel([asyncio.Event()]), answers(0)) as (a, b):
        key = (await a.supervisor.start(command())).key
        async with asyncio.timeout(20):
            await b.desk.cancel(key, "nobody reads it")
            assert await a.ended(key) is TurnState.CANCELLED
