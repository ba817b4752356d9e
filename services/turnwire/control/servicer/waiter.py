"""A unary call that waits for one command."""

from __future__ import annotations

import asyncio

from turnwire.control.domain import CommandRow
from turnwire.core.errors import TurnwireError

__all__ = ["Waiter"]


class Waiter:
    """Listener of one call; `already_known` is set once the command is accepted."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self._answer: asyncio.Future[CommandRow] = loop.create_future()
        self._end: asyncio.Future[CommandRow | None] = loop.create_future()
        self.already_known = False

    def follows(self, row: CommandRow) -> bool:
        """A call follows nothing: it is told."""
        return False

    def accepted(self, row: CommandRow, already_known: bool) -> None:
        """Hear that the command is durable."""
        self.already_known = already_known
        if not self._answer.done():
            self._answer.set_result(row)

    def refused(self, command_id: str, error: TurnwireError) -> None:
        """Hear that the command was not taken."""
        if not self._answer.done():
            self._answer.set_exception(error)

    def ended(self, row: CommandRow) -> None:
        """Hear the outcome."""
        if not self._end.done():
            self._end.set_result(row)

    def give_up(self) -> None:
        """Answer now: the server is leaving."""
        if not self._end.done():
            self._end.set_result(None)

    async def answer(self) -> CommandRow:
        """Return the row once it is durable.

        Raises:
            TurnwireError: the command was refused.
        """
        return await self._answer

    async def end(self, seconds: float) -> CommandRow | None:
        """Return the row with its outcome, or None when there is none in time."""
        try:
            async with asyncio.timeout(seconds):
                return await self._end
        except TimeoutError:
            return None
