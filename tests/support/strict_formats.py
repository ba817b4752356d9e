"""The wire formats of the strict provider: whose request a path is, and what is wrong with its history."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from support.history_rules import Entry, history_fault

__all__ = [
    "CHAT",
    "GEMINI",
    "GEMINI_DONE",
    "MESSAGES",
    "RESPONSES",
    "RESPONSES_DONE",
    "format_of",
    "gemini_fault",
    "model_of",
    "responses_fault",
]

CHAT, RESPONSES, MESSAGES, GEMINI = "chat", "responses", "messages", "gemini"


def format_of(path: str) -> str:
    """The format that a path belongs to."""
    if "/chat/completions" in path:
        return CHAT
    if "generatecontent" in path.lower():
        return GEMINI
    return RESPONSES if "/responses" in path else MESSAGES


def model_of(path: str, body: dict[str, Any]) -> str:
    """The model that a request asks for: one format says it in its path."""
    if format_of(path) == GEMINI:
        return path.partition("/models/")[2].partition(":")[0]
    return str(body["model"])


def _events(*events: dict[str, Any]) -> bytes:
    return b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events)


RESPONSES_DONE = _events(
    {"type": "response.output_text.delta", "output_index": 0, "delta": "done"},
    {
        "type": "response.completed",
        "response": {"status": "completed", "usage": {"input_tokens": 1, "output_tokens": 1}},
    },
)
GEMINI_DONE = _events(
    {"candidates": [{"content": {"role": "model", "parts": [{"text": "done"}]}, "finishReason": "STOP"}]}
)


def responses_fault(items: Sequence[dict[str, Any]]) -> str:
    """Say what is wrong with a history of the responses format; empty when nothing is."""
    entries: list[Entry] = []
    for item in items:
        kind = item.get("type", "message")
        if kind == "function_call_output":
            entries.append(Entry("tool", result=item["call_id"]))
        elif kind == "function_call":
            if not entries or entries[-1].role != "assistant":
                entries.append(Entry("assistant"))
            entries[-1].calls.append((item["call_id"], item["name"], item["arguments"]))
        elif kind == "message":
            text = item["content"] if isinstance(item["content"], str) else ""
            role = "system" if item["role"] == "developer" else item["role"]
            entries.append(Entry(role, text, bool(item["content"])))
    return history_fault(entries)


def gemini_fault(contents: Sequence[dict[str, Any]]) -> str:
    """Say what is wrong with a history of Gemini's format, where calls are answered by name and order."""
    entries: list[Entry] = []
    asked: list[str] = []
    for position, content in enumerate(contents):
        if content["role"] != ("user", "model")[position % 2] or not content["parts"]:
            return f"contents.{position}: roles must alternate, and each has parts"
        answers = [
            part["functionResponse"]["name"] for part in content["parts"] if "functionResponse" in part
        ]
        entries += [Entry("tool", result=f"{position - 1}.{n}") for n in range(len(answers))]
        if answers != asked[: len(answers)]:
            return f"contents.{position}: {answers} answer the calls {asked}"
        calls = [part["functionCall"] for part in content["parts"] if "functionCall" in part]
        asked = [call["name"] for call in calls]
        if len(answers) < len(content["parts"]):
            role = "assistant" if content["role"] == "model" else "user"
            told = [(f"{position}.{n}", c["name"], json.dumps(c["args"])) for n, c in enumerate(calls)]
            entries.append(Entry(role, calls=told))
    return history_fault(entries)
