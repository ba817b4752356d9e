"""AgentService: what this deployment can do. Read-only: agents are files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from turnwire.api.common.v1 import tool_pb2
from turnwire.api.runtime.v1 import agent_pb2, turn_pb2
from turnwire.api.runtime.v1 import agent_service_pb2 as pb
from turnwire.api.runtime.v1 import agent_service_pb2_grpc as grpc_pb
from turnwire.core.errors import TurnwireError
from turnwire.core.version import version
from turnwire.runtime import request_codec
from turnwire.runtime.capabilities import CAPABILITIES
from turnwire.runtime.domain.agent import AgentDefinition
from turnwire.runtime.domain.execution import RiskTier, ToolInfo
from turnwire.runtime.domain.turn import BusyPolicy
from turnwire.runtime.engine.agents import AgentCatalog
from turnwire.runtime.event_codec import duration, enum_table
from turnwire.runtime.paging import page_size, read_token, write_token
from turnwire.runtime.ports import ToolExecutor
from turnwire.wire.auth import current_principal

__all__ = ["AgentServicer", "ServerFacts"]

_TIERS = enum_table(RiskTier, tool_pb2.RiskTier, "RISK_TIER_")
_BUSY = enum_table(BusyPolicy, turn_pb2.BusyPolicy, "BUSY_POLICY_")


class ServerFacts:
    """What GetServerInfo tells beside the version."""

    def __init__(
        self,
        *,
        log_id: str,
        runtime_id: str,
        control_target: str,
        queue_limit: int,
        max_message_bytes: int,
        heartbeat: float,
        event_retention: float = 0.0,
    ) -> None:
        self.log_id = log_id
        self.runtime_id = runtime_id
        self.control_target = control_target
        self.limits = agent_pb2.ServerLimits(
            max_request_bytes=max_message_bytes,
            max_event_bytes=1024 * 1024,
            max_queue_length=queue_limit,
            max_result_chars=50_000,
            heartbeat_interval=duration(heartbeat),
            event_retention_duration=duration(event_retention) if event_retention else None,
        )


class AgentServicer(grpc_pb.AgentServiceServicer):
    """Serves the agents of one runtime."""

    def __init__(self, agents: AgentCatalog, executor: ToolExecutor, facts: ServerFacts) -> None:
        self._agents = agents
        self._executor = executor
        self._facts = facts

    async def GetServerInfo(self, request: pb.GetServerInfoRequest, context: Any) -> pb.GetServerInfoResponse:
        """Tell version, capabilities, limits and where the control service is."""
        facts = self._facts
        return pb.GetServerInfoResponse(
            version=version(),
            capabilities=CAPABILITIES,
            limits=facts.limits,
            control_target=facts.control_target,
            log_id=facts.log_id,
            runtime_id=facts.runtime_id,
        )

    async def ListAgents(self, request: pb.ListAgentsRequest, context: Any) -> pb.ListAgentsResponse:
        """List the agents that the caller's scope may use."""
        size = page_size(request.page_size)
        scope = current_principal().scope
        after = read_token(request.page_token, scope)
        found = [a for a in self._agents.visible(scope) if after is None or a.name > after[1]]
        token = write_token((0, found[size - 1].name), scope) if len(found) > size else ""
        return pb.ListAgentsResponse(agents=[_agent(a, ()) for a in found[:size]], next_page_token=token)

    async def GetAgent(self, request: pb.GetAgentRequest, context: Any) -> pb.GetAgentResponse:
        """Read an agent with its tools; without the executor it is told without them."""
        name = request_codec.agent_name(request.name, "name")
        agent = self._agents.get(current_principal().scope, name)
        tools: Sequence[ToolInfo] = ()
        if agent.tools:
            try:
                tools = [t for t in await self._executor.list_tools() if agent.allows_tool(t.name)]
            except TurnwireError:
                tools = [ToolInfo(name, "", "") for name in agent.tools]
        return pb.GetAgentResponse(agent=_agent(agent, tools))


def _agent(agent: AgentDefinition, tools: Sequence[ToolInfo]) -> agent_pb2.Agent:
    known = tools or [ToolInfo(name, "", "") for name in agent.tools]
    limits = agent.limits
    return agent_pb2.Agent(
        name=agent.resource_name,
        uid=agent.id,
        display_name=agent.display_name or agent.name,
        role=agent.role,
        goal=agent.goal,
        backstory=agent.backstory,
        model=agent.model,
        fallback_models=agent.fallback_models,
        tools=[_tool(t) for t in known],
        limits=agent_pb2.AgentLimits(
            steps=limits.steps,
            turn_timeout=duration(limits.turn_timeout) if limits.turn_timeout else None,
            tokens=limits.tokens or 0,
            cost_micro_usd=limits.cost_micro_usd or 0,
            tool_timeout=duration(limits.tool_timeout),
            max_retry_limit=limits.max_retry_limit,
        ),
        busy_policy=_BUSY[agent.busy_policy],
        organization_id=agent.organization_id,
        digest=agent.digest,
        description=agent.description,
    )


def _tool(tool: ToolInfo) -> tool_pb2.Tool:
    mode = tool_pb2.EXECUTION_MODE_PARALLEL if tool.parallel else tool_pb2.EXECUTION_MODE_EXCLUSIVE
    return tool_pb2.Tool(
        name=tool.name,
        description=tool.description,
        input_schema_json=tool.input_schema_json,
        output_schema_json=tool.output_schema_json,
        digest=tool.digest,
        execution_mode=mode,
        execution_timeout=duration(tool.execution_timeout),
        repeatable=tool.repeatable,
        # A tier that this version does not know goes on as it came.
        risk_tier=_TIERS[tool.risk_tier],
    )
