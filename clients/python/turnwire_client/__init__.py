"""The Python client of turnwire: it needs grpcio, protobuf and the generated messages, and nothing else."""

from __future__ import annotations

from turnwire_client.client import AsyncClient
from turnwire_client.connection import Tls
from turnwire_client.errors import (
    AlreadyExists,
    Cancelled,
    Conflict,
    DeadlineExceeded,
    Exhausted,
    Expired,
    FieldViolation,
    Forbidden,
    InvalidRequest,
    NotFound,
    NotServed,
    TurnwireError,
    Unauthenticated,
    Unavailable,
    WrongState,
    from_rpc_error,
)
from turnwire_client.policy import Patience
from turnwire_client.result import TurnResult
from turnwire_client.spec import turn_spec
from turnwire_client.stream import AsyncTurnStream
from turnwire_client.sync_client import Client
from turnwire_client.sync_stream import TurnStream
from turnwire_client.thread_stream import AsyncThreadStream, ThreadStream
from turnwire_client.view import StepView, ToolCallView, TurnView

__all__ = [
    "AlreadyExists",
    "AsyncClient",
    "AsyncThreadStream",
    "AsyncTurnStream",
    "Cancelled",
    "Client",
    "Conflict",
    "DeadlineExceeded",
    "Exhausted",
    "Expired",
    "FieldViolation",
    "Forbidden",
    "InvalidRequest",
    "NotFound",
    "NotServed",
    "Patience",
    "StepView",
    "ThreadStream",
    "Tls",
    "ToolCallView",
    "TurnResult",
    "TurnStream",
    "TurnView",
    "TurnwireError",
    "Unauthenticated",
    "Unavailable",
    "WrongState",
    "from_rpc_error",
    "turn_spec",
]
