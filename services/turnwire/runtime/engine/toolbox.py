"""The tools of a turn: what the executor has, less what agent and request leave out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from turnwire.core.errors import Unavailable
from turnwire.runtime.domain.agent import AgentDefinition
from turnwire.runtime.domain.execution import ToolInfo
from turnwire.runtime.domain.turn import TurnSpec
from turnwire.runtime.ports import ToolExecutor

__all__ = ["PATIENCE_SECONDS", "Toolbox"]

# How long a turn that goes on waits for an executor that starts beside it.
PATIENCE_SECONDS = 30.0
_DELAY = 0.5


class Toolbox:
    """Lists tools. With `patience`, seconds, it waits that long for an executor that is not there yet."""

    def __init__(
        self, executor: ToolExecutor, agent: AgentDefinition, spec: TurnSpec, patience: float
    ) -> None:
        self._executor = executor
        self._agent = agent
        self._allowed = frozenset(spec.allowed_tools)
        self._patience = patience

    async def offered(self) -> Mapping[str, ToolInfo]:
        """Return the tools that the model is told of, by name. Raises Unavailable."""
        if not self._agent.tools:
            return {}
        return {
            name: tool
            for name, tool in (await self.known()).items()
            if self._agent.allows_tool(name) and (not self._allowed or name in self._allowed)
        }

    async def known(self) -> Mapping[str, ToolInfo]:
        """Return all tools of the executor, by name. Raises Unavailable."""
        until = time.monotonic() + self._patience
        while True:
            try:
                return {t.name: t for t in await self._executor.list_tools()}
            except Unavailable:
                if time.monotonic() >= until:
                    raise
            await asyncio.sleep(_DELAY)
