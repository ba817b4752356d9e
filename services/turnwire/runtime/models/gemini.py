"""Gemini generateContent, streamed or whole.

There is no end mark: the last finish reason counts when the body ends. Calls come whole, or as values for
JSON paths, which are put together here. Parts that the provider runs itself never surface as calls. Where a
part is signed, `Finish.replay_json` is all parts, each as `{"type":"gemini.part","part":...}`, with the
number of the client call as `position` where one stands.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import msgspec

from turnwire.core.text import repair
from turnwire.extend.llm import FinishReason, LlmEvent, TokenUsage, UsageProvenance
from turnwire.runtime.models.arguments import MAX_ARGUMENT_BYTES
from turnwire.runtime.models.calls import OpenCall
from turnwire.runtime.models.normaliser import Normaliser, lenient_json, shaped
from turnwire.runtime.models.usage import count

__all__ = ["GeminiNormaliser"]


class _Function(msgspec.Struct, gc=False):
    name: str | None = None
    id: str | None = None
    args: msgspec.Raw = msgspec.Raw()
    partialArgs: list[dict[str, Any]] | None = None  # noqa: N815
    willContinue: bool | None = None  # noqa: N815


class _Part(msgspec.Struct, gc=False, omit_defaults=True):
    text: str | None = None
    thought: bool | None = None
    functionCall: _Function | None = None  # noqa: N815
    thoughtSignature: str | None = None  # noqa: N815
    executableCode: Any = None  # noqa: N815
    codeExecutionResult: Any = None  # noqa: N815
    toolCall: Any = None  # noqa: N815
    toolResponse: Any = None  # noqa: N815
    inlineData: Any = None  # noqa: N815


class _Content(msgspec.Struct, gc=False):
    parts: list[_Part] | None = None


class _Candidate(msgspec.Struct, gc=False):
    content: _Content | None = None
    finishReason: str | None = None  # noqa: N815
    index: int | None = 0


class _Chunk(msgspec.Struct, gc=False):
    candidates: list[_Candidate] | None = None
    usageMetadata: Any = None  # noqa: N815
    promptFeedback: Any = None  # noqa: N815
    error: Any = None


_decode: Callable[[bytes], _Chunk] = msgspec.json.Decoder(_Chunk).decode
_DecodeError = msgspec.DecodeError

_REASONS = {
    "STOP": FinishReason.STOP,
    "MAX_TOKENS": FinishReason.LENGTH,
    "SAFETY": FinishReason.CONTENT_FILTER,
    "RECITATION": FinishReason.CONTENT_FILTER,
    "BLOCKLIST": FinishReason.CONTENT_FILTER,
    "PROHIBITED_CONTENT": FinishReason.CONTENT_FILTER,
    "SPII": FinishReason.CONTENT_FILTER,
    "IMAGE_SAFETY": FinishReason.CONTENT_FILTER,
}
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|\['([^']*)'\]")
_LONGEST_LIST = 10_000


class _GrowingText:
    """A string of the arguments that still grows: joined once, as adding to it is not linear."""

    __slots__ = ("pieces",)

    def __init__(self) -> None:
        self.pieces: list[str] = []


def _joined(value: Any) -> str:
    if isinstance(value, _GrowingText):
        return repair("".join(value.pieces))
    raise TypeError(f"a value of {type(value).__name__} among arguments")


class GeminiNormaliser(Normaliser):
    """Reads one answer."""

    def __init__(self, provider: str, **options: Any) -> None:
        super().__init__(provider, **options)
        self._open: tuple[OpenCall, dict[str, Any]] | None = None
        self._parts: list[tuple[_Part, int]] = []
        self._blocked = ""

    @property
    def reasoned(self) -> bool:
        """Some servers name a reason in every chunk, so none proves that the answer is whole."""
        return False

    def _read(self, lines: list[bytes], out: list[LlmEvent]) -> None:
        for line in lines:
            if line or self._pending:
                self._line(line, out)
            if self.ended:
                return

    def _payload(self, payload: bytes, out: list[LlmEvent]) -> None:
        try:
            chunk = _decode(payload)
        except (_DecodeError, RecursionError):
            found = lenient_json(payload)
            if isinstance(found, list) and len(found) == 1:
                found = found[0]
            try:
                chunk = shaped(_with_raw_arguments(found), _Chunk)
            except RecursionError as error:
                raise ValueError("nested too deep") from error
        self._chunk(chunk, out)

    def _chunk(self, chunk: _Chunk, out: list[LlmEvent]) -> None:
        if chunk.usageMetadata is not None:
            self._take_usage(chunk.usageMetadata, out)
        if chunk.error:
            self._fail_with(chunk.error, out)
            return
        feedback = chunk.promptFeedback
        if isinstance(feedback, dict) and feedback.get("blockReason"):
            self._blocked = self._reason = str(feedback["blockReason"])
        for candidate in chunk.candidates or ():
            if candidate.index:
                continue
            for part in (candidate.content.parts if candidate.content is not None else None) or ():
                self._part(part, out)
            if candidate.finishReason:
                self._reason = candidate.finishReason

    def _part(self, part: _Part, out: list[LlmEvent]) -> None:
        if part.functionCall is not None:
            self._function(part, part.functionCall, out)
            return
        if part.text:
            (self._reasoning if part.thought else self._text)(part.text, out)
        if part.text or part.thoughtSignature or not _is_blank(part):
            self._parts.append((part, -1))

    # --- calls -------------------------------------------------------------------------------------------

    def _function(self, part: _Part, function: _Function, out: list[LlmEvent]) -> None:
        if function.name:
            self._close_call()
            position = len(self._calls)
            self._parts.append((part, position))
            call = self._calls.open(position, function.id or "", function.name)
            call.ended = not function.willContinue
            if arguments_text := bytes(function.args).decode("utf-8", "replace"):
                out.append(call.append(arguments_text))
                return
            self._open = (call, {})
            out.append(call.append(""))
        if self._open is not None:
            call, arguments = self._open
            call.ended = not function.willContinue
            for value in function.partialArgs or ():
                # What lies above the limit is counted, not kept.
                if call.argument_bytes <= MAX_ARGUMENT_BYTES:
                    _put(arguments, value)
                out.append(call.count(str(value.get("stringValue") or "")))
        if not function.willContinue:
            self._close_call()

    def _close_call(self) -> None:
        """Write the arguments once, when nothing more is added to them."""
        if self._open is None:
            return
        call, arguments = self._open
        self._open = None
        if arguments and call.argument_bytes <= MAX_ARGUMENT_BYTES:
            call.replace(msgspec.json.encode(arguments, enc_hook=_joined).decode())

    def _end(self, out: list[LlmEvent], *, marked: bool) -> None:
        if self._open is not None and self._finish_reason() is FinishReason.LENGTH:
            # Values put together are JSON at any moment, also when their end is missing.
            self._open[1].clear()
            self._open[0].replace("")
        self._close_call()
        super()._end(out, marked=marked)

    # --- what must go back -------------------------------------------------------------------------------

    def _replay(self) -> list[Any]:
        if not any(part.thoughtSignature for part, _ in self._parts):
            return []
        kept: list[Any] = []
        for part, position in self._parts:
            if part.thought and not part.thoughtSignature:
                continue
            found = msgspec.to_builtins(part) if position < 0 else {}
            if part.thoughtSignature:
                found["thoughtSignature"] = part.thoughtSignature
            if set(found) == {"text"} and kept and set(kept[-1]["part"]) == {"text"}:
                kept[-1]["part"]["text"] += found["text"]
                continue
            block: dict[str, Any] = {"type": "gemini.part", "part": found}
            kept.append(block | {"position": position} if position >= 0 else block)
        return kept

    # --- words and counts --------------------------------------------------------------------------------

    def _finish_reason(self) -> FinishReason | None:
        if self._blocked:
            return FinishReason.CONTENT_FILTER
        return _REASONS.get(self._reason, FinishReason.OTHER)

    def _take_usage(self, fields: Any, out: list[LlmEvent]) -> None:
        if isinstance(fields, dict) and count(fields, "totalTokenCount"):
            # Each such report is whole: what it leaves out is 0, not what an earlier one said.
            self._usage_fields.clear()
        super()._take_usage(fields, out)

    def _token_usage(self, fields: dict[str, Any]) -> TokenUsage:
        prompt = count(fields, "promptTokenCount")
        read = min(count(fields, "cachedContentTokenCount"), prompt)
        thoughts = count(fields, "thoughtsTokenCount")
        # There the output excludes thoughts; in ours they are a part of it.
        output = count(fields, "candidatesTokenCount") + thoughts
        return TokenUsage(prompt - read, read, 0, output, thoughts, UsageProvenance.REPORTED)


def _with_raw_arguments(found: Any) -> Any:
    """Turn the arguments of calls back into text, which is how the strict reader gives them."""
    if isinstance(found, list):
        return [_with_raw_arguments(item) for item in found]
    if not isinstance(found, dict):
        return found
    return {
        name: msgspec.Raw(repair(json.dumps(value, ensure_ascii=False)).encode())
        if name == "args"
        else _with_raw_arguments(value)
        for name, value in found.items()
    }


def _is_blank(part: _Part) -> bool:
    return not any((part.executableCode, part.codeExecutionResult, part.toolCall, part.toolResponse))


def _put(arguments: dict[str, Any], value: dict[str, Any]) -> None:
    """Set the value at its path; a string that continues an earlier one is appended to it."""
    steps: list[str | int] = []
    for name, index, quoted in _STEP.findall(str(value.get("jsonPath") or "")):
        steps.append(int(index) if index else name or quoted)
    if not steps or any(isinstance(step, int) and step > _LONGEST_LIST for step in steps):
        return
    place: Any = arguments
    for step, following in pairwise(steps):
        empty: Any = [] if isinstance(following, int) else {}
        place = _at(place, step, empty)
    last = steps[-1]
    if "stringValue" in value:
        before = _at(place, last, None)
        found: Any = before if isinstance(before, _GrowingText) else _GrowingText()
        found.pieces.append(str(value["stringValue"]))
    elif "numberValue" in value:
        found = value["numberValue"]
    elif "boolValue" in value:
        found = value["boolValue"]
    else:
        found = None
    if isinstance(place, list) and isinstance(last, int):
        place[last] = found
    elif isinstance(place, dict):
        place[str(last)] = found


def _at(place: Any, step: str | int, empty: Any) -> Any:
    """What stands at `step`, made if nothing does."""
    if isinstance(place, list) and isinstance(step, int):
        while len(place) <= step:
            place.append(None)
        if place[step] is None:
            place[step] = empty
        return place[step]
    if isinstance(place, dict):
        return place.setdefault(str(step), empty)
    return empty
