"""What process trees cost: CPU by the kernel's scheduler clock in nanoseconds, memory by /proc."""

from __future__ import annotations

import json
import os
import sqlite3
import tempfile
import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path

from bench.figures import percentile

PROC = Path("/proc")
# What `machine_speed` says on the machine that absolute figures are stated for.
NOMINAL_SPEED = 0.020


class ProcessEnded(Exception):
    """A process of a measured tree ended, so that its CPU time can no longer be read."""


def children(pid: int) -> list[int]:
    """The direct children of a process; none when it has ended."""
    found: list[int] = []
    for path in (PROC / str(pid) / "task").glob("*/children"):
        try:
            found += map(int, path.read_text().split())
        except OSError:
            continue  # the thread ended while we looked
    return found


def tree(roots: Iterable[int]) -> set[int]:
    """The processes and all their descendants."""
    seen: set[int] = set()
    waiting = list(roots)
    while waiting:
        pid = waiting.pop()
        if pid not in seen:
            seen.add(pid)
            waiting += children(pid)
    return seen


def cpu_seconds(pid: int) -> float:
    """User and system time of a process with all its threads, in seconds.

    Raises:
        OSError: there is no such process.
    """
    return time.clock_gettime((~pid << 3) | 2)  # the kernel's encoding of a process's CPUCLOCK_SCHED


def status_mib(pid: int, key: str) -> float:
    """A memory figure of /proc/PID/status, such as VmRSS or VmHWM, in MiB.

    Raises:
        OSError: there is no such process.
        KeyError: there is no such line.
    """
    for line in (PROC / str(pid) / "status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == key:
            return int(value.split()[0]) / 1024
    raise KeyError(key)


class CpuMeter:
    """Measures what process trees, named by their roots, used between `begin` and `end`."""

    def __init__(self, roots: Mapping[str, int]) -> None:
        self._roots = roots
        self._before: dict[str, dict[int, float]] = {}

    def begin(self) -> None:
        """Read all clocks."""
        for name, root in self._roots.items():
            self._before[name] = {pid: cpu_seconds(pid) for pid in tree([root])}

    def end(self) -> dict[str, float]:
        """Seconds since `begin` of each tree; children that were born since count in full.

        Raises:
            ProcessEnded: a process is gone, and with it what it used.
        """
        used: dict[str, float] = {}
        for name, root in self._roots.items():
            before = self._before[name]
            try:
                after = {pid: cpu_seconds(pid) for pid in tree([root]) | before.keys()}
            except OSError as error:
                raise ProcessEnded(f"a process of {name} ended while it was measured") from error
            used[name] = sum(value - before.get(pid, 0.0) for pid, value in after.items())
        return used


def machine_speed() -> float:
    """CPU seconds of a fixed piece of Python, the best of five: how fast a shared machine is just now."""
    best = float("inf")
    for _ in range(5):
        begin = time.process_time()
        table = {str(number): [number, number + 1] for number in range(20_000)}
        json.loads(json.dumps(table))
        best = min(best, time.process_time() - begin)
    return best


def commit_seconds(commits: int = 50) -> list[float]:
    """Times of small synchronous commits on the disk of temporary files: what a durable answer waits for."""
    times: list[float] = []
    with tempfile.TemporaryDirectory(prefix="turnwire-bench-") as folder:
        database = sqlite3.connect(Path(folder) / "probe.db", isolation_level=None)
        with closing(database):
            database.execute("pragma journal_mode=wal")
            database.execute("pragma synchronous=full")
            database.execute("create table probe(body blob)")
            for _ in range(commits):
                begin = time.monotonic()
                database.execute("insert into probe values(?)", (b"0" * 500,))
                times.append(time.monotonic() - begin)
                time.sleep(0.005)
    return times


def machine() -> str:
    """How the machine is just now, in one line of the report."""
    commits = commit_seconds()
    typical, slow = (percentile(commits, share) * 1e3 for share in (0.5, 0.99))
    return (
        f"machine: speed probe {machine_speed() * 1e3:.1f} ms, load {load():.2f},"
        f" commit probe p50 {typical:.2f} p99 {slow:.2f} ms"
    )


def load() -> float:
    """The load average of the last minute."""
    return os.getloadavg()[0]
