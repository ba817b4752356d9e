"""What the gauge of the event loop counts and tells."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwire.wire.loop_lag import LagHistogram, LoopLag, measured_loop


@given(st.lists(st.floats(0.0001, 30), min_size=1, max_size=60), st.sampled_from([0.5, 0.9, 0.99, 1.0]))
def test_a_percentile_covers_its_share_and_is_at_most_a_tenth_too_long(
    times: list[float], share: float
) -> None:
    histogram = LagHistogram()
    for seconds in times:
        histogram.add(seconds)
    found = histogram.percentile(share)
    wanted = sorted(times)[max(0, -int(-share * len(times) // 1) - 1)]
    assert wanted * (1 - 1e-9) <= found <= wanted * 1.1 * (1 + 1e-9)
    assert histogram.largest == max(times)


def test_a_loop_that_is_early_is_not_late() -> None:
    histogram = LagHistogram()
    histogram.add(-0.001)
    assert (histogram.count, histogram.largest) == (1, 0.0)
    assert histogram.percentile(0.99) == 0.0


def test_a_loop_that_stood_still_counts_for_each_sample_that_it_missed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lag = LoopLag(60.0, clock=lambda: 0.0)
    lag.take(0.1)
    lag.take(0.0)
    with caplog.at_level(logging.INFO, "turnwire.wire.loop_lag"):
        lag._tell()
    (line,) = caplog.records
    # 100, 80, 60, 40 and 20 ms, and one in time.
    assert (line.samples, line.max_ms) == (6, 100.0)  # type: ignore[attr-defined]


def test_a_loop_that_stood_still_for_hours_costs_no_hours_to_count() -> None:
    lag = LoopLag(60.0, clock=lambda: 0.0)
    lag.take(1e9)
    assert lag._histogram.count == 3000


async def test_nothing_is_sampled_unless_asked(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "turnwire.wire.loop_lag"):
        async with measured_loop(0.0):
            pass
    assert caplog.records == []
