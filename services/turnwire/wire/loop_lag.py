"""How late the event loop runs what is due: sampled by a timer, told by a log line now and then.

Everything in a process waits for its loop, so its lateness is what long work in a callback costs all others.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

__all__ = ["LagHistogram", "LoopLag", "measured_loop"]

logger = logging.getLogger(__name__)

_INTERVAL_SECONDS = 0.02
# The first bucket ends at 0.1 ms, each further one is a tenth longer, the last is for a minute and more.
_SMALLEST_SECONDS = 0.0001
_GROWTH = math.log(1.1)
_BUCKETS = 141
# A loop that stood still for longer counts as if it had been that long.
_MOST_MISSED = 3000


class LagHistogram:
    """Times in buckets, so that it holds the same few numbers however many were added."""

    def __init__(self) -> None:
        self._buckets = [0] * _BUCKETS
        self.count = 0
        self.largest = 0.0

    def add(self, seconds: float) -> None:
        """Count one time; what is negative counts as none."""
        bucket = 0
        if seconds > _SMALLEST_SECONDS:
            bucket = min(math.ceil(math.log(seconds / _SMALLEST_SECONDS) / _GROWTH), _BUCKETS - 1)
        self._buckets[bucket] += 1
        self.count += 1
        self.largest = max(self.largest, seconds)

    def percentile(self, share: float) -> float:
        """Return a time in seconds that `share` of the times do not exceed, at most a tenth too long."""
        wanted, seen = math.ceil(share * self.count), 0
        for bucket, number in enumerate(self._buckets):
            seen += number
            if seen >= wanted:
                return min(_SMALLEST_SECONDS * math.exp(bucket * _GROWTH), self.largest)
        return self.largest


class LoopLag:
    """Samples 50 times a second and logs `process.loop_lag` once a period and at the end.

    Args:
        period: seconds between two lines.
        clock: monotonic seconds.
    """

    def __init__(self, period: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._period = period
        self._clock = clock
        self._histogram = LagHistogram()
        self._timer: asyncio.TimerHandle | None = None
        self._told = clock()
        self._due = 0.0

    def start(self) -> None:
        """Begin to sample the running loop."""
        self._told = self._clock()
        self._arm()

    def stop(self) -> None:
        """Sample no more, and tell what has not been told."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._tell()

    def _arm(self) -> None:
        self._due = self._clock() + _INTERVAL_SECONDS
        self._timer = asyncio.get_running_loop().call_later(_INTERVAL_SECONDS, self._tick)

    def _tick(self) -> None:
        self.take(self._clock() - self._due)
        if self._clock() - self._told >= self._period:
            self._tell()
        self._arm()

    def take(self, late: float) -> None:
        """Count one sample, and those that were due while the loop could not take them."""
        for _ in range(_MOST_MISSED):
            self._histogram.add(late)
            late -= _INTERVAL_SECONDS
            if late <= 0:
                return

    def _tell(self) -> None:
        histogram, self._histogram = self._histogram, LagHistogram()
        self._told = self._clock()
        if histogram.count:
            p50, p99 = (round(histogram.percentile(share) * 1e3, 2) for share in (0.5, 0.99))
            fields = {"samples": histogram.count, "p50_ms": p50, "p99_ms": p99}
            logger.info("process.loop_lag", extra={**fields, "max_ms": round(histogram.largest * 1e3, 2)})


@asynccontextmanager
async def measured_loop(period: float) -> AsyncIterator[None]:
    """Measure the running loop for as long as the block runs; not at all with a period of 0."""
    lag = LoopLag(period)
    if period > 0:
        lag.start()
    try:
        yield
    finally:
        lag.stop()
