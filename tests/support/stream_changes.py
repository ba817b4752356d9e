"""The same recorded stream with other words, ids and borders, and what it must then give."""

from __future__ import annotations

import copy
import json
import random
import string
from collections.abc import Callable
from typing import Any

from turnwire.runtime.models.profiles import WireFormat

__all__ = ["Change"]

# Letters that stand in no tag of ours (think, thinking, reasoning), so that tags survive the exchange.
_LETTERS = "bcdfjmpqvwxyzBCDFJMPQVWXYZ" + string.digits


class Change:
    """One change, drawn from a seed: a permutation of letters, a prefix of ids, other borders of deltas."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        letters = list(_LETTERS)
        self._chance.shuffle(letters)
        self._table = str.maketrans(_LETTERS, "".join(letters))
        self._prefix = f"z{self._chance.randint(0, 999)}"
        self._changes: dict[WireFormat, Callable[[Any], list[Any]]] = {
            "openai-chat": self._chat,
            "openai-responses": self._response,
            "anthropic": self._message,
            "gemini": self._candidate,
        }

    def text(self, text: str) -> str:
        """The text in other words; reads the same however it is cut."""
        return text.translate(self._table)

    def id(self, call_id: str) -> str:
        """The id of a call under another name; one that counts as none stays so."""
        return call_id if call_id in ("", "null") else self._prefix + call_id

    def body(self, body: bytes, wire: WireFormat) -> bytes:
        """The whole stream under this change, with other JSON spacing, escapes and line ends."""
        change = self._changes[wire]
        lines: list[bytes] = []
        for line in body.replace(b"\r\n", b"\n").split(b"\n"):
            if not line.startswith((b"data: {", b"data:{")):
                lines.append(line)
                continue
            payloads = change(json.loads(line.removeprefix(b"data:")))
            # An event's name stands on the line before; the second half needs it again.
            name = lines[-1] if lines and lines[-1].startswith(b"event:") else b""
            for position, payload in enumerate(payloads):
                if position:
                    lines += [b"", name] if name else [b""]
                lines.append(self._line(payload))
        return self._chance.choice([b"\n", b"\r\n"]).join(lines)

    def _line(self, payload: Any) -> bytes:
        separators = self._chance.choice([(",", ":"), (", ", ": "), (" , ", " : ")])
        text = json.dumps(payload, ensure_ascii=self._chance.random() < 0.5, separators=separators)
        return b"data:" + self._chance.choice([b"", b" "]) + text.encode()

    def _split(self, payload: Any, get: Callable[[Any], dict[str, Any]], field: str) -> list[Any]:
        """Cut one text in two deltas at a random place, sometimes."""
        text = get(payload)[field]
        if len(text) < 2 or self._chance.random() < 0.4:
            return [payload]
        place = self._chance.randint(1, len(text) - 1)
        second = copy.deepcopy(payload)
        get(payload)[field], get(second)[field] = text[:place], text[place:]
        return [payload, second]

    def _chat(self, payload: Any) -> list[Any]:
        choices = payload.get("choices") or []
        for choice in choices:
            delta = choice.get("delta") or {}
            if isinstance(delta.get("content"), str):
                delta["content"] = self.text(delta["content"])
            for call in delta.get("tool_calls") or []:
                if isinstance(call.get("id"), str):
                    call["id"] = self.id(call["id"])
        if len(choices) != 1 or payload.get("usage") or choices[0].get("finish_reason"):
            return [payload]
        delta = choices[0].get("delta") or {}
        if isinstance(delta.get("content"), str) and set(delta) <= {"content", "role"}:
            return self._split(payload, lambda p: p["choices"][0]["delta"], "content")
        return [payload]

    def _message(self, payload: Any) -> list[Any]:
        delta = payload.get("delta") or {}
        block = payload.get("content_block") or {}
        if block.get("type") == "tool_use":
            block["id"] = self.id(block["id"])
        if block.get("type") == "text":
            block["text"] = self.text(block["text"])
        if delta.get("type") == "text_delta":
            delta["text"] = self.text(delta["text"])
            return self._split(payload, lambda p: p["delta"], "text")
        if delta.get("type") == "thinking_delta":
            return self._split(payload, lambda p: p["delta"], "thinking")
        if delta.get("type") == "input_json_delta":
            return self._split(payload, lambda p: p["delta"], "partial_json")
        return [payload]

    def _response(self, payload: Any) -> list[Any]:
        kind = payload.get("type") or ""
        for item in [payload.get("item"), *((payload.get("response") or {}).get("output") or ())]:
            if isinstance(item, dict):
                self._item(item)
        if kind == "response.output_text.delta":
            payload["delta"] = self.text(payload["delta"])
            return self._split(payload, lambda p: p, "delta")
        if kind in ("response.function_call_arguments.delta", "response.reasoning_summary_text.delta"):
            return self._split(payload, lambda p: p, "delta")
        return [payload]

    def _item(self, item: dict[str, Any]) -> None:
        if isinstance(item.get("call_id"), str) and item.get("type") in ("function_call", "custom_tool_call"):
            item["call_id"] = self.id(item["call_id"])
        for part in item.get("content") or ():
            if isinstance(part, dict) and part.get("type") == "output_text":
                part["text"] = self.text(part["text"])

    def _candidate(self, payload: Any) -> list[Any]:
        candidates = payload.get("candidates") or []
        parts = [part for c in candidates for part in (c.get("content") or {}).get("parts") or ()]
        for part in parts:
            if isinstance(part.get("text"), str) and not part.get("thought"):
                part["text"] = self.text(part["text"])
            if isinstance((part.get("functionCall") or {}).get("id"), str):
                part["functionCall"]["id"] = self.id(part["functionCall"]["id"])
        if len(parts) == 1 and set(parts[0]) <= {"text", "thought"} and not candidates[0].get("finishReason"):
            return self._split(payload, lambda p: p["candidates"][0]["content"]["parts"][0], "text")
        return [payload]
