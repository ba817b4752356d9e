"""What a turn is asked to do and where it stands."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from turnwire.extend.events import TurnState, UsageSummary
from turnwire.runtime.domain.task_text import task_text

__all__ = [
    "FINGERPRINT_VERSION",
    "MAX_FINISHED_TEXT_BYTES",
    "BusyPolicy",
    "Disposition",
    "InputPart",
    "NewThread",
    "OptionsSpec",
    "StartCommand",
    "TaskSpec",
    "ThreadKey",
    "ToolChoiceSpec",
    "TurnKey",
    "TurnLimits",
    "TurnRow",
    "TurnSpec",
    "WaitingPolicy",
    "fingerprint_of",
]

FINGERPRINT_VERSION = 1
# The answer stands in TurnFinished up to this size; longer ones are read from the thread.
MAX_FINISHED_TEXT_BYTES = 256 * 1024


def fingerprint_of(canonical: str) -> str:
    """Return the fingerprint of a spec's canonical JSON, in hex."""
    return hashlib.sha256(f"{FINGERPRINT_VERSION}:{canonical}".encode()).hexdigest()


class BusyPolicy(Enum):
    """What happens while another turn of the thread is live."""

    QUEUE = "queue"
    REJECT = "reject"
    INTERRUPT = "interrupt"


class WaitingPolicy(Enum):
    """What happens when the live turn waits for somebody."""

    QUEUE = "queue"
    CANCEL = "cancel"


class Disposition(Enum):
    """How a request became, or joined, a turn."""

    STARTED = "started"
    QUEUED = "queued"
    ATTACHED = "attached"


@dataclass(frozen=True, slots=True)
class ThreadKey:
    """A thread in its scope."""

    scope: str
    thread_id: str

    @property
    def name(self) -> str:
        """`threads/{thread}`."""
        return f"threads/{self.thread_id}"


@dataclass(frozen=True, slots=True)
class TurnKey:
    """A turn in its scope."""

    scope: str
    thread_id: str
    turn_id: str

    @property
    def name(self) -> str:
        """`threads/{thread}/turns/{turn}`."""
        return f"threads/{self.thread_id}/turns/{self.turn_id}"

    @property
    def thread(self) -> ThreadKey:
        """The thread of the turn."""
        return ThreadKey(self.scope, self.thread_id)


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class InputPart(_Frozen):
    """A piece of what a user says: text, bytes (base64 in JSON) or an address."""

    kind: Literal["text", "blob", "uri"]
    text: str = ""
    data: bytes = Field(default=b"", repr=False)
    uri: str = ""
    media_type: str = ""
    filename: str = ""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_bytes="base64", val_json_bytes="base64")


class NewThread(_Frozen):
    """A thread that is created together with its first turn."""

    thread_id: str = ""
    title: str = ""
    metadata: dict[str, str] = {}
    labels: dict[str, str] = {}


class ToolChoiceSpec(_Frozen):
    """Whether the model must call a tool in the first step."""

    mode: Literal["auto", "none", "required", "tool"] = "auto"
    tool_name: str = ""


class OptionsSpec(_Frozen):
    """Settings of the model; None leaves the provider's default."""

    model: str = ""
    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    stop: tuple[str, ...] = ()
    reasoning_effort: str = ""


class TurnLimits(_Frozen):
    """Limits that a request asks for; None = the agent's. Times are seconds."""

    steps: int | None = None
    turn_timeout: float | None = None
    tokens: int | None = None
    cost_micro_usd: int | None = None
    tool_timeout: float | None = None


class TaskSpec(_Frozen):
    """A task with an expected output; `parts` are files and images that belong to it."""

    description: str
    expected_output: str = ""
    parts: tuple[InputPart, ...] = ()


class TurnSpec(_Frozen):
    """What a turn is asked to do: `parts`, or else a task. Only this is compared when a request id repeats.

    `response_schema_json` is the JSON Schema that the answer must fit, empty = any answer will do.
    """

    thread: str = ""
    new_thread: NewThread | None = None
    agent: str = ""
    parts: tuple[InputPart, ...] = ()
    task: TaskSpec | None = None
    allowed_tools: tuple[str, ...] = ()
    tool_choice: ToolChoiceSpec = ToolChoiceSpec()
    options: OptionsSpec = OptionsSpec()
    limits: TurnLimits = TurnLimits()
    response_schema_json: str = ""
    # None leaves it to the agent.
    busy_policy: BusyPolicy | None = None
    on_waiting: WaitingPolicy = WaitingPolicy.QUEUE
    expected_version: int | None = None
    metadata: dict[str, str] = {}
    labels: dict[str, str] = {}

    @property
    def said(self) -> tuple[InputPart, ...]:
        """What stands in the thread as the user's message: the parts, or the task written out."""
        if self.task is None:
            return self.parts
        text = task_text(self.task.description, self.task.expected_output)
        return (InputPart(kind="text", text=text), *self.task.parts)

    def canonical_json(self) -> str:
        """The spec as JSON: fields in their order, maps by key, nothing that has its default."""
        return self.model_dump_json(exclude_defaults=True)

    def fingerprint(self) -> str:
        """SHA-256 over the canonical JSON of the spec, in hex."""
        return fingerprint_of(self.canonical_json())


@dataclass(frozen=True, slots=True)
class StartCommand:
    """An admission as it comes from the wire, validated in form.

    `after_sequence` is what the caller has of the turn: above 0, only a known turn can be meant. The turn
    does not begin before `not_before`, nanoseconds since the epoch; 0 = at once.
    """

    scope: str
    request_id: str
    spec: TurnSpec
    subject: str = ""
    cancel_on_disconnect: float | None = None
    after_sequence: int = 0
    not_before: int = 0


@dataclass(frozen=True, slots=True)
class TurnRow:
    """A turn as it is stored. Times are nanoseconds since the epoch, 0 = not yet."""

    key: TurnKey
    state: TurnState
    agent: str
    agent_digest: str
    request_id: str
    fingerprint: str
    create_time: int
    epoch: int
    last_sequence: int
    first_kept_sequence: int = 1
    stop_reason: str = ""
    error_reason: str = ""
    error_text: str = ""
    final_message: str = ""
    usage: UsageSummary = field(default_factory=UsageSummary)
    step: int = 0
    max_steps: int = 0
    queue_position: int = 0
    start_time: int = 0
    finish_time: int = 0
    labels: dict[str, str] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)
    cancel_on_disconnect: float | None = None
    change_version: int = 0
    # What it was asked to do beside a plain message; read for one turn only.
    task: TaskSpec | None = None
    response_schema_json: str = ""
    # Bare id of the turn that this one tries again.
    retry_of: str = ""
    # Full names of what it waits for, while WAITING.
    open_actions: tuple[str, ...] = ()

    @property
    def etag(self) -> str:
        """An opaque text that changes with each change of the turn."""
        text = f"{self.change_version}.{self.last_sequence}.{self.epoch}"
        return base64.b32encode(text.encode()).decode().rstrip("=").lower()
