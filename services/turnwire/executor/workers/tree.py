"""Finding and ending every process of an execution, by ancestry and by a marker in the environment.

Ancestry is complete while the execution's shim lives, since the shim adopts orphans. The marker serves when
the shim is gone: it is in the environment with which each process of the execution was started.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections import defaultdict
from contextlib import suppress

__all__ = [
    "MARKER_VARIABLE",
    "adopt_orphans",
    "descendants",
    "die_with_parent",
    "kill_marked",
    "marked",
    "signal_all",
]

MARKER_VARIABLE = "TURNWIRE_EXECUTION_MARK"
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LIBC = ctypes.CDLL(None, use_errno=True)


def adopt_orphans() -> None:
    """Make this process the parent of every orphan below it. Raises OSError where the kernel refuses."""
    if _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) failed")


def die_with_parent(signum: int = signal.SIGKILL) -> None:
    """Have the kernel send `signum` to this process when its parent dies."""
    if _LIBC.prctl(_PR_SET_PDEATHSIG, int(signum), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _stat(pid: int) -> tuple[int, str] | None:
    """Give parent and state letter of a process, or None when it has gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            line = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command name stands in brackets and may itself hold brackets and blanks.
    fields = line[line.rindex(b")") + 2 :].split()
    return int(fields[1]), fields[0].decode()


def descendants(root: int) -> list[int]:
    """List the living processes below `root`, zombies left out."""
    children: dict[int, list[int]] = defaultdict(list)
    states: dict[int, str] = {}
    for pid in _processes():
        entry = _stat(pid)
        if entry is not None:
            children[entry[0]].append(pid)
            states[pid] = entry[1]
    found: list[int] = []
    todo = list(children[root])
    while todo:
        pid = todo.pop()
        if states[pid] not in "ZX":
            found.append(pid)
        todo.extend(children[pid])
    return found


def marked(prefix: str) -> list[int]:
    """List the living processes whose environment holds a marker that starts with `prefix`."""
    wanted = f"{MARKER_VARIABLE}={prefix}".encode()
    found = []
    for pid in _processes():
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                environ = file.read()
        except OSError:
            continue  # Gone meanwhile, or of another user and so not ours.
        if (environ.startswith(wanted) or b"\0" + wanted in environ) and pid != os.getpid():
            entry = _stat(pid)
            if entry is not None and entry[1] not in "ZX":
                found.append(pid)
    return found


def signal_all(pids: list[int], signum: int) -> None:
    """Send `signum` to each process; those that have gone are passed over."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signum)


def kill_marked(prefix: str, patience: float = 2.0) -> int:
    """Kill every process marked with `prefix` until none is left; blocks at most `patience` seconds.

    Returns how many different processes were killed.
    """
    killed: set[int] = set()
    deadline = time.monotonic() + patience
    while pids := marked(prefix):
        signal_all(pids, signal.SIGKILL)
        killed.update(pids)
        if time.monotonic() >= deadline:
            break
        time.sleep(0.01)
    return len(killed)
