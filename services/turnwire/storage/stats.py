"""Counters of one writer: plain numbers, read by whoever exports them; nothing here takes a lock."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

__all__ = ["LatencyRing", "WriterStats"]


class LatencyRing:
    """The last `size` latencies, for percentiles of now rather than of all time."""

    __slots__ = ("_count", "_values")

    def __init__(self, size: int = 1024) -> None:
        self._values = array("d", bytes(8 * size))
        self._count = 0

    def add(self, seconds: float) -> None:
        self._values[self._count % len(self._values)] = seconds
        self._count += 1

    def percentile(self, fraction: float) -> float:
        """Give the latency in seconds that `fraction` (0 to 1) of the kept ones do not exceed, or 0.0."""
        kept = sorted(self._values[: min(self._count, len(self._values))])
        return kept[min(int(len(kept) * fraction), len(kept) - 1)] if kept else 0.0


@dataclass(slots=True)
class WriterStats:
    """What the writer has done since it started.

    `seconds` is time in transactions; `latency` runs from the forming of a group to its outcome on the loop.
    `wal_bytes` is the length of the write-ahead log at the last checkpoint.
    """

    groups: int = 0
    units: int = 0
    fenced: int = 0
    rejected: int = 0
    retries: int = 0
    isolated_groups: int = 0
    largest_group: int = 0
    seconds: float = 0.0
    wal_bytes: int = 0
    checkpoints: int = 0
    wal_restarts: int = 0
    checkpoint_seconds: float = 0.0
    latency: LatencyRing = field(default_factory=LatencyRing)
