"""What the reports make of their samples."""

from __future__ import annotations

import asyncio

import pytest

from bench.cancel import Target, match_aborts
from bench.contestants import Reader
from bench.measure import Sample, latencies
from bench.run import Cell, gates
from bench.start import heavy_modules
from bench.workloads import WORKLOADS


def sample(cpu: float, exact: int = 10, latency: float = 0.001) -> Sample:
    return Sample(cpu, 1.0, exact, 10, latencies=[latency] * 100, peak_mib={"runtime": 90.0})


def cell(name: str, ours: list[Sample], floor: list[Sample]) -> Cell:
    return Cell(WORKLOADS[name], {"ours": ours, "F3": floor})


def test_the_cpu_gate_takes_the_median_of_the_ratios() -> None:
    found = gates(
        cell("W1", [sample(2.0), sample(9.0), sample(30.0)], [sample(1.0), sample(3.0), sample(1.0)])
    )
    assert [gate.measured for gate in found] == [0, 3.0]
    assert all(gate.passed for gate in found)


def test_one_inexact_turn_closes_the_gate() -> None:
    found = gates(cell("W1", [sample(1.0, exact=9)], [sample(1.0)]))
    assert not found[0].passed


def test_latency_and_memory_are_ours_alone() -> None:
    slow, fast = sample(1.0, latency=0.5), sample(1.0)
    assert gates(cell("W1r", [fast], [slow]))[-1].measured == pytest.approx(1.0)
    assert gates(cell("W4", [fast], [slow]))[-1].measured == 90.0


def test_a_latency_belongs_to_the_same_chunk_of_the_last_answer() -> None:
    assert latencies([[9.0], [1.0, 2.0]], [1.5, 2.75]) == [0.5, 0.75]
    assert latencies([], [1.0]) == []


def target(sent: float) -> Target:
    return Target("bench-stream", Reader(), asyncio.Event(), asyncio.Event(), sent=sent)


def test_a_closed_connection_belongs_to_the_command_before_it() -> None:
    targets = [target(1.0), target(2.0), target(3.0)]
    match_aborts(targets, [0.5, 1.25, 3.5])
    assert [t.model_closed for t in targets] == [1.25, float("inf"), 3.5]


def test_import_times_are_summed_by_package() -> None:
    lines = [
        "import time: self [us] | cumulative | imported package",
        "import time:      2000 |       2000 |   grpc.aio",
        "import time:      1000 |       3000 | grpc",
        "import time:       500 |        500 | yaml",
        "something else",
    ]
    assert heavy_modules(lines) == [("grpc", 3.0), ("yaml", 0.5)]
