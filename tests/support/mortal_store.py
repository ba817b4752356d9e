"""A store whose process dies at a chosen commit: what is committed stays, nothing is done after it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from turnwire.runtime.store.turn_store import TurnStore
from turnwire.storage.units import Connection, Source, Unit, UnitWriter

__all__ = ["Mortal", "mortal"]


class Mortal:
    """Passes units on until so many are committed, then is dead.

    Args:
        writer: the real one.
        commits: the last commit before the death, None for a long life.
        lingers: the process goes on after that commit, and only its writes are lost, as when it is killed a
            moment later; else nobody in it hears of that commit.
    """

    def __init__(self, writer: UnitWriter, commits: int | None, lingers: bool) -> None:
        self._writer = writer
        self._left = commits
        self._lingers = lingers
        self._sources: dict[Source, _Counted] = {}
        self.commits = 0
        self.dead = asyncio.Event()

    @property
    def healthy(self) -> bool:
        return self._writer.healthy

    def mark(self, source: Source, urgent: bool = False, size: int = 0) -> None:
        counted = self._sources.setdefault(source, _Counted(self, source))
        self._writer.mark(counted, urgent, size)

    async def run(self, fn: Callable[[Connection], Any], key: str = "") -> Any:
        if self.dead.is_set():
            await asyncio.Event().wait()
        result = await self._writer.run(fn, key)
        await self.heard()
        return result

    async def heard(self) -> None:
        """Count a commit that somebody waits for; it is never heard of when it is the last one."""
        if self.counts():
            await asyncio.Event().wait()

    def counts(self) -> bool:
        """Count a commit; tells whether it goes unheard."""
        if self.dead.is_set():
            return True
        self.commits += 1
        if self.commits != self._left:
            return False
        self.dead.set()
        return not self._lingers

    def has_room(self, key: str) -> bool:
        return self._writer.has_room(key)

    async def room(self, key: str) -> None:
        await self._writer.room(key)


class _Counted:
    """A source whose units are counted, and of which the dead give none."""

    def __init__(self, mortal: Mortal, source: Source) -> None:
        self._mortal = mortal
        self._source = source
        self.key = source.key

    def take(self) -> Unit | None:
        if self._mortal.dead.is_set():
            return None
        unit = self._source.take()
        if unit is None:
            return None
        done = unit.done

        def heard(error: BaseException | None) -> None:
            assert error is None, error
            if not self._mortal.counts():
                done(error)

        return Unit(unit.key, unit.statements, unit.urgent, heard, unit.size)

    def refuse(self, error: Exception) -> None:
        if not self._mortal.dead.is_set():
            self._source.refuse(error)


class _Database:
    """The database of a mortal process."""

    def __init__(self, database: Any, writer: Mortal) -> None:
        self._database = database
        self.writer = writer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)


def mortal(store: TurnStore, commits: int | None, *, lingers: bool = False) -> Mortal:
    """Have the process of a store die at its n-th commit from now."""
    writer = Mortal(store._database.writer, commits, lingers)
    store._database = _Database(store._database, writer)  # type: ignore[assignment]
    return writer
