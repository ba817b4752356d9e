"""What the strictest provider demands of a history: as the engine asks, and as it goes over the wire.

- instructions stand at the front, and after the first only a compacted history or the schema of the answer;
- a call has exactly one result, right after its answer, and a result has its call;
- call ids are there, and no two calls of a request have the same;
- names are of letters, digits, `_` and `-`, arguments are JSON objects, and nothing is empty;
- where a format demands it, roles alternate and a user begins.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from turnwire.extend.llm import (
    AssistantMessage,
    ModelRequest,
    SystemMessage,
    TextPart,
    ToolMessage,
    UserMessage,
)

__all__ = ["chat_fault", "messages_fault", "request_fault"]

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
# How a later message of instructions may begin.
_LATER = ("[compacted]", "When you give your final answer, give one JSON value")


@dataclass
class Entry:
    """One message. `calls` are (id, name, arguments); `result` is the id of the call that it answers."""

    role: str
    text: str = ""
    filled: bool = True
    calls: list[tuple[str, str, str]] = field(default_factory=list)
    result: str = ""


def history_fault(entries: Sequence[Entry]) -> str:
    """Say which rule a history breaks first; empty when it breaks none."""
    owed: list[str] = []
    seen: set[str] = set()
    for position, entry in enumerate(entries):
        if entry.role == "tool":
            fault = _take(entry, owed)
        elif owed:
            fault = f"no result answers {owed}"
        else:
            fault = _place_fault(entries, position) or _content_fault(entry) or _calls_fault(entry, seen)
            owed = [call_id for call_id, _, _ in entry.calls]
            seen.update(owed)
        if fault:
            return f"messages.{position}: {fault}"
    return f"no result answers {owed}" if owed else ""


def _take(entry: Entry, owed: list[str]) -> str:
    if entry.result not in owed:
        return "a result without the call that it answers"
    owed.remove(entry.result)
    return "" if entry.filled else "a result with nothing in it"


def _place_fault(entries: Sequence[Entry], position: int) -> str:
    entry = entries[position]
    if entry.role not in ("system", "user", "assistant"):
        return f"no such role: {entry.role}"
    if entry.role != "system" or position == 0:
        return ""
    if entries[position - 1].role != "system":
        return "instructions in the middle"
    return "" if entry.text.startswith(_LATER) else "instructions twice"


def _content_fault(entry: Entry) -> str:
    return "" if entry.filled or entry.calls else "nothing in it"


def _calls_fault(entry: Entry, seen: set[str]) -> str:
    ids = [call_id for call_id, _, _ in entry.calls]
    if ids and entry.role != "assistant":
        return "calls of somebody else than the assistant"
    if not all(ids) or len(set(ids)) != len(ids) or seen & set(ids):
        return "calls need ids of their own"
    for _, name, arguments in entry.calls:
        if not _NAME.fullmatch(name):
            return f"no name of a tool: {name!r}"
        try:
            found = json.loads(arguments)
        except ValueError:
            return "arguments that are no JSON"
        if not isinstance(found, dict):
            return "arguments that are no object"
    return ""


# --- as the engine asks ---


def request_fault(request: ModelRequest) -> str:
    """Say what is wrong with a request before any adapter has seen it; empty when nothing is."""
    return history_fault([_entry(message) for message in request.messages])


def _entry(message: Any) -> Entry:
    match message:
        case SystemMessage(text):
            return Entry("system", text, bool(text.strip()))
        case UserMessage(parts):
            texts = [p.text for p in parts if isinstance(p, TextPart)]
            return Entry("user", "".join(texts), bool(parts) and all(texts))
        case ToolMessage():
            filled = bool(message.content.strip() or message.media)
            return Entry("tool", message.content, filled, result=message.call_id)
        case AssistantMessage():
            calls = [(c.call_id, c.tool_name, c.arguments_json) for c in message.tool_calls]
            return Entry("assistant", message.text, bool(message.text or message.replay_json), calls)
    raise TypeError(message)


# --- as it goes over the wire ---


def chat_fault(messages: Sequence[dict[str, Any]]) -> str:
    """Say what is wrong with a chat history; empty when nothing is."""
    return history_fault([_chat_entry(message) for message in messages])


def _chat_entry(message: dict[str, Any]) -> Entry:
    content = message.get("content")
    text = content if isinstance(content, str) else ""
    role = "system" if message.get("role") == "developer" else str(message.get("role"))
    calls = [
        (c.get("id", ""), c["function"]["name"], c["function"]["arguments"])
        for c in message.get("tool_calls") or []
    ]
    if message.get("tool_calls") == []:
        calls = [("", "", "")]
    filled = bool(content or message.get("reasoning_details"))
    return Entry(role, text, filled, calls, str(message.get("tool_call_id") or ""))


def messages_fault(messages: Sequence[dict[str, Any]]) -> str:
    """Say what is wrong with a history of the messages format; empty when nothing is."""
    entries = []
    for position, message in enumerate(messages):
        if message["role"] != ("user", "assistant")[position % 2]:
            return f"messages.{position}: roles must alternate, and a user begins"
        entries.extend(_block_entries(message))
    return history_fault(entries)


def _block_entries(message: dict[str, Any]) -> Iterator[Entry]:
    blocks = message["content"]
    blocks = [{"type": "text", "text": blocks}] if isinstance(blocks, str) else blocks
    for block in blocks:
        if block["type"] == "tool_result":
            # A result without content is one that is empty, and taken.
            yield Entry("tool", result=block["tool_use_id"])
    rest = [b for b in blocks if b["type"] != "tool_result"]
    if rest or not blocks:
        calls = [(b["id"], b["name"], json.dumps(b["input"])) for b in rest if b["type"] == "tool_use"]
        texts = [b["text"] for b in rest if b["type"] == "text"]
        filled = bool(rest) and all(text.strip() for text in texts)
        entry = Entry(message["role"], "".join(texts), filled, calls)
        if texts and not filled:
            entry.calls = [("", "", "")]
        yield entry
