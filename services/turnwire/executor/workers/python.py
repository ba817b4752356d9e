"""A worker process: loads the users' Python tools and runs calls of them until its socket closes.

Async calls share its event loop; a sync call has the worker to itself, since only ending the process can
stop it.
"""

from __future__ import annotations

import asyncio
import base64
import inspect
import json
import os
import socket
import struct
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

from turnwire.executor.limits import Capture, OutputLimits, clip
from turnwire.executor.supervisor import Supervisor
from turnwire.executor.workers.invoking import PrintCapture, ProgressSink, frames_of, invoke, to_result
from turnwire.executor.workers.loading import LoadProblem, describe, load_tools
from turnwire.executor.workers.protocol import FrameError, encode
from turnwire.extend.tools import ArgumentError, CommandTool, Suspend, Tool, ToolContext, ToolResult

__all__ = ["Worker", "main"]

ON_CANCEL_SECONDS = 2.0
_ERROR_CHARS = 4_000
_NOTE_CHARS = 2_000
_MAX_PARTS_BYTES = 4 << 20
_MAX_STATE_BYTES = 64 << 10
_LENGTH = struct.Struct(">I")


class Worker:
    """Serves calls that arrive on one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._tools: dict[str, Tool[..., Any]] = {}
        self._tasks = Supervisor()
        self._calls: dict[str, asyncio.Task[None]] = {}
        self._stopped: set[str] = set()

    async def serve(self) -> None:
        """Load the tools, say hello, and serve until the service closes the connection."""
        config = await self._receive()
        if config is None:
            return
        try:
            loaded = load_tools(config["files"], with_entry_points=config["entry_points"])
        except LoadProblem as problem:
            self._send({"kind": "hello", "problem": clip(str(problem), _ERROR_CHARS), "tools": []})
            await self._writer.drain()
            return
        self._tools = {name: item for name, item in loaded.items() if not isinstance(item, CommandTool)}
        self._send({"kind": "hello", "tools": [describe(item) for item in loaded.values()]})
        while (message := await self._receive()) is not None:
            self._handle(message)

    def _handle(self, message: dict[str, Any]) -> None:
        call_id = str(message.get("id", ""))
        match message["op"]:
            case "call":
                self._keep(call_id, self._call(call_id, message))
            case "stop":
                task = self._calls.get(call_id)
                if task is not None and call_id not in self._stopped:
                    self._stopped.add(call_id)
                    task.cancel()
            case "on-cancel":
                self._keep(call_id, self._on_cancel_only(call_id, message))
            case "ping":
                self._send({"kind": "pong"})

    def _keep(self, call_id: str, body: Any) -> None:
        task = self._tasks.start(body)
        self._calls[call_id] = task
        task.add_done_callback(lambda _: self._calls.pop(call_id, None))

    async def _call(self, call_id: str, message: dict[str, Any]) -> None:
        tool = self._tools[message["tool"]]
        limits = OutputLimits(**message["limits"])
        sink = ProgressSink(
            asyncio.get_running_loop(),
            lambda text: self._send({"kind": "progress", "id": call_id, "text": text}),
        )
        context = _context(message, sink)
        end: dict[str, Any] = {"kind": "end", "id": call_id, "status": "ok"}
        capture = Capture(limits, message["staging"])
        try:
            arguments = tool.arguments(message["arguments_json"])
            result = await _perform(tool, arguments, context, sink, end)
        except ArgumentError as error:
            result = ToolResult(clip(str(error), _ERROR_CHARS), is_error=True)
        except asyncio.CancelledError:
            end["status"] = "stopped"
            result = ToolResult()
        except Exception as error:
            end["frames"] = frames_of(error)
            result = ToolResult(clip(f"{type(error).__name__}: {error}", _ERROR_CHARS), is_error=True)
        end["stop_requested"] = call_id in self._stopped
        self._stopped.discard(call_id)
        if end["stop_requested"]:
            end["note"] = await _run_on_cancel(tool, context)
        sink.flush()
        parts, note = _parts(result)
        capture.feed_text(result.text + note)
        end.update(captured=capture.finish().to_dict(), is_error=result.is_error, parts=parts)
        self._send(end)

    async def _on_cancel_only(self, call_id: str, message: dict[str, Any]) -> None:
        sink = ProgressSink(asyncio.get_running_loop(), lambda text: None)
        note = await _run_on_cancel(self._tools[message["tool"]], _context(message, sink))
        self._send({"kind": "end", "id": call_id, "status": "ok", "note": note})

    def _send(self, message: dict[str, Any]) -> None:
        if not self._writer.is_closing():
            self._writer.write(encode(message))

    async def _receive(self) -> dict[str, Any] | None:
        try:
            (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
            message = json.loads(await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        if not isinstance(message, dict):
            raise FrameError("a frame must be a JSON object")
        return message


async def _perform(
    tool: Tool[..., Any],
    arguments: dict[str, Any],
    context: ToolContext,
    sink: ProgressSink,
    end: dict[str, Any],
) -> ToolResult:
    try:
        return to_result(await invoke(tool, arguments, context, sink))
    except Suspend as suspend:
        end.update(_suspension(tool, suspend))
        return ToolResult()


def _context(message: dict[str, Any], sink: ProgressSink) -> ToolContext:
    resume = message.get("resume") or {}
    return ToolContext(
        **message["context"],
        timeout_seconds=message["timeout"],
        deadline=datetime.now(UTC) + timedelta(seconds=message["timeout"]),
        resume_step=resume.get("step", ""),
        resume=json.loads(resume.get("payload_json") or "null"),
        state=json.loads(resume.get("state_json") or "null"),
        report=lambda text: sink.add(f"{text}\n"),
    )


def _suspension(tool: Tool[..., Any], suspend: Suspend) -> dict[str, Any]:
    state_json, payload_json = json.dumps(suspend.state), json.dumps(suspend.payload)
    if max(len(state_json), len(payload_json)) > _MAX_STATE_BYTES:
        raise ValueError(f"state and payload of a suspended tool must be at most {_MAX_STATE_BYTES} bytes")
    step = next((step for step in tool.spec.suspend_steps if step.name == suspend.step), None)
    if step is None:
        raise ValueError(f"tool {tool.name} declares no suspend step {suspend.step}")
    return {
        "status": "suspended",
        "suspension": {
            "step": suspend.step,
            "payload_json": payload_json,
            "resume_schema_json": json.dumps(dict(step.resume_schema)),
            "state_json": state_json,
            "resume_timeout": step.timeout.total_seconds(),
        },
    }


def _parts(result: ToolResult) -> tuple[list[dict[str, str]], str]:
    """Give the parts that fit a frame, and what to say of those that do not."""
    size = sum(len(part.data) for part in result.parts)
    if size > _MAX_PARTS_BYTES:
        return [], f"\n[{len(result.parts)} parts of {size:,} bytes were too large and are left out]"
    encoded = [
        {"media_type": part.media_type, "data": base64.b64encode(part.data).decode()} for part in result.parts
    ]
    return encoded, ""


async def _run_on_cancel(tool: Tool[..., Any], context: ToolContext) -> str:
    if tool.on_cancel is None:
        return ""
    try:
        async with asyncio.timeout(ON_CANCEL_SECONDS):
            if inspect.iscoroutinefunction(tool.on_cancel):
                note = await tool.on_cancel(context)
            else:
                note = await asyncio.to_thread(tool.on_cancel, context)
    except TimeoutError:
        return f"The cancel handler did not end within {ON_CANCEL_SECONDS:g} s."
    except Exception as error:
        return clip(f"The cancel handler failed: {type(error).__name__}: {error}", _NOTE_CHARS)
    return "" if note is None else clip(str(note), _NOTE_CHARS)


async def _serve(sock: socket.socket) -> None:
    reader, writer = await asyncio.open_unix_connection(sock=sock)
    await Worker(reader, writer).serve()
    # Not by way of asyncio.run, which would wait for the thread of a sync tool that nobody waits for.
    os._exit(0)


def main() -> int:
    """Serve calls on the inherited socket until it closes."""
    sock = socket.socket(fileno=int(os.environ.pop("TURNWIRE_WORKER_FD")))
    sock.setblocking(False)
    sock.set_inheritable(False)
    sys.stdout = PrintCapture()
    asyncio.run(_serve(sock))
    return 0


if __name__ == "__main__":
    sys.exit(main())
