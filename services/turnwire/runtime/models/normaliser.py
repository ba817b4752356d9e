"""What all wire formats share: bytes in, cut anywhere, and the events that they complete out.

A normaliser does no I/O and reads no clock.
"""

from __future__ import annotations

import json
import logging
from abc import abstractmethod
from typing import Any, TypeVar

import msgspec

from turnwire.extend.llm import FailureKind, LlmEvent
from turnwire.runtime.models.assembler import Assembler
from turnwire.runtime.models.sse import LineSplitter, data_of

__all__ = ["Normaliser", "lenient_json", "shaped"]

logger = logging.getLogger(__name__)

_Shape = TypeVar("_Shape")


def lenient_json(payload: bytes) -> Any:
    """Read JSON with what strict readers refuse: lone surrogates, bad UTF-8, raw control characters.

    Raises:
        ValueError: it is not JSON, or nested too deep to be read.
    """
    try:
        return json.loads(payload.decode("utf-8", "replace"), strict=False)
    except RecursionError as error:
        raise ValueError("nested too deep") from error


def shaped(found: Any, shape: type[_Shape]) -> _Shape:
    """Read decoded JSON as one of our structs.

    Raises:
        ValueError: it has another shape.
    """
    try:
        return msgspec.convert(found, shape, strict=False)
    except (msgspec.ValidationError, RecursionError) as error:
        raise ValueError(str(error)) from error


class Normaliser(Assembler):
    """Reads one answer of one provider. The arguments are those of the assembler."""

    def __init__(self, provider: str, **options: Any) -> None:
        super().__init__(provider, **options)
        self._lines = LineSplitter()
        self._pending: list[bytes] = []
        self._bare = False
        self._error_event = False

    # --- the two calls of the contract -------------------------------------------------------------------

    def feed(self, data: bytes) -> list[LlmEvent]:
        """Take the next piece of the body, cut anywhere; return what it completes."""
        out: list[LlmEvent] = []
        if not self.ended:
            self._read(self._lines.feed(data), out)
        return out

    def close(self) -> list[LlmEvent]:
        """The body has ended: return the rest, which ends with the terminal event unless `feed` gave it."""
        out: list[LlmEvent] = []
        for line in self._lines.close():
            if not self.ended:
                self._line(line, out)
        if not self.ended:
            self._flush_pending(out, at_end=True)
        if not self.ended:
            self._end(out, marked=False)
        return out

    # --- what a format defines ---------------------------------------------------------------------------

    @abstractmethod
    def _read(self, lines: list[bytes], out: list[LlmEvent]) -> None:
        """Take whole lines until the answer has ended: the loop that every chunk goes through."""

    @abstractmethod
    def _payload(self, payload: bytes, out: list[LlmEvent]) -> None:
        """Take one payload off the fast path. Raises ValueError where it is not JSON."""

    # --- lines -------------------------------------------------------------------------------------------

    def _line(self, line: bytes, out: list[LlmEvent]) -> None:
        """Take one line by the rules of server-sent events, or as bare JSON."""
        data = data_of(line)
        if data is not None:
            self._data(data, out)
        elif not line:
            self._flush_pending(out, at_end=False)
        elif self._bare or line[:1] in b"{[":
            self._bare = True
            self._data(line, out)
        elif line.startswith(b"event:"):
            self._error_event = line[6:].strip() == b"error"

    def _data(self, data: bytes, out: list[LlmEvent]) -> None:
        if not data:
            return
        if data.startswith(b"[DONE]"):
            self._end(out, marked=True)
            return
        if self._pending:
            self._pending.append(data)
            return
        try:
            self._payload(data, out)
        except ValueError:
            # Perhaps the first of several data lines of one event: the blank line decides.
            self._pending.append(data)

    def _flush_pending(self, out: list[LlmEvent], *, at_end: bool) -> None:
        if not self._pending:
            return
        payload = b"\n".join(self._pending)
        self._pending.clear()
        self._bare = False
        try:
            self._payload(payload, out)
        except ValueError:
            # At the end it is a cut, which the lack of a finish reason tells more precisely.
            if not at_end:
                logger.warning(
                    "model.event_malformed", extra={"provider": self.provider, "bytes": len(payload)}
                )
                self._fail(FailureKind.SERVER, "the provider sent an event that cannot be read", out)
