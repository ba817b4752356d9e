"""GraphService: in the contract, not served by this version."""

from __future__ import annotations

from typing import Any

from turnwire.api.runtime.v1 import graph_service_pb2_grpc as grpc_pb
from turnwire.runtime import request_codec

__all__ = ["GraphServicer"]


class GraphServicer(grpc_pb.GraphServiceServicer):
    """Refuses every method with FEATURE_NOT_SERVED."""

    async def StartGraph(self, request: Any, context: Any) -> Any:
        """Not served yet."""
        raise request_codec.not_served("StartGraph")

    async def GetGraph(self, request: Any, context: Any) -> Any:
        """Not served yet."""
        raise request_codec.not_served("GetGraph")

    async def ListGraphs(self, request: Any, context: Any) -> Any:
        """Not served yet."""
        raise request_codec.not_served("ListGraphs")

    async def WatchGraph(self, request: Any, context: Any) -> Any:
        """Not served yet."""
        raise request_codec.not_served("WatchGraph")
