"""Built-in tools: trusted, bounded in time and memory, run inside the service itself."""

from __future__ import annotations

from typing import Any

from turnwire.core.clock import Clock
from turnwire.executor.overflow import Overflow
from turnwire.executor.tools import arithmetic
from turnwire.executor.tools.clock import clock_tools
from turnwire.executor.tools.files import file_tools
from turnwire.executor.tools.http import HttpSettings, http_tools
from turnwire.executor.tools.recall import recall_tools
from turnwire.executor.workspace import Workspaces
from turnwire.extend.tools import Tool

__all__ = ["builtin_tools"]


def builtin_tools(
    workspaces: Workspaces, http: HttpSettings, overflow: Overflow, clock: Clock
) -> list[Tool[..., Any]]:
    """Make all built-in tools, with what they work on."""
    return [
        *arithmetic.TOOLS,
        *clock_tools(clock),
        *file_tools(workspaces),
        *http_tools(http),
        *recall_tools(overflow),
    ]
