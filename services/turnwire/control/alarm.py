"""The one timer of the hub on the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from turnwire.core.clock import Clock

__all__ = ["Alarm"]


class Alarm:
    """Calls back at the earliest moment it was armed for; whoever is called arms it for the next one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._callback: Callable[[], None] | None = None
        self._handle: asyncio.TimerHandle | None = None
        self._when = 0.0

    def connect(self, callback: Callable[[], None]) -> None:
        """Set who is called."""
        self._callback = callback

    def arm(self, when: float) -> None:
        """Call back at `when`, in seconds of the monotonic clock, unless an earlier call is due."""
        if self._handle is not None:
            if self._when <= when:
                return
            self._handle.cancel()
        delay = max(when - self._clock.monotonic(), 0.0)
        self._when = when
        self._handle = asyncio.get_running_loop().call_later(delay, self._ring)

    def stop(self) -> None:
        """Call nobody any more."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _ring(self) -> None:
        self._handle = None
        # The loop's clock is coarser than ours: what rings a little early is armed again.
        if self._clock.monotonic() < self._when:
            self.arm(self._when)
        elif self._callback is not None:
            self._callback()
