"""One service as a child process: started, awaited, its lines passed on; it never outlives its parent."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["ChildDied", "ChildProcess", "ChildSpec", "service_command"]

_POLL = 0.05


class ChildDied(Exception):
    """A service ended although nobody asked it to."""

    def __init__(self, name: str, code: int, *, ready: bool) -> None:
        when = "while it was serving" if ready else "before it was ready"
        super().__init__(f"{name} ended with {_code_text(code)} {when}: its own lines say why")


def _code_text(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def service_command(name: str) -> list[str]:
    """Give the command that starts `turnwire-NAME`: the script beside this Python, else the module."""
    script = Path(sys.executable).with_name(f"turnwire-{name}")
    return [str(script)] if script.exists() else [sys.executable, "-m", f"turnwire.{name}.main"]


@dataclass(frozen=True)
class ChildSpec:
    """How a service is started; `--ready-file` is added to its arguments."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    arguments: Sequence[str] = field(default=())


class ChildProcess:
    """A running service.

    Args:
        ready_folder: where its ready file appears.
        on_line: receives each line that it prints.
    """

    def __init__(self, spec: ChildSpec, ready_folder: Path, on_line: Callable[[str, str], None]) -> None:
        self.name = spec.name
        self.port = 0
        self.ready = False
        self._spec = spec
        self._ready_file = ready_folder / f"{spec.name}.json"
        self._on_line = on_line
        self._process: Process | None = None

    @property
    def pid(self) -> int:
        return self._started.pid

    @property
    def exit_code(self) -> int:
        """How it ended, negative for a signal; 0 while it runs."""
        return self._started.returncode or 0

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def _started(self) -> Process:
        assert self._process is not None, "start() comes first"
        return self._process

    async def start(self) -> None:
        """Start the process; Ctrl-C in our terminal reaches it only through us."""
        words = [*self._spec.command, *self._spec.arguments, "--ready-file", str(self._ready_file)]
        if guard := shutil.which("setpriv"):
            # Should this process be killed, its children are told to leave.
            words = [guard, "--pdeathsig", "TERM", "--", *words]
        self._process = await asyncio.create_subprocess_exec(
            *words, stdout=PIPE, stderr=STDOUT, env=dict(self._spec.environment), start_new_session=True
        )

    async def pump(self) -> int:
        """Pass its lines on until it ends; returns its exit code, negative for a signal."""
        process = self._started
        assert process.stdout is not None
        rest = b""
        while chunk := await process.stdout.read(65536):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._on_line(self.name, line.decode("utf-8", "replace"))
        if rest:
            self._on_line(self.name, rest.decode("utf-8", "replace"))
        return await process.wait()

    async def wait_ready(self, timeout: float) -> None:
        """Wait for the ready file and read the port from it.

        Raises:
            ChildDied: the process ended first.
            TimeoutError: it was not ready after `timeout` seconds.
        """
        async with asyncio.timeout(timeout):
            while not self._ready_file.exists():
                if not self.running:
                    raise ChildDied(self.name, self.exit_code, ready=False)
                await asyncio.sleep(_POLL)
        self.port = int(json.loads(self._ready_file.read_text(encoding="utf-8"))["port"])
        self.ready = True

    async def wait(self) -> None:
        """Wait for its end."""
        await self._started.wait()

    def terminate(self) -> None:
        """Ask it to drain and leave."""
        if self.running:
            self._started.terminate()

    def kill(self) -> None:
        """End it at once."""
        if self.running:
            self._started.kill()
