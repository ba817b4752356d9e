"""Many slow streams at once: how late their readers get what the model sent, and how late the event loop is.

The mock model writes into each chunk when it sent it, so that the time from its socket to the reader is known
for each single one. The bare reader (F1) does the same work beside it: what it is late by is the machine's
and the mock's share.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import grpc.aio

from bench.contestants import Bare, Reader
from bench.figures import Gate, percentile
from bench.measure import TURN_SECONDS
from bench.meter import status_mib
from bench.mock_answers import STAMP_MARK
from bench.mock_client import Mock
from bench.services import Services, follow
from bench.workloads import Workload
from turnwire.api.runtime.v1.turn_pb2 import TURN_STATE_COMPLETED
from turnwire.api.runtime.v1.turn_service_pb2_grpc import TurnServiceStub

RATE = 20
LOOP_LAG_FIGURE_MS = 20.0
MEMORY_FIGURE_MIB = 110.0
SAMPLE_SECONDS = 0.02
STAMP_CHARS = len(STAMP_MARK)
AGENT = "bench-streams"
WARM_AGENT, WARM_SCRIPT = "bench-warm", "w:tokens=3:rate=100"


@dataclass
class Gaps:
    """What was found; times in seconds."""

    gaps: list[float] = field(default_factory=list)
    own_lags: list[float] = field(default_factory=list)
    wrong: int = 0
    cut: int = 0
    most_streams: int = 0
    # The p99 and the largest lateness of the runtime's loop in each period of its gauge.
    loop_p99: list[float] = field(default_factory=list)
    loop_max: list[float] = field(default_factory=list)
    peak_mib: float = 0.0


def workload_of(streams: int, seconds: float) -> Workload:
    """So many turns at once, each of `seconds` at 20 stamped chunks a second."""
    tokens = max(1, round(seconds * RATE))
    script = f"w:tokens={tokens}:rate={RATE}:stamp=1"
    return Workload("streams", f"{streams} streams, {RATE} tokens a second", script, tokens, turns=streams)


@asynccontextmanager
async def own_lag(found: list[float]) -> AsyncIterator[None]:
    """Sample how late this process is itself, as it takes the times at which readers have their chunks."""

    async def sample() -> None:
        while True:
            due = time.monotonic() + SAMPLE_SECONDS
            await asyncio.sleep(SAMPLE_SECONDS)
            found.append(max(0.0, time.monotonic() - due))

    task = asyncio.create_task(sample())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


async def measure_ours(workload: Workload, period: float) -> Gaps:
    """Run all turns over the wire, each with its reader; the runtime's gauge tells each `period` seconds."""
    found = Gaps()
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="turnwire-bench-")))
        mock = Mock(folder)
        stack.push_async_callback(mock.stop)
        await mock.start()
        services = Services(
            folder, mock.url, {AGENT: workload.script, WARM_AGENT: WARM_SCRIPT}, gauge(period)
        )
        stack.callback(services.kill)
        await services.start()
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(services.runtime.target))
        turns = TurnServiceStub(channel)
        await follow(turns, WARM_AGENT, Reader())
        await mock.reset()
        # What the start and the first turn held up belongs to a period that ends before the first stream.
        await asyncio.sleep(period + SAMPLE_SECONDS)
        begun = time.time()
        readers = await read_all(turns, workload, found)
        ended = time.time()
        stats = await mock.stats()
        found.cut, found.most_streams = len(stats["aborts"]), stats["max_active"]
        found.wrong = sum(not is_whole(reader, workload) for reader in readers)
        found.wrong += abs(stats["requests"] - workload.turns)
        found.peak_mib = status_mib(services.runtime.pid, "VmHWM")
        # The line of the period in which the last turn ended comes after its end.
        await asyncio.sleep(period + SAMPLE_SECONDS)
        lines = services.runtime.log.read_text(encoding="utf-8", errors="replace").splitlines()
        found.loop_p99, found.loop_max = loop_lags(lines, begun, ended + period)
    return found


def gauge(period: float) -> dict[str, str]:
    """The environment that has the runtime tell of its event loop."""
    return {"TURNWIRE_RUNTIME_LOG__LOOP_LAG_SECONDS": str(period), "TURNWIRE_RUNTIME_LOG__FORMAT": "json"}


async def read_all(turns: TurnServiceStub, workload: Workload, found: Gaps) -> list[Reader]:
    """Run all turns of a workload at once and note the gap of each chunk."""

    def take(text: str) -> None:
        found.gaps.append(time.monotonic() - float(text))

    readers = [Reader(take) for _ in range(workload.turns)]
    async with asyncio.timeout(TURN_SECONDS), own_lag(found.own_lags), asyncio.TaskGroup() as group:
        for reader in readers:
            group.create_task(follow(turns, AGENT, reader))
    return readers


def is_whole(reader: Reader, workload: Workload) -> bool:
    """Whether a turn completed, and each chunk came to its reader as one delta."""
    whole = (reader.count, reader.chars) == (workload.tokens, workload.tokens * STAMP_CHARS)
    return whole and reader.state == TURN_STATE_COMPLETED


def loop_lags(lines: list[str], begun: float, ended: float) -> tuple[list[float], list[float]]:
    """The p99 and the largest lateness, in seconds, of the periods that were told between two times."""
    p99: list[float] = []
    largest: list[float] = []
    for line in lines:
        if '"process.loop_lag"' not in line:
            continue
        told = json.loads(line)
        if begun <= datetime.fromisoformat(told["time"]).timestamp() <= ended:
            p99.append(told["p99_ms"] / 1e3)
            largest.append(told["max_ms"] / 1e3)
    return p99, largest


async def measure_bare(workload: Workload) -> list[float]:
    """How late the bare reader has each chunk, with as many streams at once."""
    found: list[float] = []
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="turnwire-bench-")))
        mock, bare = Mock(folder), Bare()
        stack.push_async_callback(mock.stop)
        await mock.start()
        stack.push_async_callback(bare.stop)
        await bare.start(folder, mock.url, workload)

        async def one() -> None:
            texts: list[str] = []
            reader = Reader(texts.append)
            await bare.turn(reader)
            sent = (float(texts[0][at : at + STAMP_CHARS]) for at in range(0, len(texts[0]), STAMP_CHARS))
            found.extend(seen - stamp for stamp, seen in zip(sent, reader.times, strict=True))

        async with asyncio.timeout(TURN_SECONDS), asyncio.TaskGroup() as group:
            for _ in range(workload.turns):
                group.create_task(one())
    return found


def show(name: str, times: list[float]) -> str:
    """One line of the report."""
    p50, p99 = (percentile(times, share) * 1e3 for share in (0.5, 0.99))
    return f"  {name:<44} ms p50 {p50:.2f} p99 {p99:.2f} max {max(times) * 1e3:.2f}"


def gates(found: Gaps) -> list[Gate]:
    """What is promised: that no stream suffers comes first, and holds on any machine."""
    lag = max(found.loop_p99, default=float("nan")) * 1e3
    return [
        Gate("streams that are not whole, or were cut", found.wrong + found.cut, 0, slack=1.0),
        Gate("p99 lateness of the runtime's event loop", lag, LOOP_LAG_FIGURE_MS, " ms", slack=1.0),
        Gate(
            "peak memory of the runtime with all streams",
            found.peak_mib,
            MEMORY_FIGURE_MIB,
            " MiB",
            slack=1.0,
        ),
    ]


async def run(streams: int, seconds: float, period: float) -> list[Gate]:
    """Measure both and print the report."""
    workload = workload_of(streams, seconds)
    bare = await measure_bare(workload)
    found = await measure_ours(workload, period)
    print(f"streams: {workload.title}, {found.most_streams} at once, {len(found.gaps)} chunks")
    print(show("F1: from the model's socket to the bare reader", bare))
    print(show("ours: from the model's socket to the reader", found.gaps))
    print(show("  of it, lateness of the measuring process", found.own_lags))
    added = (max(found.gaps) - max(bare)) * 1e3
    print(f"  the largest gap that we add: {added:.2f} ms over that of F1")
    told = (", ".join(f"{late * 1e3:.1f}" for late in lates) for lates in (found.loop_p99, found.loop_max))
    print("  lateness of the runtime's event loop, each {:g} s: ms p99 {}; max {}".format(period, *told))
    return gates(found)
