"""Processes of a benchmark: each has a folder for its log and is gone, with all its children, afterwards."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.meter import tree

READY_SECONDS = 30.0
LOOK_SECONDS = 0.01


class NotReady(Exception):
    """A process ended, or did not say in time that it serves."""


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on just now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def script(name: str) -> list[str]:
    """The command of an installed console script of this environment."""
    return [str(Path(sys.executable).parent / name)]


def module(name: str) -> list[str]:
    """The command that runs a module of this repository."""
    return [sys.executable, "-m", name]


class Process:
    """A serving process on a port of 127.0.0.1; what it prints goes to FOLDER/NAME.log."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.port = free_port()
        self.folder = folder
        self.log = folder / f"{name}.log"
        self._ready_file = folder / f"{name}.ready"
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The id of the root process."""
        assert self._child is not None, "not started"
        return self._child.pid

    @property
    def target(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self.port}"

    async def start(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """Start it with its port and ready file as options, and wait until it serves.

        Raises:
            NotReady: it ended, or 30 s passed.
        """
        root = Path(__file__).resolve().parents[1]
        paths = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH", "")]))
        with self.log.open("wb") as log:
            self._child = subprocess.Popen(
                [*command, "--port", str(self.port), "--ready-file", str(self._ready_file)],
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env={**os.environ, "PYTHONPATH": paths, **(environment or {})},
                start_new_session=True,
            )
        end = time.monotonic() + READY_SECONDS
        while not self._ready_file.exists():
            if self._child.poll() is not None or time.monotonic() > end:
                tail = self.log.read_text(errors="replace")[-2000:]
                raise NotReady(f"{self.name}: exit status {self._child.poll()}\n{tail}")
            await asyncio.sleep(LOOK_SECONDS)

    def kill(self) -> None:
        """End it and all its descendants at once: what it holds is thrown away with its folder."""
        if self._child is None or self._child.poll() is not None:
            return
        for pid in tree([self._child.pid]):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._child.wait()
