"""A tool call as the executor sees it, and what the executor tells about it. Durations are seconds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from turnwire.extend.events import Overflow, ResultPart, ToolOutcome

__all__ = [
    "ExecuteCall",
    "ExecutionAccepted",
    "ExecutionEvent",
    "ExecutionProgress",
    "ExecutionResult",
    "ExecutionStarted",
    "ExecutionState",
    "LookupAnswer",
    "RiskTier",
    "ToolInfo",
]


class ExecutionState(Enum):
    """What an executor knows of an execution."""

    NOT_FOUND = "not-found"
    ACCEPTED = "accepted"
    STARTED = "started"
    SUSPENDED = "suspended"
    FINISHED = "finished"
    LOST = "lost"


class RiskTier(Enum):
    """How much harm a call can do; decides whether somebody is asked first."""

    NORMAL = "normal"
    SENSITIVE = "sensitive"
    DANGEROUS = "dangerous"
    HARDLINE = "hardline"


@dataclass(frozen=True, slots=True)
class ToolInfo:
    """A tool that an executor offers."""

    name: str
    description: str
    input_schema_json: str
    digest: str = ""
    output_schema_json: str = ""
    parallel: bool = False
    execution_timeout: float = 540.0
    repeatable: bool = False
    risk_tier: RiskTier = RiskTier.NORMAL


@dataclass(frozen=True, slots=True)
class ExecuteCall:
    """One call to be run; `execution_id` is `threads/{t}/turns/{u}/{call}`."""

    scope: str
    execution_id: str
    thread: str
    turn: str
    call_id: str
    agent: str
    attempt: int
    epoch: int
    tool_name: str
    arguments_json: str
    execution_timeout: float
    queue_timeout: float = 60.0
    traceparent: str = ""


@dataclass(frozen=True, slots=True)
class ExecutionAccepted:
    """The executor has taken the call: from now on it may start at any moment."""


@dataclass(frozen=True, slots=True)
class ExecutionStarted:
    """The start is durable at the executor."""

    execution_timeout: float


@dataclass(frozen=True, slots=True)
class ExecutionProgress:
    """The tool told something about its progress."""

    text: str


@dataclass(frozen=True, slots=True)
class ExecutionResult:
    """How the execution ended; `content` is bounded by the executor."""

    outcome: ToolOutcome
    content: str = ""
    is_error: bool = False
    overflow: Overflow | None = None
    parts: tuple[ResultPart, ...] = ()
    elapsed: float = 0.0
    execution_timeout: float = 0.0
    exit_code: int | None = None
    cancel_note: str = ""


ExecutionEvent = ExecutionAccepted | ExecutionStarted | ExecutionProgress | ExecutionResult


@dataclass(frozen=True, slots=True)
class LookupAnswer:
    """What an executor knows."""

    state: ExecutionState
    repeatable: bool = False
    result: ExecutionResult | None = None
