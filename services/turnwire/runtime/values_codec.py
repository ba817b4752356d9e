"""Values of the domain as values of the contract: enums by name, nanoseconds and seconds as messages."""

from __future__ import annotations

from enum import Enum
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

__all__ = ["duration", "enum_table", "timestamp"]


def enum_table(domain: type[Enum], wire: Any, prefix: str) -> dict[Any, Any]:
    """Return the wire value of each member of a domain enum, found by name. Raises ValueError for a gap."""
    return {member: wire.Value(f"{prefix}{member.name}") for member in domain}


def timestamp(time_ns: int) -> Timestamp:
    """Return nanoseconds since the epoch as a Timestamp."""
    return Timestamp(seconds=time_ns // 1_000_000_000, nanos=time_ns % 1_000_000_000)


def duration(seconds: float) -> Duration:
    """Return seconds as a Duration, to the microsecond."""
    micros = round(seconds * 1_000_000)
    return Duration(seconds=micros // 1_000_000, nanos=micros % 1_000_000 * 1000)
