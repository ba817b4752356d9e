"""The executor's own words: what is asked, what happens, and how an execution ends.

An execution has one key and one end; whatever comes after its first end is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from turnwire.executor.limits import Captured
from turnwire.extend.tools import ToolPart

__all__ = [
    "Accepted",
    "Call",
    "Ending",
    "Event",
    "ExecuteCommand",
    "ExecutionContext",
    "ExecutionKey",
    "ExecutionRecord",
    "ExecutionState",
    "Heartbeat",
    "Outcome",
    "Part",
    "Progress",
    "Result",
    "ResumeInput",
    "Started",
    "StoredBytes",
    "Suspension",
]


NOTHING = Captured()


class Outcome(Enum):
    """How a call ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed-out"
    STOPPED = "stopped"
    NOT_STARTED = "not-started"
    REJECTED = "rejected"
    SKIPPED = "skipped"
    OUTCOME_UNKNOWN = "outcome-unknown"


class ExecutionState(Enum):
    """What is known about an execution."""

    NOT_FOUND = "not-found"
    ACCEPTED = "accepted"
    STARTED = "started"
    SUSPENDED = "suspended"
    FINISHED = "finished"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class ExecutionKey:
    """`execution_id` is `threads/{thread}/turns/{turn}/{call_id}`; `attempt` counts from 1."""

    scope: str
    execution_id: str
    attempt: int

    @property
    def turn(self) -> str:
        """Name of the turn, for fencing."""
        return self.execution_id.rpartition("/")[0]

    @property
    def thread(self) -> str:
        """Name of the thread, for purging."""
        return self.execution_id.partition("/turns/")[0]


@dataclass(frozen=True, slots=True)
class ExecutionContext:
    """What a tool is told about its call."""

    thread: str = ""
    turn: str = ""
    call_id: str = ""
    agent: str = ""
    workspace: str = ""
    traceparent: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ResumeInput:
    """The answer that lets a suspended tool go on."""

    step: str
    payload_json: str
    state_json: str


@dataclass(frozen=True, slots=True)
class ExecuteCommand:
    """One request to run a tool. Times are seconds; None and 0 mean the executor's defaults."""

    key: ExecutionKey
    tool_name: str
    arguments_json: str = "{}"
    epoch: int = 0
    execution_timeout: float | None = None
    queue_timeout: float | None = None
    max_result_chars: int = 0
    context: ExecutionContext = ExecutionContext()
    resume: ResumeInput | None = None


@dataclass(frozen=True, slots=True)
class StoredBytes:
    """Bytes kept apart under an opaque handle."""

    handle: str
    size_bytes: int
    sha256: str
    media_type: str


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a result that is not text: short ones hold `data`, longer ones stand behind `stored`."""

    media_type: str
    data: bytes = b""
    stored: StoredBytes | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """The end of an execution, as it is stored and sent. Times are seconds."""

    outcome: Outcome
    content: str = ""
    is_error: bool = False
    overflow: StoredBytes | None = None
    parts: tuple[Part, ...] = ()
    elapsed: float = 0.0
    execution_timeout: float = 0.0
    exit_code: int | None = None
    cancel_note: str = ""
    total_chars: int = 0


@dataclass(frozen=True, slots=True)
class Suspension:
    """The tool waits for an answer; this ends the stream but not the call. `resume_timeout` is seconds."""

    step: str
    payload_json: str = ""
    resume_schema_json: str = ""
    state_json: str = ""
    resume_timeout: float = 86_400.0


@dataclass(frozen=True, slots=True)
class Accepted:
    """The request is taken."""

    joined: bool = False
    queue_position: int = 0


@dataclass(frozen=True, slots=True)
class Started:
    """The start is durable. `start_time` is nanoseconds since 1970; the limit is seconds."""

    start_time: int
    execution_timeout: float


@dataclass(frozen=True, slots=True)
class Progress:
    """A word from the tool for the reader of the turn; at most 2 KiB."""

    text: str


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The execution is alive, `elapsed` seconds after its start."""

    elapsed: float


Event = Accepted | Started | Progress | Heartbeat | Suspension | Result


@dataclass(frozen=True, slots=True)
class ExecutionRecord:
    """A row of the ledger. `end` is set in the states FINISHED, SUSPENDED and, where known, LOST."""

    key: ExecutionKey
    state: ExecutionState
    tool_name: str
    arguments_sha256: str
    repeatable: bool
    start_time: int = 0
    execution_timeout: float = 0.0
    end: Result | Suspension | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """What the body of one execution gets. `timeout` is seconds and counts from the body's start."""

    key: ExecutionKey
    arguments_json: str
    context: ExecutionContext
    timeout: float
    max_result_chars: int
    report: Callable[[str], None]
    resume: ResumeInput | None = None


@dataclass(frozen=True, slots=True)
class Ending:
    """How a body ended, before its output is stored. `lost` says that nobody can know what it did."""

    outcome: Outcome
    captured: Captured = NOTHING
    is_error: bool = False
    parts: tuple[ToolPart, ...] = ()
    exit_code: int | None = None
    cancel_note: str = ""
    suspension: Suspension | None = None
    lost: bool = False
