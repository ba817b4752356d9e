"""HTTP to the providers: one shared session, one exchange per call, and every trouble under one name.

The HTTP library is imported with the first call, off the loop, as no other part of the process needs it.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from turnwire.core.settings import is_loopback
from turnwire.extend.llm import FailureKind
from turnwire.runtime.models.base import OnSent
from turnwire.runtime.models.limits import Watchdog
from turnwire.runtime.models.settings import LimitSettings
from turnwire.runtime.models.supervisor import Supervisor

if TYPE_CHECKING:
    import aiohttp

__all__ = ["Connector", "Exchange", "TransportTrouble"]

READ_BYTES = 256 * 1024
MAX_ERROR_BODY = 64 * 1024
ERROR_BODY_SECONDS = 5.0
DRAIN_SECONDS = 1.0

logger = logging.getLogger(__name__)


class TransportTrouble(Exception):
    """The exchange failed for a reason of the network or of a time limit."""

    def __init__(self, kind: FailureKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


class Exchange:
    """One answer: its status is known, its body is read piece by piece under the limits of the call."""

    __slots__ = ("_closed", "_connector", "_content", "_response", "_watch", "headers", "status")

    def __init__(
        self,
        connector: Connector,
        response: aiohttp.ClientResponse,
        limits: LimitSettings,
        started: float,
        sent: float,
    ) -> None:
        self._connector = connector
        self._response = response
        self._content = response.content
        self._closed = False
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self._watch = Watchdog(limits, started, sent, self._expire)

    async def read(self) -> bytes:
        """Return what has arrived, b"" at the end. Raises TransportTrouble."""
        watch = self._watch
        watch.reading()
        try:
            data = await self._content.readany()
        except TransportTrouble:
            raise
        except self._connector.errors as error:
            raise _trouble(error) from error
        watch.read()
        return data

    async def read_error(self) -> str:
        """Return the start of an error body, as far as it comes within a short time."""
        parts: list[bytes] = []
        try:
            async with asyncio.timeout(ERROR_BODY_SECONDS):
                while sum(map(len, parts)) < MAX_ERROR_BODY and (data := await self.read()):
                    parts.append(data)
        except (TimeoutError, TransportTrouble) as error:
            # The status alone already tells what happened.
            logger.debug("model.error_body_cut", extra={"status": self.status, "error": type(error).__name__})
        return b"".join(parts)[:MAX_ERROR_BODY].decode("utf-8", "replace")

    def close(self) -> None:
        """End the exchange and its connection at once."""
        self._closed = True
        self._watch.stop()
        self._response.close()

    def finish(self) -> None:
        """End an exchange whose answer is complete, keeping the connection for the next one if it can be."""
        if self._closed:
            return
        self._watch.stop()
        if self._content.at_eof():
            self._response.release()
        elif self._connector.supervisor.full:
            self._response.close()
        else:
            self._connector.supervisor.start(self._drain())

    async def _drain(self) -> None:
        """Read the end mark of the body, which often comes a moment after the last event."""
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                while await self._content.readany():
                    pass
        except self._connector.errors as error:
            logger.debug("model.drain_failed", extra={"error": type(error).__name__})
        finally:
            if self._content.at_eof() and self._content.exception() is None:
                self._response.release()
            else:
                self._response.close()

    def _expire(self, what: str) -> None:
        self._closed = True
        self._content.set_exception(TransportTrouble(FailureKind.TIMEOUT, what))
        self._response.close()


class Connector:
    """The shared session, made with the first call.

    Args:
        proxy: address of a proxy for all calls; empty follows the usual variables of the environment.
        tls_ca: PEM file of more authorities to trust.
        tls_verify: False accepts any certificate.
    """

    def __init__(self, *, proxy: str = "", tls_ca: str = "", tls_verify: bool = True) -> None:
        self._proxy = proxy or None
        self._tls_ca = tls_ca
        self._tls_verify = tls_verify
        # Two sessions: what stays on this machine never goes through a proxy of the environment.
        self._sessions: dict[bool, aiohttp.ClientSession] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timeout: Any = None
        self.errors: tuple[type[BaseException], ...] = ()
        self.supervisor = Supervisor()

    async def open(
        self,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
        limits: LimitSettings,
        *,
        on_sent: OnSent | None = None,
    ) -> Exchange:
        """Send a POST and return as soon as the status and headers are there. Raises TransportTrouble."""
        local = is_loopback(urlsplit(url).hostname or "")
        session = await self._ready(local=local)
        departure = _Departure(limits, on_sent)
        try:
            async with departure.deadline:
                response = await session.post(
                    url,
                    data=body,
                    headers=headers,
                    proxy=None if local else self._proxy,
                    timeout=self._timeout,
                    allow_redirects=False,
                    trace_request_ctx=departure.sent,
                )
        except self.errors as error:
            if departure.deadline.expired():
                raise departure.late() from error
            raise _trouble(error) from error
        return Exchange(self, response, limits, departure.started, departure.sent_at or departure.started)

    async def close(self) -> None:
        """Close all connections."""
        await self.supervisor.close()
        sessions, self._sessions = list(self._sessions.values()), {}
        for session in sessions:
            await session.close()

    async def warm_up(self) -> None:
        """Import what the first call needs, so that it does not wait for that."""
        await asyncio.to_thread(importlib.import_module, "aiohttp")

    async def _ready(self, *, local: bool) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._sessions, self._loop = {}, loop
        if local not in self._sessions:
            module = await asyncio.to_thread(importlib.import_module, "aiohttp")
            if local not in self._sessions:
                self._sessions[local] = self._make(module, local=local)
        return self._sessions[local]

    def _make(self, module: Any, *, local: bool) -> aiohttp.ClientSession:
        # A TimeoutError is an OSError; a connection that is closed already raises RuntimeError.
        self.errors = (module.ClientError, OSError, RuntimeError)
        self._timeout = module.ClientTimeout(total=None)
        tracing = module.TraceConfig()
        tracing.on_request_headers_sent.append(_headers_sent)
        connector = module.TCPConnector(limit=0, ttl_dns_cache=300, keepalive_timeout=60, ssl=self._tls())
        session: aiohttp.ClientSession = module.ClientSession(
            connector=connector,
            trust_env=not local,
            read_bufsize=READ_BYTES,
            trace_configs=[tracing],
            cookie_jar=module.DummyCookieJar(),
        )
        return session

    def _tls(self) -> ssl.SSLContext | bool:
        if not self._tls_verify:
            return False
        if not self._tls_ca:
            return True
        context = ssl.create_default_context()
        context.load_verify_locations(cafile=self._tls_ca)
        return context


class _Departure:
    """Notes when a request is really sent, and moves the deadline from connecting to the first chunk."""

    __slots__ = ("_limits", "_loop", "_on_sent", "deadline", "sent_at", "started")

    def __init__(self, limits: LimitSettings, on_sent: OnSent | None) -> None:
        self._limits = limits
        self._on_sent = on_sent
        self._loop = asyncio.get_running_loop()
        self.started = self._loop.time()
        self.sent_at: float | None = None
        self.deadline = asyncio.timeout(limits.connect_seconds)

    def sent(self) -> None:
        """The request leaves now."""
        limits = self._limits
        self.sent_at = self._loop.time()
        first = self.sent_at + min(limits.first_chunk_seconds, limits.whole_call_seconds)
        self.deadline.reschedule(min(first, self.started + limits.request_seconds))
        if self._on_sent is not None:
            self._on_sent()

    def late(self) -> TransportTrouble:
        """What the passed deadline was about."""
        if self.sent_at is None:
            what = f"no connection within {self._limits.connect_seconds:g} s"
            return TransportTrouble(FailureKind.CONNECTION, what)
        what = f"no answer began within {self._limits.first_chunk_seconds:g} s"
        return TransportTrouble(FailureKind.TIMEOUT, what)


async def _headers_sent(_session: Any, context: Any, _params: Any) -> None:
    context.trace_request_ctx()


def _trouble(error: BaseException) -> TransportTrouble:
    if isinstance(error, TimeoutError):
        return TransportTrouble(FailureKind.TIMEOUT, "the connection timed out")
    detail = type(error).__name__
    reason = getattr(error, "os_error", error)
    if isinstance(reason, OSError) and reason.strerror:
        detail = reason.strerror
    return TransportTrouble(FailureKind.CONNECTION, f"the connection failed: {detail}")
