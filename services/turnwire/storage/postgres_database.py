"""One store on a PostgreSQL server, which several processes may share."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

import psycopg
from psycopg import errors

from turnwire.storage.database import Database
from turnwire.storage.migrate import StoreInfo, load_migrations, migrate
from turnwire.storage.postgres import TROUBLE, PgConnection, connect, describe
from turnwire.storage.postgres_committer import PgCommitter
from turnwire.storage.postgres_session import PgSession
from turnwire.storage.reader import Reader
from turnwire.storage.sqlite import Synchronous
from turnwire.storage.stats import WriterStats
from turnwire.storage.units import StoreUnavailable
from turnwire.storage.writer import GroupCommitWriter

__all__ = ["PgDatabase"]

logger = logging.getLogger(__name__)

_OLDEST = 13
_UNREADABLE = (
    "STORE__URL cannot be read: it is postgresql://user:password@host:5432/name, with %XX for characters of"
    " the password such as @ / : % #"
)


class PgDatabase(Database):
    """A database of a server. See `database_at` for the arguments."""

    shared = True

    def __init__(
        self,
        url: str,
        package: str,
        *,
        on_fatal: Callable[[BaseException], None],
        on_health: Callable[[bool], None] | None = None,
        synchronous: Synchronous = "FULL",
        spacing: float = 0.005,
        retry_for: float = 30.0,
        readers: int = 2,
    ) -> None:
        self.stats = WriterStats()
        self.reader = Reader(
            partial(connect, url, read_only=True, name="turnwire-reader"),
            threads=readers,
            trouble=TROUBLE,
            tries=2,
        )
        self._url = url
        self._package = package
        self._listeners: list[Callable[[str], None]] = []
        self._session: PgSession | None = None
        self._committer = PgCommitter(
            lambda name: _for_writing(url, name, synchronous),
            retry_for=retry_for,
            stats=self.stats,
            on_health=lambda healthy: self.writer.report_health(healthy),
        )
        self.writer = GroupCommitWriter(
            self._committer,
            on_fatal=on_fatal,
            on_health=on_health,
            stats=self.stats,
            spacing=spacing,
            stuck_after=2 * retry_for + 30,
        )

    async def open(self) -> None:
        """Bring the schema up to date and start the threads.

        Raises:
            WrongState: SCHEMA_NEWER, a later version wrote it.
            StoreUnavailable: the database cannot be reached or used; the text says what to do.
        """
        try:
            self.info = await asyncio.to_thread(self._prepare)
            await self.writer.start()
        except psycopg.ProgrammingError as error:
            if error.sqlstate is not None:
                raise StoreUnavailable(_explain(error, _place(self._url))) from error
            # Without its cause, which quotes the password.
            raise StoreUnavailable(_UNREADABLE) from None
        except psycopg.Error as error:
            raise StoreUnavailable(_explain(error, _place(self._url))) from error
        self._session = PgSession(
            partial(connect, self._url, name="turnwire-session"),
            f"turnwire_{self.info.log_id}",
            self._hear,
        )
        self._session.start()

    async def close(self) -> None:
        """Commit what waits and close every connection."""
        await self.writer.stop()
        if self._session is not None:
            await asyncio.to_thread(self._session.close)
        await self.reader.close()

    async def claim_name(self, name: str) -> bool:
        """Say whether no other living process has this name, and keep it for as long as this one lives."""
        return self._session is not None and await self._session.claim(name)

    def notify(self, payload: str) -> None:
        """Tell the other processes something short. See `Database.notify`."""
        if self._session is not None:
            self._session.notify(payload)

    def listen(self, callback: Callable[[str], None]) -> None:
        """Have what other processes say told on the loop. See `Database.listen`."""
        self._listeners.append(callback)

    def _hear(self, payload: str) -> None:
        for callback in self._listeners:
            callback(payload)

    def _prepare(self) -> StoreInfo:
        db = connect(self._url, name="turnwire-schema")
        try:
            _check_server(db, _place(self._url))
            return migrate(db, load_migrations(self._package, "postgresql"))
        finally:
            db.close()


def _for_writing(url: str, name: str, synchronous: Synchronous) -> PgConnection:
    db = connect(url, name=name)
    if synchronous == "NORMAL":
        db.execute("SET synchronous_commit = off")
    return db


def _check_server(db: PgConnection, place: str) -> None:
    version = db.pgconn.server_version // 10000
    if version < _OLDEST:
        raise StoreUnavailable(f"{place} is PostgreSQL {version}: {_OLDEST} or later is needed")
    encoding = (db.pgconn.parameter_status(b"server_encoding") or b"").decode()
    if encoding != "UTF8":
        raise StoreUnavailable(
            f"the database at {place} is encoded in {encoding}: create it anew with ENCODING 'UTF8'"
        )


def _place(url: str) -> str:
    """Return host, port and name of a database, and nothing secret."""
    given = psycopg.conninfo.conninfo_to_dict(url)
    host = given.get("host") or given.get("hostaddr") or "the local socket"
    return f"{host}:{given.get('port') or 5432}/{given.get('dbname') or given.get('user') or ''}"


def _explain(error: psycopg.Error, place: str) -> str:
    """Say what is wrong and what helps, without the driver's text."""
    text = str(error)
    if isinstance(error, errors.InsufficientPrivilege):
        return (
            f"the role may not create tables at {place}: GRANT CREATE ON SCHEMA public, or own the database"
        )
    if isinstance(error, errors.LockNotAvailable):
        return (
            f"another process holds the tables at {place}, or changes their schema: start again in a moment"
        )
    if "password" in text or "authentication" in text or "role " in text:
        return f"{place} refuses the user or password: look at STORE__URL and at the server's pg_hba.conf"
    if "database " in text and "does not exist" in text:
        return f"the database at {place} does not exist: CREATE DATABASE it, with ENCODING 'UTF8'"
    if isinstance(error, psycopg.OperationalError) and error.sqlstate is None:
        return (
            f"the server at {place} cannot be reached: is it running, does it let this address in, and are"
            " user, password and database right?"
        )
    return f"the store at {place} cannot be opened: {describe(error)}"
