"""What the hub needs from outside; everything is synchronous and answers by callback on the event loop.

So each input of the hub is one indivisible step, and a test can hold any answer back for as long as it likes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from turnwire.control.domain import CommandRow, Delivery, Key
from turnwire.core.errors import TurnwireError

__all__ = ["Ledger", "Listener", "Follower", "RuntimeLink", "Stored"]

# Called once: the row that stands in the ledger instead of the one handed in, and why nothing was stored.
Stored = Callable[[CommandRow | None, TurnwireError | None], None]


class Ledger(Protocol):
    """The durable rows. Changes become durable in the order in which they were handed in."""

    @property
    def healthy(self) -> bool:
        """Whether a change handed in now can be expected to become durable soon."""
        ...

    def insert(self, row: CommandRow, done: Stored) -> None:
        """Store a new row; if its key is taken, `done` gets the row that has it, and nothing changes."""
        ...

    def update(self, row: CommandRow, done: Stored) -> None:
        """Store `offered`, `bound_turn`, `state` and `position` of a row without outcome."""
        ...

    def finish(self, row: CommandRow, done: Stored) -> None:
        """Store the outcome; if the row has one already, `done` gets that row, and nothing changes."""
        ...


class Listener(Protocol):
    """Whoever sent a command and waits for what becomes of it."""

    def follows(self, row: CommandRow) -> bool:
        """Tell whether the end of `row` reaches this listener as a follower anyway."""
        ...

    def accepted(self, row: CommandRow, already_known: bool) -> None:
        """Hear that the command is durable."""
        ...

    def refused(self, command_id: str, error: TurnwireError) -> None:
        """Hear that the command was not taken."""
        ...

    def ended(self, row: CommandRow) -> None:
        """Hear the durable outcome."""
        ...


class Follower(Protocol):
    """Whoever sees changes of rows that others made, too."""

    def changed(self, row: CommandRow) -> None:
        """Hear of a change; all but the step to DELIVERED are durable."""
        ...


class RuntimeLink(Protocol):
    """The stream of one runtime, as far as the hub uses it; none of the calls waits."""

    @property
    def runtime_id(self) -> str:
        """Name of the runtime, the same after a restart."""
        ...

    def deliver(self, delivery: Delivery) -> int:
        """Send a delivery; returns its id, or 0 when the link takes nothing any more."""
        ...

    def outcome_stored(self, key: Key) -> None:
        """Tell the runtime that it need not repeat an outcome."""
        ...

    def supersede(self) -> None:
        """End the stream: the same runtime has opened another one."""
        ...
