"""From a recorded event to the bytes that stand in the log and go to readers.

Text and reasoning deltas, nearly all events of a turn, are written by hand; every other kind goes through
its message.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from turnwire.api.common.v1 import tool_pb2
from turnwire.api.llm.v1 import llm_event_pb2 as llm
from turnwire.api.runtime.v1 import turn_event_pb2 as pb
from turnwire.api.runtime.v1 import turn_pb2, turn_service_pb2
from turnwire.extend import events as ev
from turnwire.extend.llm import (
    FailureKind,
    Finish,
    FinishReason,
    ReasoningDelta,
    StreamFailure,
    TextDelta,
    TokenUsage,
    ToolCallComplete,
    UsageProvenance,
    UsageSnapshot,
)
from turnwire.runtime.action_codec import ACTION_STATES, action_to_proto
from turnwire.runtime.delta_codec import REASONING, TEXT, encode_delta, varint
from turnwire.runtime.domain.resumption import OpenAttempt
from turnwire.runtime.failure_codec import failure_status
from turnwire.runtime.store.log import Record
from turnwire.runtime.values_codec import duration, enum_table, timestamp

__all__ = [
    "ORIGINS",
    "OUTCOMES",
    "STATES",
    "duration",
    "encode_event",
    "enum_table",
    "open_attempt",
    "overflow_to_proto",
    "timestamp",
    "trim_page",
    "usage_summary_to_proto",
]


STATES = enum_table(ev.TurnState, turn_pb2.TurnState, "TURN_STATE_")
OUTCOMES = enum_table(ev.ToolOutcome, tool_pb2.ToolOutcome, "TOOL_OUTCOME_")
_PROVENANCE = enum_table(UsageProvenance, llm.UsageProvenance, "USAGE_PROVENANCE_")
_FINISH = enum_table(FinishReason, llm.FinishReason, "FINISH_REASON_")
_FAILURE = enum_table(FailureKind, llm.FailureKind, "FAILURE_KIND_")
_EPISODE = enum_table(ev.EpisodeKind, pb.EpisodeKind, "EPISODE_KIND_")
ORIGINS = enum_table(ev.MessageOrigin, pb.MessageOrigin, "MESSAGE_ORIGIN_")
_SEVERITY = enum_table(ev.NoticeSeverity, pb.NoticeSeverity, "NOTICE_SEVERITY_")

_PAGE_EVENTS = b"\x0a"  # Wire key (field << 3 | type) of RunTurnResponse.events.


def encode_event(turn: str, record: Record) -> bytes:
    """Return one event as a field of a page."""
    event = record[3]
    kind = type(event)
    if kind is TextDelta:
        return encode_delta(turn, record, TEXT, event.text)  # type: ignore[union-attr]
    if kind is ReasoningDelta:
        return encode_delta(turn, record, REASONING, event.text)  # type: ignore[union-attr]
    body = event_to_proto(turn, record).SerializeToString()
    return _PAGE_EVENTS + varint(len(body)) + body


def event_to_proto(turn: str, record: Record) -> pb.TurnEvent:
    """Return the message of one event."""
    sequence, time_ns, (turn_attempt, step, step_attempt), event = record
    message = pb.TurnEvent(
        sequence=sequence,
        create_time=timestamp(time_ns),
        turn=turn,
        turn_attempt=turn_attempt,
        step=step,
        step_attempt=step_attempt,
    )
    _ARMS[type(event)](message, event)
    return message


def trim_page(body: bytes, after_sequence: int) -> bytes:
    """Cut a page to the events above a sequence."""
    page = turn_service_pb2.RunTurnResponse.FromString(body)
    kept = [e for e in page.events if e.sequence > after_sequence]
    return turn_service_pb2.RunTurnResponse(events=kept).SerializeToString()


def open_attempt(pages: Sequence[bytes], after_sequence: int) -> OpenAttempt:
    """Read what is open in a turn's log after the last committed step or result, from its last pages."""
    step = step_attempt = first = last = 0
    settled = False
    for page in pages:
        for event in turn_service_pb2.RunTurnResponse.FromString(page).events:
            if event.sequence <= after_sequence:
                continue
            match event.WhichOneof("event"):
                case "llm":
                    first, last = first or event.sequence, event.sequence
                case "step_started":
                    step, step_attempt = event.step_started.step, max(event.step_attempt, 1)
                case "step_settled":
                    settled = True
                case "step_committed" | "step_reset":
                    # A step without any part is committed too, and moves nothing in the transcript.
                    first = last = 0
    return OpenAttempt(step, step_attempt, first, last, settled)


def token_usage_to_proto(usage: TokenUsage) -> llm.TokenUsage:
    """Return the message of token counts."""
    return llm.TokenUsage(
        input_tokens=usage.input_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_creation_tokens=usage.cache_creation_tokens,
        output_tokens=usage.output_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        provenance=_PROVENANCE[usage.provenance],
    )


def usage_summary_to_proto(usage: ev.UsageSummary) -> turn_pb2.UsageSummary:
    """Return the message of a usage summary."""
    return turn_pb2.UsageSummary(
        tokens=token_usage_to_proto(usage.tokens),
        model_calls=usage.model_calls,
        tool_calls=usage.tool_calls,
        cost_micro_usd=usage.cost_micro_usd,
    )


def overflow_to_proto(overflow: ev.Overflow | None) -> tool_pb2.ResultHandle | None:
    """Return the message of a stored result, None for none."""
    if overflow is None:
        return None
    return tool_pb2.ResultHandle(
        handle=overflow.handle,
        size_bytes=overflow.size_bytes,
        sha256=overflow.sha256,
        media_type=overflow.media_type,
    )


def result_part_to_proto(part: ev.ResultPart) -> tool_pb2.ResultPart:
    """Return the message of a part of a result."""
    return tool_pb2.ResultPart(
        media_type=part.media_type, data=part.data, handle=overflow_to_proto(part.overflow)
    )


def _call(m: pb.TurnEvent, e: ToolCallComplete) -> None:
    m.llm.tool_call_complete.CopyFrom(
        llm.ToolCallComplete(
            call_id=e.call_id,
            provider_call_id=e.provider_call_id,
            tool_name=e.tool_name,
            arguments_json=e.arguments_json,
        )
    )


def _usage(m: pb.TurnEvent, e: UsageSnapshot) -> None:
    m.llm.usage_snapshot.usage.CopyFrom(token_usage_to_proto(e.usage))


def _finish(m: pb.TurnEvent, e: Finish) -> None:
    m.llm.finish.CopyFrom(
        llm.Finish(
            reason=_FINISH[e.reason],
            provider_reason=e.provider_reason,
            replay_json=e.replay_json,
            refusal=e.refusal,
        )
    )


def _failure(m: pb.TurnEvent, e: StreamFailure) -> None:
    m.llm.stream_failure.CopyFrom(
        llm.StreamFailure(
            kind=_FAILURE[e.kind],
            message=e.message,
            provider=e.provider,
            status_code=e.status_code,
            retry_after_delay=None if e.retry_after_seconds is None else duration(e.retry_after_seconds),
            retryable=e.retryable,
            partial_content=e.partial_content,
        )
    )


def _text(m: pb.TurnEvent, e: TextDelta) -> None:
    m.llm.text_delta.text = e.text


def _reasoning(m: pb.TurnEvent, e: ReasoningDelta) -> None:
    m.llm.reasoning_delta.text = e.text


def _accepted(m: pb.TurnEvent, e: ev.TurnAccepted) -> None:
    started = not e.queue_position
    m.turn_accepted.CopyFrom(
        pb.TurnAccepted(
            agent=e.agent,
            disposition=turn_pb2.TURN_DISPOSITION_STARTED if started else turn_pb2.TURN_DISPOSITION_QUEUED,
            queue_position=e.queue_position,
            request_id=e.request_id,
        )
    )


def _started(m: pb.TurnEvent, e: ev.TurnStarted) -> None:
    m.turn_started.CopyFrom(
        pb.TurnStarted(episode=e.episode, kind=_EPISODE[e.kind], epoch=e.epoch, input_message=e.input_message)
    )


def _step_started(m: pb.TurnEvent, e: ev.StepStarted) -> None:
    m.step_started.CopyFrom(pb.StepStarted(step=e.step, max_steps=e.max_steps, model=e.model))


def _step_reset(m: pb.TurnEvent, e: ev.StepReset) -> None:
    m.step_reset.CopyFrom(
        pb.StepReset(from_sequence=e.from_sequence, to_sequence=e.to_sequence, cause=e.cause)
    )


def _step_committed(m: pb.TurnEvent, e: ev.StepCommitted) -> None:
    m.step_committed.CopyFrom(pb.StepCommitted(message=e.message, call_ids=e.call_ids))


def _step_settled(m: pb.TurnEvent, e: ev.StepSettled) -> None:
    m.step_settled.usage.CopyFrom(usage_summary_to_proto(e.usage))


def _preparing(m: pb.TurnEvent, e: ev.ToolCallPreparing) -> None:
    m.tool_call_preparing.CopyFrom(
        pb.ToolCallPreparing(tool_name=e.tool_name, argument_bytes=e.argument_bytes)
    )


def _call_started(m: pb.TurnEvent, e: ev.ToolCallStarted) -> None:
    m.tool_call_started.CopyFrom(
        pb.ToolCallStarted(
            call_id=e.call_id,
            tool_name=e.tool_name,
            attempt=e.attempt,
            execution_timeout=duration(e.execution_timeout),
        )
    )


def _progress(m: pb.TurnEvent, e: ev.ToolCallProgress) -> None:
    m.tool_call_progress.CopyFrom(pb.ToolCallProgress(call_id=e.call_id, text=e.text))


def _call_finished(m: pb.TurnEvent, e: ev.ToolCallFinished) -> None:
    m.tool_call_finished.CopyFrom(
        pb.ToolCallFinished(
            call_id=e.call_id,
            tool_name=e.tool_name,
            outcome=OUTCOMES[e.outcome],
            content=e.content,
            is_error=e.is_error,
            overflow=overflow_to_proto(e.overflow),
            parts=[result_part_to_proto(p) for p in e.parts],
            elapsed_duration=duration(e.elapsed),
            settle_order=e.settle_order,
            call_index=e.call_index,
            exit_code=e.exit_code,
        )
    )


def _action_required(m: pb.TurnEvent, e: ev.ActionRequired) -> None:
    m.action_required.action.CopyFrom(action_to_proto(e.action))


def _action_resolved(m: pb.TurnEvent, e: ev.ActionResolved) -> None:
    m.action_resolved.CopyFrom(
        pb.ActionResolved(
            action=e.action, call_id=e.call_id, state=ACTION_STATES[e.state], resolver=e.resolver
        )
    )


def _steer_applied(m: pb.TurnEvent, e: ev.SteerApplied) -> None:
    m.steer_applied.CopyFrom(
        pb.SteerApplied(command_id=e.command_id, message=e.message, origin=ORIGINS[e.origin])
    )


def _compacted(m: pb.TurnEvent, e: ev.Compacted) -> None:
    m.compacted.CopyFrom(
        pb.Compacted(
            compacted_count=e.compacted_count,
            summary=e.summary,
            trigger=e.trigger,
            tokens_before=e.tokens_before,
            tokens_after=e.tokens_after,
            fallback=e.fallback,
        )
    )


def _suspended(m: pb.TurnEvent, e: ev.TurnSuspended) -> None:
    m.turn_suspended.CopyFrom(pb.TurnSuspended(actions=e.actions))


def _resumed(m: pb.TurnEvent, e: ev.TurnResumed) -> None:
    m.turn_resumed.CopyFrom(pb.TurnResumed(episode=e.episode, kind=_EPISODE[e.kind], epoch=e.epoch))


def _waiting(m: pb.TurnEvent, e: ev.Waiting) -> None:
    m.waiting.CopyFrom(
        pb.Waiting(what=e.what, wait_duration=duration(e.seconds), next_attempt=e.next_attempt)
    )


def _notice(m: pb.TurnEvent, e: ev.Notice) -> None:
    m.notice.CopyFrom(
        pb.Notice(severity=_SEVERITY[e.severity], reason=e.reason, text=e.text, call_id=e.call_id)
    )


def _finished(m: pb.TurnEvent, e: ev.TurnFinished) -> None:
    m.turn_finished.CopyFrom(
        pb.TurnFinished(
            state=STATES[e.state],
            stop_reason=e.stop_reason,
            final_message=e.final_message,
            text=e.text,
            text_truncated=e.text_truncated,
            display_text=e.display_text,
            usage=usage_summary_to_proto(e.usage),
            error=failure_status(e.error_reason, e.error_text) if e.error_reason else None,
            elapsed_duration=duration(e.elapsed),
            steps=e.steps,
        )
    )


_ARMS: dict[type, Callable[[pb.TurnEvent, Any], None]] = {
    TextDelta: _text,
    ReasoningDelta: _reasoning,
    ToolCallComplete: _call,
    UsageSnapshot: _usage,
    Finish: _finish,
    StreamFailure: _failure,
    ev.TurnAccepted: _accepted,
    ev.TurnStarted: _started,
    ev.StepStarted: _step_started,
    ev.StepReset: _step_reset,
    ev.StepCommitted: _step_committed,
    ev.StepSettled: _step_settled,
    ev.ToolCallPreparing: _preparing,
    ev.ToolCallStarted: _call_started,
    ev.ToolCallProgress: _progress,
    ev.ToolCallFinished: _call_finished,
    ev.ActionRequired: _action_required,
    ev.ActionResolved: _action_resolved,
    ev.SteerApplied: _steer_applied,
    ev.Compacted: _compacted,
    ev.Waiting: _waiting,
    ev.Notice: _notice,
    ev.TurnSuspended: _suspended,
    ev.TurnResumed: _resumed,
    ev.TurnFinished: _finished,
}
