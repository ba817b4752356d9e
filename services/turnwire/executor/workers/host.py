"""What every process of a tool has in common: who starts it, where it works, what bounds it."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from turnwire.core.errors import WrongState
from turnwire.core.settings import SettingsGroup
from turnwire.executor.bodies import STOP_GRACE_SECONDS, Room
from turnwire.executor.domain import Call
from turnwire.executor.limits import OutputLimits
from turnwire.executor.workers.environment import ProcessEnvironment
from turnwire.executor.workers.launcher import Launcher
from turnwire.executor.workspace import Workspaces

__all__ = ["Isolation", "IsolationSettings", "ProcessHost"]

# What a worker writes to standard error is kept for the case that it does not start.
_WORKER_WORDS_CHARS = 8_000


class IsolationSettings(SettingsGroup):
    """What a command may use and see. Unset limits are the system's."""

    mode: Literal["none", "bubblewrap"] = Field(
        default="none",
        description="bubblewrap gives commands a read-only root, a private /tmp and no network.",
    )
    network: bool = Field(default=False, description="Leaves the network to commands in bubblewrap.")
    max_memory_bytes: int | None = Field(default=None, ge=1 << 20, description="Address space of a process.")
    max_cpu_seconds: int | None = Field(default=None, ge=1, description="Processor time of a process.")
    max_open_files: int | None = Field(default=1024, ge=16, description="Open files of a process.")
    max_processes: int | None = Field(default=None, ge=1, description="Processes of the user, not for root.")
    max_file_bytes: int | None = Field(default=None, ge=1, description="Largest file a process may write.")


@dataclass(frozen=True, slots=True)
class Isolation:
    """Wraps commands as the settings say. Raises WrongState when bubblewrap is asked for and absent."""

    settings: IsolationSettings

    def __post_init__(self) -> None:
        if self.settings.mode == "bubblewrap" and shutil.which("bwrap") is None:
            raise WrongState(
                "isolation.mode is bubblewrap, but the program bwrap is not installed: install it, or set "
                "isolation.mode to none",
                reason="ISOLATION_UNAVAILABLE",
            )

    def wrap(self, argv: list[str], workspace: Path) -> list[str]:
        """Give the words that run `argv` with only the workspace writable."""
        if self.settings.mode == "none":
            return argv
        inside = ["bwrap", "--die-with-parent", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
        if not self.settings.network:
            inside.append("--unshare-net")
        inside += ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"]  # noqa: S108
        inside += ["--bind", str(workspace), str(workspace), "--"]
        return inside + argv

    def rlimits(self) -> dict[str, int]:
        """Give the limits of the kernel by name, without RLIMIT_."""
        wanted = {
            "AS": self.settings.max_memory_bytes,
            "CPU": self.settings.max_cpu_seconds,
            "NOFILE": self.settings.max_open_files,
            "NPROC": self.settings.max_processes,
            "FSIZE": self.settings.max_file_bytes,
            "CORE": 0,
        }
        return {name: value for name, value in wanted.items() if value is not None}


@dataclass(slots=True)
class ProcessHost:
    """Shared by all bodies that start processes. `staging` holds outputs on their way to the store."""

    launcher: Launcher
    environment: ProcessEnvironment
    workspaces: Workspaces
    isolation: Isolation
    limits: OutputLimits
    staging: Path
    commands: Room

    def limits_for(self, call: Call) -> OutputLimits:
        """Give the output limits of one call."""
        return replace(self.limits, max_chars=call.max_result_chars)

    def worker_spec(self) -> dict[str, Any]:
        """Give what a shim needs to run a Python worker."""
        self.workspaces.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        return {
            "argv": [sys.executable, "-m", "turnwire.executor.workers.python"],
            "env": self.environment.for_worker(()),
            "cwd": str(self.workspaces.root),
            "stdin": None,
            "timeout": None,
            "grace": STOP_GRACE_SECONDS,
            "staging": "",
            "limits": OutputLimits(max_chars=_WORKER_WORDS_CHARS).to_dict(),
            "rlimits": {"CORE": 0},
            "worker": True,
        }
