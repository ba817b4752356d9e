"""Bytes to lines, however the network cut them, in linear time.

LF, CRLF and lone CR end a line; a byte order mark at the start is dropped; a last line without an end comes
with `close`. Server-sent events are read line by line, not block by block, so a server that forgets the blank
line, or the last one, is read like any other.
"""

from __future__ import annotations

__all__ = ["LineSplitter", "data_of"]

_BOM = b"\xef\xbb\xbf"


class LineSplitter:
    """Feed it pieces of a body, get the whole lines that they complete, without their ends."""

    __slots__ = ("_after_cr", "_head", "_parts")

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._after_cr = False
        self._head: bytes | None = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that end in this piece; blank ones are empty bytes."""
        if self._head is not None:
            data = self._strip_bom(data)
        if self._after_cr:
            if not data:
                return []
            self._after_cr = False
            if data[:1] == b"\n":
                data = data[1:]
        if b"\r" in data:
            self._after_cr = data[-1:] == b"\r"
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if b"\n" not in data:
            if data:
                self._parts.append(data)
            return []
        lines = data.split(b"\n")
        if self._parts:
            self._parts.append(lines[0])
            lines[0] = b"".join(self._parts)
            self._parts.clear()
        rest = lines.pop()
        if rest:
            self._parts.append(rest)
        return lines

    def close(self) -> list[bytes]:
        """Return the last line if it had no end."""
        if self._head:
            self._parts.insert(0, self._head)
        self._head = None
        rest = b"".join(self._parts)
        self._parts.clear()
        return [rest] if rest else []

    def _strip_bom(self, data: bytes) -> bytes:
        start = (self._head or b"") + data
        if len(start) < len(_BOM) and _BOM.startswith(start):
            self._head = start
            return b""
        self._head = None
        return start[len(_BOM) :] if start.startswith(_BOM) else start


def data_of(line: bytes) -> bytes | None:
    """The value of a `data` field, or None for comments, other fields and blank lines."""
    if line.startswith(b"data:"):
        return line[5:].strip()
    return b"" if line == b"data" else None
