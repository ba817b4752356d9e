"""Agent files: one YAML document an agent, checked at start; without a folder there are built-in ones."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from turnwire.core.errors import WrongState
from turnwire.runtime.domain.agent import AgentDefinition, AgentLimits
from turnwire.runtime.domain.prices import NO_PRICES, PriceTable
from turnwire.runtime.engine.agents import unpriced_models

__all__ = ["built_in_agents", "load_agents"]

logger = logging.getLogger(__name__)

_BUILT_IN_TOOLS = (
    "add",
    "multiply",
    "calculate",
    "current_time",
    "list_files",
    "read_file",
    "write_file",
    "http_fetch",
    "recall_result",
)


def load_agents(
    folder: Path, default_steps: int, prices: PriceTable = NO_PRICES
) -> Sequence[AgentDefinition]:
    """Read every `*.yaml` of a folder.

    Args:
        folder: the folder; it must hold at least one agent.
        default_steps: steps of an agent whose file does not say.
        prices: what models cost: an agent with a limit of cost needs those of its models.

    Raises:
        WrongState: AGENT_FILE_INVALID, naming file and field.
    """
    import yaml

    files = sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")])
    if not files:
        raise _invalid(f"{folder} holds no agent file (*.yaml)")
    agents: dict[str, AgentDefinition] = {}
    for file in files:
        try:
            data = yaml.safe_load(file.read_text("utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise _invalid(f"{file}: {error}") from error
        if not isinstance(data, dict):
            raise _invalid(f"{file}: an agent file is one mapping, as in `name: helper`")
        data.setdefault("name", file.stem)
        limits = data.setdefault("limits", {})
        if isinstance(limits, dict) and "max_iterations" not in data:
            limits.setdefault("steps", default_steps)
        agent = _checked(data, file)
        if agent.name in agents:
            raise _invalid(f"{file}: there are two agents named {agent.name}")
        if agent.limits.cost_usd is not None and (missing := unpriced_models(agent, prices)):
            raise _invalid(f"{file}: limits.cost_usd: no price is known for {', '.join(missing)}")
        agents[agent.name] = agent
    return tuple(agents.values())


def _checked(data: dict[str, object], file: Path) -> AgentDefinition:
    try:
        return AgentDefinition.model_validate(data)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        raise _invalid("\n".join(_line(file, e["loc"], e["msg"]) for e in found)) from error


def _line(file: Path, place: Sequence[int | str], text: str) -> str:
    field = ".".join(str(p) for p in place) or "file"
    return f"{file}: {field}: {text.removeprefix('Value error, ')}"


def _invalid(text: str) -> WrongState:
    return WrongState(text, reason="AGENT_FILE_INVALID")


def built_in_agents(
    default_steps: int, *, openai: bool, anthropic: bool, openai_model: str = "gpt-5-mini"
) -> Sequence[AgentDefinition]:
    """Return the agents there are without files: `demo`, and `assistant` when a provider has a key."""
    limits = AgentLimits(steps=default_steps)
    agents = [
        AgentDefinition(
            name="demo",
            display_name="Demo",
            description="A small rule-driven model that uses tools: for a first try, without any key.",
            model="demo:",
            tools=("*",),
            limits=limits,
            organization_id="*",
        )
    ]
    if openai or anthropic:
        models = ["openai:*"] if openai else []
        models += ["anthropic:*"] if anthropic else []
        agents.append(
            AgentDefinition(
                name="assistant",
                display_name="Assistant",
                description="A general assistant on the provider whose key is set.",
                instructions="You are a helpful assistant. Use tools when they help.",
                model=f"openai:{openai_model}" if openai else "anthropic:claude-sonnet-4-6",
                fallback_models=tuple(models),
                tools=_BUILT_IN_TOOLS,
                limits=limits,
                organization_id="*",
            )
        )
    return agents
