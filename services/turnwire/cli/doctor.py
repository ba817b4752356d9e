"""What could be wrong with this installation, found before somebody runs into it, each with a way out."""

from __future__ import annotations

import platform
import shutil
import socket
import sqlite3
import subprocess
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from importlib import metadata
from pathlib import Path

from rich.console import Console
from rich.text import Text

from turnwire.cli.connect import Connection
from turnwire.cli.exit_codes import ExitCode
from turnwire.cli.processes import service_command
from turnwire.core.version import version
from turnwire_client import TurnwireError

__all__ = ["Finding", "Grade", "doctor", "findings"]

PORTS = {"runtime": 50051, "control": 50052, "executor": 50053}
_KEYS = {"OPENAI_API_KEY": "openai", "ANTHROPIC_API_KEY": "anthropic", "GEMINI_API_KEY": "gemini"}
# Releases that were removed for sending credentials away.
_STOLEN_KEYS = {"1.82.7", "1.82.8"}
_PACKAGES = ("grpcio", "protobuf", "pydantic", "aiohttp", "uvloop")


class Grade(Enum):
    """How a finding is meant."""

    GOOD = "ok"
    NOTE = "note"
    BAD = "wrong"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at; `way_out` says what to do when it is not good."""

    grade: Grade
    subject: str
    text: str
    way_out: str = ""


def doctor(connection: Connection, data: Path, environment: Mapping[str, str]) -> ExitCode:
    """Print every finding; the exit code tells whether anything is wrong."""
    console = Console(soft_wrap=True, highlight=False)
    styles = {Grade.GOOD: "green", Grade.NOTE: "yellow", Grade.BAD: "bold red"}
    worst = ExitCode.OK
    for finding in findings(connection, data, environment):
        mark = Text(f"{finding.grade.value:<6}", style=styles[finding.grade])
        console.print(mark + Text(f"{finding.subject}: {finding.text}"))
        if finding.way_out:
            console.print(Text(f"      {finding.way_out}", style="dim"))
        if finding.grade is Grade.BAD:
            worst = ExitCode.CHECK_FAILED
    return worst


def findings(connection: Connection, data: Path, environment: Mapping[str, str]) -> Iterator[Finding]:
    """Look at everything, one finding at a time."""
    yield from _versions()
    yield _litellm()
    with ThreadPoolExecutor(len(PORTS)) as pool:
        yield from pool.map(lambda name: _settings(name, environment), PORTS)
    yield from _data(data)
    yield _server(connection)
    for name, port in PORTS.items():
        yield _port(name, port)
    yield from _keys(environment)


def _versions() -> Iterator[Finding]:
    python, sqlite = platform.python_version(), sqlite3.sqlite_version
    yield Finding(Grade.GOOD, "versions", f"turnwire {version()}, Python {python}, SQLite {sqlite}")
    for package in _PACKAGES:
        try:
            yield Finding(Grade.GOOD, "versions", f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            yield Finding(
                Grade.NOTE, "versions", f"{package} is not installed", "pip install 'turnwire[all]' brings it"
            )


def _litellm() -> Finding:
    try:
        found = metadata.version("litellm")
    except metadata.PackageNotFoundError:
        return Finding(Grade.GOOD, "litellm", "not installed, and not needed")
    if found in _STOLEN_KEYS:
        return Finding(
            Grade.BAD,
            "litellm",
            f"{found} is malicious: it sends keys away",
            "uninstall it, rotate every key this machine knew, and use 1.82.9 or later",
        )
    return Finding(Grade.GOOD, "litellm", f"{found} is none of the malicious releases")


def _settings(name: str, environment: Mapping[str, str]) -> Finding:
    try:
        done = subprocess.run(
            [*service_command(name), "check-config"],
            env=dict(environment),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding(
            Grade.BAD, f"{name} settings", f"cannot be checked: {error}", "install turnwire[server]"
        )
    if done.returncode == 0:
        return Finding(Grade.GOOD, f"{name} settings", "fit together")
    last = done.stderr.strip().splitlines()[-3:] or ["no reason was given"]
    return Finding(
        Grade.BAD, f"{name} settings", " ".join(last), f"correct the TURNWIRE_{name.upper()}_ variables"
    )


def _data(data: Path) -> Iterator[Finding]:
    if not data.exists():
        yield Finding(Grade.NOTE, "data", f"{data} does not exist yet", "`turnwire up` makes it")
        return
    free = shutil.disk_usage(data).free // 2**20
    probe = data / ".turnwire-doctor"
    try:
        probe.touch()
        probe.unlink()
    except OSError as error:
        yield Finding(
            Grade.BAD,
            "data",
            f"{data} cannot be written: {error.strerror}",
            "change its owner, or use --data",
        )
        return
    if free < 512:
        yield Finding(Grade.NOTE, "data", f"{data} has {free} MiB left", "free some space: stores grow")
    else:
        yield Finding(Grade.GOOD, "data", f"{data} can be written, {free} MiB are free")


def _server(connection: Connection) -> Finding:
    try:
        with connection.open(connect_time=0.0) as client:
            info = client.server_info()
    except TurnwireError as error:
        return Finding(
            Grade.NOTE, "server", f"{connection.target}: {error.reason}", "start it with `turnwire up`"
        )
    if info.version != version():
        return Finding(
            Grade.NOTE,
            "server",
            f"{connection.target} is turnwire {info.version}, this program {version()}",
            "newer clients may ask for what an older server does not serve",
        )
    return Finding(Grade.GOOD, "server", f"{connection.target} is turnwire {info.version}")


def _port(name: str, port: int) -> Finding:
    subject = f"port {port}"
    with socket.socket() as probe:
        probe.settimeout(1.0)
        if probe.connect_ex(("127.0.0.1", port)) != 0:
            return Finding(Grade.GOOD, subject, f"free for the {name}")
    if _speaks_grpc(port):
        return Finding(Grade.GOOD, subject, f"a gRPC server listens, most likely the {name}")
    return Finding(
        Grade.BAD, subject, "another program listens", f"end it, or give `turnwire up` another --{name}-port"
    )


def _speaks_grpc(port: int) -> bool:
    from turnwire_client import Client, Patience, Unavailable

    with Client(f"127.0.0.1:{port}", patience=Patience(connect_time=0.0)) as client:
        try:
            client.server_info()
        except Unavailable:
            return False
        except TurnwireError:
            # The control service and the executor do not have that method, and say so.
            return True
    return True


def _keys(environment: Mapping[str, str]) -> Iterator[Finding]:
    present = [name for name in _KEYS if environment.get(name)]
    for name in present:
        yield Finding(Grade.GOOD, "keys", f"{name} is set: {_KEYS[name]}: models work from here")
        if environment[name] != environment[name].strip():
            yield Finding(Grade.BAD, "keys", f"{name} has spaces around it", "set it again without them")
    if not present:
        yield Finding(
            Grade.NOTE,
            "keys",
            "no provider's key is set: only the agent `demo` works",
            f"set {' or '.join(_KEYS)}",
        )
