"""A model request as the body of an Anthropic message.

Roles alternate there, so neighbours of one role become one message, with tool results first. Instructions
after the start stand in the conversation as user text. `Finish.replay_json` of this format is the answer as
blocks: it goes back as it came, the calls filled in with our ids.
"""

from __future__ import annotations

from typing import Any

import msgspec

from turnwire.extend.llm import (
    AssistantMessage,
    ModelMessage,
    ModelRequest,
    SystemMessage,
    TextPart,
    ToolCallPart,
    ToolMessage,
    UserMessage,
)
from turnwire.runtime.models.media import anthropic_media, tool_id
from turnwire.runtime.models.openai_request import (
    json_object,
    raw_object,
    replay_blocks,
    sendable_arguments,
)
from turnwire.runtime.models.settings import ProviderProfile

__all__ = ["encode_messages"]

_encode = msgspec.json.Encoder().encode
_CACHE = {"type": "ephemeral"}
# Tokens to think with, by the effort that the request names; other words leave thinking off.
_BUDGETS = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 16384, "xhigh": 32768, "max": 32768}
_ROOM_FOR_ANSWER = 4096


def encode_messages(request: ModelRequest, profile: ProviderProfile, *, stream: bool) -> bytes:
    """Return the JSON body."""
    body: dict[str, Any] = dict(profile.extra_body)
    body["model"] = request.model
    body["max_tokens"] = request.options.max_output_tokens or profile.default_max_output_tokens
    system, rest = _split_system(request.messages)
    if system:
        body["system"] = [{"type": "text", "text": "\n\n".join(system)}]
    body["messages"] = _merge([_message(message) for message in rest])
    if request.tools:
        body["tools"] = [
            {
                "name": tool.name,
                "description": tool.description,
                "input_schema": raw_object(tool.input_schema_json),
            }
            for tool in request.tools
        ]
        if request.tool_choice.mode != "auto":
            body["tool_choice"] = _choice(request)
    _options(body, request, profile)
    if request.response_schema_json:
        schema = json_object(request.response_schema_json)
        body.setdefault("output_config", {})["format"] = {"type": "json_schema", "schema": schema}
    if profile.prompt_cache:
        _mark_cache(body)
    body["stream"] = stream
    # What grows comes last, so that a request begins with the bytes of the one before.
    body["messages"] = body.pop("messages")
    return _encode(body)


def _options(body: dict[str, Any], request: ModelRequest, profile: ProviderProfile) -> None:
    options = request.options
    budget = _BUDGETS.get(options.reasoning_effort, 0)
    # Thinking excludes forced tools and sampling settings.
    thinks = budget and request.tool_choice.mode in ("auto", "none")
    if profile.thinking == "budget" and _unthought(request.messages):
        thinks = False
    if thinks and profile.thinking == "adaptive":
        effort = "low" if options.reasoning_effort == "minimal" else options.reasoning_effort
        body["thinking"] = {"type": "adaptive", "display": "summarized"}
        body["output_config"] = {"effort": effort}
    elif thinks:
        body["thinking"] = {"type": "enabled", "budget_tokens": budget}
        body["max_tokens"] = max(body["max_tokens"], budget + _ROOM_FOR_ANSWER)
    else:
        if options.temperature is not None:
            body["temperature"] = min(options.temperature, 1.0)
        if options.top_p is not None:
            body["top_p"] = options.top_p
    stops = [stop for stop in options.stop if stop.strip()]
    if stops:
        body["stop_sequences"] = stops


def _unthought(messages: tuple[ModelMessage, ...]) -> bool:
    """Whether calls are open that were made without thinking, by another provider say.

    With thinking on, their answer would have to begin with a signed block, and there is none to send.
    """
    for message in reversed(messages):
        if isinstance(message, AssistantMessage):
            kinds = [str(block.get("type")) for block in replay_blocks(message.replay_json)]
            return bool(message.tool_calls) and not {"thinking", "redacted_thinking"} & set(kinds)
        if not isinstance(message, ToolMessage):
            return False
    return False


def _choice(request: ModelRequest) -> dict[str, Any]:
    choice = request.tool_choice
    if choice.mode == "tool":
        return {"type": "tool", "name": choice.tool_name}
    return {"type": {"required": "any"}.get(choice.mode, choice.mode)}


def _split_system(messages: tuple[ModelMessage, ...]) -> tuple[list[str], tuple[ModelMessage, ...]]:
    texts: list[str] = []
    for position, message in enumerate(messages):
        if not isinstance(message, SystemMessage):
            return texts, messages[position:]
        if message.text.strip():
            texts.append(message.text)
    return texts, ()


def _message(message: ModelMessage) -> tuple[str, list[Any]]:
    if isinstance(message, SystemMessage):
        return "user", _text_blocks(message.text)
    if isinstance(message, ToolMessage):
        return "user", [_tool_result(message)]
    if isinstance(message, UserMessage):
        blocks: list[Any] = []
        for part in message.parts:
            blocks += _text_blocks(part.text) if isinstance(part, TextPart) else [anthropic_media(part)]
        return "user", blocks
    assert isinstance(message, AssistantMessage)
    return "assistant", _assistant(message)


def _text_blocks(text: str) -> list[Any]:
    # Blank text blocks are refused.
    return [{"type": "text", "text": text}] if text.strip() else []


def _tool_result(message: ToolMessage) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "tool_result", "tool_use_id": tool_id(message.call_id)}
    content = _text_blocks(message.content) + [anthropic_media(part) for part in message.media]
    if content:
        found["content"] = content
    if message.is_error:
        found["is_error"] = True
    return found


def _assistant(message: AssistantMessage) -> list[Any]:
    calls = [_tool_use(call) for call in message.tool_calls]
    replay = [b for b in replay_blocks(message.replay_json) if not _foreign(str(b.get("type")))]
    texts = "".join(str(b.get("text")) for b in replay if b.get("type") == "text")
    if not replay:
        return _text_blocks(message.text) + calls
    if texts != message.text:
        # The text was changed since: what is signed goes first, then the text as it is now.
        signed = [b for b in replay if b.get("type") in ("thinking", "redacted_thinking", "compaction")]
        return signed + _text_blocks(message.text) + calls
    blocks: list[Any] = []
    used: set[int] = set()
    for block in replay:
        if block.get("type") != "tool_use":
            blocks.append(block)
        elif isinstance(position := block.get("position"), int) and position < len(calls):
            used.add(position)
            blocks.append(calls[position])
    return blocks + [call for position, call in enumerate(calls) if position not in used]


def _foreign(kind: str) -> bool:
    """Whether a block was kept for another wire format."""
    return "." in kind or kind in ("reasoning", "message", "function_call")


def _tool_use(call: ToolCallPart) -> dict[str, Any]:
    arguments = msgspec.Raw(sendable_arguments(call.arguments_json).encode())
    return {"type": "tool_use", "id": tool_id(call.call_id), "name": call.tool_name, "input": arguments}


def _merge(messages: list[tuple[str, list[Any]]]) -> list[dict[str, Any]]:
    merged: list[tuple[str, list[Any]]] = []
    for role, blocks in messages:
        if merged and merged[-1][0] == role:
            merged[-1][1].extend(blocks)
        elif blocks:
            merged.append((role, list(blocks)))
    for role, blocks in merged:
        if role == "user":
            # A stable sort: results first, as they answer the message before.
            blocks.sort(key=lambda block: block.get("type") != "tool_result")
    if merged and merged[0][0] == "assistant":
        merged.insert(0, ("user", [{"type": "text", "text": "(no content)"}]))
    return [{"role": role, "content": blocks} for role, blocks in merged]


def _mark_cache(body: dict[str, Any]) -> None:
    """Let the provider cache the prompt up to its stable ends.

    These are the tools, the instructions, the message of the user before the last, which the call before has
    stored, and the last one, which the next call reads. More than four marks are refused there.
    """
    for name in ("tools", "system"):
        if body.get(name):
            body[name][-1] = body[name][-1] | {"cache_control": _CACHE}
    said = [message["content"] for message in body["messages"] if message["role"] == "user"]
    for content in said[-2:]:
        last = content[-1]
        if last.get("type") in ("text", "tool_result", "image", "document"):
            content[-1] = last | {"cache_control": _CACHE}
