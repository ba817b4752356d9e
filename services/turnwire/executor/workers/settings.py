"""Settings of the processes that run tools."""

from __future__ import annotations

from pydantic import Field

from turnwire.core.settings import SettingsGroup

__all__ = ["PoolSettings"]


class PoolSettings(SettingsGroup):
    """How many things run at once. Waiting calls stand in the queue until their queue timeout."""

    entry_points: bool = Field(
        default=True, description="Loads tools from installed packages (entry point group turnwire.tools)."
    )
    max_workers: int = Field(default=4, ge=1, le=64, description="Worker processes for Python tools.")
    async_calls_per_worker: int = Field(
        default=16, ge=1, le=1000, description="Async Python calls that share one worker process."
    )
    max_commands: int = Field(default=16, ge=1, le=1000, description="Commands that run at once.")
    max_inline: int = Field(default=64, ge=1, le=1000, description="Built-in tools that run at once.")
    max_queued: int = Field(default=256, ge=0, description="Calls that wait for room; more are refused.")
    start_timeout_seconds: float = Field(
        default=30.0, gt=0, description="Longest time for a worker to load its tools."
    )
