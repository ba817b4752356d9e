"""Time as a dependency: whoever measures or stamps takes a `Clock`, so that tests can hold the hands."""

from __future__ import annotations

import time
from typing import Protocol

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """Two readings that must not be mixed: the wall for stamps, the monotonic one for intervals."""

    def now(self) -> int:
        """Return the wall clock: nanoseconds since 1970-01-01 UTC; it may jump."""
        ...

    def monotonic(self) -> float:
        """Return seconds from an arbitrary start; it never goes back."""
        ...


class SystemClock:
    """The clocks of the operating system."""

    __slots__ = ()

    def now(self) -> int:
        """Return the wall clock: nanoseconds since 1970-01-01 UTC."""
        return time.time_ns()

    def monotonic(self) -> float:
        """Return seconds from an arbitrary start."""
        return time.monotonic()
