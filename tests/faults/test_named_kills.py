"""Deaths at named commits, one after the other, under turns that reach every commit there is.

Each entry is a seed: who dies where. What was found once by a random run stands here by a name.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from functools import partial
from typing import Any
from zlib import crc32

import pytest
import pytest_asyncio

from support.cut_proxy import Trouble
from support.fault_cluster import FaultCluster, fault_cluster
from support.fault_load import Call, Script, Step
from support.fault_rows import sqlite_rows
from support.fault_run import Death, Report, RunRules, fault_run

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def system(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[FaultCluster]:
    async with fault_cluster(tmp_path_factory.mktemp("named")) as system:
        yield system


def script(name: str, place: int, *steps: tuple[str, ...], seconds: float = 0.1) -> Script:
    """A turn of the one thread of a run: the tools of each step, then an answer."""
    model = f"{name}-turn{place}"
    told = [
        Step(
            tuple(f"{model}-{n}-word{w} " for w in range(6)),
            0.01,
            tuple(Call(tool, f"{model}-{n}-{i}-{tool}", seconds) for i, tool in enumerate(tools)),
        )
        for n, tools in enumerate((*steps, ()))
    ]
    return Script(model, 0, False, 0.0, told, leave_every=5)


def turns(name: str) -> list[Script]:
    """A turn with every kind of call, one queued behind it that waits for an approval, and one more."""
    return [
        script(name, 0, ("once",), ("once_beside", "again", "once_command")),
        script(name, 1, ("careful", "once_blocking")),
        script(name, 2),
    ]


async def explore(system: FaultCluster, name: str, deaths: list[Death], scripts: list[Script]) -> Report:
    rows = partial(sqlite_rows, system.folder / "data" / "runtime.db")
    rules = RunRules(rows, waiting=True, survives=True)
    report = await fault_run(system, crc32(name.encode()), rules, scripts=scripts, deaths=deaths)
    assert not report.findings, "\n".join([report.line(), *report.findings])
    return report


async def run(system: FaultCluster, name: str, deaths: list[Death], scripts: list[Script]) -> None:
    report = await explore(system, name, deaths, scripts)
    assert len(report.kills) == len(deaths)
    assert report.states == {"COMPLETED": len(scripts)}


def both(victim: str, point: str) -> list[Death]:
    return [Death(victim, point, "before"), Death(victim, point, "after")]


def some(names: Iterable[str], *quick: str) -> list[Any]:
    """All of them as parameters; those that are not named take part in long runs only."""
    return [n if n in quick else pytest.param(n, marks=pytest.mark.slow) for n in names]


SEEDS: dict[str, list[Death]] = {
    "admission": both("runtime", "C0"),
    "claim": both("runtime", "C1"),
    "step-start": both("runtime", "C2"),
    "intent": both("runtime", "C3"),
    "execution-mark": both("runtime", "C4"),
    "outcome": both("runtime", "C6"),
    "settle": both("runtime", "C7"),
    "end": both("runtime", "C8"),
    "executor-start": both("executor", "X2"),
    "executor-end": both("executor", "X3"),
    "intent-then-its-recovery": [Death("runtime", "C3", "after"), Death("runtime", "C4", "before")],
    "recovery-of-a-recovery": [Death("runtime", "C4", "after"), Death("runtime", "C1", "after")],
    "runtime-and-executor": [Death("runtime", "C4", "after"), Death("executor", "X3", "before")],
}


@pytest.mark.parametrize("name", some(SEEDS, "intent", "outcome", "end", "executor-end"))
async def test_a_death_at_a_commit_loses_nothing(system: FaultCluster, name: str) -> None:
    await run(system, name, SEEDS[name], turns(name))


LOST = [f"runtime-C{n}" for n in (0, 1, 2, 3, 4, 6, 7, 8)] + ["executor-X2", "executor-X3"]


@pytest.mark.parametrize("place", some(LOST, "runtime-C3", "executor-X2"))
async def test_a_commit_that_is_told_as_failed_is_done_once(system: FaultCluster, place: str) -> None:
    victim, _, point = place.partition("-")
    before = system.files[victim].state.get("lost", 0)
    system.arm(victim, point, "lost")
    await run(system, f"lost-{point}", [], turns(f"lost-{point}"))
    assert system.files[victim].state["lost"] == before + 1


@pytest.mark.parametrize("point", some(["K1", "K2"], "K2"))
async def test_a_death_of_control_at_a_commit_leaves_one_outcome_of_a_command(
    system: FaultCluster, point: str
) -> None:
    name = f"command-{point}"
    first, second = script(name, 0, ("once",), ("once",), seconds=1.5), script(name, 1, ("careful",))
    first.cancel_after, second.cancel_after = 0.3, 0.1
    report = await explore(system, name, both("control", point), [first, second, script(name, 2)])
    assert report.states["COMPLETED"] >= 1
    assert sum(report.states.values()) == 3


CUTS = [f"{kind.value}-{pieces}" for kind in (Trouble.CUT, Trouble.CLOSE) for pieces in (1, 2, 3, 5)]


@pytest.mark.parametrize("cut", some(CUTS, "cut-1", "close-3"))
async def test_a_link_to_the_executor_that_breaks_is_mended(system: FaultCluster, cut: str) -> None:
    kind, _, pieces = cut.partition("-")
    system.proxies["executor"].trouble(Trouble(kind), int(pieces))
    name = f"link-{cut}"
    await run(system, name, [], [script(name, 0, ("once",), ("once_beside", "again"))])
