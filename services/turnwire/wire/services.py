"""Services as data: what the generated registration functions would do, seen before the server has it.

So the server knows every method it serves, and streams of already encoded messages pass without being
encoded again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc

from turnwire.wire.handlers import behavior_of, rebuild

__all__ = ["RegisteredService", "Service", "bytes_or", "collect"]


@dataclass(frozen=True, slots=True)
class Service:
    """One gRPC service to serve.

    Args:
        register: the generated `add_<Name>Servicer_to_server`.
        servicer: what it registers.
        passthrough: methods that yield encoded messages (bytes) as well as message objects.
    """

    register: Callable[[Any, Any], None]
    servicer: Any
    passthrough: frozenset[str] = field(default=frozenset())


@dataclass(frozen=True, slots=True)
class RegisteredService:
    """A service: full name, as in `turnwire.api.runtime.v1.TurnService`, and handlers by short name."""

    name: str
    handlers: Mapping[str, Any]

    @property
    def methods(self) -> frozenset[str]:
        """The full methods, `/service/Method`, as tables of roles spell them."""
        return frozenset(f"/{self.name}/{method}" for method in self.handlers)


class _Recorder:
    """Stands for a server in front of generated code."""

    def __init__(self) -> None:
        self.services: dict[str, dict[str, Any]] = {}

    def add_generic_rpc_handlers(self, generic_rpc_handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        """Ignore them: generated code registers the same handlers once more by name."""

    def add_registered_method_handlers(self, service_name: str, method_handlers: dict[str, Any]) -> None:
        self.services[service_name] = dict(method_handlers)


def collect(services: Sequence[Service]) -> list[RegisteredService]:
    """Return what the services register.

    Raises:
        ValueError: a passthrough name is no method of its service, or two services have one name.
    """
    collected: dict[str, RegisteredService] = {}
    for service in services:
        recorder = _Recorder()
        service.register(service.servicer, recorder)
        known = {method for handlers in recorder.services.values() for method in handlers}
        if unknown := service.passthrough - known:
            raise ValueError(f"passthrough names unknown methods: {', '.join(sorted(unknown))}")
        for name, handlers in recorder.services.items():
            if name in collected:
                raise ValueError(f"{name} is registered twice")
            ready = {
                method: _pass_bytes(handler) if method in service.passthrough else handler
                for method, handler in handlers.items()
            }
            collected[name] = RegisteredService(name, ready)
    return list(collected.values())


def bytes_or(serialize: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """Return a serializer that hands bytes through and encodes everything else."""

    def write(message: Any) -> bytes:
        return message if type(message) is bytes else serialize(message)

    return write


def _pass_bytes(handler: Any) -> Any:
    return rebuild(
        handler,
        behavior_of(handler),
        request_deserializer=handler.request_deserializer,
        response_serializer=bytes_or(handler.response_serializer),
    )
