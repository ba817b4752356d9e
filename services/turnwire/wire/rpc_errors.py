"""The way back: an `AioRpcError` becomes the class that the server raised, with reason, metadata and delay.

A status without our ErrorInfo was made by a transport, a proxy or another server: its text is kept out, and
the reason is the one that clients document for it.
"""

from __future__ import annotations

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from turnwire.core.errors import FieldViolation, InvalidRequest, TurnwireError
from turnwire.wire.status import CODES, DETAILS_KEY, DOMAIN

__all__ = ["error_from_rpc"]

_CLASSES = {code: error for error, code in CODES.items()}
_CLASSES[grpc.StatusCode.UNKNOWN] = TurnwireError
_CLASSES[grpc.StatusCode.DATA_LOSS] = TurnwireError

_BARE: dict[grpc.StatusCode, tuple[str, str]] = {
    grpc.StatusCode.RESOURCE_EXHAUSTED: (
        "MESSAGE_TOO_LARGE",
        "a message of the call is above the size limit; send less or read it in parts",
    ),
    grpc.StatusCode.UNIMPLEMENTED: ("METHOD_UNKNOWN", "the server has no such method; upgrade it"),
    grpc.StatusCode.UNAVAILABLE: ("UNREACHABLE", "the server cannot be reached; repeat later"),
    grpc.StatusCode.DEADLINE_EXCEEDED: ("DEADLINE_EXCEEDED", "the call's time ran out before the answer"),
    grpc.StatusCode.CANCELLED: ("CALL_CANCELLED", "the call was cancelled before the answer"),
}


def error_from_rpc(error: grpc.aio.AioRpcError) -> TurnwireError:
    """Return the error that a failed call stands for; raise it `from error` to keep the trace.

    The result has the class for the status code, and where the server sent them reason, metadata,
    `retry_after` in seconds and field violations.
    """
    code = error.code()
    family = _CLASSES.get(code, TurnwireError)
    status = _read_status(error)
    info, retry_after, violations = _read_details(status)
    if status is None or info is None:
        return _bare(code, family)
    return _build(family, status.message, info, retry_after, violations)


def _read_status(error: grpc.aio.AioRpcError) -> status_pb2.Status | None:
    for key, value in error.trailing_metadata() or ():
        if key == DETAILS_KEY and isinstance(value, bytes):
            try:
                return status_pb2.Status.FromString(value)
            except DecodeError:
                return None
    return None


def _read_details(
    status: status_pb2.Status | None,
) -> tuple[error_details_pb2.ErrorInfo | None, float | None, list[FieldViolation]]:
    info, retry_after = None, None
    violations: list[FieldViolation] = []
    for packed in status.details if status is not None else ():
        candidate, retry, bad = (
            error_details_pb2.ErrorInfo(),
            error_details_pb2.RetryInfo(),
            error_details_pb2.BadRequest(),
        )
        if packed.Unpack(candidate) and candidate.domain == DOMAIN:
            info = candidate
        elif packed.Unpack(retry):
            retry_after = retry.retry_delay.ToMilliseconds() / 1000
        elif packed.Unpack(bad):
            violations += [FieldViolation(item.field, item.description) for item in bad.field_violations]
    return info, retry_after, violations


def _bare(code: grpc.StatusCode, family: type[TurnwireError]) -> TurnwireError:
    # Any other code keeps its own name as reason: a documented one would claim what nobody said.
    fallback = "INTERNAL" if family is TurnwireError else code.name
    reason, message = _BARE.get(code, (fallback, f"the call failed with {code.name} and no reason"))
    return family(message, reason=reason, code=code.name)


def _build(
    family: type[TurnwireError],
    message: str,
    info: error_details_pb2.ErrorInfo,
    retry_after: float | None,
    violations: list[FieldViolation],
) -> TurnwireError:
    # Attributes instead of keywords: a newer server's metadata key must not collide with a parameter.
    error: TurnwireError = family(message, reason=info.reason)
    error.metadata = dict(info.metadata)
    error.retry_after = retry_after
    if isinstance(error, InvalidRequest):
        error.violations = tuple(violations)
    return error
