"""Commands, rows and outcomes from and to the wire; what is malformed is refused here and reaches nothing."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from google.rpc import status_pb2

from turnwire.api.control.v1 import command_pb2 as command_pb
from turnwire.api.control.v1 import control_service_pb2 as service_pb
from turnwire.control.domain import (
    GRAPH_KINDS,
    RESERVED,
    CommandKind,
    CommandRow,
    CommandState,
    Delivery,
    DeliveryMode,
    NewCommand,
    Outcome,
    OutcomeKind,
    OwnedTurn,
    Target,
)
from turnwire.core.errors import FieldViolation, InvalidRequest, TurnwireError
from turnwire.core.ids import ThreadRef, TurnRef
from turnwire.core.text import require_clean
from turnwire.wire.status import status_details

__all__ = [
    "command_from_proto",
    "delivery_to_proto",
    "outcome_from_proto",
    "outcome_to_proto",
    "owned_turns_from_proto",
    "record_to_proto",
    "require_clean_hello",
    "require_client_id",
    "require_command_id",
    "require_runtime_id",
    "seconds_from_proto",
    "seconds_to_proto",
    "status_to_proto",
]

FINGERPRINT_VERSION = 1
DEFAULT_TTL = 300.0
MAX_TTL = 24 * 3600.0
_MAX_CAUSE = 500
_MAX_TEXT_BYTES = 64 * 1024
_MAX_NAME = 256

_is_command_id = re.compile(r"[A-Za-z0-9._:-]{8,64}").fullmatch
_is_client_id = re.compile(r"[A-Za-z0-9._:-]{1,64}").fullmatch
_is_runtime_id = re.compile(r"[A-Za-z0-9._:/-]{1,128}").fullmatch
_is_graph = re.compile(r"graphs/[a-z0-9-]{4,63}").fullmatch
_is_node = re.compile(r"[A-Za-z0-9._/:-]{1,128}").fullmatch

_STATES = {
    CommandState.ACCEPTED: command_pb.COMMAND_STATE_ACCEPTED,
    CommandState.DELIVERED: command_pb.COMMAND_STATE_DELIVERED,
    CommandState.DONE: command_pb.COMMAND_STATE_DONE,
}
_OUTCOMES = {
    OutcomeKind.APPLIED: command_pb.OUTCOME_KIND_APPLIED,
    OutcomeKind.DUPLICATE: command_pb.OUTCOME_KIND_DUPLICATE,
    OutcomeKind.STALE: command_pb.OUTCOME_KIND_STALE,
    OutcomeKind.NO_ACTIVE_TURN: command_pb.OUTCOME_KIND_NO_ACTIVE_TURN,
    OutcomeKind.ALREADY_FINISHED: command_pb.OUTCOME_KIND_ALREADY_FINISHED,
    OutcomeKind.EXPIRED: command_pb.OUTCOME_KIND_EXPIRED,
    OutcomeKind.REJECTED: command_pb.OUTCOME_KIND_REJECTED,
}
_OUTCOMES_BACK = {number: kind for kind, number in _OUTCOMES.items()}
_MODES = {
    DeliveryMode.OWNED: service_pb.DELIVERY_MODE_OWNED,
    DeliveryMode.UNOWNED: service_pb.DELIVERY_MODE_UNOWNED,
    DeliveryMode.QUERY_ONLY: service_pb.DELIVERY_MODE_QUERY_ONLY,
}


def command_from_proto(message: command_pb.Command) -> NewCommand:
    """Read a command.

    Raises:
        InvalidRequest: it is not well-formed; nothing is stored for it.
    """
    require_command_id(message.command_id, "command.command_id")
    arm = message.WhichOneof("command")
    if arm is None:
        raise _invalid("command", "says nothing to do: set one of its commands")
    kind = CommandKind(arm)
    ttl = _ttl(message)
    target = _target(kind, message.target)
    text, options = _payload(kind, getattr(message, arm))
    canonical = {
        "kind": kind.value,
        "target": [target.thread, target.turn, target.graph, target.node],
        "ttl": ttl,
        "text": text,
        **options,
    }
    encoded = json.dumps(canonical, sort_keys=True, separators=(",", ":")).encode()
    return NewCommand(
        command_id=message.command_id,
        kind=kind,
        target=target,
        ttl_seconds=ttl,
        fingerprint=hashlib.sha256(b"%d:" % FINGERPRINT_VERSION + encoded).hexdigest(),
        body=message.SerializeToString(),
        clear_queue=options.get("clear_queue", False),
        size=len(text.encode()),
    )


def require_command_id(text: str, field: str = "command_id") -> str:
    """Return a command id unchanged. Raises: InvalidRequest."""
    if _is_command_id(text) is None:
        raise _invalid(field, "must be a UUID or 8 to 64 characters out of A-Z, a-z, 0-9 and . _ : -")
    return text


def require_client_id(text: str) -> str:
    """Return a client id unchanged. Raises: InvalidRequest."""
    if _is_client_id(text) is None:
        raise _invalid("hello.client_id", "must be 1 to 64 characters out of A-Z, a-z, 0-9 and . _ : -")
    return text


def require_runtime_id(text: str) -> str:
    """Return the name of a runtime unchanged. Raises: InvalidRequest."""
    if _is_runtime_id(text) is None:
        raise _invalid("hello.runtime_id", "must be 1 to 128 characters out of A-Z, a-z, 0-9 and . _ : / -")
    return text


def require_clean_hello(hello: Any) -> None:
    """Look at the texts of a hello that are only shown. Raises: InvalidRequest."""
    for text in hello.capabilities:
        require_clean(text, "hello.capabilities")
    if isinstance(hello, service_pb.AttachHello):
        require_clean(hello.boot_id, "hello.boot_id")


def _ttl(message: command_pb.Command) -> float:
    if not message.HasField("ttl_timeout"):
        return DEFAULT_TTL
    seconds = seconds_from_proto(message.ttl_timeout, "command.ttl_timeout")
    if not 0 < seconds <= MAX_TTL:
        raise _invalid("command.ttl_timeout", "must be above 0 and at most 24 hours")
    return seconds


def _target(kind: CommandKind, message: command_pb.CommandTarget) -> Target:
    target = Target(message.thread, message.turn, message.graph, message.node)
    if kind in RESERVED:
        for name in ("thread", "turn", "graph", "node"):
            if len(require_clean(getattr(target, name), f"command.target.{name}")) > _MAX_NAME:
                raise _invalid(f"command.target.{name}", f"is longer than {_MAX_NAME} characters")
        return target
    if kind in GRAPH_KINDS:
        return _graph_target(kind, target)
    if target.graph or target.node or bool(target.thread) == bool(target.turn):
        raise _invalid("command.target", "must name a thread or a turn, and nothing else")
    if target.turn:
        TurnRef.parse(target.turn, "command.target.turn")
    else:
        ThreadRef.parse(target.thread, "command.target.thread")
    return target


def _graph_target(kind: CommandKind, target: Target) -> Target:
    wants_node = kind is CommandKind.DELIVER_TO_NODE
    if target.thread or target.turn or bool(target.node) != wants_node:
        what = "a graph and a node" if wants_node else "a graph"
        raise _invalid("command.target", f"must name {what}, and nothing else")
    if _is_graph(target.graph) is None:
        raise _invalid("command.target.graph", "must look like graphs/{graph}")
    if wants_node and _is_node(target.node) is None:
        raise _invalid(
            "command.target.node", "must be 1 to 128 characters out of A-Z, a-z, 0-9 and . _ / : -"
        )
    return target


def _payload(kind: CommandKind, arm: Any) -> tuple[str, dict[str, bool]]:
    """Return the text of a command and what else it says."""
    names = {field.name for field in arm.DESCRIPTOR.fields}
    text = ""
    if "cause" in names:
        text = require_clean(arm.cause, f"command.{kind}.cause")
        if len(text) > _MAX_CAUSE:
            raise _invalid(f"command.{kind}.cause", f"is longer than {_MAX_CAUSE} characters")
    elif "text" in names:
        text = require_clean(arm.text, f"command.{kind}.text")
        if len(text.encode()) > _MAX_TEXT_BYTES:
            raise _invalid(f"command.{kind}.text", f"is longer than {_MAX_TEXT_BYTES} bytes")
        if not text.strip() and kind not in RESERVED:
            raise _invalid(f"command.{kind}.text", "is empty")
    elif "action" in names:
        text = require_clean(arm.action, f"command.{kind}.action")
    return text, {"clear_queue": arm.clear_queue} if "clear_queue" in names else {}


def seconds_from_proto(duration: Duration, field: str) -> float:
    """Return a duration in seconds. Raises: InvalidRequest, when it is none."""
    seconds, nanos = duration.seconds, duration.nanos
    if abs(seconds) > 315_576_000_000 or abs(nanos) > 999_999_999 or seconds * nanos < 0:
        raise _invalid(field, "is not a duration")
    return float(seconds + nanos / 1e9)


def seconds_to_proto(seconds: float) -> Duration:
    """Return seconds as a duration."""
    duration = Duration()
    duration.FromNanoseconds(round(seconds * 1e9))
    return duration


def record_to_proto(row: CommandRow) -> command_pb.CommandRecord:
    """Return a row as clients see it: the command is without its texts."""
    shown = command_pb.Command(
        command_id=row.command_id,
        target=_target_to_proto(row.target),
        ttl_timeout=seconds_to_proto(row.ttl_seconds),
    )
    getattr(shown, row.kind.value).SetInParent()
    if row.kind is CommandKind.CANCEL_TURN:
        shown.cancel_turn.clear_queue = row.clear_queue
    return command_pb.CommandRecord(
        command=shown,
        scope=row.scope,
        subject=row.subject,
        client_id=row.client_id,
        state=_STATES[row.state],
        outcome=outcome_to_proto(row) if row.outcome is not None else None,
        bound_turn=row.bound_turn,
        create_time=_timestamp(row.create_time),
        expire_time=_timestamp(row.expire_time),
        position=row.position,
    )


def outcome_to_proto(row: CommandRow) -> command_pb.CommandOutcome:
    """Return the outcome of a row that has one."""
    outcome = row.outcome
    assert outcome is not None
    return command_pb.CommandOutcome(
        command_id=row.command_id,
        kind=_OUTCOMES[outcome.kind],
        turn=outcome.turn,
        applied_sequence=outcome.applied_sequence,
        duplicate_of=outcome.duplicate_of,
        message=outcome.message,
        reason=outcome.reason,
        decide_time=_timestamp(outcome.decide_time),
    )


def outcome_from_proto(message: command_pb.CommandOutcome) -> Outcome:
    """Read the outcome that a runtime reports; when it was decided is for the ledger to say.

    Raises:
        InvalidRequest: it has no known kind.
    """
    kind = _OUTCOMES_BACK.get(message.kind)
    if kind is None:
        raise _invalid("delivery_outcome.outcome.kind", "is not a known kind of outcome")
    return Outcome(
        kind=kind,
        turn=message.turn,
        applied_sequence=message.applied_sequence,
        duplicate_of=message.duplicate_of,
        message=message.message[:_MAX_CAUSE],
        reason=message.reason,
    )


def delivery_to_proto(delivery: Delivery) -> service_pb.Delivery:
    """Return a delivery; its command is the one that the client sent, byte by byte."""
    row = delivery.row
    message = service_pb.Delivery(
        scope=row.scope,
        subject=row.subject,
        bound_turn=row.bound_turn,
        remaining_timeout=seconds_to_proto(delivery.remaining_seconds),
        mode=_MODES[delivery.mode],
    )
    message.command.MergeFromString(row.body or b"")
    return message


def owned_turns_from_proto(messages: Iterable[service_pb.OwnedTurn], field: str) -> list[OwnedTurn]:
    """Read the turns that a runtime owns. Raises: InvalidRequest."""
    for message in messages:
        if not message.scope:
            raise _invalid(f"{field}.scope", "is empty")
        TurnRef.parse(message.turn, f"{field}.turn")
    return [OwnedTurn(message.scope, message.turn, message.epoch) for message in messages]


def status_to_proto(error: TurnwireError) -> status_pb2.Status:
    """Return an error as it would end a call."""
    ((_, encoded),) = status_details(error).trailing
    status: status_pb2.Status = status_pb2.Status.FromString(encoded)
    return status


def _target_to_proto(target: Target) -> command_pb.CommandTarget:
    return command_pb.CommandTarget(
        thread=target.thread, turn=target.turn, graph=target.graph, node=target.node
    )


def _timestamp(nanoseconds: int) -> Timestamp:
    stamp = Timestamp()
    stamp.FromNanoseconds(nanoseconds)
    return stamp


def _invalid(field: str, description: str) -> InvalidRequest:
    text = f"{field} {description}"
    return InvalidRequest(text, violations=(FieldViolation(field, description),), field=field)
