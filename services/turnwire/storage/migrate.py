"""Schema changes: numbered scripts, forward only, each applied whole or not at all, never edited."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib import resources
from typing import Literal, Protocol

from turnwire.core.errors import WrongState
from turnwire.storage.units import Connection

__all__ = [
    "Engine",
    "Migration",
    "SchemaConnection",
    "StoreInfo",
    "load_migrations",
    "migrate",
    "renew_log_id",
]

Engine = Literal["sqlite", "postgresql"]

# Scripts are written for SQLite; this is all that other engines spell differently. What differs in more than
# words stands between lines `-- engine: NAME` and `-- engine: all`.
_WORDS: dict[Engine, dict[str, str]] = {
    "sqlite": {},
    "postgresql": {
        r"\bINTEGER\b": "BIGINT",
        r"\bREAL\b": "DOUBLE PRECISION",
        r"\bBLOB\b": "BYTEA",
        r"\) WITHOUT ROWID;": ");",
    },
}
_SECTION = re.compile(r"^-- engine: (\w+)$", re.MULTILINE)
_NAME = re.compile(r"(\d{4})_[a-z0-9_]+\.sql")

_OWN_TABLES = {
    "schema_version": "CREATE TABLE schema_version (version INTEGER PRIMARY KEY, name TEXT NOT NULL,"
    " applied_at BIGINT NOT NULL)",
    "store_info": "CREATE TABLE store_info (only_row INTEGER PRIMARY KEY CHECK (only_row = 1),"
    " log_id TEXT NOT NULL, created_at BIGINT NOT NULL)",
}


class SchemaConnection(Connection, Protocol):
    """A connection that can change the schema."""

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open, also one that has failed."""

    @property
    def own_tables(self) -> Mapping[str, str]:
        """Tables that the engine itself needs: name and statement."""

    def schema_lock(self) -> AbstractContextManager[None]:
        """Let no other process change the schema meanwhile."""

    def has_table(self, name: str) -> bool:
        """Say whether there is a table of this name."""

    def begin(self) -> None:
        """Begin a transaction that will write."""

    def script(self, sql: str) -> None:
        """Begin a transaction and run many statements in it."""


@dataclass(frozen=True, slots=True)
class Migration:
    version: int
    name: str
    sql: str


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """Identity of a store: `log_id` (16 hex digits) is new whenever it is created or restored.

    `created_at` is in microseconds since 1970, by the wall clock of the process that created it.
    """

    log_id: str
    created_at: int
    version: int


def load_migrations(package: str, engine: Engine = "sqlite") -> list[Migration]:
    """Read `migrations/0001_what.sql` and so on from a package, as the engine spells them.

    Raises:
        ValueError: the numbers do not run 1, 2, 3 ... without a gap.
    """
    found = []
    for entry in sorted(resources.files(package).joinpath("migrations").iterdir(), key=lambda e: e.name):
        if match := _NAME.fullmatch(entry.name):
            found.append(Migration(int(match[1]), entry.name, _spelled(entry.read_text("utf-8"), engine)))
    if [migration.version for migration in found] != list(range(1, len(found) + 1)):
        raise ValueError(f"migrations of {package} are not numbered 1..{len(found)}")
    return found


def _spelled(sql: str, engine: Engine) -> str:
    first, *rest = _SECTION.split(sql)
    kept = first + "".join(
        text for name, text in zip(rest[::2], rest[1::2], strict=True) if name in (engine, "all")
    )
    for word, spelled in _WORDS[engine].items():
        kept = re.sub(word, spelled, kept)
    return kept


def migrate(db: SchemaConnection, migrations: list[Migration]) -> StoreInfo:
    """Bring the store up to the newest schema and say which store it is.

    Raises:
        WrongState: SCHEMA_NEWER, the file was written by a later version.
        Exception: the driver's error, a script failed; the schema is as it was before that script.
    """
    with db.schema_lock():
        return _migrate(db, migrations)


def _migrate(db: SchemaConnection, migrations: list[Migration]) -> StoreInfo:
    with _transaction(db):
        for name, statement in (*_OWN_TABLES.items(), *db.own_tables.items()):
            if not db.has_table(name):
                db.execute(statement)
        db.execute(
            "INSERT INTO store_info SELECT 1, ?, ? WHERE NOT EXISTS (SELECT 1 FROM store_info)",
            (secrets.token_hex(8), time.time_ns() // 1000),
        )
    current: int = db.execute("SELECT coalesce(max(version), 0) FROM schema_version").fetchone()[0]
    if current > len(migrations):
        raise WrongState(
            f"this store has schema {current}, and this version of turnwire knows {len(migrations)}: "
            "run the version that wrote it or a later one, or name another store",
            reason="SCHEMA_NEWER",
            found=str(current),
            known=str(len(migrations)),
        )
    for migration in migrations[current:]:
        _apply(db, migration)
    log_id, created_at = db.execute("SELECT log_id, created_at FROM store_info").fetchone()
    return StoreInfo(log_id, created_at, len(migrations))


def renew_log_id(db: Connection) -> str:
    """Give a restored store a new identity, so that cursors into what was lost are refused; returns it."""
    log_id = secrets.token_hex(8)
    db.execute("UPDATE store_info SET log_id = ?", (log_id,))
    return log_id


def _apply(db: SchemaConnection, migration: Migration) -> None:
    try:
        db.script(migration.sql)
        db.execute(
            "INSERT INTO schema_version VALUES (?, ?, ?)",
            (migration.version, migration.name, time.time_ns() // 1000),
        )
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


@contextmanager
def _transaction(db: SchemaConnection) -> Iterator[None]:
    db.begin()
    try:
        yield
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")
