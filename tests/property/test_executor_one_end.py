"""However stops, ends and readers fall together, an execution ends once and all hear the same."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from support.executor_fakes import FakeBody, command, ended, house, outcome, told
from turnwire.executor.domain import Call, Ending, Outcome, Result
from turnwire.executor.run import Run
from turnwire.executor.runs import Ended
from turnwire.executor.stopping import StopSwitch

ends = st.sampled_from([Result(Outcome.SUCCEEDED, "a"), Result(Outcome.STOPPED, "b"), RuntimeError("c")])


@given(st.lists(ends, min_size=1, max_size=6))
@settings(deadline=None)
def test_the_first_end_counts_and_later_ones_are_dropped(later: list[Result | RuntimeError]) -> None:
    async def scenario() -> None:
        run = Run(command(), "", lambda: 0.0)
        taken = [run.settle(end) if isinstance(end, Result) else run.fail(end) for end in later]
        assert taken == [True] + [False] * (len(later) - 1)
        assert (run.end or run.error) is later[0]

    asyncio.run(scenario())


@given(st.lists(st.sampled_from(["stop", "finish", "read", "turn"]), min_size=1, max_size=12))
@settings(deadline=None, max_examples=25)
def test_every_order_of_stop_and_finish_gives_one_result(steps: list[str]) -> None:
    async def scenario(folder: Path) -> None:
        finish = asyncio.Event()

        async def act(call: Call, stop: StopSwitch) -> Ending:
            while not finish.is_set() and not stop.cause:
                await asyncio.sleep(0)
            return told("x", Outcome.SUCCEEDED if finish.is_set() else Outcome.STOPPED)

        work = FakeBody("work", act)
        async with asyncio.timeout(20), house(folder, work) as home, asyncio.TaskGroup() as group:
            found = await home.runs.execute(command())
            assert not isinstance(found, Ended)
            run = found[0]
            readers = [group.create_task(ended(run))]
            for step in [*steps, "finish"]:
                if step == "stop":
                    await home.runs.cancel("default-org", run.command.key.execution_id, 0, "x")
                elif step == "finish":
                    finish.set()
                elif step == "read":
                    readers.append(group.create_task(home.follow(command())))
                else:
                    await asyncio.sleep(0)
            results = {(await reader)[-1] for reader in readers}
            assert len(results) == 1
            stored = await home.follow(command())
            assert set(stored) == results
            assert outcome(stored) in (Outcome.SUCCEEDED, Outcome.STOPPED, Outcome.NOT_STARTED)
            assert len(work.calls) <= 1

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(scenario(Path(folder)))
