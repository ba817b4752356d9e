"""PostgreSQL connections: every setting is made here, and every driver error is classed here.

Statements go through libpq's own calls, prepared by text. Nothing but this package loads the driver.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, TypeVar

import psycopg
from psycopg import errors, pq
from psycopg.adapt import Transformer
from psycopg.types.numeric import NumericBinaryLoader

from turnwire.storage.postgres_text import Encoded, encode_values, translate
from turnwire.storage.trouble import Trouble
from turnwire.storage.units import Connection, SqlValue

__all__ = ["TROUBLE", "PgConnection", "PgRows", "Sent", "StatementFailed", "connect", "describe"]

T = TypeVar("T")
# A statement that is ready to be sent: text, wire form of its values.
Sent = tuple[bytes, Encoded]
# What a prepared statement is known by: its text and the types of its values.
_Key = tuple[bytes, tuple[int, ...]]

# Prepared statements of a connection, from which all are dropped: callers' filters make ever new texts.
_MOST_PREPARED = 500
_CLOCK = b"SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
# What is set unless the URL says otherwise, so that a peer that is gone is noticed. A process that stands
# still must not hold rows for ever, nor wait for those of one that does.
_CONNECTION = {
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
    "application_name": "turnwire",
}
_OPTIONS = "-c lock_timeout=10s -c idle_in_transaction_session_timeout=30s -c client_min_messages=warning"
# Of the advisory lock under which one process at a time changes the schema of a database.
_SCHEMA_LOCK = 0x7475726E77697265
_BARE: Encoded = ((), [], [])


class PgRows:
    """What a statement gave, all of it."""

    __slots__ = ("_next", "_rows", "rowcount")

    def __init__(self, rows: list[tuple[Any, ...]], rowcount: int) -> None:
        self._rows = rows
        self._next = 0
        self.rowcount = rowcount

    def fetchone(self) -> Any:
        """Return the next row as a tuple, None after the last."""
        if self._next >= len(self._rows):
            return None
        self._next += 1
        return self._rows[self._next - 1]

    def fetchall(self) -> list[Any]:
        """Return the rows that are left."""
        rest = self._rows[self._next :] if self._next else self._rows
        self._next = len(self._rows)
        return rest

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the rows that are left."""
        return iter(self.fetchall())


class StatementFailed(Exception):
    """A statement failed in a pipeline, with the driver's error; `before` are the results before it."""

    def __init__(self, before: Sequence[pq.abc.PGresult], error: psycopg.Error) -> None:
        super().__init__(f"statement {len(before)} failed")
        self.index = len(before)
        self.before = before
        self.error = error


class _Numeric(NumericBinaryLoader):
    """Reads sums, which are numeric here, as the numbers they are elsewhere."""

    def load(self, data: Any) -> Any:
        value = super().load(data)
        return int(value) if value == value.to_integral_value() else float(value)


class PgConnection:
    """One connection, used by one thread at a time."""

    def __init__(self, db: psycopg.Connection[Any]) -> None:
        self._db = db
        self.pgconn = db.pgconn
        db.adapters.register_loader("numeric", _Numeric)
        self._transformer = Transformer(db)
        self._prepared: dict[_Key, bytes] = {}
        self._count = 0
        self._clock: int | None = None
        self._poll = select.poll()
        self._poll.register(self.pgconn.socket, select.POLLIN)

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open, also one that has failed."""
        return self.pgconn.transaction_status not in (pq.TransactionStatus.IDLE, pq.TransactionStatus.UNKNOWN)

    @property
    def backend_pid(self) -> int:
        """Number of the server's process for this connection."""
        return self.pgconn.backend_pid

    def close(self) -> None:
        """Close the connection; the server undoes what was not committed."""
        self._db.close()

    def execute(self, sql: str, params: Sequence[SqlValue] = (), /) -> PgRows:
        """Run one statement with `?` places."""
        text, count = translate(sql)
        return self._rows(self._run(text, encode_values(params, count)))

    def now_ns(self) -> int:
        """Return the server's clock in nanoseconds since 1970; the same until the transaction's next part."""
        if self._clock is None:
            self._clock = self._rows(self._run(_CLOCK, _BARE)).fetchone()[0] * 1000
        return self._clock

    def reclaim(self, pages: int = 500) -> int:
        """Return 0: the server's autovacuum sees to free pages."""
        return 0

    own_tables: ClassVar[Mapping[str, str]] = {
        # Of each writer the number of its last group: see postgres_committer.py.
        "writer_groups": "CREATE TABLE writer_groups (writer TEXT PRIMARY KEY, number BIGINT NOT NULL,"
        " commit_time TIMESTAMPTZ NOT NULL DEFAULT now())",
    }

    @contextmanager
    def schema_lock(self) -> Iterator[None]:
        """Let no other process change the schema meanwhile; waits for one that does."""
        self.execute("SELECT pg_advisory_lock(?)", (_SCHEMA_LOCK,))
        try:
            yield
        finally:
            if self.pgconn.status == pq.ConnStatus.OK and not self.in_transaction:
                self.execute("SELECT pg_advisory_unlock(?)", (_SCHEMA_LOCK,))

    def has_table(self, name: str) -> bool:
        """Say whether there is a table of this name."""
        return bool(self.execute("SELECT to_regclass(?) IS NOT NULL", (name,)).fetchone()[0])

    def begin(self) -> None:
        """Begin a transaction that will write."""
        self.command("BEGIN")
        self._clock = None

    def script(self, sql: str) -> None:
        """Begin a transaction and run many statements in it."""
        self.command(f"BEGIN;\n{sql}")
        self._clock = None

    def read(self, fn: Callable[[Connection], T], /) -> T:
        """Run `fn` in one read transaction and end it, whatever `fn` does."""
        self.tidy()
        try:
            self.part([(b"BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY", _BARE)])
            return fn(self)
        except StatementFailed as failed:
            raise failed.error from None
        finally:
            if self.in_transaction:
                self.command("ROLLBACK")

    def tidy(self) -> None:
        """Drop prepared statements when there are very many; outside of a transaction."""
        if len(self._prepared) > _MOST_PREPARED:
            self.command("DEALLOCATE ALL")
            self._prepared.clear()

    def part(self, statements: Sequence[Sent]) -> list[pq.abc.PGresult]:
        """Run statements that begin a part of a transaction: `now_ns` is then of this moment.

        Raises:
            StatementFailed: one failed, and those behind it did not run.
            psycopg.Error: the connection is lost.
        """
        results = self.pipeline([*statements, (_CLOCK, _BARE)])
        self._clock = self._rows(results.pop()).fetchone()[0] * 1000
        return results

    def pipeline(self, statements: Sequence[Sent]) -> list[pq.abc.PGresult]:
        """Send the statements without waiting for each other's results, and return the results.

        Raises:
            StatementFailed: one failed, and those behind it did not run.
            psycopg.Error: the connection is lost.
        """
        pgconn = self.pgconn
        pgconn.enter_pipeline_mode()
        try:
            preparing = self._send(statements)
            pgconn.pipeline_sync()
            results = self._receive()
        finally:
            if pgconn.status == pq.ConnStatus.OK:
                pgconn.exit_pipeline_mode()
        kept: list[pq.abc.PGresult] = []
        for result, prepared in zip(results, preparing, strict=True):
            if result.status in (pq.ExecStatus.FATAL_ERROR, pq.ExecStatus.PIPELINE_ABORTED):
                raise StatementFailed(kept, _error(result))
            if prepared is None:
                kept.append(result)
            else:
                key, name = prepared
                self._prepared[key] = name
        return kept

    def _send(self, statements: Sequence[Sent]) -> list[tuple[_Key, bytes] | None]:
        """Queue the statements; returns for each result to come what it prepares, None for a statement."""
        names: dict[_Key, bytes] = {}
        preparing: list[tuple[_Key, bytes] | None] = []
        for text, (types, values, formats) in statements:
            key = (text, types)
            name = self._prepared.get(key) or names.get(key)
            if name is None:
                name = names[key] = self._name()
                self.pgconn.send_prepare(name, text, types)
                preparing.append((key, name))
            self.pgconn.send_query_prepared(name, values, formats, 1)
            preparing.append(None)
        return preparing

    def _receive(self) -> list[pq.abc.PGresult]:
        """Read results up to the end of the pipeline; waits without holding the interpreter."""
        pgconn = self.pgconn
        results: list[pq.abc.PGresult] = []
        while True:
            unsent = pgconn.flush()
            while not pgconn.is_busy():
                result = pgconn.get_result()
                if pgconn.status == pq.ConnStatus.BAD:
                    raise _lost(result)
                if result is None:  # stands between the results of two statements
                    continue
                if result.status == pq.ExecStatus.PIPELINE_SYNC:
                    return results
                results.append(result)
            self._poll.modify(pgconn.socket, select.POLLIN | (select.POLLOUT if unsent else 0))
            self._poll.poll()
            pgconn.consume_input()

    def _run(self, text: bytes, encoded: Encoded) -> pq.abc.PGresult:
        types, values, formats = encoded
        key = (text, types)
        name = self._prepared.get(key)
        if name is None:
            name = self._name()
            self._check(self.pgconn.prepare(name, text, types))
            self._prepared[key] = name
        result = self.pgconn.exec_prepared(name, values, formats, 1)  # type: ignore[arg-type]  # None is NULL
        return self._check(result)

    def command(self, sql: str) -> pq.abc.PGresult:
        """Run statements without values, and return the result of the last."""
        return self._check(self.pgconn.exec_(sql.encode()))

    def _check(self, result: pq.abc.PGresult) -> pq.abc.PGresult:
        if result.status == pq.ExecStatus.FATAL_ERROR:
            raise (
                _lost(result) if self.pgconn.status == pq.ConnStatus.BAD else errors.error_from_result(result)
            )
        return result

    def _name(self) -> bytes:
        self._count += 1
        return b"tw%d" % self._count

    def _rows(self, result: pq.abc.PGresult) -> PgRows:
        count = result.ntuples
        if not count:
            return PgRows([], result.command_tuples or 0)
        self._transformer.set_pgresult(result)
        return PgRows(self._transformer.load_rows(0, count, tuple), result.command_tuples or 0)


def connect(url: str, *, read_only: bool = False, name: str = "") -> PgConnection:
    """Open one connection in autocommit mode: transactions are begun and ended by hand.

    Args:
        url: `postgresql://...`, or anything else that libpq takes.
        read_only: refuse every write.
        name: what the server shows of the connection (application_name).

    Raises:
        psycopg.Error: it could not be opened; the text may name user, host and database, never the password.
    """
    given = psycopg.conninfo.conninfo_to_dict(url)
    settings: dict[str, Any] = {key: value for key, value in _CONNECTION.items() if key not in given}
    if name:
        settings["application_name"] = name
    options = f"{_OPTIONS} -c default_transaction_read_only=on" if read_only else _OPTIONS
    settings["options"] = f"{options} {given.get('options') or ''}".strip()
    return PgConnection(psycopg.connect(url, autocommit=True, **settings))


def _error(result: pq.abc.PGresult) -> psycopg.Error:
    """Return the driver's error without the details, which quote rows, and so what people wrote."""
    found = errors.error_from_result(result)
    text = (result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or b"").decode("utf-8", "replace")
    if (found.sqlstate or "").startswith("22"):
        text = "a value does not fit"  # these quote it in their first line
    error = type(found)(text)
    error.sqlstate = found.sqlstate
    return error


def _lost(result: pq.abc.PGresult | None = None) -> psycopg.OperationalError:
    state = b"" if result is None else result.error_field(pq.DiagnosticField.SQLSTATE) or b""
    error = psycopg.OperationalError("the connection is lost")
    error.sqlstate = state.decode() or "08006"
    return error


# Class or code of the server's errors that pass: connection, resources, operator's doing, system, conflicts,
# locks, a server that only reads, a statement that a pooler in between has forgotten.
_TRANSIENT = ("08", "53", "57", "58", "40", "55P03", "25006", "25P03", "26000")
_RECONNECT = ("08", "57", "58", "25006", "25P03", "26000")
_CORRUPTION = ("XX001", "XX002")
_DRIVER_ONLY = (psycopg.OperationalError, psycopg.InterfaceError)


def _state(error: BaseException) -> str:
    """Return the server's code; the one of a lost connection where the driver alone is to blame."""
    if not isinstance(error, psycopg.Error):
        return ""
    if error.sqlstate is None and isinstance(error, _DRIVER_ONLY):
        return "08006"
    return error.sqlstate or ""


def is_transient(error: BaseException) -> bool:
    """Say whether the same transaction may succeed later: connection, disk full, conflict, memory."""
    return isinstance(error, MemoryError) or _state(error).startswith(_TRANSIENT)


def is_corruption(error: BaseException) -> bool:
    """Say whether the server found its files damaged."""
    return _state(error) in _CORRUPTION


def wants_reconnect(error: BaseException) -> bool:
    """Say whether the connection may be the broken part, so that a retry should open a new one."""
    return _state(error).startswith(_RECONNECT)


def describe(error: BaseException) -> str:
    """Name a driver error without its text, which may quote values."""
    state = _state(error)
    return f"{type(error).__name__} ({state})" if state else type(error).__name__


TROUBLE = Trouble(
    lambda error: isinstance(error, psycopg.Error), is_transient, is_corruption, wants_reconnect, describe
)
