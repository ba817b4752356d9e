"""Tool calls that a model writes into its text, for models whose server does not read them.

Only explicit markup counts: `<tool_call>` round a JSON object, round `<arg_key>`/`<arg_value>` pairs (GLM) or
round `<function=...>` with `<parameter=...>` (Qwen), the last also alone. A block is a call only if it begins
a line outside of code fences, names a tool of this step, and nothing but other blocks follows it in the
answer. Everything else is the text that it looks like: a mention is never a call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import msgspec

__all__ = ["InlineCall", "InlineCalls"]

# Name and arguments as JSON text.
InlineCall = tuple[str, str]

# Above this what is held back is text: no calls may be so long.
MAX_HELD_CHARS = 512 * 1024

_CLOSERS = {"<tool_call>": "</tool_call>", "<function=": "</function>"}
# Of a line only its start matters: whether it is blank so far, or opens a code fence.
_LINE_CHARS = 80
_FUNCTION = re.compile(r"\s*<function=([^>\s]+)>(.*)</function>\s*", re.S)
_PARAMETER = re.compile(r"\s*<parameter=([^>\s]+)>\n?(.*?)\n?</parameter>", re.S)
_PAIR = re.compile(r"\s*<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)</arg_value>", re.S)


class InlineCalls:
    """Takes calls out of the text of one answer, in time that grows with its length.

    Args:
        tools: the input schema of each tool of the step, by name.
    """

    def __init__(self, tools: Mapping[str, str]) -> None:
        self._tools = tools
        self._line = ""
        self._fenced = False
        # The end of the text so far while it may still become the start of a block.
        self._pending = ""
        # Blocks that are calls if nothing follows them, with the space between them.
        self._held: list[str] = []
        self._size = 0
        self._calls: list[InlineCall] = []
        # The block that is open: its pieces, what closes it, and the end of what was searched for that.
        self._block: list[str] = []
        self._closer = ""
        self._overlap = ""

    def feed(self, text: str) -> str:
        """Take the next piece of text; return what of it, and of what was held back, is text."""
        out: list[str] = []
        text, self._pending = self._pending + text, ""
        while text:
            if self._closer:
                text = self._read_block(text, out)
            elif self._held:
                text = self._read_between(text, out)
            else:
                text = self._read_line(text, out)
        return "".join(out)

    def finish(self) -> tuple[str, list[InlineCall]]:
        """The answer is over: the rest of the text, and the calls that it ended with."""
        if self._calls and not self._closer and not self._pending:
            return "", self._calls
        return self.give_up(), []

    def give_up(self) -> str:
        """Return all that was held back, as text."""
        text = "".join([*self._held, *self._block, self._pending])
        self._held, self._block, self._calls = [], [], []
        self._closer = self._overlap = self._pending = ""
        self._size = 0
        self._line = text[text.rfind("\n") + 1 :][:_LINE_CHARS]
        return text

    def _read_line(self, text: str, out: list[str]) -> str:
        """Give the rest of one line, or go on with a block that begins it."""
        end = text.find("\n") + 1 or len(text)
        piece, rest = text[:end], text[end:]
        if not self._fenced and (not self._line or self._line.isspace()):
            start = piece.lstrip()
            opener = _opener(start)
            if opener or (start and not rest and _may_open(start)):
                space = piece[: len(piece) - len(start)]
                out.append(space)
                self._line = (self._line + space)[:_LINE_CHARS]
                if opener:
                    self._open(opener)
                    return text[len(space) + len(opener) :]
                self._pending = start
                return ""
        out.append(piece)
        self._line = (self._line + piece)[:_LINE_CHARS]
        if piece.endswith("\n"):
            self._fenced ^= self._line.lstrip().startswith(("```", "~~~"))
            self._line = ""
        return rest

    def _read_block(self, text: str, out: list[str]) -> str:
        """Look for the end of the open block."""
        window = self._overlap + text
        at = window.find(self._closer)
        if at < 0:
            self._block.append(text)
            self._overlap = window[1 - len(self._closer) :]
            self._grow(len(text), out)
            return ""
        end = at + len(self._closer) - len(self._overlap)
        self._block.append(text[:end])
        block = "".join(self._block)
        self._held.append(block)
        self._block, self._closer, self._overlap = [], "", ""
        call = _read(block, self._tools)
        if call is None:
            out.append(self.give_up())
        else:
            self._calls.append(call)
            self._grow(end, out)
        return text[end:]

    def _read_between(self, text: str, out: list[str]) -> str:
        """After a block only space and other blocks keep it a call."""
        start = text.lstrip()
        space = text[: len(text) - len(start)]
        opener = _opener(start)
        if start and not opener and not _may_open(start):
            out.append(self.give_up())
            return text
        self._held.append(space)
        if opener:
            self._open(opener)
        else:
            self._pending = start
        self._grow(len(space), out)
        return start[len(opener) :] if opener else ""

    def _open(self, opener: str) -> None:
        self._block, self._closer, self._overlap = [opener], _CLOSERS[opener], ""

    def _grow(self, size: int, out: list[str]) -> None:
        self._size += size
        if self._size > MAX_HELD_CHARS:
            out.append(self.give_up())


def _opener(text: str) -> str:
    return next((opener for opener in _CLOSERS if text.startswith(opener)), "")


def _may_open(text: str) -> bool:
    return any(opener.startswith(text) for opener in _CLOSERS)


class _Written(msgspec.Struct):
    name: str
    arguments: msgspec.Raw = msgspec.Raw()
    parameters: msgspec.Raw = msgspec.Raw()


def _read(block: str, tools: Mapping[str, str]) -> InlineCall | None:
    """The call that a whole block says; None where it says none of a tool that there is."""
    inner = block.removeprefix("<tool_call>").removesuffix("</tool_call>")
    if function := _FUNCTION.fullmatch(inner):
        found = _pairs(function[1], function[2], _PARAMETER, tools)
    elif inner.lstrip().startswith("{"):
        found = _json(inner)
    else:
        name = inner.partition("<arg_key>")[0]
        found = _pairs(name.strip(), inner[len(name) :], _PAIR, tools)
    return found if found is not None and found[0] in tools else None


def _json(text: str) -> InlineCall | None:
    try:
        written = msgspec.json.decode(text.encode(), type=_Written)
        raw = bytes(written.arguments or written.parameters)
        arguments = msgspec.json.decode(raw, type=str) if raw.startswith(b'"') else raw.decode()
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
    return written.name, arguments


def _pairs(name: str, text: str, pattern: re.Pattern[str], tools: Mapping[str, str]) -> InlineCall | None:
    if name not in tools:
        return None
    types = _types(tools[name])
    end, written = 0, []
    while match := pattern.match(text, end):
        end = match.end()
        key = match[1].strip()
        written.append(f"{json.dumps(key)}: {_value(match[2], types.get(key))}")
    return None if text[end:].strip() else (name, "{" + ", ".join(written) + "}")


def _value(text: str, kind: Any) -> str:
    """A value as JSON: text where the schema says text, else JSON if it is that."""
    if kind == "string":
        return json.dumps(text)
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return json.dumps(text)
    return text.strip()


def _types(schema_json: str) -> dict[str, Any]:
    try:
        properties = json.loads(schema_json or "{}").get("properties") or {}
    except ValueError:
        return {}
    return {name: value.get("type") for name, value in properties.items() if isinstance(value, dict)}
