"""A model request as the body of an OpenAI response.

Nothing is stored at the provider (`store: false`), so encrypted reasoning is asked for and goes back with its
answer. Stop sequences do not exist there: a request with some is refused rather than read otherwise.
"""

from __future__ import annotations

from typing import Any

import msgspec

from turnwire.extend.llm import (
    AssistantMessage,
    MediaPart,
    ModelMessage,
    ModelRequest,
    SystemMessage,
    TextPart,
    ToolChoice,
    ToolMessage,
    UserMessage,
)
from turnwire.runtime.models.media import responses_media, tool_id
from turnwire.runtime.models.openai_request import (
    cache_key,
    is_strict,
    json_object,
    raw_object,
    replay_blocks,
    sendable_arguments,
)
from turnwire.runtime.models.settings import ProviderProfile

__all__ = ["encode_responses"]

_encode = msgspec.json.Encoder().encode
_ITEMS = ("reasoning", "message", "function_call", "compaction", "compaction_summary")


def encode_responses(request: ModelRequest, profile: ProviderProfile, *, stream: bool) -> bytes:
    """Return the JSON body. Raises ValueError where the request cannot be said."""
    if request.options.stop:
        raise ValueError("stop sequences do not exist in the responses format")
    body: dict[str, Any] = dict(profile.extra_body)
    body["model"] = request.model
    body["input"] = [item for message in request.messages for item in _items(message, profile)]
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": raw_object(tool.input_schema_json),
                "strict": False,
            }
            for tool in request.tools
        ]
        if request.tool_choice.mode != "auto":
            body["tool_choice"] = _choice(request.tool_choice)
    _options(body, request)
    body["store"] = False
    body["include"] = ["reasoning.encrypted_content"]
    body["stream"] = stream
    body |= cache_key(request, profile)
    # What grows comes last, so that a request begins with the bytes of the one before.
    body["input"] = body.pop("input")
    return _encode(body)


def _options(body: dict[str, Any], request: ModelRequest) -> None:
    options = request.options
    if options.temperature is not None:
        body["temperature"] = options.temperature
    if options.top_p is not None:
        body["top_p"] = options.top_p
    if options.max_output_tokens is not None:
        body["max_output_tokens"] = options.max_output_tokens
    if options.reasoning_effort:
        body["reasoning"] = {"effort": options.reasoning_effort, "summary": "auto"}
    if request.response_schema_json:
        schema = json_object(request.response_schema_json)
        strict = is_strict(schema)
        body["text"] = {
            "format": {"type": "json_schema", "name": "response", "schema": schema, "strict": strict}
        }


def _choice(choice: ToolChoice) -> Any:
    return {"type": "function", "name": choice.tool_name} if choice.mode == "tool" else choice.mode


def _items(message: ModelMessage, profile: ProviderProfile) -> list[Any]:
    if isinstance(message, SystemMessage):
        return [{"role": profile.system_role, "content": message.text}]
    if isinstance(message, UserMessage):
        return [{"role": "user", "content": [_part(part) for part in message.parts]}]
    if isinstance(message, ToolMessage):
        output: Any = message.content
        if message.media:
            output = [{"type": "input_text", "text": message.content}, *map(_part, message.media)]
        call_id = tool_id(message.call_id)
        return [{"type": "function_call_output", "call_id": call_id, "output": output}]
    return _answer(message)


def _part(part: TextPart | MediaPart) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "input_text", "text": part.text}
    return responses_media(part)


def _answer(message: AssistantMessage) -> list[Any]:
    calls = [
        {
            "type": "function_call",
            "call_id": tool_id(call.call_id),
            "name": call.tool_name,
            "arguments": sendable_arguments(call.arguments_json),
        }
        for call in message.tool_calls
    ]
    text = [{"role": "assistant", "content": message.text}] if message.text else []
    replay = replay_blocks(message.replay_json)
    if not any(item.get("type") in ("reasoning", *_ITEMS[3:]) for item in replay):
        return text + calls
    if _said(replay) != message.text:
        # The text was changed since: what is encrypted goes first, then the text as it is now.
        return [item for item in replay if "encrypted_content" in item] + text + calls
    found: list[Any] = []
    used: set[int] = set()
    for item in replay:
        position = item.get("position")
        if item.get("type") == "message":
            found.append({"role": "assistant", "content": _said([item])})
        elif item.get("type") != "function_call":
            found.append({name: value for name, value in item.items() if name != "status"})
        elif isinstance(position, int) and position < len(calls):
            used.add(position)
            found.append(calls[position])
    return found + [call for position, call in enumerate(calls) if position not in used]


def _said(replay: list[dict[str, Any]]) -> str:
    parts = [part for item in replay if item.get("type") == "message" for part in item.get("content") or ()]
    return "".join(str(part.get("text")) for part in parts if part.get("type") == "output_text")
