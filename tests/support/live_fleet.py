"""The three services as `turnwire up` starts them, on free ports, for tests that need the real thing."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.cli_process import environment

START_SECONDS = 60.0
STOP_SECONDS = 60.0


@dataclass(frozen=True)
class Fleet:
    """Addresses and pids by service: control, executor, runtime."""

    addresses: dict[str, str]
    pids: dict[str, int]
    log: Path

    @property
    def target(self) -> str:
        return self.addresses["runtime"]


@contextmanager
def live_fleet(folder: Path, *words: str, env: dict[str, str] | None = None) -> Iterator[Fleet]:
    """Run `turnwire up` with its data in `folder`; `words` are further options."""
    ready, log = folder / "ready.json", folder / "up.log"
    ready.unlink(missing_ok=True)
    command = [sys.executable, "-m", "turnwire.cli.main", "up", "--data", str(folder / "data")]
    command += ["--runtime-port", "0", "--control-port", "0", "--executor-port", "0"]
    with log.open("ab") as out:
        up = subprocess.Popen(
            [*command, "--ready-file", str(ready), *words],
            stdout=out,
            stderr=subprocess.STDOUT,
            env=env or environment(),
        )
    try:
        _wait_for(ready, up, log)
        facts = json.loads(ready.read_text(encoding="utf-8"))
        yield Fleet(facts["addresses"], facts["pids"], log)
    finally:
        up.send_signal(signal.SIGINT)
        try:
            up.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            up.kill()
            up.wait()


def _wait_for(ready: Path, up: subprocess.Popen[bytes], log: Path) -> None:
    ends = time.monotonic() + START_SECONDS
    while not ready.exists():
        if up.poll() is not None or time.monotonic() > ends:
            raise AssertionError(f"turnwire up was not ready:\n{log.read_text(encoding='utf-8')}")
        try:
            up.wait(0.05)
        except subprocess.TimeoutExpired:
            continue
