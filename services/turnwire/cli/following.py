"""A thread's changes as lines, and a new text for a turn that waits."""

from __future__ import annotations

import sys

from turnwire.cli.connect import Connection
from turnwire.cli.exit_codes import ExitCode
from turnwire.cli.json_lines import write_line
from turnwire.cli.words import clean, word
from turnwire_client.messages import Message, MessageRole, TurnState, WatchThreadResponse

__all__ = ["edit", "follow"]

_SHOWN = 60


def follow(connection: Connection, thread: str, after: int, as_json: bool) -> ExitCode:
    """Print each change until the thread is deleted; each line begins with the version to go on from."""
    with connection.open() as client, client.watch_thread(thread, after=after) as changes:
        try:
            for change in changes:
                if as_json:
                    write_line(change)
                else:
                    sys.stdout.write(f"{change.version}\t{clean(_line(change))}\n")
                    sys.stdout.flush()
        except KeyboardInterrupt:
            return ExitCode.INTERRUPTED
    return ExitCode.OK


def edit(connection: Connection, turn: str, text: str, as_json: bool) -> ExitCode:
    """Replace the input of a turn that waits."""
    with connection.open() as client:
        changed = client.update_queued_turn(client.get_turn(turn), text)
    if as_json:
        write_line(changed)
    else:
        sys.stdout.write(f"{changed.name} waits at place {changed.queue_position}\n")
    return ExitCode.OK


def _line(change: WatchThreadResponse) -> str:
    match change.WhichOneof("change"):
        case "message_added":
            return f"added {_message(change.message_added.message)}"
        case "message_changed":
            return f"changed {_message(change.message_changed.message)}"
        case "messages_superseded":
            return f"superseded {' '.join(change.messages_superseded.messages)}"
        case "turn_changed":
            turn = change.turn_changed.turn
            state = word(TurnState, turn.state, "TURN_STATE_")
            return f"turn {turn.name} {state} {turn.stop_reason}".rstrip()
        case "queue_changed":
            names = [turn.name for turn in change.queue_changed.queued_turns]
            return f"queue {len(names)} {' '.join(names)}".rstrip()
        case "metadata_changed":
            return f"thread {change.metadata_changed.thread.title!r}"
        case "deleted":
            return "deleted"
        case "resnapshot":
            return "changes before this version are not known any more: read the thread"
    return "a change that this program does not know"


def _message(message: Message) -> str:
    role = word(MessageRole, message.role, "MESSAGE_ROLE_")
    texts = [part.content.text.text for part in message.parts if part.HasField("content")]
    calls = [part.tool_call.tool_name for part in message.parts if part.HasField("tool_call")]
    shown = " ".join(" ".join(texts).split())
    cut = f"{shown[:_SHOWN]}..." if len(shown) > _SHOWN else shown
    return " ".join(part for part in (role, message.name, *(f"{name}()" for name in calls), cut) if part)
