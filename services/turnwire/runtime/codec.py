"""From the domain to the resources of the contract: total functions, one each."""

from __future__ import annotations

from turnwire.api.common.v1 import tool_pb2
from turnwire.api.runtime.v1 import content_pb2, message_pb2, thread_pb2, turn_pb2
from turnwire.core.text import cut
from turnwire.extend.events import TurnState
from turnwire.runtime.domain.message import BegunTools, CallPart, ContentPart, ReasoningText, StoredMessage
from turnwire.runtime.domain.thread import ThreadRow
from turnwire.runtime.domain.turn import Disposition, InputPart, TaskSpec, TurnRow
from turnwire.runtime.event_codec import (
    ORIGINS,
    OUTCOMES,
    STATES,
    enum_table,
    overflow_to_proto,
    result_part_to_proto,
    timestamp,
    usage_summary_to_proto,
)
from turnwire.runtime.failure_codec import failure_status

__all__ = ["DISPOSITIONS", "MAX_MESSAGE_BYTES", "message_to_proto", "thread_to_proto", "turn_to_proto"]

DISPOSITIONS = enum_table(Disposition, turn_pb2.TurnDisposition, "TURN_DISPOSITION_")
# Of one message; an answer of 4 MiB also holds other things.
MAX_MESSAGE_BYTES = 2_500_000
MAX_PART_CHARS = MAX_MESSAGE_BYTES // 4
_SHORT_BYTES = 4096
_LEFT_OUT = "[The rest is left out here: the events of the turn hold all of it.]"
_ROLES = {
    "user": message_pb2.MESSAGE_ROLE_USER,
    "assistant": message_pb2.MESSAGE_ROLE_ASSISTANT,
}
_VISIBILITY = {
    "visible": message_pb2.MESSAGE_VISIBILITY_VISIBLE,
    "hidden": message_pb2.MESSAGE_VISIBILITY_HIDDEN,
    "superseded": message_pb2.MESSAGE_VISIBILITY_SUPERSEDED,
}
PERMISSION_MODES = {"ask": thread_pb2.PERMISSION_MODE_ASK, "auto": thread_pb2.PERMISSION_MODE_AUTO}


def turn_to_proto(row: TurnRow) -> turn_pb2.Turn:
    """Return the resource of a turn."""
    failed = row.state is TurnState.FAILED
    return turn_pb2.Turn(
        name=row.key.name,
        state=STATES[row.state],
        agent=row.agent,
        agent_digest=row.agent_digest,
        stop_reason=row.stop_reason,
        error=failure_status(row.error_reason, row.error_text) if failed else None,
        final_message=f"{row.key.thread.name}/messages/{row.final_message}" if row.final_message else "",
        usage=usage_summary_to_proto(row.usage),
        step=row.step,
        max_steps=row.max_steps,
        last_sequence=row.last_sequence,
        first_kept_sequence=row.first_kept_sequence,
        queue_position=row.queue_position if row.state is TurnState.QUEUED else 0,
        labels=row.labels,
        metadata=row.metadata,
        create_time=timestamp(row.create_time),
        start_time=timestamp(row.start_time) if row.start_time else None,
        finish_time=timestamp(row.finish_time) if row.finish_time else None,
        etag=row.etag,
        request_id=row.request_id,
        retry_of=f"{row.key.thread.name}/turns/{row.retry_of}" if row.retry_of else "",
        open_actions=row.open_actions,
        task=_task(row.task) if row.task is not None else None,
        response_schema_json=row.response_schema_json,
    )


def _task(task: TaskSpec) -> turn_pb2.Task:
    return turn_pb2.Task(
        description=task.description,
        expected_output=task.expected_output,
        parts=[_content(part) for part in task.parts],
    )


def thread_to_proto(row: ThreadRow) -> thread_pb2.Thread:
    """Return the resource of a thread."""
    return thread_pb2.Thread(
        name=row.key.name,
        title=row.title,
        agent=row.agent,
        version=row.version,
        live_turn=f"{row.key.name}/turns/{row.live_turn}" if row.live_turn else "",
        queue_length=row.queue_length,
        metadata=row.metadata,
        labels=row.labels,
        permission_mode=PERMISSION_MODES[row.permission_mode],
        create_time=timestamp(row.create_time),
        update_time=timestamp(row.update_time),
        forked_from=row.forked_from,
    )


def message_to_proto(message: StoredMessage, thread: str) -> message_pb2.Message:
    """Return the resource of a message; `thread` is the thread's name.

    A message of many long results would be above what one answer may hold: it is shortened, and says so.
    """
    found = message_pb2.Message(
        name=f"{thread}/messages/{message.message_id}",
        position=message.position,
        role=_ROLES[message.role],
        status=message_pb2.MESSAGE_STATUS_OPEN if message.open else message_pb2.MESSAGE_STATUS_FINAL,
        visibility=_VISIBILITY[message.visibility],
        # What came with a copy of a thread is of a turn that stayed behind.
        turn=f"{thread}/turns/{message.turn_id}" if message.turn_id else "",
        origin=ORIGINS[message.origin] if message.origin else None,
        # Tools begun and never called are for the model alone.
        parts=[_message_part(p) for p in message.parts if not isinstance(p, BegunTools)],
        create_time=timestamp(message.create_time),
        update_time=timestamp(message.update_time),
        interrupted_reason=message.interrupted_reason,
    )
    if found.ByteSize() > MAX_MESSAGE_BYTES:
        _shorten(found)
    return found


def _shorten(message: message_pb2.Message) -> None:
    """Take out what is least missed until the message fits: bytes of results, long results, oldest parts."""
    calls = [part.tool_call for part in message.parts if part.HasField("tool_call")]
    for call in calls:
        for part in call.parts:
            part.ClearField("data")
    for call in calls:
        if message.ByteSize() <= MAX_MESSAGE_BYTES:
            return
        kept = cut(call.content, _SHORT_BYTES)
        if len(kept) < len(call.content):
            call.content = f"{kept}\n{_LEFT_OUT}"
    if message.ByteSize() <= MAX_MESSAGE_BYTES:
        return
    while len(message.parts) > 1 and message.ByteSize() > MAX_MESSAGE_BYTES:
        del message.parts[0]
    _cut_texts(message.parts[0])
    note = message_pb2.MessagePart(step=message.parts[0].step)
    note.content.text.text = _LEFT_OUT
    message.parts.insert(0, note)


def _cut_texts(part: message_pb2.MessagePart) -> None:
    """Keep the end of a text: what is left of a message are its latest words."""
    for holder in (part.content.text, part.reasoning):
        if len(holder.text) > MAX_PART_CHARS:
            holder.text = holder.text[-MAX_PART_CHARS:]


def _message_part(part: ContentPart | ReasoningText | CallPart) -> message_pb2.MessagePart:
    found = message_pb2.MessagePart(step=part.step)
    match part:
        case ContentPart(content=content):
            found.content.CopyFrom(_content(content))
        case ReasoningText(text=text):
            found.reasoning.text = text
        case CallPart():
            found.tool_call.CopyFrom(_call(part))
    return found


def _content(part: InputPart) -> content_pb2.Part:
    if part.kind == "text":
        return content_pb2.Part(text=content_pb2.TextContent(text=part.text))
    if part.kind == "blob":
        blob = content_pb2.BlobContent(media_type=part.media_type, data=part.data, filename=part.filename)
        return content_pb2.Part(blob=blob)
    return content_pb2.Part(uri=content_pb2.UriContent(uri=part.uri, media_type=part.media_type))


def _call(call: CallPart) -> message_pb2.ToolCall:
    return message_pb2.ToolCall(
        call_id=call.call_id,
        tool_name=call.tool_name,
        arguments_json=call.arguments_json,
        outcome=OUTCOMES[call.outcome] if call.outcome else tool_pb2.TOOL_OUTCOME_UNSPECIFIED,
        content=call.content,
        is_error=call.is_error,
        overflow=overflow_to_proto(call.overflow),
        parts=[result_part_to_proto(p) for p in call.parts],
    )
