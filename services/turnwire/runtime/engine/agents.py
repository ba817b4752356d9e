"""The agents of this deployment: read from files at start, found by name and scope."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence

from turnwire.core.errors import FieldViolation, InvalidRequest, NotFound
from turnwire.runtime.domain.agent import AgentDefinition
from turnwire.runtime.domain.prices import NO_PRICES, PriceTable
from turnwire.runtime.domain.turn import StartCommand, ThreadKey, TurnSpec

__all__ = ["AgentCatalog", "unpriced_models"]


class AgentCatalog:
    """Agents by name.

    Args:
        thread_agent: tells the agent of an existing thread as `agents/{agent}`.
        prices: what models cost; a limit of cost means nothing for a model without a price.
    """

    def __init__(
        self,
        agents: Iterable[AgentDefinition],
        thread_agent: Callable[[ThreadKey], Awaitable[str]],
        prices: PriceTable = NO_PRICES,
    ) -> None:
        self._prices = prices
        self._agents = {a.name: a for a in agents}
        self._thread_agent = thread_agent

    def visible(self, scope: str) -> Sequence[AgentDefinition]:
        """Return the agents that a scope may use, ordered by name."""
        found = (a for a in self._agents.values() if a.organization_id in (scope, "*"))
        return sorted(found, key=lambda a: a.name)

    def get(self, scope: str, name: str) -> AgentDefinition:
        """Return an agent by `agents/{agent}` or bare name. Raises NotFound (AGENT_NOT_FOUND)."""
        agent = self._agents.get(name.removeprefix("agents/"))
        if agent is None or agent.organization_id not in (scope, "*"):
            known = ", ".join(a.resource_name for a in self.visible(scope)) or "none"
            raise NotFound(f"there is no agent {name}; agents: {known}", reason="AGENT_NOT_FOUND", agent=name)
        return agent

    async def for_turn(self, scope: str, spec: TurnSpec, thread: ThreadKey | None) -> AgentDefinition:
        """Return the agent of a turn: the request's own, else the thread's, else the only one there is."""
        name = spec.agent
        if not name and thread is not None:
            name = await self._thread_agent(thread)
        if not name:
            visible = self.visible(scope)
            if len(visible) != 1:
                names = ", ".join(a.resource_name for a in visible) or "none"
                raise InvalidRequest(
                    f"spec.agent is needed for a new thread; agents: {names}",
                    violations=[FieldViolation("spec.agent", "is needed for a new thread")],
                )
            return visible[0]
        return self.get(scope, name)

    async def for_command(self, command: StartCommand) -> AgentDefinition:
        """Return the agent of a request, checked against what the request asks for.

        Raises:
            NotFound: AGENT_NOT_FOUND, THREAD_NOT_FOUND.
            InvalidRequest: a limit, model or tool beyond the agent's.
        """
        spec = command.spec
        thread = ThreadKey(command.scope, spec.thread.rpartition("/")[2]) if spec.thread else None
        agent = await self.for_turn(command.scope, spec, thread)
        violations = [*_beyond(agent, spec), *_unpriced(agent, spec, self._prices)]
        if violations:
            raise InvalidRequest(violations[0].description, violations=violations)
        return agent


def _beyond(agent: AgentDefinition, spec: TurnSpec) -> Iterable[FieldViolation]:
    limits, own = spec.limits, agent.limits
    if limits.steps is not None and limits.steps > own.steps:
        yield FieldViolation("spec.limits.steps", f"is above the agent's limit of {own.steps}")
    if (
        limits.turn_timeout is not None
        and own.turn_timeout is not None
        and limits.turn_timeout > own.turn_timeout
    ):
        yield FieldViolation(
            "spec.limits.turn_timeout", f"is above the agent's limit of {own.turn_timeout:g} s"
        )
    if limits.tokens is not None and own.tokens is not None and limits.tokens > own.tokens:
        yield FieldViolation("spec.limits.tokens", f"is above the agent's limit of {own.tokens}")
    cost = own.cost_micro_usd
    if limits.cost_micro_usd is not None and cost is not None and limits.cost_micro_usd > cost:
        yield FieldViolation("spec.limits.cost_micro_usd", f"is above the agent's limit of {cost}")
    if limits.tool_timeout is not None and limits.tool_timeout > own.tool_timeout:
        yield FieldViolation(
            "spec.limits.tool_timeout", f"is above the agent's limit of {own.tool_timeout:g} s"
        )
    allowed = (agent.model, *agent.fallback_models)
    if spec.options.model and not _allows(allowed, spec.options.model):
        yield FieldViolation(
            "spec.model_options.model", f"is not among the agent's models: {', '.join(allowed)}"
        )
    chosen = spec.tool_choice.tool_name
    if chosen and not (agent.allows_tool(chosen) and chosen in (spec.allowed_tools or (chosen,))):
        yield FieldViolation("spec.tool_choice.tool_name", f"{chosen} is not a tool of the turn")
    for index, name in enumerate(spec.allowed_tools):
        if not agent.allows_tool(name):
            yield FieldViolation(f"spec.allowed_tools[{index}]", f"{name} is not a tool of the agent")


def _unpriced(agent: AgentDefinition, spec: TurnSpec, prices: PriceTable) -> Iterable[FieldViolation]:
    """Refuse a limit of cost that nothing could be counted against."""
    if spec.limits.cost_micro_usd is None and agent.limits.cost_usd is None:
        return
    for model in unpriced_models(agent, prices, spec.options.model):
        field = "spec.model_options.model" if spec.options.model else "spec.limits.cost_micro_usd"
        yield FieldViolation(field, f"no price is known for the model {model}, so its cost has no limit")


def unpriced_models(agent: AgentDefinition, prices: PriceTable, chosen: str = "") -> list[str]:
    """Return which models of a turn have no price; `chosen` is the one that a request names."""
    models = [chosen] if chosen else [agent.model, *agent.fallback_models]
    known = prices.with_prices(agent.prices)
    return [m for m in models if not m.endswith("*") and known.price_of(m) is None]


def _allows(allowed: Iterable[str], model: str) -> bool:
    return any(model == a or (a.endswith("*") and model.startswith(a[:-1])) for a in allowed)
