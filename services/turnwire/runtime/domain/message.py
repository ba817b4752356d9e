"""The transcript as it is stored: messages of parts, tool calls with their one result."""

from __future__ import annotations

from dataclasses import dataclass

from turnwire.extend.events import MessageOrigin, Overflow, ResultPart, ToolOutcome
from turnwire.runtime.domain.turn import InputPart

__all__ = ["BegunTools", "CallPart", "ContentPart", "ReasoningText", "StoredMessage", "StoredPart"]


@dataclass(frozen=True, slots=True)
class ContentPart:
    """Content that a user gave, or the assistant's text of one step."""

    content: InputPart
    step: int = 0


@dataclass(frozen=True, slots=True)
class ReasoningText:
    """The model's reasoning of one step, with what must go back to its provider."""

    text: str
    step: int
    replay_json: str = ""
    provider: str = ""


@dataclass(frozen=True, slots=True)
class BegunTools:
    """Names of the tools that an interrupted answer had begun to call; later requests show them."""

    names: tuple[str, ...]
    step: int


@dataclass(frozen=True, slots=True)
class CallPart:
    """A tool call; `outcome` is None while it has no result.

    `model_arguments_json` is what the model wrote; `arguments_json` is what ran.
    """

    call_id: str
    provider_call_id: str
    tool_name: str
    arguments_json: str
    step: int
    call_index: int
    outcome: ToolOutcome | None = None
    content: str = ""
    is_error: bool = False
    overflow: Overflow | None = None
    parts: tuple[ResultPart, ...] = ()


StoredPart = ContentPart | ReasoningText | BegunTools | CallPart


def _weight(part: StoredPart) -> int:
    match part:
        case ContentPart(content=content):
            return len(content.text.encode()) + len(content.data)
        case ReasoningText(text=text):
            return len(text.encode())
        case CallPart():
            texts = len(part.content.encode()) + len(part.arguments_json.encode())
            return texts + sum(len(p.data) for p in part.parts)
        case BegunTools():
            return 0


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """One entry of a transcript; `position` grows within the thread."""

    message_id: str
    position: int
    role: str
    turn_id: str
    parts: tuple[StoredPart, ...]
    open: bool = False
    visibility: str = "visible"
    origin: MessageOrigin | None = None
    interrupted_reason: str = ""
    create_time: int = 0
    update_time: int = 0

    @property
    def weight(self) -> int:
        """Bytes of what its parts hold."""
        return sum(_weight(part) for part in self.parts)
