"""What the writer takes: units. A unit is committed whole or not at all, whatever becomes of the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from turnwire.core.errors import Unavailable

__all__ = [
    "Connection",
    "Done",
    "Rows",
    "Source",
    "SqlValue",
    "Statement",
    "StorageError",
    "StoreUnavailable",
    "Unit",
    "UnitFenced",
    "UnitRejected",
    "UnitWriter",
]

SqlValue = str | bytes | int | float | None
Done = Callable[[BaseException | None], None]
T = TypeVar("T")


class Rows(Protocol):
    """What a statement gave."""

    @property
    def rowcount(self) -> int:
        """Changed rows of a plain INSERT, UPDATE or DELETE."""

    def fetchone(self) -> Any:
        """Return the next row as a tuple, None after the last."""

    def fetchall(self) -> list[Any]:
        """Return the rows that are left."""

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the rows that are left."""


class Connection(Protocol):
    """What functions that run inside a transaction are given; the same on every engine."""

    def execute(self, sql: str, params: Sequence[SqlValue] = (), /) -> Rows:
        """Run one statement with `?` places; keep its text constant, prepared statements are cached by it."""

    def now_ns(self) -> int:
        """Return the store's clock, the host's or the server's, in nanoseconds since 1970."""

    def reclaim(self, pages: int = 500) -> int:
        """Give so many free pages back to the file system and return how many; 0 where the engine does it."""


class StorageError(Exception):
    """A unit was not committed for a reason of its own; its owner says what that means to a caller."""

    def __init__(self, message: str, key: str = "") -> None:
        super().__init__(message)
        self.key = key


class UnitFenced(StorageError):
    """A statement met another number of rows than it requires: someone else owns or changed the row."""


class UnitRejected(StorageError):
    """The unit's own data cannot be stored: constraint, encoding, size. Its cause is the driver's error."""


class StoreUnavailable(Unavailable):
    """The store does not answer now, or the writer has ended. UNAVAILABLE / STORE_UNAVAILABLE."""

    default_reason = "STORE_UNAVAILABLE"


@dataclass(slots=True)
class Statement:
    """One statement with its values.

    Args:
        sql: text with `?` places; keep it constant, prepared statements are cached by text.
        params: the values, in order.
        expect: required number of changed rows of a plain INSERT, UPDATE or DELETE, else the unit is refused.
    """

    sql: str
    params: tuple[SqlValue, ...] = ()
    expect: int | None = None


def _unheard(error: BaseException | None) -> None:
    """Default of `Unit.done`, for units whose outcome nobody waits for."""


@dataclass(slots=True, eq=False)
class Unit:
    """Statements that belong in one transaction.

    Args:
        key: units of one key are committed in the order they were handed in.
        statements: in order; no transaction control and no schema changes among them.
        urgent: committed as soon as the writer is free, without the minimum distance between groups.
        done: called once on the loop: None when durable, else UnitFenced, UnitRejected or StoreUnavailable.
        size: bytes that wait in memory until the unit is durable.
    """

    key: str
    statements: list[Statement] = field(default_factory=list)
    urgent: bool = False
    done: Done = _unheard
    size: int = 0


class Source(Protocol):
    """Something that gathers while a commit is in flight and is asked for its unit at the next group."""

    @property
    def key(self) -> str:
        """The key of every unit of this source; nothing else hands in units of that key."""

    def take(self) -> Unit | None:
        """Give everything gathered so far as one unit, or None. May mark itself again for the rest."""

    def refuse(self, error: Exception) -> None:
        """Hear that no unit is taken: `take` raised `error`, or the writer has ended (StoreUnavailable)."""


class UnitWriter(Protocol):
    """The port that services write through; one implementation per engine."""

    @property
    def healthy(self) -> bool:
        """False while commits fail and are retried, and after the writer has ended."""

    def mark(self, source: Source, urgent: bool = False, size: int = 0) -> None:
        """Ask for `source.take()` at the next group; `size` more bytes wait under its key until then."""

    def submit(self, unit: Unit) -> None:
        """Put one ready unit into the next group."""

    async def commit(self, statements: Sequence[Statement], key: str = "") -> None:
        """Commit the statements as one urgent unit."""

    async def run(self, fn: Callable[[Connection], T], key: str = "") -> T:
        """Run a read-modify-write transaction in the order of the group."""

    def has_room(self, key: str) -> bool:
        """Say whether more bytes may wait under `key`."""

    async def room(self, key: str) -> None:
        """Wait until `has_room(key)`."""
