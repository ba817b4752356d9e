"""What a service has of its store, on every engine: writer, readers, identity, word to other processes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

from turnwire.storage.migrate import StoreInfo
from turnwire.storage.reader import Reader
from turnwire.storage.sqlite import Synchronous
from turnwire.storage.stats import WriterStats
from turnwire.storage.units import StoreUnavailable
from turnwire.storage.writer import GroupCommitWriter

__all__ = ["Database", "database_at"]


class Database(ABC):
    """A store that is opened and closed as one. `info` is there once it is open."""

    writer: GroupCommitWriter
    reader: Reader
    info: StoreInfo
    stats: WriterStats
    # Whether other processes may be writing to the same store.
    shared: bool = False

    @abstractmethod
    async def open(self) -> None:
        """Bring the schema up to date and start the threads.

        Raises:
            WrongState: STORE_LOCKED, another process has the file; SCHEMA_NEWER, a later version wrote it.
            StoreUnavailable: the store cannot be opened or is damaged.
        """

    @abstractmethod
    async def close(self) -> None:
        """Commit what waits and close every connection."""

    @abstractmethod
    async def claim_name(self, name: str) -> bool:
        """Say whether no other living process has this name, and keep it for as long as this one lives."""

    @abstractmethod
    def notify(self, payload: str) -> None:
        """Tell the other processes something short, soon and perhaps not at all; call it on the loop.

        What is handed in while word is on its way goes out together, and each payload once.
        """

    @abstractmethod
    def listen(self, callback: Callable[[str], None]) -> None:
        """Have what other processes `notify` told on the loop, one payload a call.

        An empty payload means that word may have been lost: look everywhere. A store that no other process
        can have never calls it.
        """


def database_at(
    location: Path | str,
    package: str,
    *,
    on_fatal: Callable[[BaseException], None],
    on_health: Callable[[bool], None] | None = None,
    synchronous: Synchronous = "FULL",
    spacing: float = 0.005,
    retry_for: float = 30.0,
    readers: int = 2,
) -> Database:
    """Return the store at a place, to be opened: a path is an SQLite file, `postgresql://...` a server.

    Args:
        location: the file, whose directory is made if need be, or the URL of the database.
        package: the package whose `migrations/` folder holds the schema, as in `turnwire.runtime`.
        on_fatal: called once, on the loop, when the store can no longer be written: leave the process.
        on_health: called on the loop with False when commits begin to fail and True when they succeed again.
        synchronous: FULL survives a power cut; NORMAL survives `kill -9`, not a power cut.
        spacing: minimum seconds between two groups that hold nothing urgent.
        retry_for: seconds for which a failing store is tried before `on_fatal`.
        readers: reads at once.

    Raises:
        StoreUnavailable: the driver for this place is not installed.
    """
    if isinstance(location, Path):
        from turnwire.storage.sqlite_database import SqliteDatabase

        return SqliteDatabase(
            location,
            package,
            on_fatal=on_fatal,
            on_health=on_health,
            synchronous=synchronous,
            spacing=spacing,
            retry_for=retry_for,
            readers=readers,
        )
    try:
        from turnwire.storage.postgres_database import PgDatabase
    except ImportError as error:
        raise StoreUnavailable(
            "the driver for PostgreSQL is not installed: pip install 'turnwire[server,postgresql]'"
        ) from error
    return PgDatabase(
        location,
        package,
        on_fatal=on_fatal,
        on_health=on_health,
        synchronous=synchronous,
        spacing=spacing,
        retry_for=retry_for,
        readers=readers,
    )
