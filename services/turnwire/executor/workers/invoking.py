"""Calling one Python tool in a worker: values to text, yields and prints to progress, exceptions to words."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import io
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

from pydantic_core import to_json

from turnwire.extend.tools import Tool, ToolContext, ToolResult

__all__ = ["PrintCapture", "ProgressSink", "frames_of", "invoke", "to_result"]

_PROGRESS_SECONDS = 0.25
_PROGRESS_CHARS = 2_000
_current_sink: contextvars.ContextVar[ProgressSink | None] = contextvars.ContextVar("sink", default=None)


class ProgressSink:
    """Gathers what a call says and hands it on at most four times a second; safe from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, send: Callable[[str], None]) -> None:
        self._loop = loop
        self._send = send
        self._lock = threading.Lock()
        self._pending = ""
        self._scheduled = False
        self._next_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, text: str) -> None:
        """Take a piece of text; only the last 2,000 characters of what waits are kept."""
        with self._lock:
            self._pending = (self._pending + text)[-_PROGRESS_CHARS:]
            if self._scheduled:
                return
            self._scheduled = True
        self._loop.call_soon_threadsafe(self._schedule)

    def flush(self) -> None:
        """Send what waits; called on the loop when the call has ended."""
        if self._timer is not None:
            self._timer.cancel()
        self._emit()

    def _schedule(self) -> None:
        self._timer = self._loop.call_at(max(self._next_at, self._loop.time()), self._emit)

    def _emit(self) -> None:
        with self._lock:
            text, self._pending = self._pending, ""
            self._scheduled = False
        self._next_at = self._loop.time() + _PROGRESS_SECONDS
        if text:
            self._send(text)


class PrintCapture(io.TextIOBase):
    """Stands in for sys.stdout: what a tool prints is progress of its call, other text is diagnostics."""

    def writable(self) -> bool:
        """Tell that it can be written to."""
        return True

    def write(self, text: str) -> int:
        """Take text from whichever call runs in this context."""
        sink = _current_sink.get()
        if sink is None:
            sys.stderr.write(text)
        else:
            sink.add(text)
        return len(text)


async def invoke(
    tool: Tool[..., Any], arguments: dict[str, Any], context: ToolContext, sink: ProgressSink
) -> Any:
    """Run the function and give what it returned. Whatever it raises comes through."""
    _current_sink.set(sink)
    if tool.context_parameter:
        arguments = {**arguments, tool.context_parameter: context}
    if inspect.isasyncgenfunction(tool.function):
        return await _drive_async(tool.function(**arguments), sink)
    if inspect.iscoroutinefunction(tool.function):
        return await tool.function(**arguments)
    # A thread, so that this process still answers; ending such a call means ending the process.
    return await asyncio.to_thread(_run_sync, tool, arguments, sink)


def _run_sync(tool: Tool[..., Any], arguments: dict[str, Any], sink: ProgressSink) -> Any:
    value = tool.function(**arguments)
    if not inspect.isgenerator(value):
        return value
    last: Any = None
    while True:
        try:
            last = next(value)
        except StopIteration as stop:
            return last if stop.value is None else stop.value
        if not isinstance(last, ToolResult):
            sink.add(f"{last}\n")


async def _drive_async(values: Any, sink: ProgressSink) -> Any:
    last: Any = None
    try:
        async for last in values:
            if not isinstance(last, ToolResult):
                sink.add(f"{last}\n")
    finally:
        await values.aclose()
    return last


def to_result(value: Any) -> ToolResult:
    """Turn whatever a tool returned into a result; what is not text becomes JSON."""
    if isinstance(value, ToolResult):
        return value
    if value is None:
        return ToolResult()
    if isinstance(value, str):
        return ToolResult(value)
    if isinstance(value, bytes | bytearray):
        return ToolResult(bytes(value).decode("utf-8", "replace"))
    return ToolResult(to_json(value, inf_nan_mode="strings", fallback=str).decode())


def frames_of(error: BaseException, limit: int = 8) -> list[str]:
    """Give the last places of a traceback, without source lines or messages, which may hold secrets."""
    frames = traceback.extract_tb(error.__traceback__)[-limit:]
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
