"""The arithmetic of the report: pairs, spreads, percentiles and gates."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

# A shared machine is not a laboratory: a gate closes at this multiple of the figure that is stated.
SLACK = 1.3


@dataclass(frozen=True)
class Spread:
    """The median of some values between the lowest and the highest."""

    median: float
    low: float
    high: float

    def show(self, scale: float = 1.0, digits: int = 2) -> str:
        """Write it as `median (low..high)`."""
        middle, low, high = (f"{value * scale:.{digits}f}" for value in (self.median, self.low, self.high))
        return f"{middle} ({low}..{high})"


def spread(values: Sequence[float]) -> Spread:
    """Sum values up.

    Raises:
        ValueError: there are none.
    """
    if not values:
        raise ValueError("no values")
    return Spread(statistics.median(values), min(values), max(values))


def pair_ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """The ratio of each pair: both of a pair were measured next to each other, so the machine's mood cancels.

    Raises:
        ValueError: the lengths differ, or a divisor is not positive.
    """
    if len(ours) != len(theirs):
        raise ValueError(f"{len(ours)} values against {len(theirs)}")
    if any(value <= 0 for value in theirs):
        raise ValueError("a divisor is not positive")
    return [our / their for our, their in zip(ours, theirs, strict=True)]


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that `share` (above 0, at most 1) of the values do not exceed.

    Raises:
        ValueError: there are no values, or the share is out of range.
    """
    if not values or not 0 < share <= 1:
        raise ValueError(f"{len(values)} values, share {share}")
    return sorted(values)[math.ceil(share * len(values)) - 1]


@dataclass(frozen=True)
class Gate:
    """A figure that is stated, and what was measured. `slack` 1 makes the figure itself the limit."""

    name: str
    measured: float
    figure: float
    unit: str = ""
    slack: float = SLACK

    @property
    def limit(self) -> float:
        """Above this the gate is closed."""
        return self.figure * self.slack

    @property
    def passed(self) -> bool:
        """Whether the gate is open; what cannot be measured (NaN) never passes."""
        return self.measured <= self.limit

    def show(self) -> str:
        """One line of the report."""
        word = "PASS" if self.passed else "FAIL"
        note = (
            "" if not self.passed or self.measured <= self.figure else "  above the figure, inside the gate"
        )
        stated = f"stated {self.figure:g}{self.unit}, gate {self.limit:g}{self.unit}"
        return f"{word}  {self.name}: {self.measured:.2f}{self.unit}, {stated}{note}"
