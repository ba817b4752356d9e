"""From a turn's spec and the tools of the step to the parts of a model request."""

from __future__ import annotations

from collections.abc import Mapping

from turnwire.core.errors import FieldViolation, InvalidRequest
from turnwire.extend.llm import ModelOptions, ModelRequest, ToolChoice, ToolDefinition
from turnwire.runtime.domain.agent import AgentDefinition
from turnwire.runtime.domain.execution import ToolInfo
from turnwire.runtime.domain.turn import OptionsSpec, TurnSpec
from turnwire.runtime.engine.history import user_message
from turnwire.runtime.ports import ChecksRequests, Model, ModelSource

__all__ = ["check_served", "model_options", "resolve_model", "tool_choice", "tool_definitions"]


def tool_definitions(tools: Mapping[str, ToolInfo]) -> tuple[ToolDefinition, ...]:
    """Return the tools as the model sees them, ordered by name so that equal requests are equal bytes."""
    return tuple(ToolDefinition(t.name, t.description, t.input_schema_json) for _, t in sorted(tools.items()))


def tool_choice(spec: TurnSpec, step: int) -> ToolChoice:
    """Return the choice of this step; anything but auto holds for the first step only."""
    if step > 1:
        return ToolChoice()
    return ToolChoice(spec.tool_choice.mode, spec.tool_choice.tool_name)


def model_options(options: OptionsSpec) -> ModelOptions:
    """Return the sampling settings of the request."""
    return ModelOptions(
        temperature=options.temperature,
        top_p=options.top_p,
        max_output_tokens=options.max_output_tokens,
        stop=options.stop,
        reasoning_effort=options.reasoning_effort,
    )


def resolve_model(models: ModelSource, agent: AgentDefinition, spec: TurnSpec) -> Model:
    """Return the model of a turn: the one that the request asks for, else the agent's with its fallbacks.

    Raises:
        InvalidRequest: MODEL_UNKNOWN. WrongState: MODEL_NOT_CONFIGURED.
    """
    if spec.options.model:
        asked = spec.options.model
        return models.resolve(asked, from_caller=asked != agent.model, terms=agent.model_call)
    fallbacks = (m for m in agent.fallback_models if not m.endswith("*"))
    return models.resolve_all([agent.model, *fallbacks], terms=agent.model_call)


def check_served(model: Model, spec: TurnSpec) -> None:
    """Refuse what the model of a turn cannot be asked.

    Raises:
        InvalidRequest: with the field of the spec.
    """
    if not isinstance(model, ChecksRequests):
        return
    said = user_message(spec.parts)
    messages = (said,) if said is not None else ()
    choice = ToolChoice(spec.tool_choice.mode, spec.tool_choice.tool_name)
    options = model_options(spec.options)
    found = model.refusal(ModelRequest(model.name, messages, tool_choice=choice, options=options))
    if found is not None:
        field = f"spec.{found.field}"
        why = f"{found.why} ({model.name})"
        raise InvalidRequest(f"{field}: {why}", violations=[FieldViolation(field, why)])
