"""Tools as a team writes them; loaded by the executor's workers in the tests."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

from turnwire.extend.tools import (
    Mode,
    Parameter,
    Suspend,
    SuspendStep,
    ToolContext,
    ToolPart,
    ToolResult,
    command_tool,
    tool,
)


@tool(mode=Mode.PARALLEL, repeatable=True)
async def greet(name: str) -> str:
    """Greet somebody.

    Args:
        name: Who is greeted.
    """
    return f"Hello, {name}!"


@tool
async def who(context: ToolContext) -> dict[str, str]:
    """Tell what the call is told."""
    return {"turn": context.turn, "call": context.call_id, "agent": context.agent}


@tool
async def sleeper(context: ToolContext, seconds: float = 60.0) -> str:
    """Sleep, and say so."""
    context.progress("asleep")
    await asyncio.sleep(seconds)
    return "awake"


@tool(repeatable=True)
async def nap(context: ToolContext, file: str) -> str:
    """Sleep until a file is there."""
    context.progress("asleep")
    while not Path(file).exists():
        await asyncio.sleep(0.02)
    return "awake"


@tool
async def stubborn() -> str:
    """Refuse to be cancelled."""
    print("never")
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            continue


@tool
async def hog(seconds: float = 60.0) -> str:
    """Block the loop of its worker."""
    time.sleep(seconds)
    return "done"


@tool
def sync_sleep(seconds: float = 60.0) -> str:
    """Block a thread."""
    print("working")
    time.sleep(seconds)
    return "done"


@tool
def sync_with_child(marker: str) -> str:
    """Start a child process and wait for it."""
    print("child")
    subprocess.run(["sleep", "300"], env={**os.environ, "CHILD_OF": marker}, check=False)
    return "done"


@tool
def count(to: int):  # type: ignore[no-untyped-def]
    """Count, telling each number."""
    for number in range(to):
        yield f"at {number}"
    return f"counted to {to}"


@tool
async def boom() -> str:
    """Raise."""
    raise ValueError("no such \ud83d thing\0")


@tool
async def long_text(chars: int) -> str:
    """Return a long text."""
    return "x" * chars


@tool
async def picture(size: int) -> ToolResult:
    """Return a picture."""
    return ToolResult("see the picture", (ToolPart("image/png", b"p" * size),))


@tool(suspend_steps=[SuspendStep("confirm", resume_schema={"type": "boolean"})])
async def ask(context: ToolContext, path: str) -> str:
    """Ask before doing."""
    if context.resume is None:
        raise Suspend("confirm", payload={"path": path}, state={"seen": path})
    return f"{context.resume} {context.state['seen']}"


async def _tidy(context: ToolContext) -> str:
    Path(context.variables["TIDY_FILE"]).write_text(context.call_id)
    return "tidied up"


@tool(on_cancel=_tidy, cancel_note="stopped halfway")
async def tidy_async() -> str:
    """Sleep; tidies up when stopped."""
    await asyncio.sleep(3600)
    return "done"


@tool(on_cancel=_tidy)
def tidy_sync() -> str:
    """Block; tidies up in another process when stopped."""
    print("working")
    time.sleep(3600)
    return "done"


@tool
async def crash() -> str:
    """End the worker."""
    os._exit(3)


_text = Parameter()
slow_report = command_tool(
    "slow_report",
    shell="for i in 1 2 3; do echo part $i of {topic}; sleep 0.05; done",
    parameters={"topic": _text},
)
words = command_tool(
    "words",
    [sys.executable, "-c", "import sys; print(sys.argv[1:])", "{one}", "--all", "{many}"],
    parameters={"one": _text, "many": Parameter("strings", default=[])},
)
bash = command_tool("bash", ["bash", "-c", "{script}"], parameters={"script": _text})
show_env = command_tool("show_env", ["env"], env=["EXECUTOR_SECRET"])
stdin_echo = command_tool("stdin_echo", ["cat"], parameters={"text": _text}, json_stdin=True)
missing = command_tool("missing", ["no-such-program"])
