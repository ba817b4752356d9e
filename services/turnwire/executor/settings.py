"""Settings of the executor: frozen, from the environment, read once by `main`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator
from pydantic_settings import NoDecode, SettingsConfigDict

from turnwire.core.settings import ListenSettings, ProcessSettings, SettingsGroup
from turnwire.executor.tools.http import HttpSettings
from turnwire.executor.workers.host import IsolationSettings
from turnwire.executor.workers.settings import PoolSettings

__all__ = ["ExecutorSettings", "ResultSettings", "StoreSettings", "TimeSettings"]


def _split(value: Any) -> Any:
    """Read a list as people write it in an environment: a JSON list, or words between commas."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        return json.loads(value)
    return [word.strip() for word in value.split(",") if word.strip()]


Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)]


class TimeSettings(SettingsGroup):
    """How long things may take, in seconds."""

    default_timeout_seconds: float = Field(
        default=540.0, gt=0, description="Limit of a call whose tool names none."
    )
    max_timeout_seconds: float = Field(default=3_600.0, gt=0, description="No call runs longer than this.")
    queue_timeout_seconds: float = Field(
        default=60.0, ge=0, description="Wait for room when the request names no limit."
    )
    heartbeat_seconds: float = Field(
        default=10.0, gt=0, description="Silence after which a stream gets a heartbeat."
    )

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.default_timeout_seconds > self.max_timeout_seconds:
            raise ValueError("default_timeout_seconds is above max_timeout_seconds")
        return self


class ResultSettings(SettingsGroup):
    """How much of an output is shown and kept."""

    max_chars: int = Field(
        default=50_000, ge=1_000, le=200_000, description="Characters that are shown whole."
    )
    head_ratio: float = Field(
        default=0.10, ge=0, le=0.4, description="Share of max_chars shown from the start of a long output."
    )
    tail_ratio: float = Field(
        default=0.15, ge=0, le=0.4, description="Share of max_chars shown from its end."
    )
    max_stored_bytes: int = Field(default=1 << 30, ge=1 << 16, description="Bytes kept of one output.")


class StoreSettings(SettingsGroup):
    """How the ledger is kept."""

    synchronous: Literal["FULL", "NORMAL"] = Field(
        default="FULL", description="FULL survives a power cut, NORMAL only the end of the process."
    )
    retention_days: float = Field(
        default=7.0, gt=0, description="How long ends and stored results are kept, in days."
    )


class ExecutorSettings(ProcessSettings):
    """Everything the executor can be told; TURNWIRE_EXECUTOR_LISTEN__PORT sets `listen.port`."""

    model_config = SettingsConfigDict(env_prefix="TURNWIRE_EXECUTOR_")

    listen: ListenSettings = Field(default=ListenSettings(port=50053), description="The server.")
    data: Path = Field(
        default=Path(".turnwire"), description="Folder of executor.db, overflow/ and workspace/."
    )
    workspace_root: Path | None = Field(
        default=None, description="Folder that holds the workspaces of calls; <data>/workspace if unset."
    )
    tools: Names = Field(
        default=(), description="Python files with tools, separated by commas: ./my_tools.py,./more.py."
    )
    shell_enabled: bool = Field(default=False, description="Offers the tool `shell` to models.")
    disabled_tools: Names = Field(
        default=(), description="Names of tools that are not offered, separated by commas."
    )
    process_env: Names = Field(
        default=("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER"),
        description="Variables that the processes of tools may see, separated by commas.",
    )
    time: TimeSettings = Field(default=TimeSettings(), description="Time limits.")
    result: ResultSettings = Field(default=ResultSettings(), description="Result limits.")
    pool: PoolSettings = Field(default=PoolSettings(), description="Room for calls.")
    isolation: IsolationSettings = Field(default=IsolationSettings(), description="Bounds of commands.")
    http: HttpSettings = Field(default=HttpSettings(), description="The tool http_fetch.")
    store: StoreSettings = Field(default=StoreSettings(), description="The ledger.")

    @property
    def workspaces(self) -> Path:
        """The folder that holds the workspaces."""
        return self.workspace_root or self.data / "workspace"
