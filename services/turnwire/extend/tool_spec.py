"""What a tool promises, in the words of lists; its digest changes whenever its meaning may have."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import Enum
from typing import Any

__all__ = ["Mode", "Risk", "SuspendStep", "ToolSpec", "as_timeout", "checked_name", "with_digest"]

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class Mode(Enum):
    """Whether calls of a tool may run beside other calls of the same step."""

    EXCLUSIVE = "exclusive"
    PARALLEL = "parallel"


class Risk(Enum):
    """How much harm a call can do; decides whether somebody is asked first."""

    NORMAL = "normal"
    SENSITIVE = "sensitive"
    DANGEROUS = "dangerous"
    HARDLINE = "hardline"


@dataclass(frozen=True, slots=True)
class SuspendStep:
    """A point at which a tool may stop and wait for somebody's answer."""

    name: str
    payload_schema: Mapping[str, Any] = field(default_factory=dict)
    resume_schema: Mapping[str, Any] = field(default_factory=dict)
    timeout: timedelta = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """What a tool promises, as it stands in lists. `timeout` None means the executor's default."""

    name: str
    description: str
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any] | None = None
    digest: str = ""
    mode: Mode = Mode.EXCLUSIVE
    timeout: timedelta | None = None
    repeatable: bool = False
    risk: Risk = Risk.NORMAL
    cancel_note: str = ""
    suspend_steps: tuple[SuspendStep, ...] = ()


def as_timeout(value: float | timedelta | None) -> timedelta | None:
    """Read a time limit in seconds or as timedelta. Raises ValueError unless it is above zero."""
    limit = value if value is None or isinstance(value, timedelta) else timedelta(seconds=value)
    if limit is not None and limit <= timedelta(0):
        raise ValueError("a tool's timeout must be above zero")
    return limit


def checked_name(name: str) -> str:
    """Return `name` unchanged. Raises ValueError when it cannot be the name of a tool."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"tool name {name!r} must match {_NAME.pattern}")
    return name


def with_digest(spec: ToolSpec, version: str) -> ToolSpec:
    """Return `spec` with the digest over all that a caller may rely on, and over `version`."""
    meaning = [
        spec.name,
        spec.description,
        spec.input_schema,
        spec.mode.value,
        spec.risk.value,
        spec.repeatable,
        [[step.name, step.payload_schema, step.resume_schema] for step in spec.suspend_steps],
        version,
    ]
    text = json.dumps(meaning, sort_keys=True, separators=(",", ":"))
    return replace(spec, digest=hashlib.sha256(text.encode()).hexdigest())
