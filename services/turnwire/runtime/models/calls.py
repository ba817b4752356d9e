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
    ObjectScan,
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

    __slots__ = (
        "_parsed",
        "_parts",
        "_scan",
        "_scanned",
        "argument_bytes",
        "ended",
        "extra",
        "id",
        "name",
        "position",
    )

    def __init__(self, call_id: str, name: str, position: int = 0) -> None:
        # The number of the call in the order in which the calls of the answer began.
        self.position = position
        self.id = call_id
        self.name = name
        self.argument_bytes = 0
        # Only formats that announce the end of a call clear this while it is open.
        self.ended = True
        self.extra: object = None
        self._parts: list[str] = []
        self._scan = ObjectScan()
        self._scanned = 0
        self._parsed: bool | None = None

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
        self._scan, self._scanned, self._parsed = ObjectScan(), 0, None
        self.argument_bytes = 0
        self.append(arguments)

    @property
    def whole(self) -> bool:
        """Whether what has arrived is one JSON object, so that anything more belongs to another call.

        Each piece is looked at once, however often this is asked.
        """
        for part in self._parts[self._scanned :]:
            self._scan.feed(part)
        self._scanned = len(self._parts)
        if self._scan.closed and self._parsed is None:
            self._parsed = is_complete_object(self.arguments())
        return self._scan.closed and bool(self._parsed)

    def arguments(self) -> str:
        """What has arrived so far, as sent."""
        return "".join(self._parts)

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

    __slots__ = ("_at", "_by_id", "_order", "last")

    def __init__(self) -> None:
        self.last = OpenCall("", "")
        self._order: list[OpenCall] = []
        self._at: dict[int, OpenCall] = {}
        self._by_id: dict[str, OpenCall] = {}

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[OpenCall]:
        return iter(self._order)

    def open(self, index: int, call_id: str, name: str) -> OpenCall:
        """Begin a call at `index`, whatever stood there before."""
        call = OpenCall(call_id, name, len(self._order))
        self._order.append(call)
        self._at[index] = call
        self._by_id[call_id] = call
        return call

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
            if id_ and not call.id:
                call.id = id_
                self._by_id[id_] = call
            call.name = call.name or name_
        self.last = call
        return call.append(arguments)

    def complete(self) -> list[ToolCallComplete]:
        """Close all calls."""
        return [call.complete() for call in self._order]

    def _target(self, index: int | None, call_id: str) -> OpenCall | None:
        if index is not None:
            return self._at.get(index)
        last = self._order[-1] if self._order else None
        return self._by_id.get(call_id, last) if call_id else last


def _starts_new(call: OpenCall, call_id: str, name: str, arguments: str) -> bool:
    """Whether a fragment for the slot of `call` opens another call instead of continuing it."""
    if call_id and call_id == call.id:
        return False
    if call_id and name and call.id:
        return True
    if (call_id and call.id) or (call_id and name and call.name):
        # Some servers mint an id per fragment, others send id and name apart.
        return call.whole
    if name and call.name:
        # No id to go by. A repeated name is a habit of some servers, until the object before it is whole.
        return call.whole and bool(name != call.name or arguments.strip())
    return False
