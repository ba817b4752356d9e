"""A writer over a real file or a real server, with every handle that a test wants to turn."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from turnwire.storage import postgres, sqlite
from turnwire.storage.checkpoint import Checkpointer
from turnwire.storage.committer import SqliteCommitter
from turnwire.storage.isolation import IsolatingCommitter, Item, Outcome
from turnwire.storage.postgres_committer import PgCommitter
from turnwire.storage.stats import WriterStats
from turnwire.storage.units import Statement, Unit
from turnwire.storage.worker import Committer
from turnwire.storage.writer import GroupCommitWriter

# A file, or the address of a PostgreSQL database.
Place = Path | str

SCHEMA = (
    "CREATE TABLE heads (key TEXT PRIMARY KEY, next INTEGER NOT NULL)",
    "CREATE TABLE entries (id INTEGER PRIMARY KEY, key TEXT NOT NULL, number INTEGER NOT NULL,"
    " body TEXT NOT NULL, UNIQUE (key, number))",
)
POSTGRES_SCHEMA = (
    *postgres.PgConnection.own_tables.values(),
    "CREATE TABLE heads (key TEXT PRIMARY KEY, next BIGINT NOT NULL)",
    "CREATE TABLE entries (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, key TEXT NOT NULL,"
    " number BIGINT NOT NULL, body TEXT NOT NULL, UNIQUE (key, number))",
)
INSERT = "INSERT INTO entries (key, number, body) VALUES (?, ?, ?)"
ADVANCE = "UPDATE heads SET next = ? WHERE key = ? AND next = ?"


def create(place: Place, keys: Sequence[str] = ()) -> None:
    if isinstance(place, Path) and place.exists():
        return
    db = connection(place)
    db.begin()
    for statement in SCHEMA if isinstance(place, Path) else POSTGRES_SCHEMA:
        db.execute(statement)
    for key in keys:
        db.execute("INSERT INTO heads VALUES (?, 1)", (key,))
    db.execute("COMMIT")
    db.close()


def connection(place: Place, *, read_only: bool = False) -> Any:
    if isinstance(place, Path):
        return sqlite.connect(place, synchronous="NORMAL", read_only=read_only)
    return postgres.connect(place, read_only=read_only)


def insert(key: str, number: int, body: str | None = "body") -> Statement:
    return Statement(INSERT, (key, number, body))


def advance(key: str, number: int) -> Statement:
    return Statement(ADVANCE, (number + 1, key, number), expect=1)


def entries(place: Place) -> list[tuple[str, int]]:
    """Everything stored, in the order in which it was written."""
    db = connection(place, read_only=True)
    try:
        rows: list[tuple[str, int]] = db.execute("SELECT key, number FROM entries ORDER BY id").fetchall()
        return rows
    finally:
        db.close()


class Gate:
    """A committer that waits inside each commit until it is let go."""

    def __init__(self, inner: Committer) -> None:
        self._inner = inner
        self.open, self.close, self.between_groups = inner.open, inner.close, inner.between_groups
        self.entered = threading.Semaphore(0)
        self.go = threading.Semaphore(0)
        self.groups: list[int] = []

    def commit(self, items: Sequence[Item]) -> list[Outcome]:
        self.groups.append(len(items))
        self.entered.release()
        self.go.acquire()
        return self._inner.commit(items)

    async def reached(self) -> None:
        await asyncio.to_thread(self.entered.acquire)


class Rig:
    """Collects what the writer says about itself."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.connections: list[Any] = []
        self.health: list[bool] = []
        self.fatal: list[BaseException] = []
        self.died = asyncio.Event()
        self.sick = asyncio.Event()
        self.well = asyncio.Event()
        self.stats = WriterStats()
        self.writer: GroupCommitWriter

    def open(self, name: str = "") -> Any:
        if isinstance(self.place, Path):
            db: Any = sqlite.connect(self.place, synchronous="NORMAL", busy_timeout=0.01)
        else:
            db = postgres.connect(self.place, name=name)
        self.connections.append(db)
        return db

    def committer(self, retry_for: float, checkpointer: Checkpointer | None) -> IsolatingCommitter:
        def on_health(healthy: bool) -> None:
            self.writer.report_health(healthy)

        if isinstance(self.place, Path):
            return SqliteCommitter(
                self.open,
                retry_for=retry_for,
                stats=self.stats,
                checkpointer=checkpointer,
                on_health=on_health,
            )
        return PgCommitter(self.open, retry_for=retry_for, stats=self.stats, on_health=on_health)

    def on_fatal(self, error: BaseException) -> None:
        self.fatal.append(error)
        self.died.set()

    def on_health(self, healthy: bool) -> None:
        self.health.append(healthy)
        (self.well if healthy else self.sick).set()

    def unit(
        self, key: str, *statements: Statement, urgent: bool = True, size: int = 0
    ) -> asyncio.Future[None]:
        """Submit a unit; the future is its outcome."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(error: BaseException | None) -> None:
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

        self.writer.submit(Unit(key, list(statements), urgent, done, size))
        return future


@asynccontextmanager
async def running(
    place: Place,
    *,
    keys: Sequence[str] = (),
    retry_for: float = 30.0,
    spacing: float = 0.0,
    wrap: Callable[[Any], Committer] = lambda committer: committer,
    prepare: Callable[[GroupCommitWriter], None] = lambda writer: None,
    checkpointer: Callable[[Rig], Checkpointer | None] = lambda rig: None,
    **limits: float,
) -> AsyncIterator[Rig]:
    """Run a writer over a new store until the block ends; everything waits at most 30 s."""
    create(place, keys)
    rig = Rig(place)
    checkpoints = checkpointer(rig)
    rig.writer = GroupCommitWriter(
        wrap(rig.committer(retry_for, checkpoints)),
        on_fatal=rig.on_fatal,
        on_health=rig.on_health,
        stats=rig.stats,
        spacing=spacing,
        **limits,  # type: ignore[arg-type]
    )
    prepare(rig.writer)
    async with asyncio.timeout(30):
        await rig.writer.start()
        if checkpoints is not None:
            checkpoints.start()
        try:
            yield rig
        finally:
            await rig.writer.stop()
            if checkpoints is not None:
                await asyncio.to_thread(checkpoints.stop)


class Gathering:
    """A source that numbers what it is given and hands it all over when asked."""

    def __init__(self, rig: Rig, key: str) -> None:
        self.key = key
        self.rig = rig
        self.number = 0
        self.gathered: list[int] = []
        self.committed: list[int] = []
        self.refused: list[Exception] = []
        self.units = 0
        self.taken_at: list[float] = []
        self.failed: list[BaseException] = []
        self.settled = asyncio.Event()

    def add(self, urgent: bool = False, size: int = 0) -> None:
        self.number += 1
        self.gathered.append(self.number)
        self.settled.clear()
        self.rig.writer.mark(self, urgent, size)

    def take(self) -> Unit | None:
        if not self.gathered:
            return None
        numbers, self.gathered = self.gathered, []
        self.units += 1
        self.taken_at.append(asyncio.get_running_loop().time())
        return Unit(self.key, [insert(self.key, n) for n in numbers], False, partial(self._done, numbers))

    def refuse(self, error: Exception) -> None:
        self.refused.append(error)
        self.settled.set()

    def _done(self, numbers: list[int], error: BaseException | None) -> None:
        if error is None:
            self.committed += numbers
        else:
            self.failed.append(error)
        if not self.gathered:
            self.settled.set()
