"""What happens in a turn, one frozen class per kind; the wire twins stand in `turn_event.proto`.

Only kinds that the runtime emits today have a class; the wire has more arms and clients skip unknown ones.
Durations are seconds, times are nanoseconds since the epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from turnwire.extend.actions import Action, ActionState
from turnwire.extend.llm import LlmEvent, TokenUsage

__all__ = [
    "ActionRequired",
    "ActionResolved",
    "Compacted",
    "EpisodeKind",
    "MessageOrigin",
    "Notice",
    "NoticeSeverity",
    "Overflow",
    "ResultPart",
    "SteerApplied",
    "StepCommitted",
    "StepReset",
    "StepSettled",
    "StepStarted",
    "ToolCallFinished",
    "ToolCallPreparing",
    "ToolCallProgress",
    "ToolCallStarted",
    "ToolOutcome",
    "TurnAccepted",
    "TurnEvent",
    "TurnFinished",
    "TurnResumed",
    "TurnStarted",
    "TurnState",
    "TurnSuspended",
    "UsageSummary",
    "Waiting",
]


class TurnState(Enum):
    """Where a turn stands; COMPLETED, FAILED and CANCELLED absorb."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def terminal(self) -> bool:
        """Whether nothing can happen in the turn any more."""
        return self in (TurnState.COMPLETED, TurnState.FAILED, TurnState.CANCELLED)


class ToolOutcome(Enum):
    """How a tool call ended; every call has exactly one."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed-out"
    STOPPED = "stopped"
    NOT_STARTED = "not-started"
    REJECTED = "rejected"
    SKIPPED = "skipped"
    OUTCOME_UNKNOWN = "outcome-unknown"


class EpisodeKind(Enum):
    """Why an episode began."""

    START = "start"
    RESUME = "resume"
    RECOVERY = "recovery"


class MessageOrigin(Enum):
    """Where a user message came from."""

    REQUEST = "request"
    STEER = "steer"
    REMINDER = "reminder"
    CONTINUATION = "continuation"
    INBOX = "inbox"


class NoticeSeverity(Enum):
    """How grave a notice is."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class UsageSummary:
    """Sums over model calls, those of voided attempts too; the cost is in millionths of a US dollar."""

    tokens: TokenUsage = TokenUsage()
    model_calls: int = 0
    tool_calls: int = 0
    cost_micro_usd: int | None = None


@dataclass(frozen=True, slots=True)
class Overflow:
    """Where a result too long to show is kept whole."""

    handle: str
    size_bytes: int
    sha256: str
    media_type: str


@dataclass(frozen=True, slots=True)
class ResultPart:
    """An image or other part of a result: up to 64 KiB in `data`, else behind `overflow`."""

    media_type: str
    data: bytes = b""
    overflow: Overflow | None = None


@dataclass(frozen=True, slots=True)
class TurnAccepted:
    """The turn was admitted; always sequence 1. `queue_position` is 0 when it began at once."""

    agent: str
    request_id: str
    queue_position: int = 0


@dataclass(frozen=True, slots=True)
class TurnStarted:
    """An episode began."""

    episode: int
    kind: EpisodeKind
    epoch: int
    input_message: str = ""


@dataclass(frozen=True, slots=True)
class StepStarted:
    """A step began; `model` is `provider:model`."""

    step: int
    max_steps: int
    model: str


@dataclass(frozen=True, slots=True)
class StepReset:
    """The model output in this range of sequences is void."""

    from_sequence: int
    to_sequence: int
    cause: str


@dataclass(frozen=True, slots=True)
class StepCommitted:
    """The model's answer of this step is in the transcript."""

    message: str
    call_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StepSettled:
    """Every call of this step has its result."""

    usage: UsageSummary


@dataclass(frozen=True, slots=True)
class ToolCallPreparing:
    """Arguments of a call are arriving."""

    tool_name: str
    argument_bytes: int


@dataclass(frozen=True, slots=True)
class ToolCallStarted:
    """A tool started."""

    call_id: str
    tool_name: str
    attempt: int
    execution_timeout: float


@dataclass(frozen=True, slots=True)
class ToolCallProgress:
    """A tool told something about its progress."""

    call_id: str
    text: str


@dataclass(frozen=True, slots=True)
class ToolCallFinished:
    """A call has its result; `content` is what the model reads."""

    call_id: str
    tool_name: str
    outcome: ToolOutcome
    content: str
    is_error: bool
    elapsed: float
    settle_order: int
    call_index: int
    overflow: Overflow | None = None
    parts: tuple[ResultPart, ...] = ()
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class ActionRequired:
    """Somebody must answer."""

    action: Action


@dataclass(frozen=True, slots=True)
class ActionResolved:
    """Somebody answered, or time did; `action` is its full name."""

    action: str
    call_id: str
    state: ActionState
    resolver: str


@dataclass(frozen=True, slots=True)
class SteerApplied:
    """A message was added to the running turn at a closed boundary.

    `message` is its full name; `command_id` is empty unless a command brought it.
    """

    message: str
    origin: MessageOrigin
    command_id: str = ""


@dataclass(frozen=True, slots=True)
class Compacted:
    """The older part of the thread stands as a summary in what the model reads; the transcript is unchanged.

    Args:
        compacted_count: messages that the summary stands for.
        summary: at most 32 KiB.
        trigger: `tokens`, `messages`, `characters` or `overflow`.
        tokens_before, tokens_after: estimates of the request.
        fallback: there is no summary: truncated pieces take its place, for this request alone.
    """

    compacted_count: int
    summary: str
    trigger: str
    tokens_before: int = 0
    tokens_after: int = 0
    fallback: bool = False


@dataclass(frozen=True, slots=True)
class Waiting:
    """Something is taking its time: `model`, `retry`, `tool-pool`."""

    what: str
    seconds: float
    next_attempt: int = 0


@dataclass(frozen=True, slots=True)
class Notice:
    """Something a person may want to know; never the end of a turn."""

    severity: NoticeSeverity
    reason: str
    text: str
    call_id: str = ""


@dataclass(frozen=True, slots=True)
class TurnSuspended:
    """The turn stopped to wait for answers to these actions (full names); nobody holds it."""

    actions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TurnResumed:
    """The turn goes on after a wait or a takeover."""

    episode: int
    kind: EpisodeKind
    epoch: int


@dataclass(frozen=True, slots=True)
class TurnFinished:
    """The turn ended; always last. `error_reason` is a word of the error catalog, empty unless it failed."""

    state: TurnState
    stop_reason: str
    elapsed: float
    steps: int
    usage: UsageSummary = field(default_factory=UsageSummary)
    final_message: str = ""
    text: str = ""
    text_truncated: bool = False
    display_text: str = ""
    error_reason: str = ""
    error_text: str = ""


TurnEvent = (
    LlmEvent
    | TurnAccepted
    | TurnStarted
    | StepStarted
    | StepReset
    | StepCommitted
    | StepSettled
    | ToolCallPreparing
    | ToolCallStarted
    | ToolCallProgress
    | ToolCallFinished
    | ActionRequired
    | ActionResolved
    | SteerApplied
    | Compacted
    | Waiting
    | Notice
    | TurnSuspended
    | TurnResumed
    | TurnFinished
)
