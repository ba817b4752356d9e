"""The tools of this executor, by name; fixed once the service serves."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from turnwire.core.errors import NotFound
from turnwire.executor.bodies import Body
from turnwire.extend.tools import CommandTool, Mode, Parameter, Risk, SuspendStep, ToolSpec

__all__ = ["Catalog", "DuplicateTool", "command_from_json", "spec_from_json"]


class DuplicateTool(Exception):
    """Two tools share a name."""


class Catalog:
    """Bodies by name. Raises DuplicateTool at construction."""

    def __init__(self, bodies: Iterable[Body]) -> None:
        self._bodies: dict[str, Body] = {}
        for body in bodies:
            if body.spec.name in self._bodies:
                raise DuplicateTool(f"there are two tools named {body.spec.name}")
            self._bodies[body.spec.name] = body
        self.specs = tuple(body.spec for _, body in sorted(self._bodies.items()))
        joined = "\n".join(f"{spec.name} {spec.digest}" for spec in self.specs)
        self.digest = hashlib.sha256(joined.encode()).hexdigest()

    def body(self, name: str) -> Body:
        """Find a tool. Raises NotFound / TOOL_NOT_FOUND with the names there are."""
        body = self._bodies.get(name)
        if body is None:
            names = ", ".join(self._bodies)
            raise NotFound(
                f"this executor has no tool {name[:64]!r}; it has: {names}"[:1_000],
                reason="TOOL_NOT_FOUND",
                tool_name=name[:64],
            )
        return body


def spec_from_json(data: Mapping[str, Any]) -> ToolSpec:
    """Read what a worker said of a tool."""
    return ToolSpec(
        name=data["name"],
        description=data["description"],
        input_schema=data["input_schema"],
        output_schema=data["output_schema"],
        digest=data["digest"],
        mode=Mode(data["mode"]),
        timeout=None if data["timeout"] is None else timedelta(seconds=data["timeout"]),
        repeatable=data["repeatable"],
        risk=Risk(data["risk"]),
        cancel_note=data["cancel_note"],
        suspend_steps=tuple(
            SuspendStep(
                name=step["name"],
                payload_schema=step["payload_schema"],
                resume_schema=step["resume_schema"],
                timeout=timedelta(seconds=step["timeout"]),
            )
            for step in data["suspend_steps"]
        ),
    )


def command_from_json(data: Mapping[str, Any]) -> CommandTool:
    """Rebuild a command tool that a worker loaded, so that the service can run it without the worker."""
    spec = spec_from_json(data["spec"])
    command = data["command"]
    parameters = {
        name: Parameter(
            type=item["type"],
            description=item["description"],
            default=item.get("default", ...),
            choices=tuple(item["choices"]),
        )
        for name, item in command["parameters"].items()
    }
    return CommandTool(
        name=spec.name,
        description=spec.description,
        argv=tuple(command["argv"]),
        shell=command["shell"],
        parameters=parameters,
        timeout=spec.timeout,
        repeatable=spec.repeatable,
        mode=spec.mode,
        risk=spec.risk,
        cancel_note=spec.cancel_note,
        env=tuple(command["env"]),
        json_stdin=command["json_stdin"],
        cwd=command["cwd"],
        version=json.dumps([spec.digest]),
    )
