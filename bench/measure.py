"""One measurement: a workload's turns by one contestant, with what they cost and whether they were right."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, field

from bench.contestants import Cancellable, Contestant, Reader
from bench.meter import CpuMeter, status_mib
from bench.mock_client import Mock
from bench.workloads import Workload
from turnwire.api.runtime.v1.turn_pb2 import TURN_STATE_CANCELLED

TURN_SECONDS = 240.0
LOOK_SECONDS = 0.02


class WrongWork(Exception):
    """The contestant did other work than the workload says, so its cost means nothing."""


@dataclass
class Sample:
    """What one measurement found; times in seconds, CPU of one repeat, memory in MiB by process."""

    cpu: float
    wall: float
    exact_turns: int
    turns: int
    cpu_by_process: dict[str, float] = field(default_factory=dict)
    latencies: list[float] = field(default_factory=list)
    peak_mib: dict[str, float] = field(default_factory=dict)
    stream_end: float = 0.0
    upstream_end: float = 0.0
    most_streams: int = 0


async def warm_up(contestant: Contestant, workload: Workload, mock: Mock) -> None:
    """Run one turn, so that what is loaded lazily is loaded.

    Raises:
        WrongWork: the text that was read is not the script's.
    """
    if workload.cancel_after:
        await measure(contestant, workload, mock)
        return
    texts: list[str] = []
    async with asyncio.timeout(TURN_SECONDS):
        await contestant.turn(Reader(texts.append))
    if "".join(texts) != workload.text():
        raise WrongWork(f"{contestant.name} {workload.name}: the text is not the script's: {texts[:3]}...")


async def measure(contestant: Contestant, workload: Workload, mock: Mock) -> Sample:
    """Run the workload once.

    Raises:
        WrongWork: the model calls were more or fewer than the workload says, or a cancel never reached it.
        ProcessEnded: a process of the contestant ended.
    """
    await mock.reset()
    if workload.cancel_after:
        assert isinstance(contestant, Cancellable), f"{contestant.name} cannot cancel"
        return await measure_cancel(contestant, workload, mock)
    meter = CpuMeter(contestant.roots())
    readers: list[Reader] = []
    meter.begin()
    begin = time.monotonic()
    async with asyncio.timeout(TURN_SECONDS):
        for _ in range(workload.repeats):
            group = [Reader() for _ in range(workload.turns)]
            readers += group
            if len(group) == 1:
                await contestant.turn(group[0])
                continue
            async with asyncio.TaskGroup() as tasks:
                for reader in group:
                    tasks.create_task(contestant.turn(reader))
    wall = time.monotonic() - begin
    cpu = meter.end()
    stats = await mock.stats()
    if stats["requests"] != workload.model_calls:
        raise WrongWork(f"{contestant.name} {workload.name}: {stats['requests']} model calls")
    times = await mock.times() if workload.turns == 1 else []
    return Sample(
        cpu=sum(cpu.values()) / workload.repeats,
        cpu_by_process={name: seconds / workload.repeats for name, seconds in cpu.items()},
        wall=wall / workload.repeats,
        exact_turns=sum(reader.is_exact(workload) for reader in readers),
        turns=len(readers),
        latencies=latencies(times, readers[-1].times),
        peak_mib={name: status_mib(pid, "VmHWM") for name, pid in contestant.roots().items()},
        most_streams=stats["max_active"],
    )


def latencies(sent: list[list[float]], seen: list[float]) -> list[float]:
    """How long each delta took from the model's socket to the reader; none for answers without a rate."""
    last = sent[-1] if sent else []
    return [there - here for here, there in zip(last, seen, strict=False)]


async def measure_cancel(contestant: Cancellable, workload: Workload, mock: Mock) -> Sample:
    """Cancel one turn in mid-stream and see when its reader and the model noticed."""
    enough = asyncio.Event()

    def look(_: str) -> None:
        if reader.count >= workload.cancel_after:
            enough.set()

    reader = Reader(look)
    meter = CpuMeter(contestant.roots())
    meter.begin()
    begin = time.monotonic()
    async with asyncio.timeout(TURN_SECONDS):
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(run_cancelled(contestant, reader))
            await enough.wait()
            asked = time.monotonic()
            await contestant.cancel(reader)
        ended = reader.finish_time or time.monotonic()
    cpu = meter.end()
    noticed = await abort_time(mock)
    return Sample(
        cpu=sum(cpu.values()),
        cpu_by_process=cpu,
        wall=time.monotonic() - begin,
        exact_turns=int(reader.state in (0, TURN_STATE_CANCELLED)),
        turns=1,
        stream_end=ended - asked,
        upstream_end=noticed - asked,
    )


async def run_cancelled(contestant: Contestant, reader: Reader) -> None:
    """Run a turn that is going to be cancelled; its cancellation is its good end."""
    with contextlib.suppress(asyncio.CancelledError):
        await contestant.turn(reader)


async def abort_time(mock: Mock) -> float:
    """When the model saw its connection closed.

    Raises:
        WrongWork: it has not within 5 s.
    """
    end = time.monotonic() + 5
    while time.monotonic() < end:
        aborts = (await mock.stats())["aborts"]
        if aborts:
            return float(aborts[0][0])
        await asyncio.sleep(LOOK_SECONDS)
    raise WrongWork("the model never saw its connection closed")
