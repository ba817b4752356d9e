"""Measures the services beside the floors, pair by pair in one run: `python -m bench.run`.

Each workload gets fresh processes. In each round every contestant does the same work, one after another, in
an order that turns round with each round; what is reported is the median of the rounds' ratios, so that a
machine that grows slower in the middle slows both of a pair.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bench.contestants import Bare, Cancellable, Contestant, Floor
from bench.figures import Gate, pair_ratios, percentile, spread
from bench.measure import Sample, measure, warm_up
from bench.meter import CpuMeter, ProcessEnded, machine
from bench.mock_client import Mock
from bench.services import Ours
from bench.settings import shipped_settings, synchronous
from bench.workloads import WORKLOADS, Workload

PAIRS = 7
CPU_FIGURES = {"W1": 3.0, "W1r": 1.5, "W3": 2.0, "W4": 1.5}
LATENCY_FIGURE_MS = 25.0
MEMORY_FIGURE_MIB = 110.0
IDLE_SECONDS = 1.0
DURABLE_FLOOR = "F3"


@dataclass
class Cell:
    """All samples of one workload, by contestant."""

    workload: Workload
    samples: dict[str, list[Sample]] = field(default_factory=dict)
    idle_cpu: dict[str, float] = field(default_factory=dict)


def contestants(names: Sequence[str], workload: Workload) -> list[Contestant]:
    """Make the named contestants that can do the work; the durable floor syncs as the services do."""
    every: list[Contestant] = [
        Ours(),
        Floor(DURABLE_FLOOR, durable=True, synchronous=synchronous()),
        Floor("F2", durable=False),
        Bare(),
    ]
    able = [one for one in every if isinstance(one, Cancellable) or not workload.cancel_after]
    return [contestant for contestant in able if contestant.name in names]


async def run_cell(workload: Workload, names: Sequence[str], pairs: int) -> Cell:
    """Measure one workload with all contestants, interleaved."""
    cell = Cell(workload)
    with tempfile.TemporaryDirectory(prefix="turnwire-bench-") as name:
        folder = Path(name)
        mock = Mock(folder)
        running = contestants(names, workload)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(mock.stop)
            await mock.start()
            for contestant in running:
                stack.push_async_callback(contestant.stop)
                await contestant.start(folder, mock.url, workload)
                await warm_up(contestant, workload, mock)
                cell.idle_cpu[contestant.name] = await idle_cpu(contestant)
            for number in range(pairs):
                for contestant in running if number % 2 == 0 else reversed(running):
                    sample = await measure_again(contestant, workload, mock)
                    cell.samples.setdefault(contestant.name, []).append(sample)
    return cell


async def measure_again(contestant: Contestant, workload: Workload, mock: Mock) -> Sample:
    """Measure, and once more when a process ended meanwhile: its CPU time is lost, so the sample is void.

    Raises:
        ProcessEnded: it happened again.
    """
    try:
        return await measure(contestant, workload, mock)
    except ProcessEnded as error:
        print(f"  {contestant.name} {workload.name} is measured again: {error}", flush=True)
        return await measure(contestant, workload, mock)


async def idle_cpu(contestant: Contestant) -> float:
    """CPU seconds a second while nothing is asked of it. It is reported, and never taken off."""
    meter = CpuMeter(contestant.roots())
    meter.begin()
    await asyncio.sleep(IDLE_SECONDS)
    return sum(meter.end().values()) / IDLE_SECONDS


def rows(cell: Cell) -> list[str]:
    """The table's lines for one workload; CPU a turn but for W4, where it is that of all turns."""
    lines = [f"{cell.workload.name}: {cell.workload.title}"]
    for name, samples in cell.samples.items():
        per = 1 if cell.workload.name == "W4" else cell.workload.turns
        words = [f"  {name:<5} CPU ms {spread([s.cpu / per for s in samples]).show(1e3):<24}"]
        if len(samples[0].cpu_by_process) > 1:
            words.append("of it " + shares(samples, per))
        words.append(f"wall ms {spread([s.wall for s in samples]).show(1e3, 1):<26}")
        if name != "ours" and "ours" in cell.samples:
            words.append(f"ours/{name} {spread(ratios(cell, name)).show():<20}")
        if cell.workload.cancel_after:
            words.append(f"reader saw the end after ms {spread([s.stream_end for s in samples]).show(1e3)}")
            words.append(f"model after ms {spread([s.upstream_end for s in samples]).show(1e3)}")
        if samples[0].latencies:
            p50, p99 = ([percentile(s.latencies, share) for s in samples] for share in (0.5, 0.99))
            words.append(f"delta ms p50 {spread(p50).show(1e3)} p99 {spread(p99).show(1e3)}")
        if samples[0].peak_mib:
            words.append("peak MiB " + " ".join(f"{k} {v:.0f}" for k, v in samples[0].peak_mib.items()))
        words.append(f"idle {cell.idle_cpu[name] * 1e3:.1f} ms/s")
        lines.append(" ".join(words))
    return lines


def shares(samples: Sequence[Sample], per: int) -> str:
    """Where the CPU went, by process: the medians in ms."""
    names = samples[0].cpu_by_process
    medians = {n: spread([s.cpu_by_process[n] / per for s in samples]).median * 1e3 for n in names}
    return " ".join(f"{name} {value:.1f}" for name, value in medians.items())


def ratios(cell: Cell, name: str) -> list[float]:
    """Ours over another contestant, round by round."""
    return pair_ratios([s.cpu for s in cell.samples["ours"]], [s.cpu for s in cell.samples[name]])


def gates(cell: Cell) -> list[Gate]:
    """What is promised of a workload."""
    name = cell.workload.name
    ours = cell.samples.get("ours", [])
    wrong = sum(s.turns - s.exact_turns for samples in cell.samples.values() for s in samples)
    found = [Gate(f"{name} turns whose deltas are not exact", wrong, 0, slack=1.0)]
    if not ours:
        return found
    if name in CPU_FIGURES and DURABLE_FLOOR in cell.samples:
        ratio = spread(ratios(cell, DURABLE_FLOOR)).median
        found.append(
            Gate(f"{name} CPU of the three services over {DURABLE_FLOOR}", ratio, CPU_FIGURES[name], " x")
        )
    if name == "W1r":
        worst = spread([percentile(sample.latencies, 0.99) * 1e3 for sample in ours]).median
        found.append(Gate("W1r p99 from the model's socket to the reader", worst, LATENCY_FIGURE_MS, " ms"))
    if name == "W4":
        peak = ours[0].peak_mib["runtime"]
        found.append(Gate("W4 peak memory of the runtime", peak, MEMORY_FIGURE_MIB, " MiB"))
    return found


def quick(workload: Workload) -> Workload:
    """The same work, little of it."""
    return replace(workload, turns=min(workload.turns, 5), repeats=1)


async def run(options: argparse.Namespace) -> int:
    """Run what the options ask for; returns 1 when a gate is closed."""
    names = options.contestants.split(",")
    print(f"{machine()}; pairs {options.pairs}")
    print("shipped settings: " + ", ".join(f"{key} {value}" for key, value in shipped_settings().items()))
    cells: list[Cell] = []
    closed: list[Gate] = []
    for name in options.workloads.split(","):
        workload = quick(WORKLOADS[name]) if options.quick else WORKLOADS[name]
        cell = await run_cell(workload, names, 1 if options.quick else options.pairs)
        cells.append(cell)
        found = gates(cell)[:1] if options.quick else gates(cell)
        closed += [gate for gate in found if not gate.passed]
        print("\n".join([*rows(cell), *(f"  {gate.show()}" for gate in found)]), flush=True)
    print(machine())
    if options.json is not None:
        options.json.write_text(json.dumps([as_json(cell) for cell in cells], indent=1), encoding="utf-8")
    print("FAIL: " + ", ".join(gate.name for gate in closed) if closed else "PASS: every gate is open")
    return 1 if closed else 0


def as_json(cell: Cell) -> dict[str, Any]:
    """All figures of a workload."""
    return {
        "workload": dataclasses.asdict(cell.workload),
        "idle_cpu": cell.idle_cpu,
        "samples": {name: [dataclasses.asdict(s) for s in all_] for name, all_ in cell.samples.items()},
        "gates": [{**dataclasses.asdict(gate), "passed": gate.passed} for gate in gates(cell)],
    }


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the options."""
    parser = argparse.ArgumentParser(description="Measure the services beside the floors.")
    parser.add_argument("--pairs", type=int, default=PAIRS, help="rounds of each workload (7)")
    parser.add_argument("--workloads", default=",".join(WORKLOADS), help="which, joined by commas")
    parser.add_argument("--contestants", default="ours,F3,F2,F1", help="who, joined by commas")
    parser.add_argument("--json", type=Path, help="write every sample to this file")
    parser.add_argument("--quick", action="store_true", help="one small round; only exactness is judged")
    return parser.parse_args(arguments)


def main() -> int:
    """Run from the command line."""
    return asyncio.run(run(parse()))


if __name__ == "__main__":
    sys.exit(main())
