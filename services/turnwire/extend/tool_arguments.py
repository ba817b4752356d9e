"""Tool arguments: from the model's JSON to validated values, with errors that the model can act on.

What a person approved and what a tool receives are the same: ambiguous JSON (duplicate keys) is refused.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.fields import FieldInfo

from turnwire.core.text import repair

__all__ = [
    "MAX_ARGUMENT_BYTES",
    "ArgumentError",
    "argument_model",
    "description_of",
    "model_from_signature",
    "parse_arguments",
    "plain_schema",
    "validated",
]

MAX_ARGUMENT_BYTES = 256 << 10
_MAX_DEPTH = 64
_MAX_SCHEMA_CHARS = 2_000
_MAX_INPUT_CHARS = 80
_MAX_ERRORS = 10
_SECTION = re.compile(r"^(Args|Arguments|Returns|Yields|Raises|Examples?|Note|Notes):\s*$", re.MULTILINE)
_NOTE = re.compile(r"^ {2,8}(\w+)(?: \([^)]*\))?: (.+(?:\n {8,}.+)*)", re.MULTILINE)


class ArgumentError(Exception):
    """The arguments do not fit the tool; the text tells the model what to change."""


def parse_arguments(arguments_json: str) -> dict[str, Any]:
    """Read a JSON object; blank text is the empty object.

    Raises ArgumentError for anything but one object, for duplicate keys, NaN, numbers of thousands of
    digits, more than 64 levels, and more than 256 KiB. Lone surrogates and NUL become U+FFFD.
    """
    if len(arguments_json) > MAX_ARGUMENT_BYTES:
        raise ArgumentError(f"The arguments are longer than {MAX_ARGUMENT_BYTES} bytes.")
    if not arguments_json.strip():
        return {}
    try:
        value = json.loads(arguments_json, object_pairs_hook=_unique, parse_constant=_no_constant)
    except RecursionError:
        raise ArgumentError(f"The arguments are nested deeper than {_MAX_DEPTH} levels.") from None
    except ValueError as error:
        raise ArgumentError(f"The arguments are not valid JSON: {error}.") from None
    if not isinstance(value, dict):
        raise ArgumentError("The arguments must be one JSON object.")
    return {repair(key): item for key, item in _cleaned(value, 1).items()}


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key!r} stands twice in one object")
        found[key] = value
    return found


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is not a JSON number")


def _cleaned(value: Any, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise ArgumentError(f"The arguments are nested deeper than {_MAX_DEPTH} levels.")
    if isinstance(value, str):
        return repair(value)
    if isinstance(value, dict):
        return {repair(key): _cleaned(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_cleaned(item, depth + 1) for item in value]
    return value


def argument_model(tool_name: str, fields: Mapping[str, tuple[Any, Any]]) -> type[BaseModel]:
    """Build the model of a tool's arguments from names, types and defaults or `Field`s."""
    prepared: dict[str, Any] = {}
    for name, (kind, default) in fields.items():
        info = Field(alias=name)
        if isinstance(default, FieldInfo):
            kind = Annotated[kind, default]
        elif default is not ...:
            info = Field(default, alias=name)
        # Aliases, since a parameter may be called like a method of the model.
        prepared[f"argument_{name}"] = (kind, info)
    config = ConfigDict(extra="forbid", protected_namespaces=(), arbitrary_types_allowed=False)
    return create_model(f"{tool_name}_arguments", __config__=config, **prepared)


def model_from_signature(tool_name: str, function: Callable[..., Any], skip: str) -> type[BaseModel]:
    """Build the model from a function's parameters, all but `skip`. Raises TypeError for `*args`."""
    hints = get_type_hints(function, include_extras=True)
    notes = _argument_notes(function.__doc__ or "")
    fields: dict[str, tuple[Any, Any]] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if name == skip:
            continue
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(f"tool {tool_name}: parameter {name} must be an ordinary named parameter")
        kind = hints.get(name, Any)
        if name in notes:
            kind = Annotated[kind, Field(description=notes[name])]
        fields[name] = (kind, ... if parameter.default is parameter.empty else parameter.default)
    return argument_model(tool_name, fields)


def validated(tool_name: str, model: type[BaseModel], arguments_json: str) -> dict[str, Any]:
    """Validate a call's arguments by name. Raises ArgumentError."""
    values = parse_arguments(arguments_json)
    try:
        checked = model.model_validate_json(json.dumps(values))
    except ValidationError as error:
        raise ArgumentError(_explain(tool_name, model, error)) from None
    return {info.alias or name: getattr(checked, name) for name, info in type(checked).model_fields.items()}


def _explain(tool_name: str, model: type[BaseModel], error: ValidationError) -> str:
    lines = [f"The arguments of {tool_name} are not valid:"]
    problems = error.errors(include_url=False, include_context=False)
    for problem in problems[:_MAX_ERRORS]:
        where = ".".join(str(part) for part in problem["loc"]) or "arguments"
        line = f"- {where}: {problem['msg']}"
        if problem["type"] not in ("missing", "extra_forbidden"):
            line += f" (got {_short(repr(problem['input']), _MAX_INPUT_CHARS)})"
        lines.append(line)
    if len(problems) > _MAX_ERRORS:
        lines.append(f"- and {len(problems) - _MAX_ERRORS} more")
    schema = json.dumps(plain_schema(model.model_json_schema()), separators=(",", ":"))
    lines.append(f"They must fit this schema: {_short(schema, _MAX_SCHEMA_CHARS)}")
    return "\n".join(lines)


def _short(text: str, size: int) -> str:
    return text if len(text) <= size else text[: size - 3] + "..."


def plain_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Drop the generated titles, which cost tokens and say nothing."""
    plain: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "title" and isinstance(value, str):
            continue
        if key in ("properties", "$defs", "patternProperties") and isinstance(value, dict):
            plain[key] = {name: plain_schema(item) for name, item in value.items()}
        elif isinstance(value, dict) and key not in ("default", "const", "examples"):
            plain[key] = plain_schema(value)
        elif isinstance(value, list) and key in ("anyOf", "oneOf", "allOf", "prefixItems"):
            plain[key] = [plain_schema(item) for item in value]
        else:
            plain[key] = value
    return plain


def description_of(docstring: str) -> str:
    """Give the part of a docstring that is for the model: all before "Args:" and the like."""
    text = inspect.cleandoc(docstring)
    section = _SECTION.search(text)
    return (text[: section.start()] if section else text).strip()


def _argument_notes(docstring: str) -> dict[str, str]:
    text = inspect.cleandoc(docstring)
    section = re.search(r"^Arg(?:ument)?s:\s*\n((?:[ \t]+.*\n?|\n)*)", text, re.MULTILINE)
    if section is None:
        return {}
    return {name: " ".join(note.split()) for name, note in _NOTE.findall(section.group(1))}
