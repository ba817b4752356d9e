"""Where a service may be made to die: at the commits of its store, named by what they make durable.

Lives in the process under test, but outside the product: entry points of the tests put it around the
committer. A plan comes through a small shared file, so that a process that has run for long can still be
given one; what the process has committed last stands in the same file and survives it.
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from turnwire.api.runtime.v1 import turn_event_pb2 as event_pb
from turnwire.api.runtime.v1.turn_service_pb2 import RunTurnResponse
from turnwire.storage.committer import Item, Outcome
from turnwire.storage.units import Connection, Rows, SqlValue, Unit

__all__ = [
    "FAULT_FILE",
    "Classify",
    "Fault",
    "FaultFile",
    "Faults",
    "control_points",
    "executor_points",
    "install",
    "runtime_points",
]

FAULT_FILE = "TURNWIRE_TEST_FAULT_FILE"
_PLAN, _STATE = slice(0, 1024), slice(1024, 2048)
_SIZE = 2048


@dataclass(frozen=True, slots=True)
class Fault:
    """What is to happen at the `count`-th commit that holds `point`.

    Args:
        point: C0 to C8 at the runtime, X1 to X3 at the executor, K1 and K2 at control.
        when: `before` and `after` the commit the process dies; `lost` reports a good commit as failed.
        number: of the plan, so that the same plan can be given twice.
    """

    point: str
    when: str
    count: int = 1
    number: int = 0


class FaultFile:
    """The shared file: one side writes plans, the other what it does. `reset` makes it anew."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def reset(self) -> None:
        """Make the file, without a plan."""
        self.path.write_bytes(b"\0" * _SIZE)
        self.open()

    def open(self) -> None:
        """Map the file."""
        with self.path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _SIZE)

    def _write(self, part: slice, value: object) -> None:
        # The mark comes last in the text: a reader that meets half of it sees none.
        text = b"" if value is None else json.dumps(value).encode() + b"\x01"
        self._map[part] = text.ljust(part.stop - part.start, b"\0")

    def _read(self, part: slice) -> Any:
        text, mark, _ = self._map[part].partition(b"\x01")
        return json.loads(text) if mark else None

    @property
    def plan(self) -> Fault | None:
        """The plan in force."""
        told = self._read(_PLAN)
        return None if told is None else Fault(**told)

    @plan.setter
    def plan(self, fault: Fault | None) -> None:
        self._write(_PLAN, None if fault is None else asdict(fault))

    @property
    def state(self) -> dict[str, Any]:
        """`points` of the last commit, and `lost`: how many were told as failed."""
        return self._read(_STATE) or {}

    @state.setter
    def state(self, value: dict[str, Any]) -> None:
        self._write(_STATE, value)


Classify = Callable[[str, Sequence[SqlValue]], Iterable[str]]

_RUNTIME_POINTS = {
    "turn_accepted": "C0",
    "turn_started": "C1",
    "turn_resumed": "C1",
    "step_started": "C2",
    "llm": "C2",
    "step_reset": "C2",
    "step_committed": "C3",
    "tool_call_started": "C4",
    "tool_call_finished": "C6",
    "step_settled": "C7",
    "turn_suspended": "C8",
    "turn_finished": "C8",
}


def runtime_points(sql: str, params: Sequence[SqlValue]) -> Iterable[str]:
    """Name what a statement makes durable by the events in the page that it writes."""
    if not sql.startswith("INSERT INTO pages"):
        return ()
    page = RunTurnResponse.FromString(next(p for p in params if isinstance(p, bytes)))
    return {_RUNTIME_POINTS.get(_arm(event), "") for event in page.events} - {""}


def _arm(event: event_pb.TurnEvent) -> str:
    return str(event.WhichOneof("event"))


def executor_points(sql: str, params: Sequence[SqlValue]) -> Iterable[str]:
    """X1 a call waits, X2 it starts, X3 it has its end."""
    if sql.startswith("INSERT INTO execution "):
        return ("X2",) if "started" in params else ("X1",)
    return ("X3",) if sql.startswith("UPDATE execution SET state") else ()


def control_points(sql: str, params: Sequence[SqlValue]) -> Iterable[str]:
    """K1 a command is taken, K2 it is delivered or has its outcome."""
    if sql.startswith("INSERT OR IGNORE INTO commands"):
        return ("K1",)
    return ("K2",) if sql.startswith("UPDATE command") else ()


class Faults:
    """Counts the points of each commit and carries the plan out."""

    def __init__(self, file: FaultFile, classify: Classify) -> None:
        self._file = file
        self._classify = classify
        self._seen = 0
        self._number = 0
        self._lost = 0
        self._points: set[str] = set()

    def begin(self, items: Sequence[Item]) -> None:
        """Look at a group before its transaction."""
        self._points = set()
        for item in items:
            if isinstance(item, Unit):
                for statement in item.statements:
                    self.statement(statement.sql, statement.params)
            elif not isinstance(getattr(item.fn, "__self__", None), _Watched):
                item.fn = _Watched(item.fn, self).run

    def statement(self, sql: str, params: Sequence[SqlValue]) -> None:
        """Look at one statement, before it is run."""
        new = set(self._classify(sql, params)) - self._points
        self._points |= new
        for point in new:
            self._count(point)
            self._die_if("before", point)

    def committed(self) -> None:
        """Note a transaction that is durable."""
        if not self._points:
            return
        self._file.state = {"points": sorted(self._points), "lost": self._lost}
        for point in self._points:
            self._die_if("after", point)

    def lose(self) -> bool:
        """Tell whether this commit is to be reported as failed; once a plan."""
        plan = self._file.plan
        if plan is None or plan.when != "lost" or not self._due(plan, self._points):
            return False
        self._lost += 1
        self._file.plan = None
        return True

    def _count(self, point: str) -> None:
        plan = self._file.plan
        if plan is not None and plan.number != self._number:
            self._number, self._seen = plan.number, 0
        if plan is not None and plan.point == point:
            self._seen += 1

    def _due(self, plan: Fault, points: Iterable[str]) -> bool:
        return plan.number == self._number and plan.point in points and self._seen >= plan.count

    def _die_if(self, when: str, point: str) -> None:
        plan = self._file.plan
        if plan is None or plan.when != when or not self._due(plan, (point,)):
            return
        self._file.state = {"points": sorted(self._points)}
        os.kill(os.getpid(), signal.SIGKILL)


class _Watched:
    """A function of a group, with a connection that shows its statements."""

    def __init__(self, fn: Callable[[Connection], Any], faults: Faults) -> None:
        self._fn = fn
        self._faults = faults

    def run(self, db: Connection) -> Any:
        return self._fn(_WatchedConnection(db, self._faults))


class _WatchedConnection:
    def __init__(self, db: Connection, faults: Faults) -> None:
        self._db = db
        self._faults = faults

    def execute(self, sql: str, params: Sequence[SqlValue] = (), /) -> Rows:
        self._faults.statement(sql, params)
        return self._db.execute(sql, params)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)


def install(classify: Classify) -> None:
    """Have the stores of this process carry out the plans of the file that the environment names."""
    import turnwire.storage.postgres_database as postgres
    import turnwire.storage.sqlite_database as sqlite

    file = FaultFile(Path(os.environ[FAULT_FILE]))
    file.open()
    faults = Faults(file, classify)
    sqlite.SqliteCommitter = _faulty(sqlite.SqliteCommitter, faults, _losing_sqlite)  # type: ignore[misc]
    postgres.PgCommitter = _faulty(postgres.PgCommitter, faults, _losing_postgres)  # type: ignore[misc]


def _faulty(base: Any, faults: Faults, losing: Callable[[Any, Faults], None]) -> Any:
    class FaultyCommitter(base):  # type: ignore[misc]
        def open(self) -> None:
            super().open()
            losing(self, faults)

        def commit(self, items: Sequence[Item]) -> list[Outcome]:
            faults.begin(items)
            outcomes: list[Outcome] = super().commit(items)
            faults.committed()
            return outcomes

    return FaultyCommitter


def _losing_sqlite(committer: Any, faults: Faults) -> None:
    """Let the driver tell a good COMMIT as an I/O error."""
    cursor = committer._cursor

    class Losing:
        def execute(self, sql: str, *values: Any) -> Any:
            result = cursor.execute(sql, *values)
            if sql == "COMMIT" and faults.lose():
                error = sqlite3.OperationalError("disk I/O error")
                error.sqlite_errorcode = sqlite3.SQLITE_IOERR
                error.sqlite_errorname = "SQLITE_IOERR"
                raise error
            return result

        def __getattr__(self, name: str) -> Any:
            return getattr(cursor, name)

    committer._cursor = Losing()


def _losing_postgres(committer: Any, faults: Faults) -> None:
    """Let the connection break with the answer to a good COMMIT on its way."""
    import psycopg

    db = committer._db
    command = db.command

    def losing(text: str) -> Any:
        result = command(text)
        if text == "COMMIT" and faults.lose():
            db.close()
            raise psycopg.OperationalError("the connection is lost")
        return result

    db.command = losing
