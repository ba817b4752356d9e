"""Who is told of changes of the ledger as they happen: clients of their own commands, operators of all."""

from __future__ import annotations

from turnwire.control.domain import CommandRow, Key
from turnwire.control.ports import Follower

__all__ = ["Followers"]


class Followers:
    """Followers by scope and client id; the empty client id stands for every command of the scope."""

    def __init__(self) -> None:
        self._by_place: dict[Key, dict[Follower, None]] = {}

    def __len__(self) -> int:
        return sum(len(here) for here in self._by_place.values())

    def add(self, follower: Follower, scope: str, client_id: str = "") -> None:
        """Begin to tell a follower."""
        self._by_place.setdefault((scope, client_id), {})[follower] = None

    def remove(self, follower: Follower, scope: str, client_id: str = "") -> None:
        """Tell a follower no more."""
        here = self._by_place.get((scope, client_id))
        if here is not None and here.pop(follower, False) is None and not here:
            del self._by_place[(scope, client_id)]

    def changed(self, row: CommandRow) -> None:
        """Tell everyone whom the row concerns."""
        for client_id in {row.client_id, ""}:
            for follower in tuple(self._by_place.get((row.scope, client_id), ())):
                follower.changed(row)
