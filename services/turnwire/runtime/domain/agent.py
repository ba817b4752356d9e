"""An agent: instructions, model, tools and limits, from a file; its digest pins it to the turns it began."""

from __future__ import annotations

import hashlib
import uuid
from decimal import Decimal
from functools import cached_property
from typing import Any

import msgspec
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, model_validator

from turnwire.runtime.domain.call_terms import CallTerms
from turnwire.runtime.domain.compaction import CompactionTerms
from turnwire.runtime.domain.prices import Price
from turnwire.runtime.domain.turn import BusyPolicy

__all__ = ["AgentDefinition", "AgentLimits"]

# Keys of the contract that this version does not act on: a file that sets one is refused, never half obeyed.
_NOT_SERVED = ("delegates", "hooks")
# Limits that may also stand at the top of the file, by the name they have there.
_IN_LIMITS = {"max_iterations": "steps", "max_retry_limit": "max_retry_limit"}
# What other systems call these settings; a file that uses one is told the right name.
_WRONG_NAMES = {
    "max_iter": "limits.steps",
    "max_tool_rounds": "limits.steps",
    "llm": "model",
    "system_prompt": "instructions",
    "prompt": "instructions",
    "verbose": "the log level of the runtime (TURNWIRE_RUNTIME_LOG__LEVEL)",
    "timeout": "limits.turn_timeout",
}


def _with_limits(data: dict[str, Any]) -> dict[str, Any]:
    """Return the data of a file with what stands at its top and is a limit among the limits."""
    found = {name: data[key] for key, name in _IN_LIMITS.items() if key in data}
    if not found or not isinstance(data.get("limits") or {}, dict):
        return data
    rest = {key: value for key, value in data.items() if key not in _IN_LIMITS}
    return {**rest, "limits": {**found, **(data.get("limits") or {})}}


class AgentLimits(BaseModel):
    """Limits of an agent's turns; times are seconds, costs are US dollars, None = no limit.

    `max_retry_limit` is how often an answer that misses its schema goes back to the model.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    steps: int = Field(default=30, ge=1, le=120)
    turn_timeout: float | None = Field(default=None, gt=0)
    tokens: int | None = Field(default=None, gt=0)
    cost_usd: Decimal | None = Field(default=None, gt=0, le=1_000_000, decimal_places=6)
    tool_timeout: float = Field(default=540.0, gt=0)
    max_retry_limit: int = Field(default=2, ge=0, le=10)

    @property
    def cost_micro_usd(self) -> int | None:
        """Most cost of a turn in millionths of a US dollar."""
        return None if self.cost_usd is None else int(self.cost_usd * 1_000_000)


class AgentDefinition(BaseModel):
    """An agent file. `tools` are names or prefixes ending in `*`; `organization_id` is the scope it serves.

    `organization_id` of `*` serves every scope. `model_call`, `compaction` and `prices` win over what the
    deployment says; `context_window` is what its model takes in tokens.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    name: str = Field(pattern=r"^[a-z0-9-]{4,63}$")
    id: str = ""
    display_name: str = ""
    description: str = Field(default="", max_length=1000)
    role: str = ""
    goal: str = ""
    backstory: str = ""
    instructions: str = ""
    model: str
    fallback_models: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    limits: AgentLimits = AgentLimits()
    model_call: CallTerms = CallTerms()
    context_window: int | None = Field(default=None, ge=1000, le=100_000_000)
    compaction: CompactionTerms = CompactionTerms()
    prices: dict[str, Price] = {}
    busy_policy: BusyPolicy = BusyPolicy.QUEUE
    organization_id: str = Field(
        default="default-org", validation_alias=AliasChoices("organization_id", "scope")
    )

    @model_validator(mode="before")
    @classmethod
    def _refuse_wrong_names(cls, data: object) -> object:
        if isinstance(data, dict):
            data = _with_limits(data)
            for key in _NOT_SERVED:
                if data.get(key) or (isinstance(data.get("limits"), dict) and key in data["limits"]):
                    raise ValueError(f"{key} is not served by this version")
            for wrong, right in _WRONG_NAMES.items():
                if wrong in data:
                    raise ValueError(f"an agent has no {wrong!r}: use {right}")
            if not data.get("id"):
                name = f"turnwire:agents/{data.get('name', '')}"
                data = {**data, "id": str(uuid.uuid5(uuid.NAMESPACE_URL, name))}
        return data

    @property
    def resource_name(self) -> str:
        """`agents/{agent}`."""
        return f"agents/{self.name}"

    @cached_property
    def digest(self) -> str:
        """SHA-256 over the canonical JSON of the definition, in hex."""
        canonical = msgspec.json.encode(self.model_dump(mode="json"), order="sorted")
        return hashlib.sha256(canonical).hexdigest()

    def allows_tool(self, name: str) -> bool:
        """Whether the definition names this tool, by itself or by a prefix."""
        return any(name == t or (t.endswith("*") and name.startswith(t[:-1])) for t in self.tools)

    def system_text(self) -> str:
        """Render persona and instructions into the system message; empty when there is nothing to say."""
        lines = []
        if self.role:
            lines.append(f"You are {self.display_name or self.name}, {self.role}.")
        if self.goal:
            lines.append(f"Your goal: {self.goal}")
        if self.backstory:
            lines.append(self.backstory)
        if self.instructions:
            lines.append(self.instructions)
        return "\n\n".join(lines)
