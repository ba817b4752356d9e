"""Deadlines are values over a clock that tests hold."""

from __future__ import annotations

import pytest

from turnwire.core.clock import SystemClock
from turnwire.core.deadline import Deadline
from turnwire.core.version import version


class FakeClock:
    def __init__(self) -> None:
        self.time = 100.0

    def now(self) -> int:
        return int(self.time * 1e9)

    def monotonic(self) -> float:
        return self.time


def test_what_is_left_shrinks_to_zero_and_a_tenth_stays_here() -> None:
    clock = FakeClock()
    deadline = Deadline.after(10.0, clock)
    assert deadline.remaining(clock) == 10.0
    assert deadline.for_hop(clock) == pytest.approx(9.0)
    clock.time += 11
    assert deadline.remaining(clock) == 0.0
    assert deadline.expired(clock)


@pytest.mark.parametrize("seconds", [None, float("inf")])
def test_no_deadline_is_never(seconds: float | None) -> None:
    deadline = Deadline.after(seconds)
    assert deadline is Deadline.NEVER
    assert deadline.remaining() is None
    assert deadline.for_hop() is None
    assert not deadline.expired()
    assert deadline.earliest(Deadline(5.0)) == Deadline(5.0)


def test_the_systems_clocks_tick() -> None:
    clock = SystemClock()
    assert clock.now() > 1_700_000_000 * 10**9
    assert Deadline.after(60).remaining() == pytest.approx(60, abs=5)
    assert clock.monotonic() <= clock.monotonic()
    assert version()
