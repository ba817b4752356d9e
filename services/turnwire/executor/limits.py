"""Bounds on what a tool may say: output is counted while it is produced and never held whole.

Only the standard library is used: the process that pumps a command's output imports this module.
"""

from __future__ import annotations

import codecs
import contextlib
import hashlib
import os
import uuid
from collections import deque
from dataclasses import asdict, dataclass, replace
from typing import Any

from turnwire.core.text import repair

__all__ = [
    "MIN_RESULT_CHARS",
    "Capture",
    "Captured",
    "OutputLimits",
    "clip",
    "render",
]

# A cut moves to a line end when one stands within this share of the piece.
_LINE_SEARCH_SHARE = 0.2
# Below this the marker line alone would fill the room that head and tail leave.
MIN_RESULT_CHARS = 1_000


@dataclass(frozen=True, slots=True)
class OutputLimits:
    """How much of an output is shown and kept.

    `max_chars` characters are shown whole; above it the first `head_ratio` and the last `tail_ratio` of
    `max_chars`. At most `max_stored_bytes` raw bytes are kept for reading by range.
    """

    max_chars: int = 50_000
    head_ratio: float = 0.10
    tail_ratio: float = 0.15
    max_stored_bytes: int = 1 << 30

    def to_dict(self) -> dict[str, Any]:
        """Give the JSON form that crosses a process border."""
        return asdict(self)

    @property
    def head_chars(self) -> int:
        """Characters shown from the start of a long output."""
        return int(self.max_chars * self.head_ratio)

    @property
    def tail_chars(self) -> int:
        """Characters shown from the end of a long output."""
        return int(self.max_chars * self.tail_ratio)


@dataclass(frozen=True, slots=True)
class Captured:
    """What is left of an output after counting it.

    `head` is the whole text while `truncated` is false. `spill_path` names the file with the first
    `stored_bytes` raw bytes, `sha256` is their digest in hex; both are empty where nothing was spilled.
    """

    head: str = ""
    tail: str = ""
    truncated: bool = False
    total_chars: int = 0
    total_lines: int = 0
    total_bytes: int = 0
    spill_path: str = ""
    stored_bytes: int = 0
    sha256: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Give the JSON form that crosses a process border."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Captured:
        """Read the JSON form. Raises TypeError for foreign keys."""
        return cls(**data)


def clip(text: str, max_chars: int) -> str:
    """Clean a short text, such as an error, and cut it in the middle when it is too long."""
    text = repair(text)
    if len(text) <= max_chars:
        return text
    note = f" [... {len(text) - max_chars} characters left out ...] "
    room = max(0, max_chars - len(note))
    if room < 2:
        return text[:max_chars]
    head = room // 2
    return text[:head] + note + text[len(text) - (room - head) :]


class Capture:
    """Counts an output as it arrives; above the limit the raw bytes go to a file in `staging`.

    Memory depends on the limit alone, whatever is fed. Without a `staging` folder, or when its disk fails,
    counting goes on and nothing is stored.
    """

    def __init__(self, limits: OutputLimits, staging: str = "") -> None:
        self._limits = limits
        self._staging = staging
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._whole: list[str] = []
        self._raw: list[bytes] = []
        self._head = ""
        self._tail: deque[str] = deque()
        self._tail_chars = 0
        self._chars = 0
        self._newlines = 0
        self._bytes = 0
        self._truncated = False
        self._last = ""
        self._fd = -1
        self._path = ""
        self._stored = 0
        self._digest = hashlib.sha256()

    @property
    def total_bytes(self) -> int:
        """Bytes fed so far."""
        return self._bytes

    def feed(self, data: bytes) -> str:
        """Count raw bytes and give back their text."""
        self._bytes += len(data)
        if self._truncated:
            self._store(data)
        else:
            self._raw.append(data)
        text = self._decoder.decode(data).replace("\0", "\ufffd")
        self._count(text)
        return text

    def feed_text(self, text: str) -> None:
        """Count text; ill-formed characters are replaced before they are counted or stored."""
        clean = repair(text)
        step = 1 << 16
        for start in range(0, len(clean), step):
            self.feed(clean[start : start + step].encode())

    def finish(self) -> Captured:
        """Close the file and give the shape of the whole."""
        self._count(self._decoder.decode(b"", final=True))
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        lines = self._newlines + (1 if self._last and self._last != "\n" else 0)
        done = Captured(
            head=self._head if self._truncated else "".join(self._whole),
            truncated=self._truncated,
            total_chars=self._chars,
            total_lines=lines,
            total_bytes=self._bytes,
        )
        if not self._truncated:
            return done
        tail = "".join(self._tail)[-self._limits.tail_chars :] if self._limits.tail_chars else ""
        done = replace(done, head=_end_at_line(self._head), tail=_start_at_line(tail))
        if not self._path:
            return done
        return replace(
            done, spill_path=self._path, stored_bytes=self._stored, sha256=self._digest.hexdigest()
        )

    def discard(self) -> None:
        """Close and remove the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self._drop_file()

    def _count(self, text: str) -> None:
        if not text:
            return
        self._chars += len(text)
        self._newlines += text.count("\n")
        self._last = text[-1]
        if self._truncated:
            self._keep_tail(text)
            return
        self._whole.append(text)
        if self._chars > self._limits.max_chars:
            self._overflow()

    def _overflow(self) -> None:
        whole = "".join(self._whole)
        self._truncated = True
        self._head = whole[: self._limits.head_chars]
        self._keep_tail(whole[self._limits.head_chars :])
        self._whole.clear()
        if self._staging:
            self._open()
        for piece in self._raw:
            self._store(piece)
        self._raw.clear()

    def _keep_tail(self, text: str) -> None:
        room = self._limits.tail_chars
        piece = text[-room:] if room else ""
        if not piece:
            return
        self._tail.append(piece)
        self._tail_chars += len(piece)
        while self._tail_chars - len(self._tail[0]) >= room:
            self._tail_chars -= len(self._tail.popleft())
        # Many tiny pieces would cost more than their characters.
        if len(self._tail) > 4096:
            joined = "".join(self._tail)[-room:]
            self._tail = deque([joined])
            self._tail_chars = len(joined)

    def _open(self) -> None:
        path = os.path.join(self._staging, f"{uuid.uuid4().hex}.part")
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError:
            return  # Not stored: `spill_path` stays empty and the reader is told so.
        self._path = path

    def _store(self, data: bytes) -> None:
        room = self._limits.max_stored_bytes - self._stored
        if self._fd < 0 or room <= 0:
            return
        view = memoryview(data)[:room]
        self._digest.update(view)
        try:
            while view:
                written = os.write(self._fd, view)
                self._stored += written
                view = view[written:]
        except OSError:
            # A full disk must not end the tool: the output is then shown as not stored.
            os.close(self._fd)
            self._fd = -1
            self._drop_file()

    def _drop_file(self) -> None:
        if self._path:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)
            self._path = ""


def _end_at_line(text: str) -> str:
    cut = text.rfind("\n")
    return text[: cut + 1] if cut >= len(text) * (1 - _LINE_SEARCH_SHARE) else text


def _start_at_line(text: str) -> str:
    cut = text.find("\n")
    return text[cut + 1 :] if 0 <= cut <= len(text) * _LINE_SEARCH_SHARE else text


def render(captured: Captured, handle: str) -> str:
    """Write what the model reads: the whole text, or head, marker and tail.

    `handle` names the stored bytes; empty says that the middle is gone. The text is never longer than the
    limit that the output was captured under.
    """
    if not captured.truncated:
        return captured.head
    shown = len(captured.head) + len(captured.tail)
    omitted = captured.total_chars - shown
    totals = (
        f"{omitted:,} of {captured.total_chars:,} characters left out; "
        f"in all {captured.total_lines:,} lines, {captured.total_bytes:,} bytes"
    )
    if handle and captured.stored_bytes < captured.total_bytes:
        way = f'the first {captured.stored_bytes:,} bytes are kept: recall_result handle="{handle}"'
    elif handle:
        way = f'read any range with recall_result handle="{handle}"'
    else:
        way = "the part left out was not kept"
    return f"{captured.head}\n[... {totals}; {way} ...]\n{captured.tail}"
