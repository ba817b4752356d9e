"""The command line as its users run it: a process, with pipes or with a terminal of its own."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

# Colours and cursor movements, which stand between the words that a person reads.
_SEQUENCES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")

COMMAND = [sys.executable, "-m", "turnwire.cli.main"]
ROOT = Path(__file__).resolve().parents[2]


def environment(**more: str) -> dict[str, str]:
    """The environment without anybody's turnwire settings or keys; the source tree is importable."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("TURNWIRE_", "OPENAI_", "ANTHROPIC_", "GEMINI_")) and name != "NO_COLOR"
    }
    kept["PYTHONPATH"] = os.pathsep.join([str(ROOT / "services"), str(ROOT / "clients" / "python")])
    return kept | {"TERM": "xterm-256color", "COLUMNS": "100"} | more


@dataclass(frozen=True)
class Finished:
    code: int
    out: str
    err: str


async def turnwire(
    *words: str, target: str = "", stdin: str | None = None, env: dict[str, str] | None = None
) -> Finished:
    """Run the command line to its end, without a terminal."""
    process = await start(*words, target=target, env=env)
    out, err = await process.communicate(stdin.encode() if stdin is not None else None)
    assert process.returncode is not None
    return Finished(process.returncode, out.decode(), err.decode())


async def start(
    *words: str, target: str = "", env: dict[str, str] | None = None, cwd: Path | None = None
) -> asyncio.subprocess.Process:
    """Start the command line with pipes."""
    before = ["--target", target] if target else []
    return await asyncio.create_subprocess_exec(
        *COMMAND,
        *before,
        *words,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=env or environment(),
        cwd=cwd,
    )


class Terminal:
    """A program at a terminal: what it shows is read as it comes, and keys can be pressed."""

    def __init__(self, process: asyncio.subprocess.Process, master: int) -> None:
        self._process = process
        self._master = master
        self._changed = asyncio.Event()
        self._from = 0
        self._raw = ""
        self.shown = ""

    def received(self) -> None:
        try:
            data = os.read(self._master, 65536)
        except OSError:  # the other end has closed
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._master)
        self._raw += data.decode("utf-8", "replace")
        self.shown = _SEQUENCES.sub("", self._raw)
        self._changed.set()

    async def sees(self, text: str) -> None:
        """Wait until the program shows a text, after what was waited for before."""
        while (at := self.shown.find(text, self._from)) < 0:
            self._changed.clear()
            await self._changed.wait()
        self._from = at + len(text)

    def types(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def interrupts(self) -> None:
        """Press Ctrl-C."""
        self.types("\x03")

    async def ends(self) -> int:
        """Wait for the end; returns the exit code."""
        return await self._process.wait()


@asynccontextmanager
async def terminal(*words: str, target: str = "") -> AsyncIterator[Terminal]:
    """Run the command line at a terminal of its own."""
    master, slave = pty.openpty()
    before = ["--target", target] if target else []
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        "import fcntl, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
        "from turnwire.cli.main import main; sys.exit(main())",
        *before,
        *words,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=environment(),
        start_new_session=True,
    )
    os.close(slave)
    screen = Terminal(process, master)
    asyncio.get_running_loop().add_reader(master, screen.received)
    try:
        yield screen
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
            await process.wait()
        asyncio.get_running_loop().remove_reader(master)
        os.close(master)
