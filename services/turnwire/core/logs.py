"""One line of log is one event: a stable dotted name and fields; bound fields travel with the task.

Prompts, arguments and tokens never enter a line: callers log sizes and digests instead.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, TextIO

from turnwire.core.settings import LogSettings

__all__ = ["JsonFormatter", "TextFormatter", "bind", "bound_fields", "configure_logging"]

_EMPTY: Mapping[str, Any] = MappingProxyType({})
_bound: ContextVar[Mapping[str, Any]] = ContextVar("turnwire_log_fields", default=_EMPTY)
_encode = json.JSONEncoder(default=str, separators=(",", ":")).encode
_RECORD_KEYS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "text"}


def bind(**fields: Any) -> None:
    """Add fields to every line that the current task, and tasks it starts from now on, will write."""
    _bound.set({**_bound.get(), **fields})


def bound_fields() -> Mapping[str, Any]:
    """Return the fields bound so far."""
    return _bound.get()


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    own = {key: value for key, value in vars(record).items() if key not in _RECORD_KEYS}
    return {**_bound.get(), **own}


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, event, logger, then the fields in order.

    Args:
        trace_id: asked for every line; None leaves the field out.
    """

    def __init__(self, trace_id: Callable[[], str | None] | None = None) -> None:
        super().__init__()
        self._second = (0, "")
        self._trace_id = trace_id

    def format(self, record: logging.LogRecord) -> str:
        """Return the line without its end; values that JSON does not know become their text."""
        line = {
            "time": self._stamp(record),
            "level": record.levelname,
            "event": record.getMessage(),
            "logger": record.name,
            **_fields(record),
        }
        if self._trace_id is not None and (trace_id := self._trace_id()) is not None:
            line["trace_id"] = trace_id
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        # ASCII output keeps every reader happy, also with a lone surrogate inside.
        return _encode(line)

    def _stamp(self, record: logging.LogRecord) -> str:
        second = int(record.created)
        if self._second[0] != second:
            self._second = (second, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second)))
        return f"{self._second[1]}.{int(record.msecs):03d}Z"


class TextFormatter(logging.Formatter):
    """For people at a terminal: time, level, the event's text or name, fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, with the traceback under it if there is one."""
        stamp = time.strftime("%H:%M:%S", time.localtime(record.created))
        text = vars(record).get("text")
        head = f"{stamp} {record.levelname:<7} {text or record.getMessage()}"
        if text is None:
            head += "".join(f" {key}={_plain(value)}" for key, value in _fields(record).items())
        if record.exc_info:
            head += "\n" + self.formatException(record.exc_info)
        return head.encode("utf-8", "replace").decode()


def _plain(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(value)
    return json.dumps(text) if not text or any(c.isspace() or c == '"' for c in text) else text


def configure_logging(
    settings: LogSettings,
    stream: TextIO | None = None,
    trace_id: Callable[[], str | None] | None = None,
) -> None:
    """Make the root logger write as `settings` say; replaces whatever handlers it had.

    Args:
        stream: instead of the one that the settings name.
        trace_id: where JSON lines get their `trace_id` from.
    """
    out = stream or (sys.stderr if settings.stream == "stderr" else sys.stdout)
    text = settings.format == "text" or (settings.format == "auto" and out.isatty())
    handler = logging.StreamHandler(out)
    handler.setFormatter(TextFormatter() if text else JsonFormatter(trace_id))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.level)
    # Ids of thread, process and task are in no line of ours, and cost on every one.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging.captureWarnings(True)
