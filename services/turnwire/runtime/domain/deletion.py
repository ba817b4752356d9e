"""A thread between its deletion and the removal of the last trace of it."""

from __future__ import annotations

from dataclasses import dataclass

from turnwire.runtime.domain.turn import ThreadKey, TurnKey

__all__ = ["Deletion", "Purge"]


@dataclass(frozen=True, slots=True)
class Deletion:
    """A thread that is marked as deleted.

    Args:
        version: the thread's version now.
        running: a turn that still runs; its end is asked for, and the thread is sealed without it if need be.
    """

    version: int
    running: TurnKey | None = None


@dataclass(frozen=True, slots=True)
class Purge:
    """A thread whose content is still to be removed, deleted `age` seconds ago."""

    thread: ThreadKey
    live_turn: str
    age: float
