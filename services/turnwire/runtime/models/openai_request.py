"""A model request as the body of a chat completion.

The caller guarantees strict pairing: each assistant message with calls is followed by one tool message per
call. Images of tool results follow the last result of their group, as tool messages hold text only.
Of the `metadata` of the request only a hash of `thread` is sent, as a key of the prompt cache.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from functools import lru_cache
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
from turnwire.runtime.models.arguments import check_arguments
from turnwire.runtime.models.media import chat_media, tool_id
from turnwire.runtime.models.settings import ProviderProfile

__all__ = [
    "cache_key",
    "encode_chat",
    "is_strict",
    "json_object",
    "raw_object",
    "replay_blocks",
    "sendable_arguments",
]

_encode = msgspec.json.Encoder().encode
# Keywords that every strict mode knows.
_STRICT = {
    *("type", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf"),
    *("$ref", "$defs", "title", "description"),
}


def encode_chat(request: ModelRequest, profile: ProviderProfile, *, stream: bool) -> bytes:
    """Return the JSON body."""
    body: dict[str, Any] = dict(profile.extra_body)
    body["model"] = request.model
    body["messages"] = _messages(request.messages, profile)
    if request.tools:
        body["tools"] = [_tool(t.name, t.description, t.input_schema_json) for t in request.tools]
        if request.tool_choice.mode != "auto":
            body["tool_choice"] = _choice(request.tool_choice)
    _options(body, request, profile)
    if request.response_schema_json:
        schema = json_object(request.response_schema_json)
        body["response_format"] = {
            "type": "json_schema",
            "json_schema": {"name": "response", "schema": schema, "strict": is_strict(schema)},
        }
    body["stream"] = stream
    if stream and profile.stream_usage:
        body["stream_options"] = {"include_usage": True}
    body |= cache_key(request, profile)
    # What grows comes last, so that a request begins with the bytes of the one before.
    body["messages"] = body.pop("messages")
    return _encode(body)


def cache_key(request: ModelRequest, profile: ProviderProfile) -> dict[str, str]:
    """The field that keeps the requests of a thread where their prompt is cached; empty where none is."""
    thread = request.metadata.get("thread", "")
    if not (profile.prompt_cache and profile.cache_key and thread):
        return {}
    return {"prompt_cache_key": hashlib.sha256(thread.encode()).hexdigest()[:32]}


def _options(body: dict[str, Any], request: ModelRequest, profile: ProviderProfile) -> None:
    options = request.options
    if options.temperature is not None:
        body["temperature"] = options.temperature
    if options.top_p is not None:
        body["top_p"] = options.top_p
    if options.max_output_tokens is not None:
        body[profile.max_tokens_field] = options.max_output_tokens
    if options.stop:
        body["stop"] = list(options.stop)
    if options.reasoning_effort:
        body["reasoning_effort"] = options.reasoning_effort


def _messages(messages: Iterable[ModelMessage], profile: ProviderProfile) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    media: list[MediaPart] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            content = message.content
            found.append({"role": "tool", "tool_call_id": tool_id(message.call_id), "content": content})
            media.extend(message.media)
            continue
        if media:
            found.append(_media_of_results(media))
            media = []
        found.append(_message(message, profile))
    if media:
        found.append(_media_of_results(media))
    return found


def _media_of_results(media: list[MediaPart]) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [{"type": "text", "text": "Files that the tools returned:"}]
    return {"role": "user", "content": parts + [chat_media(part) for part in media]}


def _message(message: ModelMessage, profile: ProviderProfile) -> dict[str, Any]:
    if isinstance(message, SystemMessage):
        return {"role": profile.system_role, "content": message.text}
    if isinstance(message, UserMessage):
        return {"role": "user", "content": _user_content(message)}
    assert isinstance(message, AssistantMessage)
    return _assistant(message, profile)


def _user_content(message: UserMessage) -> str | list[dict[str, Any]]:
    if all(isinstance(part, TextPart) for part in message.parts):
        return "\n\n".join(part.text for part in message.parts if isinstance(part, TextPart))
    return [
        {"type": "text", "text": part.text} if isinstance(part, TextPart) else chat_media(part)
        for part in message.parts
    ]


def _assistant(message: AssistantMessage, profile: ProviderProfile) -> dict[str, Any]:
    found: dict[str, Any] = {"role": "assistant", "content": message.text or None}
    if message.tool_calls:
        found["tool_calls"] = [
            {
                "id": tool_id(call.call_id),
                "type": "function",
                "function": {"name": call.tool_name, "arguments": sendable_arguments(call.arguments_json)},
            }
            for call in message.tool_calls
        ]
    elif not message.text:
        found["content"] = ""
    if profile.reasoning_field and message.reasoning:
        found[profile.reasoning_field] = message.reasoning
    details = []
    for block in replay_blocks(message.replay_json):
        kind, position = str(block.get("type")), block.get("position")
        if kind.startswith("reasoning."):
            details.append(block)
        elif kind == "tool_call.extra" and isinstance(position, int) and position < len(message.tool_calls):
            found["tool_calls"][position]["extra_content"] = block.get("extra_content")
    if details:
        found["reasoning_details"] = details
    return found


def _tool(name: str, description: str, schema_json: str) -> dict[str, Any]:
    function: dict[str, Any] = {"name": name, "parameters": raw_object(schema_json)}
    if description:
        function["description"] = description
    return {"type": "function", "function": function}


def _choice(choice: ToolChoice) -> Any:
    if choice.mode == "tool":
        return {"type": "function", "function": {"name": choice.tool_name}}
    return choice.mode


# --- shared by the formats
# ------------------------------------------------------------------------------------


@lru_cache(maxsize=512)
def raw_object(text: str) -> msgspec.Raw:
    """A JSON object to be embedded as it is; `{"type":"object","properties":{}}` for an empty text.

    Raises:
        ValueError: it is no JSON object.
    """
    if not text.strip():
        text = '{"type":"object","properties":{}}'
    json_object(text)
    return msgspec.Raw(text.encode())


def json_object(text: str) -> dict[str, Any]:
    """Read a JSON object. Raises ValueError."""
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")
    return found


def sendable_arguments(arguments_json: str) -> str:
    """Arguments in a form that every provider takes back: those that were refused go as `{}`."""
    arguments, error = check_arguments(arguments_json)
    return "{}" if error else arguments


def replay_blocks(replay_json: str) -> list[dict[str, Any]]:
    """The blocks of an earlier answer; none where there are none or they cannot be read."""
    if not replay_json:
        return []
    try:
        found = json.loads(replay_json)
    except ValueError:
        return []
    return [block for block in found if isinstance(block, dict)] if isinstance(found, list) else []


def is_strict(schema: Any) -> bool:
    """Whether strict modes take a schema: closed objects that require all names, and plain keywords alone."""
    if not isinstance(schema, dict) or not schema.keys() <= _STRICT:
        return False
    properties = schema.get("properties") or {}
    if schema.get("type") == "object" or properties:
        if schema.get("additionalProperties") is not False:
            return False
        if set(properties) != set(schema.get("required") or ()):
            return False
    below = [*properties.values(), *(schema.get("$defs") or {}).values(), *(schema.get("anyOf") or ())]
    if "items" in schema:
        below.append(schema["items"])
    return all(map(is_strict, below))
