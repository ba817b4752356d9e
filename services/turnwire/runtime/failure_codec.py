"""The error of a failed turn, as every failure is told: a status with one ErrorInfo."""

from __future__ import annotations

from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc import code_pb2, error_details_pb2, status_pb2

__all__ = ["failure_status"]

# Code of a failed turn's error by its reason; everything else is UNKNOWN.
_CODES = {
    "INTERNAL": code_pb2.INTERNAL,
    "MODEL_FAILED": code_pb2.UNAVAILABLE,
    "STEPS_EXHAUSTED": code_pb2.RESOURCE_EXHAUSTED,
    "BUDGET_EXHAUSTED": code_pb2.RESOURCE_EXHAUSTED,
    "TIMEOUT": code_pb2.DEADLINE_EXCEEDED,
    "POLICY": code_pb2.FAILED_PRECONDITION,
    "LOOP_DETECTED": code_pb2.ABORTED,
    "ANSWER_INVALID": code_pb2.FAILED_PRECONDITION,
    "RUNTIME_RESTARTED": code_pb2.ABORTED,
}


def failure_status(reason: str, text: str) -> status_pb2.Status:
    """Return the error of a failed turn, with its one ErrorInfo."""
    status = status_pb2.Status(code=_CODES.get(reason, code_pb2.UNKNOWN), message=text[:1000])
    packed = AnyMessage()
    packed.Pack(error_details_pb2.ErrorInfo(reason=reason, domain="turnwire.dev"))
    status.details.append(packed)
    return status
