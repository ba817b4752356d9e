"""The boundary of every call: nothing but a documented status leaves it, and it writes one line of log.

Errors and the line share one layer, because each layer costs on every call. Streams that handlers yield are
written out here, so that no layer is added per message, and a handler's generator is always closed in the
task of its call: its `finally` runs at once and in the right context, also when the caller goes away while
the server is blocked writing.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from time import perf_counter
from typing import Any

import grpc

from turnwire.core.errors import NotServed
from turnwire.wire.auth import OPEN_METHODS
from turnwire.wire.handlers import MALFORMED, behavior_of, malformed_request, rebuild, tolerant_deserializer
from turnwire.wire.status import WireStatus, status_details, unwrap

__all__ = ["CallInterceptor"]

logger = logging.getLogger(__name__)

_DEPENDENCY = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED"})
_DENIED = frozenset({"UNAUTHENTICATED", "PERMISSION_DENIED"})
_METHOD_LENGTH = 200


class CallInterceptor(grpc.aio.ServerInterceptor):
    """Answers whatever a handler raises, and logs `rpc.finished` once per call.

    The line has method, code, reason, duration_ms and what the handler bound with `core.logs.bind`.
    A CancelledError passes only if the call itself was cancelled: gRPC would send nothing for any other, and
    the caller would hang. Health and reflection are logged at DEBUG.
    """

    def __init__(self) -> None:
        self._wrapped: dict[str, tuple[Any, Any]] = {}
        self._stopped = False

    def server_stopped(self) -> None:
        """Note that the server has stopped: from now on nothing may be sent on calls that are left."""
        self._stopped = True

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        """Return the handler within the boundary; made once per method, as handlers are stable objects."""
        method = handler_call_details.method
        handler = await continuation(handler_call_details)
        if handler is None:
            name = method[:_METHOD_LENGTH]
            logger.info("rpc.finished", extra={"method": name, "code": "UNIMPLEMENTED", "reason": ""})
            return None
        known = self._wrapped.get(method)
        if known is not None and known[0] is handler:
            return known[1]
        wrapped = self._wrap(method, handler)
        self._wrapped[method] = (handler, wrapped)
        return wrapped

    def _wrap(self, method: str, handler: Any) -> Any:
        behavior = behavior_of(handler)
        if handler.response_streaming and not inspect.iscoroutinefunction(behavior):
            guarded = self._guard_stream(method, behavior)
        else:
            guarded = self._guard(method, behavior)
        return rebuild(
            handler,
            guarded,
            request_deserializer=tolerant_deserializer(
                handler.request_deserializer, streaming=handler.request_streaming
            ),
            response_serializer=handler.response_serializer,
        )

    def _guard(self, method: str, behavior: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        """Wrap a coroutine: a unary answer, or a stream that writes through the context itself."""

        async def guarded(request: Any, context: Any) -> Any:
            started = perf_counter()
            try:
                if request is MALFORMED:
                    raise malformed_request()
                response = await behavior(request, context)
            except BaseException as error:
                return await self._fail(method, started, error, context)
            self._finished(method, started, context)
            return response

        return guarded

    def _guard_stream(self, method: str, behavior: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        """Wrap an async generator into a coroutine that writes what it yields."""

        async def guarded(request: Any, context: Any) -> None:
            started = perf_counter()
            try:
                if request is MALFORMED:
                    raise malformed_request()
                messages = behavior(request, context)
                write = context.write
                try:
                    async for message in messages:
                        await write(message)
                finally:
                    if hasattr(messages, "aclose"):
                        await messages.aclose()
            except BaseException as error:
                await self._fail(method, started, error, context)
                return
            self._finished(method, started, context)

        return guarded

    async def _fail(self, method: str, started: float, error: BaseException, context: Any) -> None:
        """Send the status for `error`; raises what gRPC wants to see, and returns only once stopped."""
        cause = unwrap(error)
        if isinstance(cause, KeyboardInterrupt | SystemExit):
            raise cause
        if isinstance(cause, asyncio.CancelledError) and _call_was_cancelled():
            self._log(method, started, "CANCELLED", "")
            raise cause
        if isinstance(cause, grpc.aio.AbortError):
            self._finished(method, started, context)
            raise cause
        if self._stopped or context.done() or _server_is_gone(cause):
            self._log(method, started, "UNAVAILABLE", "")
            if self._stopped:
                return  # gRPC notices by itself; sending on a stopped server would crash the process
            raise cause
        if isinstance(cause, NotImplementedError) and context.code() is grpc.StatusCode.UNIMPLEMENTED:
            # What the generated base class says of a method that the servicer does not define.
            name = method.rpartition("/")[2]
            cause = NotServed(f"{name} is not served here; upgrade the server", feature=name)
        await self._answer(method, started, cause, context)

    async def _answer(self, method: str, started: float, cause: BaseException, context: Any) -> None:
        status = status_details(cause)
        try:
            await context.abort(status.code, status.message, status.trailing)
        except grpc.aio.InternalError:
            # Nothing can be sent: the caller has gone, and its cancellation is about to reach this task.
            # Raised as it is, gRPC would log the failed batch as an error of ours.
            self._log(method, started, "CANCELLED", "")
            raise asyncio.CancelledError from None
        except BaseException:
            self._log_failure(method, started, status, cause, context)
            raise

    def _finished(self, method: str, started: float, context: Any) -> None:
        code = context.code()
        self._log(method, started, "OK" if code is None else code.name, "")

    def _log(self, method: str, started: float, code: str, reason: str, **more: Any) -> None:
        level = logging.WARNING if code in _DEPENDENCY else logging.INFO
        if method in OPEN_METHODS:
            level = logging.DEBUG
        if logger.isEnabledFor(level):
            duration = round((perf_counter() - started) * 1000, 3)
            fields = {"method": method, "code": code, "reason": reason, "duration_ms": duration, **more}
            logger.log(level, "rpc.finished", extra=fields)

    def _log_failure(
        self, method: str, started: float, status: WireStatus, cause: BaseException, context: Any
    ) -> None:
        code = status.code.name
        if status.error_id:
            logger.error("rpc.failed", exc_info=cause, extra={"method": method, "error_id": status.error_id})
        peer = {"peer": context.peer()} if code in _DENIED else {}
        self._log(method, started, code, status.reason, **peer)


def _call_was_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _server_is_gone(error: BaseException) -> bool:
    """Tell whether gRPC says so: by a private class, the only one besides the three public ones."""
    public = (grpc.aio.AbortError, grpc.aio.InternalError, grpc.aio.UsageError)
    return isinstance(error, grpc.aio.BaseError) and not isinstance(error, public)
