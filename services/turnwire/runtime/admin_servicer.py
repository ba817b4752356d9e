"""AdminService: upkeep of the store within the caller's scope."""

from __future__ import annotations

from typing import Any

from turnwire.api.runtime.v1 import admin_service_pb2 as pb
from turnwire.api.runtime.v1 import admin_service_pb2_grpc as grpc_pb
from turnwire.runtime import request_codec
from turnwire.runtime.store.pruning import Pruner
from turnwire.wire.auth import current_principal

__all__ = ["AdminServicer"]

# Longer than any store has existed: more of it would find the same, which is nothing.
_LONGEST_AGE = 50 * 366 * 86400.0


class AdminServicer(grpc_pb.AdminServiceServicer):
    """Serves the upkeep of one store."""

    def __init__(self, pruner: Pruner) -> None:
        self._pruner = pruner

    async def PruneEvents(self, request: pb.PruneEventsRequest, context: Any) -> pb.PruneEventsResponse:
        """Delete, or count, the events of turns that ended long enough ago."""
        age = _age(request)
        scope = current_principal().scope
        work = self._pruner.count if request.dry_run else self._pruner.prune
        done = await work(age, scope)
        return pb.PruneEventsResponse(turns=done.turns, pages=done.pages, bytes=done.bytes)


def _age(request: pb.PruneEventsRequest) -> float | None:
    if not request.HasField("older_than"):
        return None
    age = float(request.older_than.seconds + request.older_than.nanos / 1e9)
    if age < 0:
        raise request_codec.bad("older_than", "must not be negative")
    return min(age, _LONGEST_AGE)
