"""A request to stop one execution: set at most once, seen by whatever the execution waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["StopSwitch"]


class StopSwitch:
    """Belongs to one execution. The first cause stands; later ones are ignored."""

    def __init__(self) -> None:
        self.future: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @property
    def cause(self) -> str:
        """Why to stop; empty while nobody asked."""
        return self.future.result() if self.future.done() else ""

    def set(self, cause: str) -> bool:
        """Ask to stop; false when somebody had asked before."""
        if self.future.done():
            return False
        self.future.set_result(cause or "cancelled")
        return True

    def on_set(self, act: Callable[[], None]) -> None:
        """Call `act` soon after the switch is set, at once when it is set already."""
        self.future.add_done_callback(lambda _: act())
