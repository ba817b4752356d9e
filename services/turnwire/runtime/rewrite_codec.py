"""From requests that edit a thread's history to the domain."""

from __future__ import annotations

from turnwire.api.runtime.v1 import message_pb2
from turnwire.api.runtime.v1 import thread_service_pb2 as pb
from turnwire.core.ids import MessageRef, require_request_id, require_segment
from turnwire.extend.lifecycle import RewriteKind
from turnwire.runtime.domain.rewrites import ForkCommand, RewriteCommand
from turnwire.runtime.domain.turn import ThreadKey
from turnwire.runtime.request_codec import bad, model_options, thread_key, turn_key

__all__ = [
    "fork_from_proto",
    "regenerate_from_proto",
    "retry_from_proto",
    "visibility_from_proto",
]

MAX_MESSAGES = 200
_VISIBILITY = {
    message_pb2.MESSAGE_VISIBILITY_VISIBLE: "visible",
    message_pb2.MESSAGE_VISIBILITY_HIDDEN: "hidden",
}


def regenerate_from_proto(request: pb.RegenerateTurnRequest, scope: str, subject: str) -> RewriteCommand:
    """Return the edit that RegenerateTurn asks for. Raises InvalidRequest."""
    thread = thread_key(request.thread, "thread", scope)
    options = request.model_options if request.HasField("model_options") else None
    return RewriteCommand(
        thread,
        RewriteKind.REGENERATE,
        _version(request.expected_version),
        subject,
        require_request_id(request.request_id),
        message=_message(request.message, "message", thread) if request.message else "",
        options=None if options is None else model_options(options, "model_options"),
    )


def retry_from_proto(request: pb.RetryTurnRequest, scope: str, subject: str) -> RewriteCommand:
    """Return the edit that RetryTurn asks for. Raises InvalidRequest."""
    key = turn_key(request.turn, "turn", scope)
    return RewriteCommand(
        key.thread,
        RewriteKind.RETRY,
        _version(request.expected_version),
        subject,
        require_request_id(request.request_id),
        turn=key.turn_id,
    )


def visibility_from_proto(
    request: pb.SetMessageVisibilityRequest, scope: str, subject: str
) -> RewriteCommand:
    """Return the edit that SetMessageVisibility asks for. Raises InvalidRequest."""
    thread = thread_key(request.thread, "thread", scope)
    if not request.messages:
        raise bad("messages", "needs at least one message")
    if len(request.messages) > MAX_MESSAGES:
        raise bad("messages", f"has more than {MAX_MESSAGES} names")
    if request.visibility not in _VISIBILITY:
        raise bad("visibility", "must be VISIBLE or HIDDEN")
    names = enumerate(request.messages)
    return RewriteCommand(
        thread,
        RewriteKind.VISIBILITY,
        _version(request.expected_version),
        subject,
        messages=tuple(_message(name, f"messages[{index}]", thread) for index, name in names),
        visibility=_VISIBILITY[request.visibility],
    )


def fork_from_proto(request: pb.ForkThreadRequest, scope: str) -> ForkCommand:
    """Return the copy that ForkThread asks for. Raises InvalidRequest."""
    thread = thread_key(request.thread, "thread", scope)
    return ForkCommand(
        thread,
        require_request_id(request.request_id),
        _message(request.message, "message", thread) if request.message else "",
        require_segment(request.thread_id, "thread_id") if request.thread_id else "",
    )


def _version(version: int) -> int:
    if not version:
        raise bad("expected_version", "is needed: it is in the thread as it was read")
    return version


def _message(name: str, field: str, thread: ThreadKey) -> str:
    """Return the bare id of a message of this thread. Raises InvalidRequest."""
    ref = MessageRef.parse(name, field)
    if ref.thread != thread.thread_id:
        raise bad(field, f"must be of {thread.name}")
    return ref.message
