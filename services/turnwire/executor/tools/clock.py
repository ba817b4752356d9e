"""The time of day, for models that cannot know it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field

from turnwire.core.clock import Clock
from turnwire.executor.inline import ToolFailed
from turnwire.extend.tools import Mode, Tool, tool

__all__ = ["clock_tools"]


def clock_tools(clock: Clock) -> list[Tool[..., Any]]:
    """Make the tools that read `clock`."""

    @tool(mode=Mode.PARALLEL, repeatable=True)
    async def current_time(
        timezone: Annotated[str, Field(description="IANA name, for example Europe/Berlin")] = "UTC",
    ) -> str:
        """Tell the current date and time."""
        try:
            zone = UTC if timezone == "UTC" else ZoneInfo(timezone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ToolFailed(f"There is no time zone {timezone!r}; use an IANA name.") from None
        now = datetime.fromtimestamp(clock.now() / 1e9, zone)
        return f"{now.isoformat(timespec='seconds')} ({now:%A})"

    return [current_time]
