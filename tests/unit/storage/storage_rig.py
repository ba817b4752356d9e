"""A writer over a real file, with every handle that a test wants to turn."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from turnwire.storage.checkpoint import Checkpointer
from turnwire.storage.committer import SqliteCommitter
from turnwire.storage.sqlite import connect
from turnwire.storage.stats import WriterStats
from turnwire.storage.units import Statement, Unit
from turnwire.storage.writer import GroupCommitWriter

SCHEMA = (
    "CREATE TABLE heads (key TEXT PRIMARY KEY, next INTEGER NOT NULL)",
    "CREATE TABLE entries (id INTEGER PRIMARY KEY, key TEXT NOT NULL, number INTEGER NOT NULL,"
    " body TEXT NOT NULL, UNIQUE (key, number))",
)
INSERT = "INSERT INTO entries (key, number, body) VALUES (?, ?, ?)"
ADVANCE = "UPDATE heads SET next = ? WHERE key = ? AND next = ?"


def create(path: Path, keys: Sequence[str] = ()) -> None:
    if path.exists():
        return
    db = connect(path, synchronous="NORMAL")
    db.execute("BEGIN")
    for statement in SCHEMA:
        db.execute(statement)
    db.executemany("INSERT INTO heads VALUES (?, 1)", [(key,) for key in keys])
    db.execute("COMMIT")
    db.close()


def insert(key: str, number: int, body: str | None = "body") -> Statement:
    return Statement(INSERT, (key, number, body))


def advance(key: str, number: int) -> Statement:
    return Statement(ADVANCE, (number + 1, key, number), expect=1)


def entries(path: Path) -> list[tuple[str, int]]:
    """Everything stored, in the order in which it was written."""
    db = connect(path, read_only=True)
    try:
        return db.execute("SELECT key, number FROM entries ORDER BY id").fetchall()
    finally:
        db.close()


class Rig:
    """Collects what the writer says about itself."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.connections: list[sqlite3.Connection] = []
        self.health: list[bool] = []
        self.fatal: list[BaseException] = []
        self.died = asyncio.Event()
        self.sick = asyncio.Event()
        self.well = asyncio.Event()
        self.stats = WriterStats()
        self.writer: GroupCommitWriter

    def open(self) -> sqlite3.Connection:
        db = connect(self.path, synchronous="NORMAL", busy_timeout=0.01)
        self.connections.append(db)
        return db

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
    path: Path,
    *,
    keys: Sequence[str] = (),
    retry_for: float = 30.0,
    spacing: float = 0.0,
    wrap: Callable[[SqliteCommitter], SqliteCommitter] = lambda committer: committer,
    prepare: Callable[[GroupCommitWriter], None] = lambda writer: None,
    checkpointer: Callable[[Rig], Checkpointer | None] = lambda rig: None,
    **limits: float,
) -> AsyncIterator[Rig]:
    """Run a writer over a new file until the block ends; everything waits at most 30 s."""
    create(path, keys)
    rig = Rig(path)
    checkpoints = checkpointer(rig)
    committer = SqliteCommitter(
        rig.open,
        retry_for=retry_for,
        stats=rig.stats,
        checkpointer=checkpoints,
        on_health=lambda healthy: rig.writer.report_health(healthy),
    )
    rig.writer = GroupCommitWriter(
        wrap(committer),
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
