"""How long to wait before the next attempt, and when to give up: every wait has an end."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

__all__ = ["Backoff"]


class Backoff:
    """Delays that double from `first` to `cap` seconds, each drawn between half and all of that.

    Args:
        total: seconds from the first failure after which no further attempt is made.
        first: first delay in seconds.
        cap: longest delay in seconds, unless the server asks for a longer one.
        clock: monotonic clock, in seconds.
    """

    def __init__(
        self,
        total: float,
        *,
        first: float = 0.1,
        cap: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total = total
        self._first = first
        self._cap = cap
        self._clock = clock
        self._attempts = 0
        self._since: float | None = None

    def reset(self) -> None:
        """Forget earlier failures, since something has arrived."""
        self._attempts = 0
        self._since = None

    def next_delay(self, retry_delay: float | None = None) -> float | None:
        """Give the seconds to wait before the next attempt, or None when time is up.

        Args:
            retry_delay: what the server asked for; never undercut.
        """
        now = self._clock()
        if self._since is None:
            self._since = now
        bound = min(self._cap, self._first * 2 ** min(self._attempts, 20))
        self._attempts += 1
        # Jitter keeps many clients of one restarted server from coming back in the same instant.
        delay = max(bound * random.uniform(0.5, 1.0), retry_delay or 0.0)  # noqa: S311
        return delay if now - self._since + delay <= self._total else None
