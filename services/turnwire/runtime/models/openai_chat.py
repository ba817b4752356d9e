"""OpenAI chat completions, streamed or whole, with the dialects that other servers speak.

Covers `reasoning_content`, `reasoning` and `reasoning_details`, content as a list of parts, usage in any
chunk or under `x_groq`, errors as a chunk, as an event or as bare JSON, and answers that are not streamed
at all. Only choice 0 is read.
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

__all__ = ["OpenAiChatNormaliser"]


class _Function(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _Call(msgspec.Struct, gc=False):
    index: int | None = None
    id: str | int | None = None
    function: _Function | None = None
    extra_content: Any = None


class _Delta(msgspec.Struct, gc=False):
    content: str | list[Any] | None = None
    reasoning_content: Any = None
    reasoning: Any = None
    tool_calls: list[_Call] | None = None
    refusal: str | None = None
    reasoning_details: Any = None
    function_call: _Function | None = None


class _Choice(msgspec.Struct, gc=False):
    delta: _Delta | None = None
    finish_reason: str | None = None
    index: int | None = 0
    message: _Delta | None = None


class _Groq(msgspec.Struct, gc=False):
    usage: Any = None
    error: Any = None


class _Chunk(msgspec.Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: Any = None
    error: Any = None
    x_groq: _Groq | None = None


_decode: Callable[[bytes], _Chunk] = msgspec.json.Decoder(_Chunk).decode
_DecodeError = msgspec.DecodeError

_REASONS = {
    "stop": FinishReason.STOP,
    "eos": FinishReason.STOP,
    "eos_token": FinishReason.STOP,
    "stop_sequence": FinishReason.STOP,
    "end_turn": FinishReason.STOP,
    "completed": FinishReason.STOP,
    "tool_calls": FinishReason.TOOL_CALLS,
    "tool_use": FinishReason.TOOL_CALLS,
    "function_call": FinishReason.TOOL_CALLS,
    "length": FinishReason.LENGTH,
    "max_tokens": FinishReason.LENGTH,
    "model_length": FinishReason.LENGTH,
    "content_filter": FinishReason.CONTENT_FILTER,
    "safety": FinishReason.CONTENT_FILTER,
    "refusal": FinishReason.REFUSAL,
    "pause_turn": FinishReason.PAUSE,
}
# The server says itself that the answer is not whole.
_BROKEN = frozenset({"error", "abort", "cancelled", "insufficient_system_resource", "network_error"})


class _Detail:
    """One entry of `reasoning_details` that arrives in pieces; its texts are joined once."""

    __slots__ = ("_fields", "_texts")

    def __init__(self, piece: dict[str, Any]) -> None:
        self._fields = {"type": piece.get("type")}
        self._texts: dict[str, list[str]] = {}

    def continued_by(self, piece: dict[str, Any]) -> bool:
        """Whether a piece belongs to this entry."""
        same = all(self._fields.get(name) == piece.get(name) for name in ("type", "index"))
        return same and "data" not in piece

    def add(self, piece: dict[str, Any]) -> None:
        """Take a piece in."""
        for name, value in piece.items():
            if name in ("text", "summary") and isinstance(value, str):
                self._texts.setdefault(name, []).append(value)
            elif value is not None:
                self._fields[name] = value

    def whole(self) -> dict[str, Any]:
        """The entry as it goes back."""
        return self._fields | {name: "".join(pieces) for name, pieces in self._texts.items()}


class OpenAiChatNormaliser(Normaliser):
    """Reads one chat completion."""

    _details: list[_Detail] | None = None

    def _read(self, lines: list[bytes], out: list[LlmEvent]) -> None:
        decode, tags, keep, emit = _decode, self._think is not None, self._texts.append, out.append
        for line in lines:
            if not line and not self._pending:
                continue
            if line.startswith(b"data:") and not self._pending:
                try:
                    chunk = decode(line[5:])
                except (_DecodeError, RecursionError):
                    self._line(line, out)
                else:
                    # The fast path: a chunk that is nothing but a short piece of clean text.
                    if (
                        (choices := chunk.choices)
                        and (delta := (choice := choices[0]).delta) is not None
                        and (text := delta.content).__class__ is str
                        and text
                        and self._plain
                        and choice.finish_reason is None
                        and delta.tool_calls is None
                        and delta.reasoning_content is None
                        and delta.reasoning is None
                        and chunk.usage is None
                        and chunk.error is None
                        and not choice.index
                        and delta.refusal is None
                        and delta.reasoning_details is None
                        and not (tags and "<" in text)
                        and "\x00" not in text
                        and len(text) <= SHORT_DELTA_CHARS
                        and len(choices) == 1
                    ):
                        keep(text)
                        emit(text_delta(text))
                        continue
                    self._chunk(chunk, line, out)
            else:
                self._line(line, out)
            if self.ended:
                return

    def _payload(self, payload: bytes, out: list[LlmEvent]) -> None:
        try:
            chunk = _decode(payload)
        except (_DecodeError, RecursionError):
            found = lenient_json(payload)
            if isinstance(found, list) and found and isinstance(found[0], dict):
                found = found[0]
            if isinstance(found, dict) and found.get("error"):
                self._fail_with(found["error"], out)
                return
            chunk = shaped(found, _Chunk)
        self._chunk(chunk, payload, out)

    def _chunk(self, chunk: _Chunk, payload: bytes, out: list[LlmEvent]) -> None:
        groq = chunk.x_groq
        usage = chunk.usage if chunk.usage is not None else groq.usage if groq is not None else None
        if usage is not None:
            self._take_usage(usage, out)
        error = chunk.error if chunk.error else groq.error if groq is not None else None
        if error:
            self._fail_with(error, out)
            return
        for choice in chunk.choices or ():
            if not choice.index:
                self._choice(choice, out)
        if chunk.choices is None and usage is None:
            self._without_choices(payload, out)

    def _without_choices(self, payload: bytes, out: list[LlmEvent]) -> None:
        """An error in a shape of its own, or a chunk that says nothing."""
        found = lenient_json(payload.removeprefix(b"data:"))
        if isinstance(found, dict) and (found.get("object") == "error" or self._error_event):
            self._fail_with(found, out)

    def _choice(self, choice: _Choice, out: list[LlmEvent]) -> None:
        delta = choice.delta if choice.delta is not None else choice.message
        if delta is not None:
            self._delta(delta, out)
        if choice.finish_reason:
            self._reason = choice.finish_reason

    def _delta(self, delta: _Delta, out: list[LlmEvent]) -> None:
        reasoning = delta.reasoning_content or delta.reasoning
        if isinstance(reasoning, str):
            self._reasoning(reasoning, out)
        if isinstance(delta.reasoning_details, list):
            self._take_details(delta.reasoning_details, quiet=bool(reasoning), out=out)
        if delta.refusal:
            self._refusal.append(delta.refusal)
        if delta.content:
            self._content(delta.content, out)
        for call in delta.tool_calls or ():
            self._call(call, out)
        if delta.function_call is not None:
            self._call(_Call(0, None, delta.function_call), out)

    def _content(self, content: str | list[Any], out: list[LlmEvent]) -> None:
        if isinstance(content, str):
            self._text(content, out)
            return
        for part in content:
            if isinstance(part, str):
                self._text(part, out)
            elif isinstance(part, dict):
                self._part(part, out)

    def _part(self, part: dict[str, Any], out: list[LlmEvent]) -> None:
        thinking = part.get("thinking")
        if isinstance(thinking, str):
            self._reasoning(thinking, out)
        elif isinstance(thinking, list):
            for piece in thinking:
                if isinstance(piece, dict) and isinstance(piece.get("text"), str):
                    self._reasoning(piece["text"], out)
        elif isinstance(part.get("refusal"), str):
            self._refusal.append(part["refusal"])
        elif isinstance(part.get("text"), str):
            self._text(part["text"], out)

    def _call(self, call: _Call, out: list[LlmEvent]) -> None:
        function = call.function or _Function()
        arguments = function.arguments or ""
        if isinstance(arguments, dict):
            arguments = msgspec.json.encode(arguments).decode()
        out.append(self._calls.fragment(call.index, call.id, function.name, arguments))
        if call.extra_content is not None:
            self._calls.last.extra = call.extra_content

    # --- reasoning that must go back ---------------------------------------------------------------------

    def _take_details(self, details: list[Any], *, quiet: bool, out: list[LlmEvent]) -> None:
        """Gather the pieces of `reasoning_details`; their text counts where no other field carried it."""
        if self._details is None:
            self._details = []
        for piece in details:
            if not isinstance(piece, dict):
                continue
            text = piece.get("text") or piece.get("summary")
            if isinstance(text, str) and not quiet:
                self._reasoning(text, out)
            last = self._details[-1] if self._details else None
            if last is None or not last.continued_by(piece):
                last = _Detail(piece)
                self._details.append(last)
            last.add(piece)

    def _replay(self) -> list[Any]:
        blocks: list[Any] = [detail.whole() for detail in self._details or ()]
        for position, call in enumerate(self._calls):
            if call.extra is not None:
                blocks.append(_extra_block(position, call))
        return blocks

    # --- words and counts --------------------------------------------------------------------------------

    def _finish_reason(self) -> FinishReason | None:
        word = self._reason.lower()
        return None if word in _BROKEN else _REASONS.get(word, FinishReason.OTHER)

    def _token_usage(self, fields: dict[str, Any]) -> TokenUsage:
        prompt = count(fields, "prompt_tokens", "input_tokens")
        details = fields.get("prompt_tokens_details") or {}
        read = count(details, "cached_tokens") or count(fields, "prompt_cache_hit_tokens", "cached_tokens")
        written = count(details, "cache_write_tokens") or count(fields, "cache_creation_input_tokens")
        output = count(fields, "completion_tokens", "output_tokens")
        more = fields.get("completion_tokens_details") or {}
        reasoning = count(more, "reasoning_tokens") or count(fields, "reasoning_tokens")
        read = min(read, prompt)
        written = min(written, prompt - read)
        # Some gateways count reasoning apart from the output, or one too many: a part is never above the
        # whole.
        return TokenUsage(
            prompt - read - written, read, written, output, min(reasoning, output), UsageProvenance.REPORTED
        )


def _extra_block(position: int, call: OpenCall) -> dict[str, Any]:
    return {"type": "tool_call.extra", "position": position, "extra_content": call.extra}
