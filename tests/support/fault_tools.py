"""Tools that leave a trace outside before and after their work, so that each start of a call can be counted.

A trace is a line in a file: the execution, the tag of the call in the test's script, `start` or `end`, the
process. It is on the disk before the work goes on, whatever becomes of the process.
"""

from __future__ import annotations

import asyncio
import os
import time

from turnwire.extend.tools import Mode, Parameter, Risk, ToolContext, command_tool, tool


def _trace(file: str, context: ToolContext, tag: str, what: str) -> None:
    line = f"{context.turn}/{context.call_id} {tag} {what} {os.getpid()}\n"
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(descriptor, line.encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


async def _work(file: str, tag: str, seconds: float, context: ToolContext) -> str:
    _trace(file, context, tag, "start")
    context.progress(f"working on {tag}")
    await asyncio.sleep(seconds)
    _trace(file, context, tag, "end")
    return f"did {tag}"


@tool
async def once(file: str, tag: str, seconds: float, context: ToolContext) -> str:
    """Work that must not be done twice, alone."""
    return await _work(file, tag, seconds, context)


@tool(mode=Mode.PARALLEL)
async def once_beside(file: str, tag: str, seconds: float, context: ToolContext) -> str:
    """Work that must not be done twice, beside other calls."""
    return await _work(file, tag, seconds, context)


@tool
def once_blocking(file: str, tag: str, seconds: float, context: ToolContext) -> str:
    """Work that must not be done twice, in a worker of its own."""
    _trace(file, context, tag, "start")
    time.sleep(seconds)
    _trace(file, context, tag, "end")
    return f"did {tag}"


@tool(mode=Mode.PARALLEL, repeatable=True)
async def again(file: str, tag: str, seconds: float, context: ToolContext) -> str:
    """Work that may be done again."""
    return await _work(file, tag, seconds, context)


@tool(risk=Risk.SENSITIVE)
async def careful(file: str, tag: str, seconds: float, context: ToolContext) -> str:
    """Work that must not be done twice, and not before somebody has agreed."""
    return await _work(file, tag, seconds, context)


_COMMAND = (
    'echo "$TURNWIRE_TURN/$TURNWIRE_CALL_ID $1 start $$" >> "$0"; sync "$0"; echo "working"; sleep "$2";'
    ' echo "$TURNWIRE_TURN/$TURNWIRE_CALL_ID $1 end $$" >> "$0"; sync "$0"; printf "did %s" "$1"'
)
once_command = command_tool(
    "once_command",
    ["bash", "-c", _COMMAND, "{file}", "{tag}", "{seconds}"],
    description="Work that must not be done twice, in a command.",
    parameters={"file": Parameter(), "tag": Parameter(), "seconds": Parameter()},
)
