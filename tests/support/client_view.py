"""What a client of the wire keeps: of a thread by its changes, of a turn by its events."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from turnwire.api.runtime.v1 import thread_service_pb2 as pb
from turnwire.api.runtime.v1.message_pb2 import Message, MessageRole
from turnwire.api.runtime.v1.turn_event_pb2 import TurnEvent
from turnwire.api.runtime.v1.turn_pb2 import Turn


def _turn(turn: Turn) -> tuple[Any, ...]:
    return turn.name, turn.state, turn.stop_reason, turn.final_message


@dataclass
class ClientView:
    """A thread as GetThread shows it; `turns` is what was told of ends, so it is not compared."""

    version: int = 0
    title: str = ""
    messages: dict[str, Message] = field(default_factory=dict)
    queue: list[str] = field(default_factory=list)
    turns: dict[str, tuple[Any, ...]] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, found: pb.GetThreadResponse) -> ClientView:
        """Begin with a snapshot."""
        messages = {message.name: message for message in found.messages}
        queue = [turn.name for turn in found.queued_turns]
        return cls(found.thread.version, found.thread.title, messages, queue)

    def apply(self, change: pb.WatchThreadResponse) -> None:
        """Take one change in."""
        self.version = max(self.version, change.version)
        match change.WhichOneof("change"):
            case "message_added":
                self.messages[change.message_added.message.name] = change.message_added.message
            case "message_changed":
                self.messages[change.message_changed.message.name] = change.message_changed.message
            case "messages_superseded":
                for name in change.messages_superseded.messages:
                    self.messages.pop(name, None)
            case "turn_changed":
                turn = change.turn_changed.turn
                self.turns[turn.name] = _turn(turn)
            case "queue_changed":
                self.queue = [turn.name for turn in change.queue_changed.queued_turns]
            case "metadata_changed":
                self.title = change.metadata_changed.thread.title


@dataclass
class TurnText:
    """The texts and results of the last answer, step by step: from a snapshot, then from events."""

    texts: dict[int, str] = field(default_factory=dict)
    results: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, found: pb.GetThreadResponse) -> TurnText:
        """Begin with what the messages hold."""
        made = cls()
        for message in found.messages:
            if message.role != MessageRole.MESSAGE_ROLE_ASSISTANT:
                continue
            for part in message.parts:
                if part.HasField("content"):
                    made.texts[part.step] = part.content.text.text
                elif part.HasField("tool_call") and part.tool_call.outcome:
                    made.results[part.tool_call.call_id] = part.tool_call.content
        return made

    def apply(self, event: TurnEvent) -> None:
        """Take one event in."""
        kind = event.WhichOneof("event")
        if kind == "llm" and event.llm.HasField("text_delta"):
            self.texts[event.step] = self.texts.get(event.step, "") + event.llm.text_delta.text
        elif kind == "tool_call_finished":
            done = event.tool_call_finished
            assert done.call_id not in self.results, "each result comes once"
            self.results[done.call_id] = done.content
