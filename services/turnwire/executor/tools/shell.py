"""A shell for the model: a command tool like any other, and off unless the operator wants it."""

from __future__ import annotations

from turnwire.extend.tools import CommandTool, Parameter, Risk, command_tool

__all__ = ["shell_tool"]


def shell_tool() -> CommandTool:
    """Make the tool `shell`, which runs text that the model wrote."""
    return command_tool(
        "shell",
        ["bash", "-c", "{command}"],
        description="Run a command with bash in the workspace and return what it prints.",
        parameters={"command": Parameter(description="The command, as typed at a prompt")},
        risk=Risk.DANGEROUS,
        cancel_note="The command was stopped with all processes it had started.",
    )
