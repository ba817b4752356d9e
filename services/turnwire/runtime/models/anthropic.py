"""Anthropic messages, streamed or whole.

Blocks that the provider runs itself (server tools, MCP) never surface as client calls. Where an answer
holds blocks that text and calls cannot rebuild (signed thinking, server tools, compaction),
`Finish.replay_json` is the whole answer as blocks, with `{"type":"tool_use","position":n}` where the n-th
client call stands.
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

__all__ = ["AnthropicNormaliser"]


class _Delta(msgspec.Struct, gc=False):
    text: str | None = None
    partial_json: str | None = None
    thinking: str | None = None
    signature: str | None = None
    citation: Any = None
    content: Any = None
    encrypted_content: Any = None
    stop_reason: str | None = None
    stop_details: Any = None


class _Event(msgspec.Struct, gc=False):
    type: str = ""
    delta: _Delta | None = None
    index: int | None = None
    content_block: dict[str, Any] | None = None
    message: dict[str, Any] | None = None
    usage: Any = None
    error: Any = None
    content: Any = None
    stop_reason: str | None = None
    stop_details: Any = None


class _Block:
    """One content block; its text is a range of the answer's text."""

    __slots__ = ("call", "citations", "end", "parts", "signature", "start", "started")

    def __init__(self, started: dict[str, Any], start: int) -> None:
        self.started = started
        self.start = start
        self.end = -1
        self.parts: list[str] = []
        self.signature = ""
        self.citations: list[Any] = []
        self.call: tuple[int, OpenCall] | None = None


_decode: Callable[[bytes], _Event] = msgspec.json.Decoder(_Event).decode
_DecodeError = msgspec.DecodeError

_KNOWN = frozenset(
    {
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
        "message",
        "error",
    }
)
_REASONS = {
    "end_turn": FinishReason.STOP,
    "stop_sequence": FinishReason.STOP,
    "stop": FinishReason.STOP,
    "tool_use": FinishReason.TOOL_CALLS,
    "max_tokens": FinishReason.LENGTH,
    "model_context_window_exceeded": FinishReason.LENGTH,
    "refusal": FinishReason.REFUSAL,
    "pause_turn": FinishReason.PAUSE,
    "compaction": FinishReason.PAUSE,
}
_PROMPT_FIELDS = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


class AnthropicNormaliser(Normaliser):
    """Reads one message."""

    def __init__(self, provider: str, **options: Any) -> None:
        super().__init__(provider, **options)
        self._blocks: list[_Block] = []
        self._at: dict[int, _Block] = {}

    def _read(self, lines: list[bytes], out: list[LlmEvent]) -> None:
        decode, tags = _decode, self._think is not None
        keep, emit = self._texts.append, out.append
        for line in lines:
            if not self._pending and (not line or line.startswith(b"event: content_block")):
                continue
            if line.startswith(b"data:") and not self._pending:
                try:
                    event = decode(line[5:])
                except (_DecodeError, RecursionError):
                    self._line(line, out)
                else:
                    # The fast path: a short piece of clean text.
                    if (
                        (delta := event.delta) is not None
                        and (text := delta.text).__class__ is str
                        and text
                        and self._plain
                        and event.type == "content_block_delta"
                        and not (tags and "<" in text)
                        and "\x00" not in text
                        and len(text) <= SHORT_DELTA_CHARS
                    ):
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
            if isinstance(found, dict) and str(found.get("type")) not in _KNOWN:
                return
            event = shaped(found, _Event)
        self._event(event, out)

    def _event(self, event: _Event, out: list[LlmEvent]) -> None:
        match event.type:
            case "content_block_delta":
                if event.delta is not None:
                    self._delta(event.index or 0, event.delta, out)
            case "content_block_start":
                self._start(event.index or 0, event.content_block or {}, out)
            case "content_block_stop":
                self._stop(event.index or 0)
            case "message_start":
                self._restart()
                self._take_usage((event.message or {}).get("usage"), out)
            case "message_delta":
                if event.delta is not None:
                    self._stopped(event.delta.stop_reason, event.delta.stop_details)
                self._take_usage(event.usage, out)
            case "message_stop":
                self._end(out, marked=True)
            case "message":
                self._whole(event, out)
            case _:
                if event.error or event.type == "error":
                    self._fail_with(event.error or {"message": "error event without details"}, out)

    def _restart(self) -> None:
        """Some gateways splice a second message into the stream: its blocks replace those to replay."""
        self._blocks.clear()
        self._at.clear()

    def _whole(self, event: _Event, out: list[LlmEvent]) -> None:
        for index, block in enumerate(event.content if isinstance(event.content, list) else ()):
            if isinstance(block, dict):
                self._start(index, block, out)
                self._stop(index)
        self._stopped(event.stop_reason, event.stop_details)
        self._take_usage(event.usage, out)

    def _stopped(self, reason: str | None, details: Any) -> None:
        if reason:
            self._reason = reason
        if isinstance(details, dict) and isinstance(details.get("explanation"), str):
            self._refusal.append(details["explanation"])

    # --- blocks ------------------------------------------------------------------------------------------

    def _start(self, index: int, started: dict[str, Any], out: list[LlmEvent]) -> None:
        block = _Block(started, len(self._texts))
        self._blocks.append(block)
        self._at[index] = block
        kind = started.get("type")
        if kind == "text" and isinstance(started.get("text"), str):
            self._text(started["text"], out)
        elif kind == "thinking":
            if isinstance(started.get("thinking"), str):
                block.parts.append(started["thinking"])
                self._reasoning(started["thinking"], out)
            block.signature = str(started.get("signature") or "")
        elif kind == "tool_use":
            self._start_call(block, out)

    def _start_call(self, block: _Block, out: list[LlmEvent]) -> None:
        name, call_id = block.started.get("name"), block.started.get("id")
        position = len(self._calls)
        call = self._calls.open(position, str(call_id or ""), str(name or ""))
        call.ended = False
        block.call = (position, call)
        given = block.started.get("input")
        out.append(call.append(msgspec.json.encode(given).decode() if given else ""))

    def _delta(self, index: int, delta: _Delta, out: list[LlmEvent]) -> None:
        block = self._at.get(index)
        if delta.text:
            self._text(delta.text, out)
        if block is None:
            return
        if delta.thinking:
            block.parts.append(delta.thinking)
            self._reasoning(delta.thinking, out)
        if delta.signature:
            block.signature += delta.signature
        if delta.partial_json:
            if block.call is not None:
                out.append(block.call[1].append(delta.partial_json))
            else:
                block.parts.append(delta.partial_json)
        if delta.citation is not None:
            block.citations.append(delta.citation)
        for name in ("content", "encrypted_content"):
            if getattr(delta, name) is not None:
                block.started[name] = getattr(delta, name)

    def _stop(self, index: int) -> None:
        block = self._at.get(index)
        if block is not None:
            block.end = len(self._texts)
            if block.call is not None:
                block.call[1].ended = True

    # --- what must go back -------------------------------------------------------------------------------

    def _replay(self) -> list[Any]:
        blocks = [self._replay_block(block) for block in self._blocks]
        kept = [block for block in blocks if block is not None]
        return kept if any(block["type"] not in ("text", "tool_use") for block in kept) else []

    def _replay_block(self, block: _Block) -> dict[str, Any] | None:
        kind = str(block.started.get("type") or "")
        if kind == "text":
            end = block.end if block.end >= 0 else len(self._texts)
            text = "".join(self._texts[block.start : end])
            if not text:
                return None
            found: dict[str, Any] = {"type": "text", "text": text}
            if block.citations:
                found["citations"] = block.citations
            return found
        if block.call is not None:
            return {"type": "tool_use", "position": block.call[0]}
        if kind == "thinking":
            if not block.signature:
                return None
            return {"type": kind, "thinking": "".join(block.parts), "signature": block.signature}
        if kind.endswith("tool_use"):
            return block.started | {"input": _input(block)}
        return block.started if kind else None

    # --- words and counts --------------------------------------------------------------------------------

    def _finish_reason(self) -> FinishReason | None:
        return _REASONS.get(self._reason, FinishReason.OTHER)

    def _take_usage(self, fields: Any, out: list[LlmEvent]) -> None:
        if isinstance(fields, dict) and not any(fields.get(name) for name in _PROMPT_FIELDS):
            # No prompt is empty: a report of zeros there says nothing about the prompt.
            fields = {name: value for name, value in fields.items() if name not in _PROMPT_FIELDS}
        super()._take_usage(fields, out)

    def _token_usage(self, fields: dict[str, Any]) -> TokenUsage:
        output = count(fields, "output_tokens")
        details = fields.get("output_tokens_details")
        reasoning = count(details, "thinking_tokens") if isinstance(details, dict) else 0
        return TokenUsage(
            count(fields, "input_tokens"),
            count(fields, "cache_read_input_tokens"),
            count(fields, "cache_creation_input_tokens"),
            output,
            min(reasoning, output),
            UsageProvenance.REPORTED,
        )


def _input(block: _Block) -> Any:
    text = "".join(block.parts)
    if not text.strip():
        return block.started.get("input") or {}
    try:
        return lenient_json(text.encode("utf-8", "replace"))
    except ValueError:
        return {}
