"""So many calls of one provider run at once; the others wait, first come, first served."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

__all__ = ["Slots"]


class Slots:
    """Places for calls; a `limit` of 0 has one for everybody."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.taken = 0

    @property
    def waiting(self) -> int:
        """How many calls wait for a place."""
        return len(self._waiting)

    async def take(self, on_wait: Callable[[], None]) -> None:
        """Take a place; whoever has one gives it back. `on_wait` is called once if there is none at once.

        Cancelling this leaves the queue, and passes on a place that came in the same moment.
        """
        if not self.limit or self.taken < self.limit:
            self.taken += 1
            return
        place = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            on_wait()
            await place
        except BaseException:
            if place.done() and not place.cancelled():
                self.give_back()
            elif place in self._waiting:
                self._waiting.remove(place)
            raise

    def give_back(self) -> None:
        """Give a place back: it goes to who has waited longest, so that nobody overtakes."""
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(None)
                return
        self.taken -= 1
