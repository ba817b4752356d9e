"""A gRPC server as every turnwire process runs it: options, order of interceptors, health, reflection.

Outermost first: tracing, the call boundary (log line and errors), auth. Tracing must be outside, as it sees
only aborts made through its own context; auth inside, so that its refusals are answered and logged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import grpc
from grpc_health.v1 import health_pb2_grpc

from turnwire.core.errors import WrongState
from turnwire.core.settings import ListenSettings
from turnwire.wire.auth import Authenticator, AuthInterceptor, check_exposure, load_tokens
from turnwire.wire.calls import CallInterceptor
from turnwire.wire.certificates import read_pem
from turnwire.wire.health import Health
from turnwire.wire.services import RegisteredService, Service, collect
from turnwire.wire.tracing import LONG_STREAMS, TraceContextInterceptor, TracingInterceptor

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

__all__ = ["WireServer", "build_server", "server_options"]


def server_options(listen: ListenSettings) -> list[tuple[str, Any]]:
    """Return the channel arguments of a server."""
    options: list[tuple[str, Any]] = [
        # Two servers on one port would share its calls without a word.
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", listen.max_message_bytes),
        ("grpc.max_send_message_length", listen.max_message_bytes),
        ("grpc.max_concurrent_streams", listen.max_concurrent_streams),
        # Clients may ping every 10 s, also on a silent stream or between calls; the default cuts them off.
        # The name has no RECV in it, unlike its constant in C, and unknown names are ignored silently.
        ("grpc.http2.min_ping_interval_without_data_ms", 9_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.max_ping_strikes", 3),
        # Our own pings find dead peers within a minute.
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 20_000),
    ]
    if listen.max_connection_age_seconds is not None:
        # Without ..._grace_ms on purpose: with it, streams that run on would die UNAVAILABLE.
        options.append(("grpc.max_connection_age_ms", int(listen.max_connection_age_seconds * 1000)))
    return options


def build_server(
    listen: ListenSettings,
    services: Sequence[Service],
    *,
    roles: Mapping[str, frozenset[str]],
    authenticator: Authenticator | None = None,
    provider: TracerProvider | None = None,
    untraced: frozenset[str] = LONG_STREAMS,
    health: Health | None = None,
) -> WireServer:
    """Return a server that is not started yet; must run within the event loop that will serve.

    Args:
        roles: full method to the roles of which a caller needs one; names only methods of `services`.
        authenticator: instead of the tokens file that `listen` names.
        provider: where spans go; None traces nothing and is cheaper.
        untraced: short names of methods that get no span.

    Raises:
        WrongState: INSECURE_LISTEN or TOKENS_UNREADABLE.
        ValueError: `roles` names a method that no service has, or a service is registered twice.
    """
    check_exposure(listen)
    registered = collect(services)
    _check_roles(roles, registered)
    if authenticator is None and listen.tokens_file is not None:
        authenticator = load_tokens(listen.tokens_file)
    calls = CallInterceptor()
    tracing = TracingInterceptor(provider, untraced) if provider is not None else TraceContextInterceptor()
    server = grpc.aio.server(
        interceptors=[tracing, calls, AuthInterceptor(authenticator, roles)], options=server_options(listen)
    )
    health = health or Health()
    names = [service.name for service in registered]
    health.register(names)
    extra = [Service(health_pb2_grpc.add_HealthServicer_to_server, health)]
    if listen.reflection:
        extra.append(_reflection(names))
    for service in [*registered, *collect(extra)]:
        server.add_registered_method_handlers(service.name, dict(service.handlers))
    return WireServer(server, listen, calls, health)


class WireServer:
    """A server with its health; `port` is known once `start` has returned."""

    def __init__(
        self, server: grpc.aio.Server, listen: ListenSettings, calls: CallInterceptor, health: Health
    ) -> None:
        self._server, self._listen, self._calls = server, listen, calls
        self.health = health
        self.port = 0

    @property
    def address(self) -> str:
        """Where it listens, as host:port."""
        return _address(self._listen.host, self.port)

    async def start(self) -> int:
        """Bind, start and report ready; return the port.

        Raises:
            WrongState: the address is taken or not ours (ADDRESS_UNAVAILABLE), or a certificate file cannot
                be read (CERTIFICATE_UNREADABLE).
        """
        wanted = _address(self._listen.host, self._listen.port)
        try:
            self.port = self._bind(wanted)
        except RuntimeError:
            raise WrongState(
                f"cannot listen on {wanted}: taken by another process, or not an address of this machine"
                f"{', or its certificate and key do not fit' if self._listen.tls else ''}; "
                "choose another with listen.port or listen.host",
                reason="ADDRESS_UNAVAILABLE",
                address=wanted,
            ) from None
        await self._server.start()
        self.health.ready()
        return self.port

    def _bind(self, address: str) -> int:
        certificate, key = read_pem(self._listen.tls_cert), read_pem(self._listen.tls_key)
        if certificate is None or key is None:
            return self._server.add_insecure_port(address)
        client_ca = read_pem(self._listen.tls_client_ca)
        credentials = grpc.ssl_server_credentials(
            [(key, certificate)], root_certificates=client_ca, require_client_auth=client_ca is not None
        )
        return self._server.add_secure_port(address, credentials)

    async def stop(self, grace: float) -> None:
        """Close the port at once, give open calls `grace` seconds, then cancel them: UNAVAILABLE outside."""
        await self._server.stop(grace)
        self._calls.server_stopped()


def _check_roles(roles: Mapping[str, frozenset[str]], registered: Sequence[RegisteredService]) -> None:
    served = frozenset[str]().union(*(service.methods for service in registered))
    if unknown := roles.keys() - served:
        raise ValueError(f"the table of roles names methods that are not served: {sorted(unknown)}")


def _reflection(names: Sequence[str]) -> Service:
    from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

    servicer = reflection.aio.ReflectionServicer([*names, "grpc.health.v1.Health", reflection.SERVICE_NAME])
    return Service(reflection_pb2_grpc.add_ServerReflectionServicer_to_server, servicer)


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"
