"""A real PostgreSQL server for the session, started when a test first wants it, and databases on it.

`store_location` runs a test on both engines; `open_store(store_location)` and `database_at(...)` take what it
gives. `postgres` is the server itself: fresh databases, kill and start again.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

__all__ = [
    "Location",
    "PostgresServer",
    "engine",
    "fresh_location",
    "plain_connection",
    "postgres",
    "store_location",
]

Location = Path | str

USER, PASSWORD = "turnwire", "s3cret-word"
_SETTINGS = {
    "max_connections": "200",
    # The server crashes in tests, the machine does not: what it has written is there without a sync too, and
    # a database of its own for each test costs a tenth.
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "32MB",
    "max_wal_size": "256MB",
    "autovacuum_naptime": "600",
    "deadlock_timeout": "200ms",
    "logging_collector": "off",
}


def binaries() -> Path | None:
    """Return the folder of the newest server that is installed."""
    folders = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]), reverse=True
    )
    if folders:
        return folders[0].parent
    found = shutil.which("initdb")
    return Path(found).resolve().parent if found else None


class PostgresServer:
    """A server of its own in a folder of its own; ends with this process, however that ends."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        found = binaries()
        assert found is not None
        self._bin = found
        # The server refuses to run as root. A program changes the user, not the child of a fork: in a process
        # that has spoken gRPC a fork runs its handlers, and may die of them.
        self._as: tuple[str, ...] = ()
        if os.geteuid() == 0:
            self._as = ("setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups")
            shutil.chown(folder, "postgres", "postgres")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self._count = itertools.count(1)
        self._templates: dict[str, str] = {}
        self._process: subprocess.Popen[bytes] | None = None

    def create(self) -> None:
        """Make the cluster and start it."""
        password = self._folder / "password"
        password.write_text(PASSWORD)
        if self._as:
            shutil.chown(password, "postgres", "postgres")
        subprocess.run(
            [
                *self._as,
                self._bin / "initdb",
                *("-D", self._folder / "data", "-U", USER, "-E", "UTF8", "--locale=C.UTF-8"),
                *("--auth-local=trust", "--auth-host=scram-sha-256", f"--pwfile={password}", "--no-sync"),
            ],
            check=True,
            capture_output=True,
            cwd="/",
        )
        self.start()

    def start(self) -> None:
        """Start the server and wait until it answers."""
        log = (self._folder / "log").open("ab")
        settings = [part for name, value in _SETTINGS.items() for part in ("-c", f"{name}={value}")]
        self._process = subprocess.Popen(
            [
                *self._as,
                *("sh", "-c", '"$@" & read _; kill -QUIT $!', "sh"),
                *(self._bin / "postgres", "-D", self._folder / "data", "-k", self._folder),
                *("-p", str(self.port), "-h", "127.0.0.1", *settings),
            ],
            stdin=subprocess.PIPE,  # closed when this process ends, however it ends
            stdout=log,
            stderr=log,
            cwd="/",
        )
        log.close()
        deadline = time.monotonic() + 60
        while not self._answers():
            assert self._process.poll() is None, (self._folder / "log").read_text()[-2000:]
            assert time.monotonic() < deadline, "the server does not answer"
            time.sleep(0.02)  # the start of a foreign process has no event to wait for

    def _answers(self) -> bool:
        command = [self._bin / "pg_isready", "-q", "-h", self._folder, "-p", str(self.port), "-d", "postgres"]
        return subprocess.run(command, check=False).returncode == 0

    def stop(self) -> None:
        """Stop the server like a crash: nothing is finished, nothing is written out."""
        assert self._process is not None
        pid = int((self._folder / "data" / "postmaster.pid").read_text().split()[0])
        os.kill(pid, signal.SIGQUIT)
        while self._alive(pid):
            time.sleep(0.01)  # it is no child of this process
        self._process.kill()
        self._process.communicate()
        self._process = None

    @staticmethod
    def _alive(pid: int) -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
        except FileNotFoundError:
            return False

    def restart(self) -> None:
        """Crash and recover."""
        self.stop()
        self.start()

    def url(self, database: str) -> str:
        """Return the address of a database over the local socket, where everyone is trusted."""
        return f"postgresql://{USER}@/{database}?host={self._folder}&port={self.port}"

    def tcp_url(self, database: str, password: str = PASSWORD) -> str:
        """Return the address of a database over TCP, with a password."""
        return f"postgresql://{USER}:{password}@127.0.0.1:{self.port}/{database}"

    def sql(self, *statements: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run statements in autocommit mode and return the rows of the last."""
        import psycopg

        with psycopg.connect(self.url(database), autocommit=True) as db:
            cursor = db.cursor()
            for statement in statements:
                cursor.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def fresh(self, package: str = "") -> str:
        """Make a database, with the schema of a package if one is named, and return its address."""
        name = f"t{next(self._count)}"
        template = self._template(package) if package else "template0"
        self.sql(f"CREATE DATABASE {name} TEMPLATE {template} ENCODING 'UTF8'")
        return self.url(name)

    def drop(self, url: str) -> None:
        """Remove a database, whoever still uses it."""
        name = url.partition("@/")[2].partition("?")[0]
        self.sql(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def _template(self, package: str) -> str:
        if package not in self._templates:
            from turnwire.storage.migrate import load_migrations, migrate
            from turnwire.storage.postgres import connect

            name = package.replace(".", "_")
            self.sql(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8'")
            db = connect(self.url(name))
            migrate(db, load_migrations(package, "postgresql"))
            # Each database made from this one is a store of its own, so it finds its own identity.
            db.execute("DELETE FROM store_info")
            db.close()
            self._templates[package] = name
        return self._templates[package]


def plain_connection(location: Location) -> Any:
    """Return a connection to a store from beside, for looking: `execute` with `?` places, and `close`."""
    if isinstance(location, Path):
        from turnwire.storage import sqlite

        return sqlite.connect(location, read_only=True)
    from turnwire.storage import postgres as engine

    return engine.connect(location, read_only=True)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """The server of this session; a test that wants it is skipped where none is installed."""
    if binaries() is None:
        text = "PostgreSQL is not installed (apt-get install postgresql)"
        if os.environ.get("TURNWIRE_TEST_NO_SKIP") == "1":
            pytest.fail(f"{text}, and TURNWIRE_TEST_NO_SKIP=1 forbids the skip")
        pytest.skip(text)
    folder = Path(tempfile.mkdtemp(prefix="turnwire-pg-"))
    server = PostgresServer(folder)
    try:
        server.create()
        yield server
    finally:
        if server._process is not None:
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=["sqlite", "postgresql"])
def engine(request: pytest.FixtureRequest) -> str:
    """Each engine in turn."""
    name: str = request.param
    return name


@pytest.fixture
def fresh_location(
    engine: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Location]]:
    """Makes places for new stores of the runtime, on each engine in turn; for tests that need many."""
    made: list[str] = []
    server: PostgresServer | None = None

    def fresh(package: str = "turnwire.runtime") -> Location:
        nonlocal server
        if engine == "sqlite":
            return tmp_path_factory.mktemp("store") / "store.db"
        server = server or request.getfixturevalue("postgres")
        made.append(server.fresh(package))
        return made[-1]

    if engine == "postgresql":
        server = request.getfixturevalue("postgres")
    yield fresh
    for url in made:
        assert server is not None
        server.drop(url)


@pytest.fixture
def store_location(fresh_location: Callable[..., Location]) -> Location:
    """A place for a new store of the runtime, on each engine in turn."""
    return fresh_location()
