"""Renders settings classes as Markdown, so that the page about configuration cannot differ from the code."""

from __future__ import annotations

import json
import types
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from pydantic_settings import BaseSettings

__all__ = ["Row", "render", "rows", "write_or_check"]


class Row(NamedTuple):
    """One setting, each part as the page shows it."""

    name: str
    type: str
    default: str
    description: str


def rows(settings: type[BaseSettings]) -> list[Row]:
    """Return every setting of the class in order of declaration, nested groups flattened."""
    prefix = str(settings.model_config.get("env_prefix", "")).upper()
    delimiter = str(settings.model_config.get("env_nested_delimiter") or "__")
    return list(_walk(settings, None, prefix, delimiter))


def render(settings: type[BaseSettings], title: str) -> str:
    """Return a Markdown section: the heading, the class's first docstring line and one table."""
    lines = [f"## {title}", ""]
    if doc := (settings.__doc__ or "").strip():
        lines += [doc.splitlines()[0], ""]
    lines += ["| variable | type | default | meaning |", "|---|---|---|---|"]
    lines += [f"| `{row.name}` | {row.type} | {row.default} | {row.description} |" for row in rows(settings)]
    return "\n".join(lines) + "\n"


def write_or_check(path: Path, text: str, *, check: bool) -> bool:
    """Write `text` to `path`, or with `check` only compare; return whether the file holds the text."""
    if check:
        return path.is_file() and path.read_text(encoding="utf-8") == text
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return True


def _walk(model: type[BaseModel], parent: BaseModel | None, prefix: str, delimiter: str) -> Iterator[Row]:
    for name, field in model.model_fields.items():
        variable = field.validation_alias if isinstance(field.validation_alias, str) else None
        path = variable.upper() if variable else f"{prefix}{name.upper()}"
        value = getattr(parent, name) if parent is not None else _default(field)
        group = _group(field.annotation)
        if group is not None:
            nested = value if isinstance(value, BaseModel) else None
            yield from _walk(group, nested, f"{path}{delimiter}", delimiter)
        else:
            yield Row(path, _type(field.annotation), _show(value), _cell(field.description or ""))


def _default(field: FieldInfo) -> Any:
    try:
        return field.get_default(call_default_factory=True)
    except (TypeError, ValueError):  # the factory needs other fields: shown as required
        return PydanticUndefined


def _group(annotation: Any) -> type[BaseModel] | None:
    for part in get_args(annotation) if _is_union(annotation) else (annotation,):
        if isinstance(part, type) and issubclass(part, BaseModel):
            return part
    return None


def _is_union(annotation: Any) -> bool:
    return get_origin(annotation) in (Union, types.UnionType)


def _type(annotation: Any) -> str:
    if _is_union(annotation):
        return " or ".join(_type(part) for part in get_args(annotation) if part is not type(None))
    origin = get_origin(annotation)
    if origin is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(annotation))
    if origin is not None and hasattr(annotation, "__metadata__"):
        return _type(annotation.__origin__)
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return ", ".join(f"`{member.value}`" for member in annotation)
    if annotation is SecretStr:
        return "secret"
    if origin in (list, tuple, set, frozenset, dict):
        return f"{origin.__name__} as JSON"
    return {"str": "text", "int": "integer", "float": "number", "bool": "true or false", "Path": "path"}.get(
        getattr(annotation, "__name__", str(annotation)),
        _cell(getattr(annotation, "__name__", str(annotation))),
    )


def _show(value: Any) -> str:
    if value is PydanticUndefined:
        return "required"
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, float):
        return f"`{value:g}`"
    if isinstance(value, list | tuple):
        value = json.dumps(value)
    return f"`{_cell(str(value))}`" if str(value) else "empty"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
