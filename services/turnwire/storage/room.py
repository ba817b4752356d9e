"""How many bytes wait in memory for their commit: per key and altogether, so that producers stop in time."""

from __future__ import annotations

import asyncio

__all__ = ["Room"]


class Room:
    """Counts what waits; used on the loop only.

    Args:
        key_limit: bytes under one key from which there is no more room for that key.
        total_limit: bytes altogether from which there is no more room for anyone.
    """

    __slots__ = ("_bytes", "_key_limit", "_total_limit", "_waiters", "total")

    def __init__(self, key_limit: int, total_limit: int) -> None:
        self.total = 0
        self._key_limit = key_limit
        self._total_limit = total_limit
        self._bytes: dict[str, int] = {}
        self._waiters: list[asyncio.Future[None]] = []

    def has(self, key: str) -> bool:
        return self.total < self._total_limit and self._bytes.get(key, 0) < self._key_limit

    def take(self, key: str, size: int) -> None:
        self.total += size
        self._bytes[key] = self._bytes.get(key, 0) + size

    def give(self, key: str, size: int) -> None:
        self.total -= size
        left = self._bytes[key] - size
        if left:
            self._bytes[key] = left
        else:
            del self._bytes[key]

    def clear(self) -> None:
        self.total = 0
        self._bytes.clear()

    async def changed(self) -> None:
        """Wait for the next `wake`."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    def wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
