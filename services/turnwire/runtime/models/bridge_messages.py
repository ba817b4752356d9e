"""A model request in the words of pydantic-ai. Its modules are imported here, so import this off the loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from pydantic_ai import messages as its
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from turnwire.extend.llm import (
    AssistantMessage,
    MediaPart,
    ModelRequest,
    SystemMessage,
    TextPart,
    ToolMessage,
    UserMessage,
)
from turnwire.runtime.models.openai_request import json_object, replay_blocks, sendable_arguments

__all__ = ["RESPONSE", "bridge_messages", "bridge_parameters", "bridge_settings", "dumped", "needs_replay"]

# The kind of the one replay block: an answer as pydantic-ai keeps it.
RESPONSE = "pydantic-ai.response"

_EFFORTS = ("minimal", "low", "medium", "high", "xhigh", "max")
_URLS = {"image": its.ImageUrl, "audio": its.AudioUrl, "video": its.VideoUrl}


def bridge_messages(request: ModelRequest) -> list[its.ModelMessage]:
    """Return the conversation; neighbours of one side become one message."""
    found: list[its.ModelMessage] = []
    said: list[its.ModelRequestPart] = []
    for message in request.messages:
        if isinstance(message, AssistantMessage):
            if said:
                found.append(its.ModelRequest(said))
            said = []
            found.append(_answer(message))
        else:
            said.extend(_asked(message))
    return [*found, its.ModelRequest(said)] if said else found


def _asked(message: SystemMessage | UserMessage | ToolMessage) -> list[its.ModelRequestPart]:
    if isinstance(message, SystemMessage):
        return [its.SystemPromptPart(message.text)]
    if isinstance(message, UserMessage):
        content: list[its.UserContent] = [
            part.text if isinstance(part, TextPart) else _media(part) for part in message.parts
        ]
        return [its.UserPromptPart(content)]
    result: Any = message.content
    if message.media:
        result = [message.content, *map(_media, message.media)]
    outcome: Any = "failed" if message.is_error else "success"
    return [its.ToolReturnPart(message.tool_name, result, message.call_id, outcome=outcome)]


def _media(part: MediaPart) -> Any:
    if part.data:
        return its.BinaryContent(part.data, media_type=part.media_type)
    kind = _URLS.get(part.media_type.partition("/")[0], its.DocumentUrl)
    return kind(part.uri, media_type=part.media_type or None)


def _answer(message: AssistantMessage) -> its.ModelResponse:
    calls = [
        its.ToolCallPart(call.tool_name, sendable_arguments(call.arguments_json), call.call_id)
        for call in message.tool_calls
    ]
    text: list[Any] = [its.TextPart(message.text)] if message.text else []
    kept = _kept(message)
    if kept is None:
        return its.ModelResponse([*text, *calls])
    if "".join(part.content for part in kept.parts if isinstance(part, its.TextPart)) != message.text:
        # The text was changed since: what is signed goes first, then the text as it is now.
        signed = [part for part in kept.parts if isinstance(part, its.ThinkingPart)]
        kept.parts = [*signed, *text, *calls]
        return kept
    rest = iter(calls)
    parts: list[Any] = []
    for part in kept.parts:
        if not isinstance(part, its.ToolCallPart):
            parts.append(part)
        elif (ours := next(rest, None)) is not None:
            part.tool_name, part.args, part.tool_call_id = ours.tool_name, ours.args, ours.tool_call_id
            parts.append(part)
    kept.parts = [*parts, *rest]
    return kept


def _kept(message: AssistantMessage) -> its.ModelResponse | None:
    for block in replay_blocks(message.replay_json):
        if block.get("type") == RESPONSE:
            (found,) = its.ModelMessagesTypeAdapter.validate_python([block.get("message")])
            return found if isinstance(found, its.ModelResponse) else None
    return None


def needs_replay(parts: Sequence[Any]) -> bool:
    """Whether an answer holds what its text and its calls cannot rebuild."""
    return any(
        getattr(part, "signature", None)
        or getattr(part, "provider_details", None)
        or not isinstance(part, (its.TextPart, its.ThinkingPart, its.ToolCallPart))
        for part in parts
    )


def dumped(response: its.ModelResponse) -> dict[str, Any]:
    """Return the answer as the block that goes back with it."""
    (message,) = its.ModelMessagesTypeAdapter.dump_python([response], mode="json")
    return {"type": RESPONSE, "message": message}


def bridge_parameters(request: ModelRequest) -> ModelRequestParameters:
    """Return the tools, and the schema of the answer where there is one."""
    tools = [
        ToolDefinition(
            name=tool.name,
            parameters_json_schema=json_object(tool.input_schema_json or '{"type":"object"}'),
            description=tool.description or None,
        )
        for tool in request.tools
    ]
    if not request.response_schema_json:
        return ModelRequestParameters(function_tools=tools)
    schema = OutputObjectDefinition(json_object(request.response_schema_json), name="response")
    return ModelRequestParameters(function_tools=tools, output_mode="native", output_object=schema)


def bridge_settings(request: ModelRequest, extra: dict[str, object]) -> ModelSettings:
    """Return the settings; repeats are ours, so the libraries below make none. Raises ValueError."""
    options, choice = request.options, request.tool_choice
    found: dict[str, Any] = {**extra, "max_retries": 0}
    if options.temperature is not None:
        found["temperature"] = options.temperature
    if options.top_p is not None:
        found["top_p"] = options.top_p
    if options.max_output_tokens is not None:
        found["max_tokens"] = options.max_output_tokens
    if options.stop:
        found["stop_sequences"] = list(options.stop)
    if options.reasoning_effort == "none":
        found["thinking"] = False
    elif options.reasoning_effort in _EFFORTS:
        found["thinking"] = options.reasoning_effort
    elif options.reasoning_effort:
        raise ValueError(f"reasoning_effort is none or one of {', '.join(_EFFORTS)}")
    if choice.mode != "auto":
        found["tool_choice"] = [choice.tool_name] if choice.mode == "tool" else choice.mode
    return cast(ModelSettings, found)
