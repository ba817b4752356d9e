"""Changes of threads as messages of the contract."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from turnwire.api.runtime.v1 import thread_service_pb2 as pb
from turnwire.runtime import codec
from turnwire.runtime.domain.message import StoredMessage
from turnwire.runtime.domain.thread import ThreadRow
from turnwire.runtime.domain.turn import TurnRow
from turnwire.runtime.paging import fitting
from turnwire.runtime.store.changes import Change, ChangeKind

__all__ = ["change_to_proto"]

# A longer queue is read on with ListQueuedTurns; one of 50 turns never is.
MAX_QUEUE_BYTES = 3 * 1024 * 1024


def change_to_proto(change: Change, thread: str) -> pb.WatchThreadResponse:
    """Return the message for a change; `thread` is the thread's name."""
    found = pb.WatchThreadResponse(version=change.version)
    match change.kind:
        case ChangeKind.MESSAGE_ADDED | ChangeKind.MESSAGE_CHANGED:
            message = codec.message_to_proto(cast(StoredMessage, change.value), thread)
            getattr(found, change.kind.value).message.CopyFrom(message)
        case ChangeKind.MESSAGES_SUPERSEDED:
            ids = cast(Sequence[str], change.value)
            found.messages_superseded.messages.extend(f"{thread}/messages/{i}" for i in ids)
        case ChangeKind.TURN_CHANGED:
            found.turn_changed.turn.CopyFrom(codec.turn_to_proto(cast(TurnRow, change.value)))
        case ChangeKind.QUEUE_CHANGED:
            found.queue_changed.SetInParent()
            turns = (codec.turn_to_proto(row) for row in cast(Sequence[TurnRow], change.value))
            found.queue_changed.queued_turns.extend(fitting(turns, MAX_QUEUE_BYTES))
        case ChangeKind.METADATA_CHANGED:
            found.metadata_changed.thread.CopyFrom(codec.thread_to_proto(cast(ThreadRow, change.value)))
        case ChangeKind.DELETED | ChangeKind.RESNAPSHOT:
            getattr(found, change.kind.value).SetInParent()
    return found
