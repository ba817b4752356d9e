"""Several processes on one store, as far as the store can tell: owners that claim, die and come back."""

from __future__ import annotations

from typing import Any

from turnwire.runtime.domain.admission import StopNote
from turnwire.runtime.domain.turn import ThreadKey, TurnKey
from turnwire.runtime.event_codec import encode_event, open_attempt
from turnwire.runtime.store import claims, leases
from turnwire.runtime.store.claimed import Claimant
from turnwire.runtime.store.turn_store import TurnStore
from turnwire.storage.units import Connection

__all__ = ["claim", "claimant", "die", "live", "orphan", "row", "suspend_row", "write"]

NOW = 1_700_000_000 * 10**9


def claimant(owner: str) -> Claimant:
    """Another process that claims."""

    def encode(key: TurnKey, first: int, events: Any) -> bytes:
        return b"".join(encode_event(key.name, (first + i, NOW, (1, 0, 0), e)) for i, e in enumerate(events))

    return Claimant(owner, encode, open_attempt)


async def write(store: TurnStore, fn: Any) -> Any:
    """Run a transaction."""
    return await store._database.writer.run(fn)


async def live(store: TurnStore, owner: str) -> None:
    """Have an owner live for half a minute."""
    await write(store, lambda db: leases.register(db, owner, 30.0))


async def die(store: TurnStore, owner: str) -> None:
    """Have an owner's lease run out."""
    await write(store, lambda db: leases.register(db, owner, -1.0))


async def orphan(store: TurnStore) -> None:
    """Have the lease of the store's own process run out."""
    await die(store, store.owner)


async def claim(
    store: TurnStore, thread: ThreadKey, owner: str, stop: tuple[TurnKey, StopNote] | None = None
) -> claims.Claim:
    """Claim as another process."""
    found: claims.Claim = await write(store, lambda db: claims.claim(db, thread, claimant(owner), stop))
    return found


async def row(store: TurnStore, sql: str, *params: Any) -> Any:
    """Read one row."""
    return await store.read(lambda db: db.execute(sql, params).fetchone())


async def suspend_row(store: TurnStore, key: TurnKey, wake_time: int = 0) -> None:
    """Set when a waiting turn is to be woken."""

    def change(db: Connection) -> None:
        db.execute(
            "UPDATE turns SET wake_time = ? WHERE scope = ? AND thread_id = ? AND turn_id = ?",
            (wake_time, key.scope, key.thread_id, key.turn_id),
        )

    await write(store, change)
