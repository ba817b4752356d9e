"""Stores that no service has open, for the work that is done on them then: looked at, migrated, changed.

A file is locked for as long as it is open here, as a service would lock it. A PostgreSQL store has no such
lock: there a runtime that is alive shows as an owner.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from turnwire.core.errors import WrongState
from turnwire.storage import sqlite
from turnwire.storage.lock import FileLock
from turnwire.storage.migrate import Engine, SchemaConnection, load_migrations, migrate
from turnwire.storage.units import Connection, StoreUnavailable

__all__ = ["ClosedStore", "OpenStore", "file_store", "url_store"]

T = TypeVar("T")


class OpenStore:
    """A store that is open here; `known` is the schema version of this program."""

    def __init__(self, name: str, db: Any, package: str, engine: Engine) -> None:
        self.name = name
        self._db: SchemaConnection = db
        self._migrations = load_migrations(package, engine)
        self.known = len(self._migrations)

    def version(self) -> int:
        """Return the version of the schema that the store has; 0 = none."""
        return _version(self._db)

    def migrate(self) -> None:
        """Bring the schema up to date. Raises WrongState (SCHEMA_NEWER)."""
        migrate(self._db, self._migrations)

    def refuse_living_owners(self) -> None:
        """Raise WrongState (STORE_LOCKED) when a runtime on the store is alive."""
        if self.version() < 2:
            return
        rows = self.run(
            lambda db: db.execute("SELECT owner FROM owners WHERE expire_time > ?", (db.now_ns(),)).fetchall()
        )
        if rows:
            raise WrongState(
                f"{self.name} is in use by {len(rows)} runtime(s): stop them, wait for their leases to end, "
                "and repeat",
                reason="STORE_LOCKED",
                owners=str(len(rows)),
            )

    def run(self, fn: Callable[[Connection], T]) -> T:
        """Run `fn` as one transaction."""
        db = self._db
        db.begin()
        try:
            result = fn(db)
            db.execute("COMMIT")
        finally:
            if db.in_transaction:
                db.execute("ROLLBACK")
        return result


@dataclass(frozen=True, slots=True)
class ClosedStore:
    """A store by its file or its URL; `package` holds the migrations of its schema."""

    name: str
    package: str
    path: Path | None = None
    url: str = ""

    @contextmanager
    def open(self) -> Iterator[OpenStore]:
        """Open the store for as long as the context lasts.

        Raises:
            WrongState: STORE_LOCKED, a service has the file.
            StoreUnavailable: it cannot be opened, or failed meanwhile.
        """
        if self.path is None:
            with self._server() as opened:
                yield opened
            return
        lock = FileLock(self.path)
        try:
            lock.acquire()
            with closing(sqlite.connect(self.path, busy_timeout=5.0)) as db:
                yield OpenStore(self.name, db, self.package, "sqlite")
        except (OSError, sqlite3.Error) as error:
            text = sqlite.describe(error) if isinstance(error, sqlite3.Error) else str(error.strerror)
            raise StoreUnavailable(f"{self.name} cannot be used: {text}") from error
        finally:
            lock.release()

    def versions(self) -> tuple[int, int]:
        """Return the schema that the store has (0 = none) and the one of this program; changes nothing.

        Raises:
            StoreUnavailable: it cannot be read.
        """
        if self.path is None:
            with self._server() as opened:
                return opened.version(), opened.known
        known = len(load_migrations(self.package))
        try:
            with closing(sqlite.connect(self.path, read_only=True, busy_timeout=5.0)) as db:
                return _version(db), known
        except sqlite3.Error as error:
            raise StoreUnavailable(f"{self.name} cannot be read: {sqlite.describe(error)}") from error

    @contextmanager
    def _server(self) -> Iterator[OpenStore]:
        try:
            import psycopg

            from turnwire.storage import postgres
        except ImportError as error:
            raise StoreUnavailable(
                "this needs PostgreSQL's driver: pip install 'turnwire[postgresql]'"
            ) from error
        try:
            with closing(postgres.connect(self.url)) as db:
                yield OpenStore(self.name, db, self.package, "postgresql")
        except psycopg.Error as error:
            raise StoreUnavailable(f"{self.name} cannot be used: {postgres.describe(error)}") from error


def _version(db: Connection) -> int:
    try:
        return int(db.execute("SELECT coalesce(max(version), 0) FROM schema_version").fetchone()[0])
    except Exception as error:
        if getattr(error, "sqlstate", "") == "42P01" or "no such table" in str(error):
            return 0
        raise


def file_store(data: Path, service: str = "runtime") -> ClosedStore:
    """Return a service's store in a data folder."""
    path = data / f"{service}.db"
    return ClosedStore(str(path), f"turnwire.{service}", path)


def url_store(url: str) -> ClosedStore:
    """Return the runtime's store on a PostgreSQL server."""
    return ClosedStore("the PostgreSQL store", "turnwire.runtime", url=url)
