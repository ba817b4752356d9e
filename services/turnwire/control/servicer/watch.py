"""One reader that follows the ledger: a cursor, with the latest changes in memory while it keeps up."""

from __future__ import annotations

import asyncio
from collections import deque

from turnwire.control.domain import CommandRow, CommandState
from turnwire.control.filters import CommandFilter
from turnwire.control.hub import Hub
from turnwire.control.ledger import SqliteLedger

__all__ = ["Watch"]

_PAGE = 100
_KEPT = 1000


class Watch:
    """Follower of one scope.

    Args:
        after: position behind which it begins.
    """

    def __init__(self, hub: Hub, ledger: SqliteLedger, scope: str, terms: CommandFilter, after: int) -> None:
        self._hub = hub
        self._ledger = ledger
        self._scope = scope
        self._terms = terms
        self._seen = after
        self._fresh: deque[CommandRow] = deque()
        self._lagging = self._missed = True
        self._stir = asyncio.Event()
        self._over = False

    def changed(self, row: CommandRow) -> None:
        """Take in a change; what does not fit is read from the ledger."""
        known = row.position <= self._seen
        # That a runtime has a command is no change of the ledger, which could not give it again.
        if known and row.state is not CommandState.DELIVERED:
            return
        self._stir.set()
        if len(self._fresh) < _KEPT and (known or not self._lagging):
            self._fresh.append(row)
        elif not known:
            self._lagging = self._missed = True

    def give_up(self) -> None:
        """End the reader: the server is leaving."""
        self._over = True
        self._stir.set()

    async def next(self, heartbeat: float) -> list[CommandRow] | None:
        """Return the next rows, none after `heartbeat` seconds of silence, None at the end."""
        try:
            async with asyncio.timeout(heartbeat):
                while not self._over:
                    if rows := await self._take():
                        return rows
                    if not self._lagging:
                        await self._stir.wait()
                        self._stir.clear()
        except TimeoutError:
            return []
        return None

    async def _take(self) -> list[CommandRow]:
        rows = list(self._fresh)
        self._fresh.clear()
        if not rows and self._lagging:
            self._missed = False
            rows = await self._ledger.changes(self._scope, self._seen, _PAGE)
            if len(rows) < _PAGE and not self._missed:
                self._lagging = False
            rows = [self._hub.find(row.key) or row for row in rows]
        if rows:
            self._seen = max(self._seen, *(row.position for row in rows))
        return [row for row in rows if self._terms.matches(row)]
