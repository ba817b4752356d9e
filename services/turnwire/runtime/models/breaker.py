"""A provider that fails again and again is left alone for a while, then asked by one call first.

Closed, calls pass. After so many failures in a row within the window it opens, and calls are refused at once.
After its time one call is let through; what becomes of it closes or opens it again.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from enum import Enum

from turnwire.extend.llm import FailureKind, StreamFailure
from turnwire.runtime.models.failures import failure_of
from turnwire.runtime.models.settings import BreakerSettings

__all__ = ["Breaker", "CircuitState", "Passage"]

logger = logging.getLogger(__name__)

# These tell that the provider, or the way to it, is broken.
_BROKEN = frozenset({FailureKind.CONNECTION, FailureKind.SERVER, FailureKind.TIMEOUT})
# These leave open whether it is.
_UNCLEAR = frozenset({FailureKind.INCOMPLETE, FailureKind.UNKNOWN})
# While one call finds out, the others are told to come back after so long.
PROBE_SECONDS = 1.0


class CircuitState(Enum):
    """Where a breaker stands."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


class Passage:
    """One call that was let through; `probe` when it is the one that finds out."""

    __slots__ = ("probe",)

    def __init__(self, probe: bool) -> None:
        self.probe = probe


class Breaker:
    """The circuit of one provider.

    Args:
        name: for logs; never the key.
        settings: `failures` of 0 never opens it.
        clock: monotonic seconds.
    """

    def __init__(
        self, name: str, settings: BreakerSettings, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._name = name
        self._settings = settings
        self._clock = clock
        self._failures: deque[float] = deque(maxlen=max(1, settings.failures))
        self._opened_at = 0.0
        self._probing = False
        self.state = CircuitState.CLOSED

    @property
    def refusing_for(self) -> float:
        """Seconds for which calls are refused from now on, 0 when the next one passes."""
        if self.state is CircuitState.CLOSED:
            return 0.0
        if self._probing:
            return PROBE_SECONDS
        return max(0.0, self._opened_at + self._settings.open_seconds - self._clock())

    def enter(self) -> Passage | None:
        """Let a call through, or refuse it with None; whoever passes ends the passage."""
        if self.state is CircuitState.CLOSED:
            return Passage(False)
        if self.refusing_for > 0:
            return None
        self._probing = True
        self._move(CircuitState.HALF_OPEN)
        return Passage(True)

    def refusal(self, provider: str) -> StreamFailure:
        """The failure of a call that is refused."""
        wait = self.refusing_for
        times = self._settings.failures
        return failure_of(
            FailureKind.CONNECTION,
            f"the provider failed {times} times in a row and is asked again in {wait:.1f} s",
            provider=provider,
            retry_after=wait,
        )

    def answers(self, passage: Passage) -> None:
        """A call that was let through has begun to be answered."""
        if passage.probe:
            passage.probe = False
            self._close()

    def leave(self, passage: Passage, end: object) -> None:
        """A passage is over.

        Args:
            end: the terminal event of the call, None when its reader left before it.
        """
        kind = end.kind if isinstance(end, StreamFailure) else None
        if passage.probe:
            self._probing = False
        if kind in _BROKEN:
            self._failed(passage)
        elif end is not None and kind not in _UNCLEAR:
            self._close()

    def _failed(self, passage: Passage) -> None:
        now = self._clock()
        if passage.probe:
            self._open(now)
        elif self.state is CircuitState.CLOSED and self._settings.failures:
            self._failures.append(now)
            full = len(self._failures) == self._settings.failures
            if full and now - self._failures[0] <= self._settings.window_seconds:
                self._open(now)

    def _open(self, now: float) -> None:
        self._opened_at = now
        self._failures.clear()
        self._move(CircuitState.OPEN)

    def _close(self) -> None:
        self._failures.clear()
        self._probing = False
        self._move(CircuitState.CLOSED)

    def _move(self, state: CircuitState) -> None:
        if state is not self.state:
            self.state = state
            extra = {
                "provider": self._name,
                "state": state.value,
                "open_seconds": self._settings.open_seconds,
            }
            logger.log(
                logging.WARNING if state is CircuitState.OPEN else logging.INFO, "model.circuit", extra=extra
            )
