"""The arithmetic behind the reported figures."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.figures import Gate, pair_ratios, percentile, spread


def test_each_ratio_comes_from_one_pair() -> None:
    assert pair_ratios([2.0, 9.0], [1.0, 3.0]) == [2.0, 3.0]


def test_a_missing_partner_is_an_error() -> None:
    with pytest.raises(ValueError, match="2 values against 1"):
        pair_ratios([1.0, 2.0], [1.0])


def test_a_partner_that_cost_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="not positive"):
        pair_ratios([1.0], [0.0])


def test_a_spread_shows_the_median_between_the_ends() -> None:
    assert spread([3.0, 1.0, 2.0]).show(10, 1) == "20.0 (10.0..30.0)"


def test_no_values_have_no_spread() -> None:
    with pytest.raises(ValueError, match="no values"):
        spread([])


def test_p99_of_two_hundred_leaves_the_two_worst_out() -> None:
    assert percentile(range(1, 201), 0.99) == 198


@pytest.mark.parametrize("share", [0.0, -1.0, 1.01])
def test_a_share_outside_its_range_is_an_error(share: float) -> None:
    with pytest.raises(ValueError, match="share"):
        percentile([1.0], share)


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=50), st.floats(0.01, 1.0))
def test_a_percentile_is_the_least_value_that_covers_its_share(values: list[float], share: float) -> None:
    found = percentile(values, share)
    assert sum(value <= found for value in values) >= share * len(values) - 1e-9
    assert sum(value < found for value in values) < share * len(values)


def test_a_gate_is_open_up_to_its_limit_and_says_when_the_figure_is_passed() -> None:
    assert Gate("x", 13.0, 10.0).passed
    assert "inside the gate" in Gate("x", 11.0, 10.0).show()
    assert Gate("x", 9.0, 10.0).show().endswith("gate 13")
    assert not Gate("x", 13.1, 10.0).passed


def test_a_gate_without_slack_takes_the_figure_literally() -> None:
    assert Gate("wrong turns", 0, 0, slack=1.0).passed
    assert not Gate("wrong turns", 1, 0, slack=1.0).passed


def test_what_could_not_be_measured_passes_no_gate() -> None:
    assert not Gate("x", math.nan, 10.0).passed
    assert not Gate("x", math.inf, 10.0).passed
