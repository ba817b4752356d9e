"""OpenAI responses, streamed or whole.

Items that the provider runs itself never surface as client calls. A custom tool's text input becomes the
object `{"input": text}`. Where an answer holds encrypted reasoning or a compaction, `Finish.replay_json` is
all its items, with `{"type":"function_call","position":n}` where the n-th client call stands.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from turnwire.extend.llm import FinishReason, LlmEvent, TokenUsage, UsageProvenance
from turnwire.runtime.models.calls import OpenCall
from turnwire.runtime.models.normaliser import Normaliser, lenient_json, shaped
from turnwire.runtime.models.text import SHORT_DELTA_CHARS, text_delta
from turnwire.runtime.models.usage import count

__all__ = ["OpenAiResponsesNormaliser"]


class _Event(msgspec.Struct, gc=False):
    type: str = ""
    delta: Any = None
    output_index: int | None = None
    item: dict[str, Any] | None = None
    response: dict[str, Any] | None = None
    error: Any = None
    code: Any = None
    message: Any = None
    input: Any = None
    output: Any = None
    object: Any = None


_decode: Callable[[bytes], _Event] = msgspec.json.Decoder(_Event).decode
_DecodeError = msgspec.DecodeError

_REASONS = {
    "completed": FinishReason.STOP,
    "max_output_tokens": FinishReason.LENGTH,
    "max_tokens": FinishReason.LENGTH,
    "content_filter": FinishReason.CONTENT_FILTER,
    "incomplete": FinishReason.OTHER,
}
_BROKEN = frozenset({"failed", "cancelled"})
_CALLS = frozenset({"function_call", "custom_tool_call"})
_KEPT_FOR = frozenset({"compaction", "compaction_summary"})


class OpenAiResponsesNormaliser(Normaliser):
    """Reads one response."""

    def __init__(self, provider: str, **options: Any) -> None:
        super().__init__(provider, **options)
        # Finished items in order, with the number of the client call that an item is.
        self._items: list[tuple[dict[str, Any], int]] = []
        self._with_text: set[int | None] = set()
        self._with_reasoning: set[int | None] = set()

    def _read(self, lines: list[bytes], out: list[LlmEvent]) -> None:
        decode, tags, keep, emit = _decode, self._think is not None, self._texts.append, out.append
        seen = self._with_text.add
        for line in lines:
            if not self._pending and (not line or line.startswith(b"event: response.output_text")):
                continue
            if line.startswith(b"data:") and not self._pending:
                try:
                    event = decode(line[5:])
                except (_DecodeError, RecursionError):
                    self._line(line, out)
                else:
                    # The fast path: a short piece of clean text.
                    if (
                        event.type == "response.output_text.delta"
                        and (text := event.delta).__class__ is str
                        and text
                        and self._plain
                        and not (tags and "<" in text)
                        and "\x00" not in text
                        and len(text) <= SHORT_DELTA_CHARS
                    ):
                        seen(event.output_index)
                        keep(text)
                        emit(text_delta(text))
                        continue
                    self._event(event, out)
            else:
                self._line(line, out)
            if self.ended:
                return

    def _payload(self, payload: bytes, out: list[LlmEvent]) -> None:
        try:
            event = _decode(payload)
        except (_DecodeError, RecursionError):
            found = lenient_json(payload)
            if isinstance(found, dict) and found.get("error"):
                self._fail_with(found["error"], out)
                return
            event = shaped(found, _Event)
        if event.object == "response" and not event.type:
            event.response = lenient_json(payload)
            event.type = "response.completed"
        self._event(event, out)

    def _event(self, event: _Event, out: list[LlmEvent]) -> None:
        index = event.output_index
        delta = event.delta if isinstance(event.delta, str) else ""
        match event.type:
            case "response.output_text.delta":
                self._with_text.add(index)
                self._text(delta, out)
            case "response.reasoning_text.delta" | "response.reasoning_summary_text.delta":
                self._with_reasoning.add(index)
                self._reasoning(delta, out)
            case "response.refusal.delta":
                self._refusal.append(delta)
            case "response.function_call_arguments.delta":
                if (call := self._calls.at(index or 0)) is not None:
                    out.append(call.append(delta))
            case "response.output_item.added":
                self._added(index or 0, event.item or {}, out)
            case "response.output_item.done":
                self._done(index or 0, event.item or {}, out)
            case "response.completed" | "response.incomplete" | "response.failed" | "response.cancelled":
                self._closed(event.response or {}, out)
            case _:
                if event.error or event.type == "error":
                    self._fail_with(event.error or {"code": event.code, "message": event.message}, out)

    # --- items -------------------------------------------------------------------------------------------

    def _added(self, index: int, item: dict[str, Any], out: list[LlmEvent]) -> OpenCall | None:
        if item.get("type") not in _CALLS:
            return None
        call = self._calls.open(index, str(item.get("call_id") or ""), str(item.get("name") or ""))
        # Its arguments may stand in the announcement, in deltas, at its end, or in all of them.
        out.append(call.append(""))
        return call

    def _done(self, index: int, item: dict[str, Any], out: list[LlmEvent]) -> None:
        kind = item.get("type")
        if kind in _CALLS:
            call = self._calls.at(index) or self._added(index, item, out)
            assert call is not None
            call.id = call.id or str(item.get("call_id") or "")
            call.name = call.name or str(item.get("name") or "")
            given = item.get("arguments")
            if kind == "custom_tool_call":
                given = msgspec.json.encode({"input": str(item.get("input") or "")}).decode()
            if isinstance(given, str) and given != call.arguments():
                call.replace(given)
                out.append(call.append(""))
            self._items.append((item, call.position))
            return
        self._items.append((item, -1))
        if kind == "message":
            self._message(index, item, out)
        elif kind == "reasoning" and not self._with_reasoning & {index, None}:
            self._reasoning_item(item, out)

    def _message(self, index: int, item: dict[str, Any], out: list[LlmEvent]) -> None:
        """What the deltas have not said: all of it in an answer that was not streamed."""
        refused = bool(self._refusal)
        for part in item.get("content") or ():
            if not isinstance(part, dict):
                continue
            if isinstance(part.get("refusal"), str) and not refused:
                self._refusal.append(part["refusal"])
            elif isinstance(part.get("text"), str) and not self._with_text & {index, None}:
                self._text(part["text"], out)

    def _reasoning_item(self, item: dict[str, Any], out: list[LlmEvent]) -> None:
        for part in [*(item.get("summary") or ()), *(item.get("content") or ())]:
            if isinstance(part, dict) and isinstance(part.get("text"), str):
                self._reasoning(part["text"], out)

    def _closed(self, response: dict[str, Any], out: list[LlmEvent]) -> None:
        self._take_usage(response.get("usage"), out)
        if response.get("error"):
            self._fail_with(response["error"], out)
            return
        output = response.get("output")
        if not self._items and isinstance(output, list):
            for index, item in enumerate(output):
                if isinstance(item, dict):
                    self._done(index, item, out)
        details = response.get("incomplete_details")
        reason = details.get("reason") if isinstance(details, dict) else None
        self._reason = str(reason or response.get("status") or "completed")
        self._end(out, marked=True)

    # --- what must go back, words and counts -------------------------------------------------------------

    def _replay(self) -> list[Any]:
        if not any(i.get("encrypted_content") or i.get("type") in _KEPT_FOR for i, _ in self._items):
            return []
        kept: list[Any] = []
        for item, position in self._items:
            if position >= 0:
                kept.append({"type": "function_call", "position": position})
            elif item.get("type") != "reasoning" or item.get("encrypted_content"):
                kept.append(item)
        return kept

    def _finish_reason(self) -> FinishReason | None:
        return None if self._reason in _BROKEN else _REASONS.get(self._reason, FinishReason.OTHER)

    def _token_usage(self, fields: dict[str, Any]) -> TokenUsage:
        prompt = count(fields, "input_tokens")
        details = fields.get("input_tokens_details")
        read = min(count(details, "cached_tokens"), prompt)
        written = min(count(details, "cache_write_tokens"), prompt - read)
        output = count(fields, "output_tokens")
        reasoning = min(count(fields.get("output_tokens_details"), "reasoning_tokens"), output)
        return TokenUsage(prompt - read - written, read, written, output, reasoning, UsageProvenance.REPORTED)
