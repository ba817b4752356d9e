"""Long answers of each wire format, for what their length costs the reading alone: no socket, no store.

What is measured is a normaliser: the bytes of a body in, as a socket gives them, and events out.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any, get_args

from bench.mock_answers import call_arguments
from bench.workloads import token
from turnwire.extend.llm import Finish, TextDelta, ToolCallComplete
from turnwire.runtime.models.dialects import make_normaliser
from turnwire.runtime.models.profiles import ProviderProfile, WireFormat

# What one read of a socket brings at most here.
READ_BYTES = 16 * 1024
PIECE_BYTES = 4
REPEATS = 3

FORMATS: tuple[WireFormat, ...] = tuple(name for name in get_args(WireFormat) if name != "pydantic-ai")

Events = Iterator[dict[str, Any]]


def text_body(wire: WireFormat, tokens: int) -> bytes:
    """The body of an answer of so many tokens, each an event of its own."""
    return b"".join(_line(event) for event in _TEXTS[wire](map(token, range(tokens))))


def call_body(wire: WireFormat, size: int) -> bytes:
    """The body of an answer with one tool call, its arguments of `size` bytes in pieces of four."""
    arguments = call_arguments(1, size)
    pieces = (arguments[start : start + PIECE_BYTES] for start in range(0, size, PIECE_BYTES))
    return b"".join(_line(event) for event in _CALLS[wire](pieces, arguments))


def _line(event: dict[str, Any]) -> bytes:
    return b"data: %b\n\n" % json.dumps(event, separators=(",", ":")).encode()


def _chat(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def _chat_text(texts: Iterator[str]) -> Events:
    for text in texts:
        yield _chat({"content": text})
    yield _chat({}, "stop")


def _chat_call(pieces: Iterator[str], _: str) -> Events:
    yield _chat({"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "add"}}]})
    for piece in pieces:
        yield _chat({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})
    yield _chat({}, "tool_calls")


def _responses(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", "output_index": 0, **fields}


def _responses_text(texts: Iterator[str]) -> Events:
    for text in texts:
        yield _responses("output_text.delta", delta=text)
    yield _responses("completed", response={"status": "completed"})


def _responses_call(pieces: Iterator[str], arguments: str) -> Events:
    item = {"type": "function_call", "call_id": "c1", "name": "add"}
    yield _responses("output_item.added", item=item)
    for piece in pieces:
        yield _responses("function_call_arguments.delta", delta=piece)
    yield _responses("output_item.done", item={**item, "arguments": arguments})
    yield _responses("completed", response={"status": "completed"})


def _messages(kind: str, deltas: Iterator[dict[str, Any]], block: dict[str, Any], reason: str) -> Events:
    yield {"type": "message_start", "message": {"id": "m1", "usage": {"input_tokens": 1}}}
    yield {"type": "content_block_start", "index": 0, "content_block": block}
    for delta in deltas:
        yield {"type": "content_block_delta", "index": 0, "delta": {"type": kind, **delta}}
    yield {"type": "content_block_stop", "index": 0}
    yield {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 1}}
    yield {"type": "message_stop"}


def _messages_text(texts: Iterator[str]) -> Events:
    return _messages("text_delta", ({"text": t} for t in texts), {"type": "text", "text": ""}, "end_turn")


def _messages_call(pieces: Iterator[str], _: str) -> Events:
    block = {"type": "tool_use", "id": "c1", "name": "add", "input": {}}
    return _messages("input_json_delta", ({"partial_json": p} for p in pieces), block, "tool_use")


def _gemini(part: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    reason = {"finishReason": finish} if finish else {}
    return {"candidates": [{"content": {"parts": [part]}, **reason}]}


def _gemini_text(texts: Iterator[str]) -> Events:
    for text in texts:
        yield _gemini({"text": text})
    yield _gemini({"text": ""}, "STOP")


def _gemini_call(pieces: Iterator[str], _: str) -> Events:
    yield _gemini({"functionCall": {"name": "add", "id": "c1", "willContinue": True}})
    for piece in pieces:
        value = {"jsonPath": "$.note", "stringValue": piece, "willContinue": True}
        yield _gemini({"functionCall": {"partialArgs": [value], "willContinue": True}})
    yield _gemini({"functionCall": {}}, "STOP")


_TEXTS: dict[WireFormat, Callable[[Iterator[str]], Events]] = {
    "openai-chat": _chat_text,
    "openai-responses": _responses_text,
    "anthropic": _messages_text,
    "gemini": _gemini_text,
}
_CALLS: dict[WireFormat, Callable[[Iterator[str], str], Events]] = {
    "openai-chat": _chat_call,
    "openai-responses": _responses_call,
    "anthropic": _messages_call,
    "gemini": _gemini_call,
}


def read(wire: WireFormat, body: bytes) -> tuple[int, int, int]:
    """Read a body as from a socket; returns the text deltas, the tool calls and the regular ends in it."""
    normaliser = make_normaliser("bench", ProviderProfile(format=wire))
    counts = {TextDelta: 0, ToolCallComplete: 0, Finish: 0}
    for start in range(0, len(body), READ_BYTES):
        for event in normaliser.feed(body[start : start + READ_BYTES]):
            if type(event) in counts:
                counts[type(event)] += 1
    for event in normaliser.close():
        if type(event) in counts:
            counts[type(event)] += 1
    return counts[TextDelta], counts[ToolCallComplete], counts[Finish]


def cpu(wire: WireFormat, body: bytes, wanted: tuple[int, int, int]) -> float:
    """CPU seconds of one reading, the best of some.

    Raises:
        WrongAnswer: the reading did not give what it should.
    """
    best = float("inf")
    for _ in range(REPEATS):
        begun = time.process_time()
        found = read(wire, body)
        best = min(best, time.process_time() - begun)
        if found != wanted:
            raise WrongAnswer(f"{wire}: text deltas, calls and ends are {found}, not {wanted}")
    return best


class WrongAnswer(Exception):
    """A body was read as another one."""
