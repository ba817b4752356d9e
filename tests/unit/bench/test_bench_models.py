"""What the bench of the way from models measures with, and what it makes of what it finds."""

from __future__ import annotations

import json
import math

import pytest

from bench import gaps, models
from bench.gaps import Gaps
from bench.long_answers import FORMATS, WrongAnswer, call_body, cpu, read, text_body
from turnwire.runtime.models.profiles import WireFormat


@pytest.mark.parametrize("wire", FORMATS)
def test_long_answers_are_read_as_what_they_are(wire: WireFormat) -> None:
    assert read(wire, text_body(wire, 30)) == (30, 0, 1)
    assert read(wire, call_body(wire, 200)) == (0, 1, 1)


def test_a_body_that_is_read_as_another_one_is_no_measurement() -> None:
    with pytest.raises(WrongAnswer, match="not"):
        cpu("gemini", text_body("gemini", 2), (3, 0, 1))


def test_a_long_measurement_is_as_much_work_as_its_short_one() -> None:
    for _, short, long in models.long_workloads(4000, 50_000):
        assert short.repeats == 10 * long.repeats
        assert long.rounds == short.rounds
    _, call = models.long_workloads(4000, 50_000)
    assert (call[1].script, call[2].script) == (
        "w:tokens=1:rounds=1:args=5000:piece=4",
        "w:tokens=1:rounds=1:args=50000:piece=4",
    )


async def test_the_order_of_a_pair_turns_round() -> None:
    order: list[str] = []

    def one(name: str, value: float) -> models.Measure:
        async def measure() -> float:
            order.append(name)
            return value

        return measure

    assert await models.pairs(one("long", 2.0), one("short", 1.0), 2) == ([2.0, 2.0], [1.0, 1.0])
    assert order == ["long", "short", "short", "long"]


def line(time: str, p99: float) -> str:
    return json.dumps({"time": time, "event": "process.loop_lag", "p99_ms": p99, "max_ms": 2 * p99})


def test_only_the_gauge_of_the_measured_time_counts() -> None:
    lines = [
        line("1970-01-01T00:01:00.000Z", 90.0),
        line("1970-01-01T00:01:10.500Z", 5.0),
        '{"event": "turn.finished"}',
        line("1970-01-01T00:01:15.500Z", 7.0),
        line("1970-01-01T00:01:30.000Z", 80.0),
    ]
    p99, largest = gaps.loop_lags(lines, 65.0, 80.0)
    assert p99 == [0.005, 0.007]
    assert largest == [0.01, 0.014]


def test_the_worst_period_of_the_loop_counts_and_a_silent_gauge_closes_the_gate() -> None:
    whole, loop, memory = gaps.gates(Gaps(loop_p99=[0.005, 0.021], peak_mib=109.0))
    assert (whole.passed, loop.passed, memory.passed) == (True, False, True)
    silent = gaps.gates(Gaps())[1]
    assert math.isnan(silent.measured)
    assert not silent.passed


def test_one_stream_that_was_cut_closes_the_gate() -> None:
    assert not gaps.gates(Gaps(cut=1))[0].passed
    assert not gaps.gates(Gaps(wrong=1))[0].passed
