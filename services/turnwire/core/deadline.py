"""A deadline is read from the call once, at the edge, and handed down as a value."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import ClassVar

from turnwire.core.clock import Clock, SystemClock

__all__ = ["Deadline"]

_HOP_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class Deadline:
    """The moment, in seconds of the monotonic clock, after which nobody waits for the answer."""

    at: float

    NEVER: ClassVar[Deadline]

    @classmethod
    def after(cls, seconds: float | None, clock: Clock | None = None) -> Deadline:
        """Return the deadline `seconds` from now; None, as gRPC reports it, means never."""
        if seconds is None or seconds == math.inf:
            return cls.NEVER
        return cls((clock or _SYSTEM).monotonic() + seconds)

    def remaining(self, clock: Clock | None = None) -> float | None:
        """Return the seconds left, never negative; None without a deadline, as `asyncio.timeout` takes it."""
        if self.at == math.inf:
            return None
        now = time.monotonic() if clock is None else clock.monotonic()
        return max(self.at - now, 0.0)

    def expired(self, clock: Clock | None = None) -> bool:
        """Tell whether the deadline has passed."""
        return self.remaining(clock) == 0.0

    def for_hop(self, clock: Clock | None = None) -> float | None:
        """Return the timeout in seconds for the next hop: a tenth stays here, for the way back."""
        left = self.remaining(clock)
        return None if left is None else left * _HOP_SHARE

    def earliest(self, other: Deadline) -> Deadline:
        """Return whichever of the two comes first."""
        return self if self.at <= other.at else other


_SYSTEM = SystemClock()
Deadline.NEVER = Deadline(math.inf)
