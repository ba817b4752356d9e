"""Spans of served calls.

Unary calls get theirs from the stock OpenTelemetry interceptor. Streams do not: that one cannot wrap handlers
that write through the context, and it holds a context open across `yield`, which fails loudly when the caller
goes away. Here the context is attached for the rest of the call's own task instead, so nothing is detached.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import grpc
from opentelemetry.context import attach
from opentelemetry.propagate import extract
from opentelemetry.trace import SpanKind, Status, StatusCode, Tracer, set_span_in_context

from turnwire.wire.handlers import behavior_of, rebuild

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

__all__ = ["LONG_STREAMS", "TraceContextInterceptor", "TracingInterceptor"]

# Streams that live for hours: their span would say nothing, and what they carry has spans of its own.
LONG_STREAMS = frozenset({"Connect", "Attach", "ServerReflectionInfo", "WatchThread", "WatchActions"})
_SERVER_FAULTS = frozenset(
    {"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"}
)


class TraceContextInterceptor(grpc.aio.ServerInterceptor):
    """Without a provider: only takes over the caller's trace, so that it reaches logs, links and tools."""

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        """Attach the caller's context, if it sent one, for the rest of the call's task."""
        for key, _ in handler_call_details.invocation_metadata:
            if key == "traceparent":
                attach(extract(_text_metadata(handler_call_details.invocation_metadata)))
                break
        return await continuation(handler_call_details)


class TracingInterceptor(grpc.aio.ServerInterceptor):
    """With a provider: one span per call; the outermost interceptor, as it sees aborts only from outside.

    It costs about as much as all others together, so servers without a provider take the other class.

    Args:
        untraced: short names of methods that get no span; health never gets one.
    """

    def __init__(self, provider: TracerProvider, untraced: frozenset[str] = LONG_STREAMS) -> None:
        from opentelemetry.instrumentation.grpc import aio_server_interceptor, filters

        skipped = [filters.health_check(), *(filters.method_name(name) for name in sorted(untraced))]
        self._stock = aio_server_interceptor(  # type: ignore[no-untyped-call]
            tracer_provider=provider, filter_=filters.negate(filters.any_of(*skipped))
        )
        self._tracer = provider.get_tracer(__name__)
        self._untraced = untraced
        self._wrapped: dict[str, tuple[Any, Any]] = {}

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        """Return the handler within a span of its own."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        if not handler.response_streaming:

            async def found(_: Any) -> Any:
                return handler

            return await self._stock.intercept_service(found, handler_call_details)
        method = handler_call_details.method
        service, _, name = method.lstrip("/").partition("/")
        if name in self._untraced or service.startswith("grpc.health."):
            return handler
        known = self._wrapped.get(method)
        if known is not None and known[0] is handler:
            return known[1]
        traced = rebuild(
            handler,
            _trace_stream(self._tracer, service, name, behavior_of(handler)),
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )
        self._wrapped[method] = (handler, traced)
        return traced


def _trace_stream(
    tracer: Tracer, service: str, name: str, behavior: Callable[[Any, Any], Any]
) -> Callable[[Any, Any], Any]:
    attributes = {"rpc.system": "grpc", "rpc.service": service, "rpc.method": name}

    async def traced(request: Any, context: Any) -> None:
        parent = extract(_text_metadata(context.invocation_metadata()))
        span = tracer.start_span(
            f"/{service}/{name}", context=parent, kind=SpanKind.SERVER, attributes=attributes
        )
        attach(set_span_in_context(span, parent))
        code = grpc.StatusCode.CANCELLED
        try:
            await behavior(request, context)
            code = context.code() or grpc.StatusCode.OK
        except grpc.aio.AbortError:
            code = context.code() or grpc.StatusCode.UNKNOWN
            raise
        finally:
            span.set_attribute("rpc.grpc.status_code", code.value[0])
            if code.name in _SERVER_FAULTS:
                span.set_status(Status(StatusCode.ERROR, code.name))
            span.end()

    return traced


def _text_metadata(metadata: Iterable[tuple[str, str | bytes]]) -> dict[str, str]:
    return {key: value for key, value in metadata if isinstance(value, str)}
