"""Loading the tools that users wrote, inside a worker: the service itself never imports their code."""

from __future__ import annotations

import importlib.util
import json
import sys
import traceback
from collections.abc import Iterable
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from turnwire.extend.tools import CommandTool, Tool, ToolSpec

__all__ = ["ENTRY_POINT_GROUP", "LoadProblem", "describe", "load_tools"]

ENTRY_POINT_GROUP = "turnwire.tools"

_MAX_DESCRIPTION_BYTES = 8 << 10
_MAX_SCHEMA_BYTES = 64 << 10

AnyTool = Tool[Any, Any] | CommandTool


class LoadProblem(Exception):
    """A tool could not be loaded; the text says which and why."""


def load_tools(files: Iterable[str], *, with_entry_points: bool) -> dict[str, AnyTool]:
    """Load tools from Python files and from installed packages, by name.

    Raises LoadProblem when a file does not import, a tool has no schema, or two tools share a name.
    """
    found: dict[str, tuple[AnyTool, str]] = {}
    for file in files:
        for loaded in _tools_of(_import_file(file)):
            _add(found, loaded, file)
    if with_entry_points:
        for point in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda point: point.name):
            try:
                value = point.load()
            except Exception as error:
                raise LoadProblem(f"entry point {point.name} ({point.value}): {_reason(error)}") from error
            for loaded in _tools_of(value):
                _add(found, loaded, f"entry point {point.name}")
    return {name: loaded for name, (loaded, _) in found.items()}


def _import_file(file: str) -> ModuleType:
    path = Path(file).resolve()
    if not path.is_file():
        raise LoadProblem(f"{file}: there is no such file")
    spec = importlib.util.spec_from_file_location(f"turnwire_tools_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise LoadProblem(f"{file}: is not a Python file")
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # So that a tools file may import its neighbours.
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # Type hints are resolved through it.
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise LoadProblem(f"{file}: {_reason(error)}") from error
    return module


def _reason(error: BaseException) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1:]
    where = f" at {last[0].filename}:{last[0].lineno}" if last else ""
    return f"{type(error).__name__}: {error}{where}"


def _tools_of(value: Any) -> list[AnyTool]:
    if isinstance(value, Tool | CommandTool):
        return [value]
    if isinstance(value, ModuleType):
        return _distinct(item for item in vars(value).values() if isinstance(item, Tool | CommandTool))
    if isinstance(value, list | tuple):
        return _distinct(item for item in value if isinstance(item, Tool | CommandTool))
    return []


def _distinct(items: Iterable[AnyTool]) -> list[AnyTool]:
    return list({id(item): item for item in items}.values())


def _add(found: dict[str, tuple[AnyTool, str]], loaded: AnyTool, origin: str) -> None:
    if loaded.name in found:
        raise LoadProblem(f"tool {loaded.name} stands in {found[loaded.name][1]} and in {origin}")
    try:
        described = loaded.spec
    except Exception as error:
        raise LoadProblem(f"tool {loaded.name} of {origin} has no usable schema: {error}") from error
    if len(described.description.encode()) > _MAX_DESCRIPTION_BYTES:
        raise LoadProblem(f"the description of tool {loaded.name} is above {_MAX_DESCRIPTION_BYTES} bytes")
    if len(json.dumps(described.input_schema)) > _MAX_SCHEMA_BYTES:
        raise LoadProblem(f"the schema of tool {loaded.name} is above {_MAX_SCHEMA_BYTES} bytes")
    found[described.name] = (loaded, origin)


def describe(loaded: AnyTool) -> dict[str, Any]:
    """Give the JSON form of a tool that crosses to the service."""
    described: dict[str, Any] = {"spec": _spec_to_json(loaded.spec)}
    if isinstance(loaded, CommandTool):
        described["command"] = {
            "argv": list(loaded.argv),
            "shell": loaded.shell,
            "parameters": {
                name: {
                    "type": parameter.type,
                    "description": parameter.description,
                    "choices": list(parameter.choices),
                    **({} if parameter.default is ... else {"default": parameter.default}),
                }
                for name, parameter in loaded.parameters.items()
            },
            "env": list(loaded.env),
            "json_stdin": loaded.json_stdin,
            "cwd": loaded.cwd,
        }
    else:
        described["async"] = loaded.is_async
        described["on_cancel"] = loaded.on_cancel is not None
    return described


def _spec_to_json(spec: ToolSpec) -> dict[str, Any]:
    return {
        "name": spec.name,
        "description": spec.description,
        "input_schema": dict(spec.input_schema),
        "output_schema": None if spec.output_schema is None else dict(spec.output_schema),
        "digest": spec.digest,
        "mode": spec.mode.value,
        "timeout": None if spec.timeout is None else spec.timeout.total_seconds(),
        "repeatable": spec.repeatable,
        "risk": spec.risk.value,
        "cancel_note": spec.cancel_note,
        "suspend_steps": [
            {
                "name": step.name,
                "payload_schema": dict(step.payload_schema),
                "resume_schema": dict(step.resume_schema),
                "timeout": step.timeout.total_seconds(),
            }
            for step in spec.suspend_steps
        ],
    }
