"""Every failed call becomes one of these classes, here and nowhere else: class by code, case by `reason`.

Codes, classes and reasons are those of the server's error catalog (`docs/errors.md`). Answers without a
reason get one here: MESSAGE_TOO_LARGE, METHOD_UNKNOWN, UNREACHABLE, CALL_CANCELLED, or their code's name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

__all__ = [
    "AlreadyExists",
    "Cancelled",
    "Conflict",
    "DeadlineExceeded",
    "Exhausted",
    "Expired",
    "FieldViolation",
    "Forbidden",
    "InvalidRequest",
    "NotFound",
    "NotServed",
    "TurnwireError",
    "Unauthenticated",
    "Unavailable",
    "WrongState",
    "from_rpc_error",
]

_DETAILS_KEY = "grpc-status-details-bin"
_DOMAIN = "turnwire.dev"


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """One thing wrong with one field of a request; `field` is the proto path, as in `spec.limits.steps`."""

    field: str
    description: str


class TurnwireError(Exception):
    """Base of every error that a call raises.

    Attributes:
        code: the gRPC status code.
        reason: UPPER_SNAKE word of the error catalog.
        message: one sentence for a person; never parse it.
        metadata: whatever varies in the message, once more for programs.
        retry_delay: seconds after which the server says that a repeat makes sense, or None.
        violations: the fields that are wrong, for INVALID_ARGUMENT.
    """

    default_code: ClassVar[grpc.StatusCode] = grpc.StatusCode.INTERNAL

    def __init__(
        self,
        message: str,
        *,
        reason: str,
        code: grpc.StatusCode | None = None,
        metadata: Mapping[str, str] | None = None,
        retry_delay: float | None = None,
        violations: Sequence[FieldViolation] = (),
    ) -> None:
        super().__init__(message)
        self.code = code or self.default_code
        self.reason = reason
        self.message = message
        self.metadata = dict(metadata or {})
        self.retry_delay = retry_delay
        self.violations = tuple(violations)

    def __str__(self) -> str:
        return f"{self.code.name} / {self.reason}: {self.message}"


class InvalidRequest(TurnwireError):
    """The request can never succeed as it is: fix it."""

    default_code = grpc.StatusCode.INVALID_ARGUMENT


class NotFound(TurnwireError):
    """No such thing in the caller's scope."""

    default_code = grpc.StatusCode.NOT_FOUND


class AlreadyExists(TurnwireError):
    """The name or request id is taken by something else."""

    default_code = grpc.StatusCode.ALREADY_EXISTS


class WrongState(TurnwireError):
    """The thing exists and is in a state that forbids this."""

    default_code = grpc.StatusCode.FAILED_PRECONDITION


class Conflict(TurnwireError):
    """Someone else changed it first: read again and repeat."""

    default_code = grpc.StatusCode.ABORTED


class Expired(TurnwireError):
    """Outside the range that is kept or exists."""

    default_code = grpc.StatusCode.OUT_OF_RANGE


class Exhausted(TurnwireError):
    """A quota or limit is used up, or a message is too large; a repeat at once does not help."""

    default_code = grpc.StatusCode.RESOURCE_EXHAUSTED


class Unavailable(TurnwireError):
    """Not now: repeat after a while."""

    default_code = grpc.StatusCode.UNAVAILABLE


class Unauthenticated(TurnwireError):
    """No valid credentials."""

    default_code = grpc.StatusCode.UNAUTHENTICATED


class Forbidden(TurnwireError):
    """Valid credentials without the role that this method needs."""

    default_code = grpc.StatusCode.PERMISSION_DENIED


class NotServed(TurnwireError):
    """Part of the contract that this server does not serve."""

    default_code = grpc.StatusCode.UNIMPLEMENTED


class Cancelled(TurnwireError):
    """The call was given up, by the caller or on the way."""

    default_code = grpc.StatusCode.CANCELLED


class DeadlineExceeded(TurnwireError):
    """The call's own deadline passed; what it asked for may have happened."""

    default_code = grpc.StatusCode.DEADLINE_EXCEEDED


_FAMILIES: dict[grpc.StatusCode, type[TurnwireError]] = {
    family.default_code: family for family in TurnwireError.__subclasses__()
}

# What the transport itself answers has no ErrorInfo; the catalog keeps a reason for each of these.
_BARE_REASONS = {
    grpc.StatusCode.RESOURCE_EXHAUSTED: "MESSAGE_TOO_LARGE",
    grpc.StatusCode.UNIMPLEMENTED: "METHOD_UNKNOWN",
    grpc.StatusCode.UNAVAILABLE: "UNREACHABLE",
    grpc.StatusCode.CANCELLED: "CALL_CANCELLED",
}


def from_rpc_error(error: grpc.RpcError) -> TurnwireError:
    """Turn a failed call, sync or aio, into the error of its family.

    Args:
        error: what a stub raised: `grpc.aio.AioRpcError`, or a `grpc.RpcError` that is also a `grpc.Call`.
    """
    code, text, status = _read(error)
    info = error_details_pb2.ErrorInfo()
    retry = error_details_pb2.RetryInfo()
    bad = error_details_pb2.BadRequest()
    has_info = has_retry = False
    for detail in status.details if status is not None else ():
        if detail.Is(error_details_pb2.ErrorInfo.DESCRIPTOR) and not has_info:
            detail.Unpack(info)
            has_info = info.domain == _DOMAIN
        elif detail.Is(error_details_pb2.RetryInfo.DESCRIPTOR):
            has_retry = detail.Unpack(retry)
        elif detail.Is(error_details_pb2.BadRequest.DESCRIPTOR):
            detail.Unpack(bad)
    delay = retry.retry_delay
    return _FAMILIES.get(code, TurnwireError)(
        text,
        reason=info.reason if has_info else _BARE_REASONS.get(code, code.name),
        code=code,
        metadata=info.metadata if has_info else None,
        retry_delay=delay.seconds + delay.nanos / 1e9 if has_retry else None,
        violations=[FieldViolation(v.field, v.description) for v in bad.field_violations],
    )


def _read(error: grpc.RpcError) -> tuple[grpc.StatusCode, str, status_pb2.Status | None]:
    """Give code, text and the rich status of an error; the status is None when there is none to read."""
    if not isinstance(error, grpc.Call | grpc.aio.AioRpcError):
        return grpc.StatusCode.UNKNOWN, str(error), None
    code = error.code()
    text = error.details() or code.name
    for key, value in error.trailing_metadata() or ():
        if key == _DETAILS_KEY and isinstance(value, bytes):
            try:
                return code, text, status_pb2.Status.FromString(value)
            except DecodeError:
                # A proxy may cut long headers; code and text still hold.
                return code, text, None
    return code, text, None
