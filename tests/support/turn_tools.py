"""Tools for whole turns: they leave traces outside, wait for the test, and resist their end."""

from __future__ import annotations

from pathlib import Path

from turnwire.extend.tools import Mode, Parameter, command_tool, tool


@tool
def note(file: str, line: str) -> str:
    """Append a line to a file."""
    with Path(file).open("a", encoding="utf-8") as out:
        out.write(f"{line}\n")
    return f"noted {line}"


@tool(mode=Mode.PARALLEL)
def shout(text: str) -> str:
    """Say a text in capitals."""
    return text.upper()


# Opening a named pipe blocks until somebody opens its other end: the test writes to let the tool go on, and
# reads to learn that it is over.
_HELD = 'echo begun >> "$0"; echo started; read -r line < "$1"; echo over >> "$0"; : > "$1"'
held = command_tool(
    "held",
    ["bash", "-c", _HELD, "{file}", "{pipe}"],
    description="Leave a line in a file, wait for a named pipe, leave another line.",
    parameters={"file": Parameter(), "pipe": Parameter()},
    cancel_note="It waited for a pipe.",
)

SCRIPTS = {
    "background": "sleep 60 & echo started; wait",
    "session": "setsid sleep 60 & echo started; wait",
    "double_fork": "( setsid bash -c 'sleep 60 & sleep 60' & ) ; echo started; sleep 60",
    "ignores_term": "trap '' TERM; (trap '' TERM; setsid sleep 60) & echo started; while :; do sleep 1; done",
}
background, session, double_fork, ignores_term = (
    command_tool(name, ["bash", "-c", script], timeout=1.0) for name, script in SCRIPTS.items()
)
