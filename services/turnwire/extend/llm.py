"""The closed union of what a model stream can say, and the request that asks for it.

Every model stream ends with exactly one `Finish` or `StreamFailure`; the union only ever grows by new
variants. The wire twin of each class is the message of the same name in `turnwire.api.llm.v1`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

__all__ = [
    "AssistantMessage",
    "FailureKind",
    "Finish",
    "FinishReason",
    "LlmEvent",
    "MediaPart",
    "ModelMessage",
    "ModelOptions",
    "ModelRequest",
    "Part",
    "ReasoningDelta",
    "ReasoningPart",
    "StreamFailure",
    "SystemMessage",
    "TextDelta",
    "TextPart",
    "TokenUsage",
    "ToolCallComplete",
    "ToolCallFragment",
    "ToolCallPart",
    "ToolChoice",
    "ToolDefinition",
    "ToolMessage",
    "UsageProvenance",
    "UsageSnapshot",
    "UserMessage",
]


class FinishReason(Enum):
    """Why the model stopped, in our words; the provider's own word travels beside it."""

    STOP = "stop"
    TOOL_CALLS = "tool-calls"
    LENGTH = "length"
    CONTENT_FILTER = "content-filter"
    REFUSAL = "refusal"
    PAUSE = "pause"
    OTHER = "other"


class FailureKind(Enum):
    """What kind of trouble ended a model stream."""

    TIMEOUT = "timeout"
    RATE_LIMIT = "rate-limit"
    AUTH = "auth"
    QUOTA = "quota"
    CONNECTION = "connection"
    SERVER = "server"
    INVALID_REQUEST = "invalid-request"
    CONTEXT_OVERFLOW = "context-overflow"
    CONTENT_FILTER = "content-filter"
    INCOMPLETE = "incomplete"
    UNKNOWN = "unknown"


class UsageProvenance(Enum):
    """Where a usage figure comes from; an unknown figure is never shown as zero spent."""

    REPORTED = "reported"
    ESTIMATED = "estimated"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Disjoint token counts of one model call.

    `input_tokens` excludes what was read from or written to the provider's prompt cache, so the whole prompt
    is the sum of the three; `reasoning_tokens` is part of `output_tokens`.
    """

    input_tokens: int = 0
    cache_read_tokens: int = 0
    cache_creation_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    provenance: UsageProvenance = UsageProvenance.UNKNOWN


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the assistant's text; at most 32 KiB of UTF-8."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """A piece of the model's reasoning; at most 32 KiB of UTF-8."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallFragment:
    """Arguments of a call are still arriving. Not stored: it feeds the throttled `ToolCallPreparing`."""

    tool_name: str
    argument_bytes: int


@dataclass(frozen=True, slots=True)
class ToolCallComplete:
    """One whole tool call.

    `arguments_json` is the provider's text, unrepaired, or `{}` where it sent none. `error` names why the
    call must not be executed (arguments cut off or malformed, no name); it is empty for a call that may run.
    `call_id` is empty until the engine mints one.
    """

    provider_call_id: str
    tool_name: str
    arguments_json: str
    call_id: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class UsageSnapshot:
    """The latest usage of this stream; a later snapshot replaces an earlier one, it never adds to it."""

    usage: TokenUsage


@dataclass(frozen=True, slots=True)
class Finish:
    """The stream ended as the provider meant it to.

    `replay_json` is a JSON array of provider blocks (signed or encrypted reasoning and the like) that must be
    sent back with this message in later requests to the same provider; empty where there are none.
    `refusal` is what the provider said instead of an answer where it refused; it is no part of the text.
    """

    reason: FinishReason
    provider_reason: str = ""
    replay_json: str = ""
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class StreamFailure:
    """The stream ended in trouble. `message` is cleaned and at most 500 characters."""

    kind: FailureKind
    message: str
    provider: str = ""
    status_code: int = 0
    retry_after_seconds: float | None = None
    retryable: bool = False
    partial_content: str = ""


LlmEvent = (
    TextDelta | ReasoningDelta | ToolCallFragment | ToolCallComplete | UsageSnapshot | Finish | StreamFailure
)


# --- what is asked of a model -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TextPart:
    """A text part of a message."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningPart:
    """Reasoning of an earlier step of the same thread; adapters send it only where the provider wants it."""

    text: str


@dataclass(frozen=True, slots=True)
class MediaPart:
    """An image or file: exactly one of `data` (bytes) and `uri` is set."""

    media_type: str
    data: bytes = b""
    uri: str = ""
    filename: str = ""


@dataclass(frozen=True, slots=True)
class ToolCallPart:
    """A tool call that the assistant made earlier; `call_id` is ours and is what the tool message names."""

    call_id: str
    tool_name: str
    arguments_json: str


Part = TextPart | MediaPart


@dataclass(frozen=True, slots=True)
class SystemMessage:
    """Instructions."""

    text: str


@dataclass(frozen=True, slots=True)
class UserMessage:
    """What a person, or the runtime in their place, said."""

    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    """One model answer: text, then calls. `replay_json` is what `Finish.replay_json` gave, else empty."""

    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCallPart, ...] = ()
    replay_json: str = ""


@dataclass(frozen=True, slots=True)
class ToolMessage:
    """The result of one call, as text the model reads."""

    call_id: str
    tool_name: str
    content: str
    is_error: bool = False
    media: tuple[MediaPart, ...] = ()


ModelMessage = SystemMessage | UserMessage | AssistantMessage | ToolMessage


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """A tool as the model sees it; `input_schema_json` is a JSON Schema object."""

    name: str
    description: str
    input_schema_json: str


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """`mode` is auto, none, required or tool; `tool_name` names the tool for the last."""

    mode: str = "auto"
    tool_name: str = ""


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """Sampling settings; None leaves the provider's default."""

    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    stop: tuple[str, ...] = ()
    reasoning_effort: str = ""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """Everything one model call needs. `model` is the name without its provider prefix."""

    model: str
    messages: tuple[ModelMessage, ...]
    tools: tuple[ToolDefinition, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    options: ModelOptions = ModelOptions()
    response_schema_json: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
