"""Fragments of tool calls become whole calls, whatever a provider does with indexes, ids and names.

The key is the index, but an index alone proves nothing: a fragment that names another id and a name opens a
new call at the same index, a fragment without index belongs to the last call, and an id or name that is
absent, empty or the word "null" says nothing at all.
"""

from __future__ import annotations

from collections.abc import Iterator

from turnwire.core.text import repair
from turnwire.extend.llm import ToolCallComplete, ToolCallFragment
from turnwire.runtime.models.arguments import (
    MAX_ARGUMENT_BYTES,
    check_arguments,
    is_complete_object,
    oversize,
)
from turnwire.runtime.models.text import utf8_length

__all__ = ["OpenCall", "ToolCalls", "solid"]

_HOLLOW_NAMES = frozenset({"", "none", "null"})


def solid(value: str | int | None) -> str:
    """The id or name as text; "" where it says nothing."""
    if value is None or value == "" or value == "null":
        return ""
    return repair(value if isinstance(value, str) else str(value))


class OpenCall:
    """One call whose arguments may still be arriving."""

    __slots__ = ("_parts", "argument_bytes", "ended", "extra", "id", "name")

    def __init__(self, call_id: str, name: str) -> None:
        self.id = call_id
        self.name = name
        self.argument_bytes = 0
        # Only formats that announce the end of a call clear this while it is open.
        self.ended = True
        self.extra: object = None
        self._parts: list[str] = []

    def append(self, fragment: str) -> ToolCallFragment:
        """Take the next piece of the arguments; what lies above the limit is counted, not kept."""
        self.argument_bytes += utf8_length(fragment)
        if self.argument_bytes <= MAX_ARGUMENT_BYTES:
            self._parts.append(fragment)
        return ToolCallFragment(self.name, self.argument_bytes)

    def count(self, piece: str) -> ToolCallFragment:
        """Count a piece of arguments that somebody else puts together and gives to `replace`."""
        self.argument_bytes += utf8_length(piece)
        return ToolCallFragment(self.name, self.argument_bytes)

    def replace(self, arguments: str) -> None:
        """Take the whole arguments in the place of what has arrived."""
        self._parts = []
        self.argument_bytes = 0
        self.append(arguments)

    def arguments(self) -> str:
        """What has arrived so far, as sent."""
        if len(self._parts) > 1:
            self._parts = ["".join(self._parts)]
        return self._parts[0] if self._parts else ""

    def complete(self) -> ToolCallComplete:
        """Close the call; `error` says why it must not be executed, if so."""
        if self.argument_bytes > MAX_ARGUMENT_BYTES:
            arguments, error = "{}", oversize(self.argument_bytes)
        else:
            arguments, error = check_arguments(self.arguments())
        if not self.ended and not self.argument_bytes:
            error = "the call was cut off before the end of its arguments"
        if self.name.strip().lower() in _HOLLOW_NAMES:
            error = "the call names no tool"
        return ToolCallComplete(self.id, self.name, arguments, error=error)


class ToolCalls:
    """All calls of one model answer, in the order in which they began."""

    __slots__ = ("_at", "_order", "last")

    def __init__(self) -> None:
        self.last = OpenCall("", "")
        self._order: list[OpenCall] = []
        self._at: dict[int, OpenCall] = {}

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[OpenCall]:
        return iter(self._order)

    def open(self, index: int, call_id: str, name: str) -> OpenCall:
        """Begin a call at `index`, whatever stood there before."""
        call = OpenCall(call_id, name)
        self._order.append(call)
        self._at[index] = call
        return call

    def position(self, call: OpenCall) -> int:
        """The number of `call` in the order in which the calls began."""
        return self._order.index(call)

    def at(self, index: int) -> OpenCall | None:
        """The call that was last begun at `index`."""
        return self._at.get(index)

    def fragment(
        self, index: int | None, call_id: str | int | None, name: str | None, arguments: str
    ) -> ToolCallFragment:
        """Take one fragment as it came and return how far its call is now."""
        id_, name_ = solid(call_id), solid(name)
        call = self._target(index, id_)
        if call is None or _starts_new(call, id_, name_, arguments):
            call = self.open(len(self._order) if index is None else index, id_, name_)
        else:
            call.id = call.id or id_
            call.name = call.name or name_
        self.last = call
        return call.append(arguments)

    def complete(self) -> list[ToolCallComplete]:
        """Close all calls."""
        return [call.complete() for call in self._order]

    def _target(self, index: int | None, call_id: str) -> OpenCall | None:
        if index is not None:
            return self._at.get(index)
        for call in reversed(self._order):
            if not call_id or call.id == call_id:
                return call
        return self._order[-1] if self._order else None


def _starts_new(call: OpenCall, call_id: str, name: str, arguments: str) -> bool:
    """Whether a fragment for the slot of `call` opens another call instead of continuing it."""
    if call_id and call_id == call.id:
        return False
    if call_id and name and call.id:
        return True
    if (call_id and call.id) or (call_id and name and call.name):
        # Some servers mint an id per fragment, others send id and name apart.
        return is_complete_object(call.arguments())
    if name and call.name:
        # No id to go by. A repeated name is a habit of some servers, until the object before it is whole.
        return is_complete_object(call.arguments()) and bool(name != call.name or arguments.strip())
    return False
