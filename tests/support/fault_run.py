"""One random run: turns of a seed on the three services, deaths of a seed among them, and the findings.

`survives` and `waiting` of a run say what the system promises: that a turn outlives its runtime, and that
calls may wait for an approval.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field

import grpc

from support.cluster import Process
from support.cut_proxy import Trouble
from support.fault_checks import Evidence, Outside, outside_of, turn_findings, worker_at_work
from support.fault_cluster import FaultCluster, Kill
from support.fault_load import Script, make_scripts
from support.fault_rows import Query, row_findings
from support.fault_turns import FollowedTurn, patiently
from turnwire.api.control.v1 import control_service_pb2 as control_pb
from turnwire.api.runtime.v1 import turn_event_pb2 as event_pb
from turnwire.api.runtime.v1 import turn_service_pb2 as pb
from turnwire.api.runtime.v1.turn_pb2 import TurnState

__all__ = ["Death", "Report", "Rows", "RunRules", "fault_run"]

Rows = Callable[[], AbstractContextManager[Query]]

# A run in which a turn has not ended by then has a finding.
RUN_SECONDS = 60.0
_POINTS = {
    "runtime": ("C0", "C1", "C2", "C3", "C4", "C6", "C7", "C8"),
    "executor": ("X2", "X3"),
    "control": ("K1", "K2"),
}
# A plan that has not come true by then is exchanged for another one.
_PATIENCE_SECONDS = 0.8
_LAST_MOMENT = 0.1


@dataclass(frozen=True, slots=True)
class Death:
    """A death to come: at a commit point, or at a moment when `point` is empty; `pause` seconds before it."""

    victim: str
    point: str = ""
    when: str = ""
    count: int = 1
    pause: float = 0.0


@dataclass(frozen=True, slots=True)
class RunRules:
    """What a run does and what the system promises.

    Args:
        rows: opens the runtime's store for reading, without changing what the runtime will find there.
        waiting: some calls need an approval.
        survives: a turn outlives the runtime that ran it.
    """

    rows: Rows
    waiting: bool = False
    survives: bool = False


@dataclass
class Report:
    """What a run was and found."""

    seed: int
    turns: int = 0
    kills: list[Kill] = field(default_factory=list)
    inside: int = 0
    links_cut: int = 0
    lost: int = 0
    findings: list[str] = field(default_factory=list)
    states: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def line(self) -> str:
        """The run in one line."""
        kills = ", ".join(
            f"{k.victim} {k.fault.when} {k.fault.point}" if k.fault else f"{k.victim} at random"
            for k in self.kills
        )
        states = " ".join(f"{state}={count}" for state, count in sorted(self.states.items()))
        return (
            f"seed {self.seed}: {self.seconds:.1f} s, {self.turns} turns ({states}); {kills or 'nobody died'}"
        )


class _Run:
    def __init__(
        self,
        system: FaultCluster,
        seed: int,
        rules: RunRules,
        scripts: Sequence[Script] | None,
        deaths: Sequence[Death] | None,
    ) -> None:
        self.report = Report(seed)
        self._deaths = deaths
        self._system = system
        self._rules = rules
        self._rng = random.Random(seed ^ 0x5EED)
        self._scripts = scripts or make_scripts(seed, waiting=rules.waiting)
        self._outside = system.folder / f"outside-{seed}"
        self._turns: list[FollowedTurn] = []
        self._since = 0
        self._over = asyncio.Event()

    def _finding(self, text: str) -> None:
        self.report.findings.append(text)

    async def run(self) -> Report:
        began = time.monotonic()
        self._since = time.time_ns()
        self._system.provider.begin(self._scripts, self._outside)
        killer = asyncio.create_task(self._kill_some(), name="faults.killer")
        try:
            async with asyncio.timeout(RUN_SECONDS):
                async with asyncio.TaskGroup() as tasks:
                    for number in {script.thread for script in self._scripts}:
                        tasks.create_task(self._thread([s for s in self._scripts if s.thread == number]))
        except TimeoutError:
            for turn in self._turns:
                if not turn.ended.is_set():
                    self._finding(f"{turn.label}: has not ended; its last event is {turn.last}")
        finally:
            self._over.set()
            await asyncio.wait({killer})
        killer.result()
        self._system.disarm()
        for proxy in self._system.proxies.values():
            proxy.release()
        await self._check()
        self.report.seconds = time.monotonic() - began
        return self.report

    async def _thread(self, scripts: Sequence[Script]) -> None:
        """Run the turns of one thread, some of them queued behind each other."""
        first: FollowedTurn | None = None
        async with asyncio.TaskGroup() as tasks:
            before: FollowedTurn | None = None
            for script in scripts:
                if before is not None and script.after:
                    await before.ended.wait()
                await asyncio.sleep(script.delay)
                turn = FollowedTurn(self._system.rig, script, self._finding)
                self._turns.append(turn)
                tasks.create_task(turn.run(first.thread if first is not None else ""))
                await turn.known.wait()
                first, before = first or turn, turn

    async def _kill_some(self) -> None:
        if self._deaths is not None:
            for death in self._deaths:
                if not await self._kill(death, RUN_SECONDS):
                    self._finding(f"nobody died: {death}")
            return
        wanted = self._rng.choice((1, 1, 2, 2, 3))
        while len(self.report.kills) < wanted and not self._over.is_set():
            if self._rng.random() < 0.1:
                self._cut_a_link()
            if self._rng.random() < 0.15:
                await self._lose_a_commit()
            if self._rng.random() < 0.05:
                await self._kill_a_worker()
            await self._kill(_random_death(self._rng, first=not self.report.kills), _PATIENCE_SECONDS)

    def _cut_a_link(self) -> None:
        proxy = self._system.proxies[self._rng.choice(("executor", "executor", "control"))]
        kind = self._rng.choice((Trouble.CUT, Trouble.CLOSE))
        proxy.trouble(kind, self._rng.choice((0, 1, 2, 3, 5, 8)))
        self.report.links_cut += 1

    async def _lose_a_commit(self) -> None:
        """Have a good commit told as failed, if it comes soon."""
        points = _POINTS[victim := self._rng.choice(("runtime", "runtime", "executor", "control"))]
        lost = self._system.files[victim].state.get("lost", 0)
        self._system.arm(victim, self._rng.choice(points), "lost")
        await self._pause(0.3)
        self._system.files[victim].plan = None
        self.report.lost += self._system.files[victim].state.get("lost", 0) - lost

    async def _kill_a_worker(self) -> None:
        """Kill a process in which a Python tool is at work, if there is one."""
        pid = worker_at_work(self._outside)
        if pid:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            self.report.kills.append(Kill("worker", None, time.time_ns()))

    async def _kill(self, death: Death, patience: float) -> bool:
        """Carry a death out and start the service anew; false when the plan did not come true in time."""
        system = self._system
        process = system.process(death.victim)
        if not death.point:
            await self._pause(death.pause)
            if self._over.is_set():
                return False
            self._died(await system.kill(death.victim))
        else:
            fault = system.arm(death.victim, death.point, death.when, death.count)
            if not await self._dies(process, patience):
                system.files[death.victim].plan = None
                # It may have died at the last moment.
                done, _ = await asyncio.wait({asyncio.create_task(process.wait())}, timeout=_LAST_MOMENT)
                if not done:
                    return False
            self._died(system.died(death.victim, fault))
        await process.start()
        return True

    def _died(self, kill: Kill) -> None:
        self.report.kills.append(kill)
        if kill.victim == "runtime":
            # What is durable must be right at this moment, not only when somebody has put it in order.
            with self._rules.rows() as query:
                for text in row_findings(query, self._since):
                    self._finding(f"right after {kill.named}: {text}")

    async def _dies(self, process: Process, patience: float) -> bool:
        """Wait for a death for so long, or until the run is over; tell whether it came."""
        death, over = asyncio.create_task(process.wait()), asyncio.create_task(self._over.wait())
        try:
            await asyncio.wait({death, over}, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
            return death.done()
        finally:
            death.cancel()
            over.cancel()

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._over.wait()
        except TimeoutError:
            return

    async def _check(self) -> None:
        with self._rules.rows() as query:
            self.report.findings += row_findings(query, self._since)
        if self._system.provider.refusals:
            self._finding(f"the provider refused {self._system.provider.refusals}")
            self._system.provider.refusals.clear()
        outside = outside_of(self._outside)
        ran: list[tuple[int, int]] = []
        for turn in self._turns:
            if not turn.ended.is_set():
                continue
            try:
                evidence = await self._evidence(turn, outside)
            except grpc.aio.AioRpcError as error:
                self._finding(f"{turn.label}: cannot be read: {error.code().name} {error.details()}")
                continue
            self.report.findings += turn_findings(evidence)
            self.report.states[_state(evidence.whole[-1])] += 1
            ran += _span(evidence.whole)
        self.report.turns = len(self._turns)
        self.report.inside = sum(any(a <= k.time < b for a, b in ran) for k in self.report.kills)

    async def _evidence(self, turn: FollowedTurn, outside: Outside) -> Evidence:
        rig = self._system.rig
        whole = await patiently(lambda: rig.watch(turn.name).rest())
        response = await patiently(
            lambda: rig.turns.GetTurn(pb.GetTurnRequest(name=turn.name), timeout=10, wait_for_ready=True)
        )
        messages = await patiently(lambda: rig.messages(turn.thread))
        command = None
        if turn.cancel is not None:
            asked = control_pb.GetCommandRequest(command_id=turn.cancel.command_id)
            command = (
                await patiently(lambda: rig.control.GetCommand(asked, timeout=10, wait_for_ready=True))
            ).command
        victims = {kill.victim for kill in self.report.kills}
        unknown = bool(victims & {"executor", "worker"}) or (
            "runtime" in victims and not self._rules.survives
        )
        return Evidence(turn, whole, response.turn, messages, command, outside, unknown, self._rules.survives)


def _state(event: event_pb.TurnEvent) -> str:
    return TurnState.Name(event.turn_finished.state).removeprefix("TURN_STATE_")


def _span(events: Sequence[event_pb.TurnEvent]) -> list[tuple[int, int]]:
    """The time between TurnStarted and TurnFinished, in nanoseconds since 1970; none without a start."""
    began = [event.create_time.ToNanoseconds() for event in events if event.HasField("turn_started")]
    return [(began[0], events[-1].create_time.ToNanoseconds())] if began else []


def _random_death(rng: random.Random, first: bool) -> Death:
    """Choose a death; turns are admitted at the beginning of a run, so the first one may well be there."""
    victim = rng.choices(("runtime", "executor", "control"), (6, 3, 1))[0]
    if rng.random() < 0.3:
        return Death(victim, pause=rng.uniform(0.0, 0.8))
    when = rng.choice(("before", "after"))
    if first and victim == "runtime" and rng.random() < 0.4:
        return Death(victim, rng.choice(("C0", "C1")), when, rng.choice((1, 2, 3, 5)))
    return Death(victim, rng.choice(_POINTS[victim]), when, rng.choice((1, 1, 2, 3)))


async def fault_run(
    system: FaultCluster,
    seed: int,
    rules: RunRules,
    *,
    scripts: Sequence[Script] | None = None,
    deaths: Sequence[Death] | None = None,
) -> Report:
    """Run a seed and return what was found; with turns and deaths that are given, or made from the seed."""
    return await _Run(system, seed, rules, scripts, deaths).run()
