"""The lease of this process: one row says that it lives, and it is renewed only while its event loop does.

Expiry takes nothing away by itself: until somebody takes a thread over, its epoch stands and writing is safe.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from turnwire.storage.units import Connection, UnitWriter

__all__ = ["LeaseTerms", "Leases", "enter", "register", "remove", "renew"]

logger = logging.getLogger(__name__)

_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """Seconds: how long a lease lasts, how often it is renewed, and how long the loop may stand still."""

    ttl: float = 30.0
    renew: float = 10.0
    hung: float = 15.0


def register(db: Connection, owner: str, ttl: float) -> None:
    """Say that an owner lives for `ttl` seconds from now."""
    db.execute(
        "INSERT INTO owners (owner, runtime_id, expire_time) VALUES (?, ?, ?)"
        " ON CONFLICT (owner) DO UPDATE SET expire_time = excluded.expire_time",
        (owner, owner.partition("/")[0], db.now_ns() + int(ttl * _NS)),
    )


def renew(db: Connection, owner: str, ttl: float) -> bool:
    """Renew a lease; False when it had run out or was gone, so that threads may have been taken over."""
    now = db.now_ns()
    row = db.execute("SELECT expire_time FROM owners WHERE owner = ?", (owner,)).fetchone()
    register(db, owner, ttl)
    return row is not None and bool(row[0] > now)


def remove(db: Connection, owner: str) -> None:
    """Say that an owner has left: what it still holds is free at once."""
    db.execute("DELETE FROM owners WHERE owner = ?", (owner,))


def enter(db: Connection, owner: str, *, alone: bool, ttl: float = 30.0, named: bool = False) -> None:
    """Register an owner that starts, and remove those it knows to be dead.

    All others when it has the store for itself (`alone`), earlier boots of its own runtime when it holds the
    runtime's name (`named`).
    """
    runtime_id = owner.partition("/")[0]
    if alone or named:
        db.execute(
            "DELETE FROM owners WHERE owner <> ? AND (runtime_id = ? OR ? = 1)",
            (owner, runtime_id, int(alone)),
        )
    register(db, owner, ttl)


def _unheard() -> None:
    """Nobody has begun to listen."""


class Leases:
    """Renews the lease on the writer's thread, and stops to while the event loop stands still.

    Args:
        owner: `{runtime_id}/{boot}`.
        terms: the times.
        on_hung: called on the loop with True when it stood still too long, with False at the next renewal.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        owner: str,
        terms: LeaseTerms,
        *,
        on_hung: Callable[[bool], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self.owner = owner
        self.terms = terms
        self._on_late: Callable[[], None] = _unheard
        self._on_hung = on_hung
        self._ticked = self._clock()
        self._hung = False
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def start(
        self, writer: UnitWriter, on_late: Callable[[], None], *, alone: bool, named: bool = False
    ) -> None:
        """Register, and begin to tick; until then nothing is renewed. See `enter` for the flags.

        `on_late` is called on the loop when the lease had run out before it was renewed, and after the loop
        stood still: somebody may have taken turns over.
        """
        ttl = self.terms.ttl
        await writer.run(lambda db: enter(db, self.owner, alone=alone, ttl=ttl, named=named))
        self._on_late = on_late
        self._loop = asyncio.get_running_loop()
        self._ticked = self._clock()
        self._tick()

    async def stop(self, writer: UnitWriter) -> None:
        """Stop renewing, and say that this owner has left."""
        self._loop = None
        if self._timer is not None:
            self._timer.cancel()
        await writer.run(lambda db: remove(db, self.owner))

    def renew(self, db: Connection) -> None:
        """Renew the lease unless the loop stands still; runs on the writer's thread, every `terms.renew`."""
        loop = self._loop
        if loop is None:
            return
        if self._clock() - self._ticked > self.terms.hung:
            if not self._hung:
                self._hung = True
                logger.error("lease.loop_hung", extra={"owner": self.owner, "seconds": self.terms.hung})
                loop.call_soon_threadsafe(self._on_hung, True)
            return
        # Told by what was found, not by what this writes: a renewal that is not committed is found missing.
        if not renew(db, self.owner, self.terms.ttl):
            loop.call_soon_threadsafe(self._late)
        if self._hung:
            self._hung = False
            loop.call_soon_threadsafe(self._on_hung, False)

    def _late(self) -> None:
        logger.warning("lease.late", extra={"owner": self.owner})
        self._on_late()

    def _tick(self) -> None:
        if self._loop is None:
            return
        now = self._clock()
        stood_still = now - self._ticked > self.terms.hung
        self._ticked = now
        self._timer = self._loop.call_later(min(1.0, self.terms.hung / 4), self._tick)
        if stood_still:
            logger.warning("lease.loop_returned", extra={"owner": self.owner})
            self._on_late()
