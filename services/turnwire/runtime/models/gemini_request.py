"""A model request as the body of a Gemini generateContent call.

Roles alternate there, so neighbours of one role become one content. Instructions after the start stand in the
conversation as user text. Calls and results are paired by order and name.
"""

from __future__ import annotations

import base64
import re
from typing import Any
from urllib.parse import quote

import msgspec

from turnwire.extend.llm import (
    AssistantMessage,
    MediaPart,
    ModelMessage,
    ModelRequest,
    SystemMessage,
    ToolCallPart,
    ToolMessage,
    UserMessage,
)
from turnwire.runtime.models.media import gemini_media
from turnwire.runtime.models.openai_request import (
    json_object,
    raw_object,
    replay_blocks,
    sendable_arguments,
)
from turnwire.runtime.models.settings import ProviderProfile

__all__ = ["encode_gemini", "gemini_path"]

_encode = msgspec.json.Encoder().encode
# Tokens to think with, by the effort that the request names; other words leave the model's default.
_BUDGETS = {"none": 0, "minimal": 512, "low": 2048, "medium": 8192, "high": 24576}
# Models from the third generation on refuse a first call without signature, but for this documented word.
_SIGNED = re.compile(r"\bgemini-(?:[3-9]|\d\d)")
_UNSIGNED = base64.b64encode(b"skip_thought_signature_validator").decode()
_MODES = {"none": "NONE", "required": "ANY", "tool": "ANY"}


def gemini_path(model: str, stream: bool) -> str:
    """The path of a call to `model`."""
    name = quote(model, safe="/-._~") if "/" in model else f"models/{quote(model, safe='-._~')}"
    return f"/{name}:streamGenerateContent?alt=sse" if stream else f"/{name}:generateContent"


def encode_gemini(request: ModelRequest, profile: ProviderProfile, *, stream: bool) -> bytes:
    """Return the JSON body; whether it streams is said by the path."""
    body: dict[str, Any] = dict(profile.extra_body)
    rest = list(request.messages)
    system = []
    while rest and isinstance(rest[0], SystemMessage):
        system.append({"text": rest.pop(0).text})  # type: ignore[union-attr]
    if system:
        body["systemInstruction"] = {"parts": system}
    body["contents"] = _contents(rest, signed=bool(_SIGNED.search(request.model)))
    if request.tools:
        declarations = [
            {
                "name": tool.name,
                "description": tool.description,
                "parametersJsonSchema": raw_object(tool.input_schema_json),
            }
            for tool in request.tools
        ]
        body["tools"] = [{"functionDeclarations": declarations}]
        if request.tool_choice.mode in _MODES:
            config: dict[str, Any] = {"mode": _MODES[request.tool_choice.mode]}
            if request.tool_choice.tool_name:
                config["allowedFunctionNames"] = [request.tool_choice.tool_name]
            body["toolConfig"] = {"functionCallingConfig": config}
    if config := _generation(request):
        body["generationConfig"] = config
    # What grows comes last, so that a request begins with the bytes of the one before.
    body["contents"] = body.pop("contents")
    return _encode(body)


def _generation(request: ModelRequest) -> dict[str, Any]:
    options = request.options
    config: dict[str, Any] = {}
    if options.temperature is not None:
        config["temperature"] = options.temperature
    if options.top_p is not None:
        config["topP"] = options.top_p
    if options.max_output_tokens is not None:
        config["maxOutputTokens"] = options.max_output_tokens
    if options.stop:
        config["stopSequences"] = list(options.stop)
    if options.reasoning_effort in _BUDGETS:
        budget = _BUDGETS[options.reasoning_effort]
        config["thinkingConfig"] = {"thinkingBudget": budget, "includeThoughts": budget > 0}
    if request.response_schema_json:
        config["responseMimeType"] = "application/json"
        config["responseJsonSchema"] = json_object(request.response_schema_json)
    return config


def _contents(messages: list[ModelMessage], *, signed: bool) -> list[dict[str, Any]]:
    merged: list[dict[str, Any]] = []
    for message in messages:
        role, parts = _message(message)
        if signed and isinstance(message, AssistantMessage):
            _sign_first_call(parts)
        if merged and merged[-1]["role"] == role:
            merged[-1]["parts"].extend(parts)
        elif parts:
            merged.append({"role": role, "parts": parts})
    if merged and merged[0]["role"] == "model":
        # What it answers was hidden, and a conversation begins with a user.
        merged.insert(0, {"role": "user", "parts": [{"text": "(no content)"}]})
    return merged


def _message(message: ModelMessage) -> tuple[str, list[Any]]:
    if isinstance(message, SystemMessage):
        return "user", [{"text": message.text}]
    if isinstance(message, UserMessage):
        return "user", [
            gemini_media(p) if isinstance(p, MediaPart) else {"text": p.text} for p in message.parts
        ]
    if isinstance(message, ToolMessage):
        response = {"error" if message.is_error else "result": message.content}
        result: dict[str, Any] = {"functionResponse": {"name": message.tool_name, "response": response}}
        return "user", [result, *map(gemini_media, message.media)]
    return "model", _answer(message)


def _answer(message: AssistantMessage) -> list[Any]:
    calls = [_call(call) for call in message.tool_calls]
    blocks = [b for b in replay_blocks(message.replay_json) if b.get("type") == "gemini.part"]
    shown = "".join(
        str(b["part"].get("text") or "")
        for b in blocks
        if isinstance(b.get("part"), dict) and not b["part"].get("thought")
    )
    if not blocks or shown != message.text:
        return ([{"text": message.text}] if message.text else []) + calls
    parts: list[Any] = []
    used: set[int] = set()
    for block in blocks:
        position = block.get("position")
        if not isinstance(position, int):
            parts.append(block["part"])
        elif position < len(calls):
            used.add(position)
            parts.append(calls[position] | block["part"])
    return parts + [call for position, call in enumerate(calls) if position not in used]


def _call(call: ToolCallPart) -> dict[str, Any]:
    arguments = msgspec.Raw(sendable_arguments(call.arguments_json).encode())
    return {"functionCall": {"name": call.tool_name, "args": arguments}}


def _sign_first_call(parts: list[Any]) -> None:
    """Mark a first call that has no signature, as another provider made it or its text was changed."""
    at = next((index for index, part in enumerate(parts) if "functionCall" in part), None)
    if at is not None and "thoughtSignature" not in parts[at]:
        parts[at] = parts[at] | {"thoughtSignature": _UNSIGNED}
