"""How long a cancel takes: `python -m bench.cancel`.

200 turns are cancelled one after another, each 20 ms after the last TurnFinished, beside 20 turns that stream
at 20 tokens a second. Every second one hangs in a model stream that says nothing more. The command comes from
a process of its own; its time to TurnFinished at the reader, and to the model's closed connection, is set
against a bare unary hop that the same process makes between the cancels.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc.aio

from bench.contestants import Reader
from bench.figures import Gate, percentile
from bench.meter import machine
from bench.mock_client import Mock
from bench.process import Process, module
from bench.services import Services, follow
from turnwire.api.runtime.v1.turn_pb2 import TURN_STATE_CANCELLED
from turnwire.api.runtime.v1.turn_service_pb2_grpc import TurnServiceStub

CANCELS = 200
STREAMS = 20
GAP_SECONDS = 0.02
HOPS_A_CANCEL = 3
# Turns that are already streaming when their time comes, so that their start is not measured.
AHEAD = 8
READY_DELTAS = 3
WAIT_SECONDS = 60.0
AGENTS = {
    "bench-stream": "w:tokens=6000:rate=20",
    "bench-silent": f"w:tokens={READY_DELTAS}:rate=50:silent=1",
}
MEDIAN_FIGURE_MS = 10.0
HOPS_IN_BOUND = 4
BOUND_EXTRA_MS = 20.0


@dataclass
class Target:
    """One turn that is going to be cancelled, and what was seen of it; times by CLOCK_MONOTONIC."""

    agent: str
    reader: Reader
    ready: asyncio.Event
    ended: asyncio.Event
    sent: float = 0.0
    answered: float = 0.0
    model_closed: float = float("inf")


@dataclass
class Findings:
    """All cancels in order, and the hops between them in seconds."""

    targets: list[Target] = field(default_factory=list)
    hops: list[float] = field(default_factory=list)


class Commander:
    """The command process, one line at a time."""

    async def start(self, control: str, hop: str) -> None:
        """Start it and wait until its channels are connected."""
        root = Path(__file__).resolve().parents[1]
        command = [*module("bench.cancel_client"), "--control", control, "--hop", hop]
        pipe = asyncio.subprocess.PIPE
        self._child = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, cwd=root)
        await self._line()

    async def say(self, line: str) -> dict[str, Any]:
        """Give one command; returns its times."""
        assert self._child.stdin is not None
        self._child.stdin.write(f"{line}\n".encode())
        return dict(json.loads(await self._line()))

    async def _line(self) -> bytes:
        assert self._child.stdout is not None
        async with asyncio.timeout(WAIT_SECONDS):
            line = await self._child.stdout.readline()
        if not line:
            raise RuntimeError("the command process ended")
        return line

    async def stop(self) -> None:
        """End it."""
        if hasattr(self, "_child"):
            assert self._child.stdin is not None
            self._child.stdin.close()
            await self._child.wait()


class Bench:
    """Turns, commands and clocks of one run."""

    def __init__(self, turns: TurnServiceStub, commander: Commander, tasks: asyncio.TaskGroup) -> None:
        self._turns = turns
        self._commander = commander
        self._tasks = tasks

    def begin(self, agent: str) -> Target:
        """Start a turn that is going to be cancelled."""
        ready, ended = asyncio.Event(), asyncio.Event()

        def look(_: str) -> None:
            if reader.count >= READY_DELTAS:
                ready.set()

        async def run() -> None:
            await follow(self._turns, agent, reader)
            ended.set()

        reader = Reader(look)
        self._tasks.create_task(run())
        return Target(agent, reader, ready, ended)

    async def streams(self, number: int) -> list[Target]:
        """Start the turns that only stream, and wait until all do."""
        started = [self.begin("bench-stream") for _ in range(number)]
        for target in started:
            async with asyncio.timeout(WAIT_SECONDS):
                await target.ready.wait()
        return started

    async def cancel(self, target: Target) -> None:
        """Cancel one turn and wait for its end at the reader."""
        async with asyncio.timeout(WAIT_SECONDS):
            await target.ready.wait()
            said = await self._commander.say(f"cancel {target.reader.turn}")
            target.sent, target.answered = said["begin"], said["end"]
            await target.ended.wait()

    async def hop(self) -> float:
        """Make one bare hop; returns its seconds."""
        said = await self._commander.say("hop")
        return float(said["end"] - said["begin"])

    async def run(self, cancels: int, findings: Findings) -> None:
        """Cancel turn after turn, with hops between."""
        agents = ["bench-stream" if number % 2 else "bench-silent" for number in range(cancels)]
        ahead: deque[Target] = deque(self.begin(agent) for agent in agents[:AHEAD])
        for number in range(cancels):
            target = ahead.popleft()
            if number + AHEAD < cancels:
                ahead.append(self.begin(agents[number + AHEAD]))
            async with asyncio.timeout(WAIT_SECONDS):
                await target.ready.wait()
            ended = time.monotonic()
            for _ in range(HOPS_A_CANCEL):
                findings.hops.append(await self.hop())
            await asyncio.sleep(max(0.0, ended + GAP_SECONDS - time.monotonic()))
            await self.cancel(target)
            findings.targets.append(target)


def match_aborts(targets: Sequence[Target], aborts: Sequence[float]) -> None:
    """Give each turn the first connection that the model saw closed after its command and before the next."""
    for number, target in enumerate(targets):
        until = targets[number + 1].sent if number + 1 < len(targets) else float("inf")
        target.model_closed = min((t for t in aborts if target.sent <= t < until), default=float("inf"))


async def all_aborts(mock: Mock, number: int) -> list[float]:
    """When the model saw its connections closed; returns once there are `number` of them, or after 5 s."""
    aborts: list[float] = []
    for _ in range(50):
        aborts = [float(when) for when, _ in (await mock.stats())["aborts"]]
        if len(aborts) >= number:
            break
        await asyncio.sleep(0.1)
    return aborts


async def run_bench(cancels: int, streams: int) -> Findings:
    """Start everything, run, and clean up."""
    findings = Findings()
    with tempfile.TemporaryDirectory(prefix="turnwire-bench-") as name:
        folder = Path(name)
        mock, hop, commander = Mock(folder), Process("hop", folder), Commander()
        services: Services | None = None
        try:
            await mock.start()
            services = Services(folder, mock.url, AGENTS)
            await services.start()
            await hop.start([*module("bench.floors.server"), "--model-url", mock.url])
            await commander.start(services.control.target, hop.target)
            channel = grpc.aio.insecure_channel(services.runtime.target)
            async with channel, asyncio.TaskGroup() as tasks:
                bench = Bench(TurnServiceStub(channel), commander, tasks)
                beside = await bench.streams(streams)
                await mock.reset()
                await bench.run(cancels, findings)
                match_aborts(findings.targets, await all_aborts(mock, cancels))
                for target in beside:
                    await bench.cancel(target)
        finally:
            await commander.stop()
            hop.kill()
            if services is not None:
                services.kill()
            await mock.stop()
    return findings


def rows(findings: Findings) -> list[str]:
    """The lines of the report."""
    lines = [line("bare unary hop", findings.hops)]
    for agent in AGENTS:
        half = [t for t in findings.targets if t.agent == agent]
        lines.append(line(f"{agent}: command to TurnFinished", [t.reader.finish_time - t.sent for t in half]))
        lines.append(line(f"{agent}: command to closed model", [t.model_closed - t.sent for t in half]))
        lines.append(line(f"{agent}: command to its outcome", [t.answered - t.sent for t in half]))
    return lines


def line(title: str, seconds: Sequence[float]) -> str:
    """Percentiles of one kind of time."""
    p50, p99, worst = (percentile(seconds, share) * 1e3 for share in (0.5, 0.99, 1.0))
    return f"  {title:<42} ms p50 {p50:.2f} p99 {p99:.2f} max {worst:.2f}"


def gates(findings: Findings) -> list[Gate]:
    """What is promised of a cancel."""
    ended = [(t.reader.finish_time - t.sent) * 1e3 for t in findings.targets]
    closed = [(t.model_closed - t.sent) * 1e3 for t in findings.targets]
    bound = HOPS_IN_BOUND * percentile(findings.hops, 0.99) * 1e3 + BOUND_EXTRA_MS
    other = sum(t.reader.state != TURN_STATE_CANCELLED for t in findings.targets)
    return [
        Gate("turns that did not end CANCELLED", other, 0, slack=1.0),
        Gate("p50 from command to TurnFinished", percentile(ended, 0.5), MEDIAN_FIGURE_MS, " ms"),
        Gate("p99 from command to TurnFinished", percentile(ended, 0.99), round(bound, 2), " ms"),
        Gate(
            "p99 from command to the model's closed connection",
            percentile(closed, 0.99),
            round(bound, 2),
            " ms",
        ),
    ]


async def run(options: argparse.Namespace) -> int:
    """Run and report; returns 1 when a gate is closed."""
    print(machine())
    print(f"cancel: {options.cancels} turns one after another beside {options.streams} streams", flush=True)
    findings = await run_bench(options.cancels, options.streams)
    found = gates(findings)
    print("\n".join([*rows(findings), *(f"  {gate.show()}" for gate in found)]))
    closed = [gate.name for gate in found if not gate.passed]
    print("FAIL: " + ", ".join(closed) if closed else "PASS: every gate is open", flush=True)
    return 1 if closed else 0


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the options."""
    parser = argparse.ArgumentParser(description="Measure how long a cancel takes.")
    parser.add_argument("--cancels", type=int, default=CANCELS)
    parser.add_argument("--streams", type=int, default=STREAMS)
    return parser.parse_args(arguments)


def main() -> int:
    """Run from the command line."""
    return asyncio.run(run(parse()))


if __name__ == "__main__":
    sys.exit(main())
