"""How a tool runs, seen from the supervisor: first a seat, whose waiting is the queue, then the run."""

from __future__ import annotations

import asyncio
from typing import Protocol

from turnwire.executor.domain import Call, Ending
from turnwire.executor.stopping import StopSwitch
from turnwire.extend.tools import ToolSpec

__all__ = ["STOP_GRACE_SECONDS", "Body", "Room", "Seat"]

# Between TERM and KILL, and for a cancelled Python call to hand back what it has.
STOP_GRACE_SECONDS = 2.0


class Room(asyncio.Semaphore):
    """Room for a number of calls."""

    def take(self) -> bool:
        """Take one place if it is free and nobody waits for it."""
        if self.locked():
            return False
        self._value -= 1
        return True


class Seat(Protocol):
    """Room to run one call."""

    async def run(self, call: Call, stop: StopSwitch) -> Ending:
        """Run to the end, to the limit, or until stopped; never raises for what a tool does.

        When it returns nothing of the call runs any more, unless the ending says `lost`.
        """
        ...

    def release(self) -> None:
        """Give the room back. Idempotent."""
        ...


class Body(Protocol):
    """One tool of the catalog."""

    @property
    def spec(self) -> ToolSpec:
        """What the tool promises."""
        ...

    @property
    def inline(self) -> bool:
        """Whether it runs inside the service, with nothing to lose when the process dies."""
        ...

    def try_reserve(self) -> Seat | None:
        """Give room that is free right now."""
        ...

    async def reserve(self) -> Seat:
        """Wait for room. Cancelling the wait gives up the place in the queue."""
        ...
