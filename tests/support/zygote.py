"""Starts a service process again in a tenth of the time: everything is imported once, then it forks.

A fork of this process is a process of its own in all that matters to a fault test: its own threads, its own
connections, its own memory, ended by SIGKILL as any other. Nothing but imports happens before the fork.
"""

from __future__ import annotations

import asyncio
import ctypes
import importlib
import json
import os
import select
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

__all__ = ["ForkedProcess", "Zygote"]

_PR_SET_PDEATHSIG = 1
# What services import only when they serve.
_LATER = ("uvloop", "yaml", "grpc_reflection.v1alpha.reflection", "grpc_reflection.v1alpha._async")


class ForkedProcess:
    """A fork, with the part of `asyncio.subprocess.Process` that tests use."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.ended = asyncio.Event()

    async def wait(self) -> int:
        """Return the exit code, negative for a signal."""
        await self.ended.wait()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal unless it has ended."""
        if self.returncode is None:
            os.kill(self.pid, number)


class Zygote:
    """The parent of the forks of one module, whose `main()` is the service."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._forks: dict[int, ForkedProcess] = {}
        self._started: asyncio.Queue[ForkedProcess | None] = asyncio.Queue()
        self._lock = asyncio.Lock()

    async def start(self) -> None:
        """Import the module in a process of its own."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            __name__,
            self._module,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        )
        self._listener = asyncio.create_task(self._listen(), name=f"zygote {self._module}")

    async def spawn(self, words: Sequence[str], environment: Mapping[str, str], log: Path) -> ForkedProcess:
        """Fork a process with this command line and environment, its output appended to `log`."""
        assert self._process.stdin is not None
        order = {"words": list(words), "environment": dict(environment), "log": str(log)}
        async with self._lock:
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            fork = await self._started.get()
        if fork is None:
            raise RuntimeError(f"{self._module} cannot be imported")
        return fork

    async def close(self) -> None:
        """End the parent, and with it every fork."""
        self._process.kill()
        await self._process.wait()
        await self._listener

    async def _listen(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            told: dict[str, Any] = json.loads(line)
            if told["event"] == "started":
                fork = self._forks[told["pid"]] = ForkedProcess(told["pid"])
                self._started.put_nowait(fork)
            else:
                fork = self._forks.pop(told["pid"])
                fork.returncode = told["code"]
                fork.ended.set()
        self._started.put_nowait(None)


def _serve(module: str) -> None:
    """Fork on each line of the standard input, and tell of starts and ends on the standard output."""
    service = importlib.import_module(module)
    for name in _LATER:
        importlib.import_module(name)
    wake_in, wake_out = os.pipe()
    os.set_blocking(wake_out, False)
    signal.set_wakeup_fd(wake_out)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    rest = b""
    while True:
        ready, _, _ = select.select([0, wake_in], [], [])
        if wake_in in ready:
            os.read(wake_in, 4096)
            _reap()
        if 0 not in ready:
            continue
        data = os.read(0, 65536)
        if not data:
            return
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            pid = os.fork()
            if pid == 0:
                _become(service, json.loads(line))
            _tell("started", pid=pid)


def _reap() -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        _tell("ended", pid=pid, code=os.waitstatus_to_exitcode(status))


def _tell(event: str, **fields: int) -> None:
    sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stdout.flush()


def _become(service: Any, order: dict[str, Any]) -> NoReturn:
    """Turn the fork into the service."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    null = os.open(os.devnull, os.O_RDONLY)
    for source, place in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, place)
    os.closerange(3, 64)
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.argv = [service.__file__, *order["words"]]
    code = 1
    try:
        code = service.main()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve(sys.argv[1])
