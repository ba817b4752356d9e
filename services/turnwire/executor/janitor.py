"""Removes what has outlived its retention, a little at a time."""

from __future__ import annotations

import asyncio
import logging

from turnwire.core.clock import Clock
from turnwire.core.errors import Unavailable
from turnwire.executor.ledger import Ledger
from turnwire.executor.overflow import Overflow

__all__ = ["Janitor"]

logger = logging.getLogger(__name__)

_PERIOD_SECONDS = 600.0


class Janitor:
    """Expires ends older than `retention` seconds, and the stored results of threads that have none left."""

    def __init__(self, ledger: Ledger, overflow: Overflow, clock: Clock, retention: float) -> None:
        self._ledger = ledger
        self._overflow = overflow
        self._clock = clock
        self._retention = retention

    async def run(self) -> None:
        """Clean every ten minutes until cancelled."""
        while True:
            try:
                await self.clean()
            except Unavailable as error:
                logger.warning("executor.janitor.failed", extra={"reason": error.reason})
            await asyncio.sleep(_PERIOD_SECONDS)

    async def clean(self) -> int:
        """Remove everything that has expired by now and count the executions."""
        before = self._clock.now() - int(self._retention * 1e9)
        total = 0
        while True:
            expiry = await self._ledger.expire(before)
            for scope, thread in expiry.empty_threads:
                await self._overflow.delete_thread(scope, thread)
            total += expiry.executions
            if not expiry.executions:
                return total
