"""One heap of moments; an entry that its owner has moved since is skipped when it comes up."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

from turnwire.control.board import Active

__all__ = ["Timers"]


class Timers:
    """Calls nobody: says when the next moment is, and hands out who is due.

    Args:
        arm: told of the earliest moment, in seconds of the monotonic clock, whenever it becomes earlier.
    """

    def __init__(self, arm: Callable[[float], None]) -> None:
        self._arm = arm
        self._heap: list[tuple[float, int, Active]] = []
        self._count = 0

    def set(self, active: Active, when: float) -> None:
        """Have `active` come up at `when` and at no other moment."""
        if active.wake_at == when:
            return
        active.wake_at = when
        self._count += 1
        heappush(self._heap, (when, self._count, active))
        if self._heap[0][2] is active:
            self._arm(when)

    def due(self, now: float) -> list[Active]:
        """Take out everyone whose moment has come, and arm for the next."""
        found = []
        while self._heap and self._heap[0][0] <= now:
            when, _, active = heappop(self._heap)
            if active.wake_at == when:
                active.wake_at = None
                found.append(active)
        while self._heap and self._heap[0][2].wake_at != self._heap[0][0]:
            heappop(self._heap)
        if self._heap:
            self._arm(self._heap[0][0])
        return found
