"""`grpc.health.v1.Health` as the probes need it: full service names, `liveness`, and one name per link.

`liveness` says SERVING until the process ends; everything else says NOT_SERVING from the moment the drain
begins. No lock is held while a watcher is written to: one that reads nothing cannot delay the drain.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

from grpc_health.v1 import health_pb2, health_pb2_grpc

from turnwire.core.errors import NotFound

__all__ = ["LIVENESS", "Health"]

LIVENESS = "liveness"
_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
_UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


class Health(health_pb2_grpc.HealthServicer):
    """State and servicer in one; all but the RPCs are synchronous and belong to the event loop."""

    def __init__(self) -> None:
        self._services = {""}
        self._states: dict[str, int] = {"": _NOT_SERVING, LIVENESS: _SERVING}
        self._draining = False
        self._ended = False
        self._changed = asyncio.Event()

    @property
    def draining(self) -> bool:
        """Whether the process is about to leave."""
        return self._draining

    def register(self, services: Iterable[str]) -> None:
        """Add full names of services; NOT_SERVING until `ready`, as is the empty name, the whole server."""
        self._services.update(services)
        self._update(dict.fromkeys(self._services, _NOT_SERVING))

    def ready(self) -> None:
        """Report every service as SERVING; called once, when the port is open."""
        self._update(dict.fromkeys(self._services, _SERVING))

    def set(self, name: str, serving: bool) -> None:
        """Report one name, such as `link.control`; ignored once the drain has begun."""
        self._update({name: _SERVING if serving else _NOT_SERVING})

    def drain(self) -> None:
        """Report everything but `liveness` as NOT_SERVING, for good."""
        self._update(dict.fromkeys(self._states.keys() - {LIVENESS}, _NOT_SERVING))
        self._draining = True

    def end(self) -> None:
        """End every watch: the server is about to close, and would wait for them."""
        self._ended = True
        self._wake()

    def _update(self, states: dict[str, int]) -> None:
        if self._draining:
            return
        self._states.update(states)
        self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def Check(self, request: Any, context: Any) -> Any:
        """Return the state of one name. Raises: NotFound (SERVICE_UNKNOWN)."""
        state = self._states.get(request.service)
        if state is None:
            raise NotFound("no such service here", reason="SERVICE_UNKNOWN", service=request.service)
        return health_pb2.HealthCheckResponse(status=state)

    async def Watch(self, request: Any, context: Any) -> AsyncIterator[Any]:
        """Yield the state of one name now and after each change, until the process closes its server.

        An unknown name may appear later.
        """
        last: int | None = None
        while True:
            changed = self._changed
            state = self._states.get(request.service, _UNKNOWN)
            if state != last:
                last = state
                yield health_pb2.HealthCheckResponse(status=state)
            elif self._ended:
                return
            else:
                await changed.wait()
