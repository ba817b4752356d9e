"""HTTP to the providers: one shared session, one exchange per call, and every trouble under one name.

The HTTP library is imported with the first call, off the loop, as no other part of the process needs it.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from turnwire.extend.llm import FailureKind
from turnwire.runtime.models.base import OnSent
from turnwire.runtime.models.limits import Watchdog
from turnwire.runtime.models.profiles import DIRECT, TlsSettings
from turnwire.runtime.models.settings import LimitSettings
from turnwire.runtime.models.supervisor import Supervisor
from turnwire.runtime.models.transport import TransportTrouble, transport_trouble

if TYPE_CHECKING:
    import aiohttp

__all__ = [
    "Connector",
    "Exchange",
    "HttpTransport",
    "Route",
    "tls_context",
]

READ_BYTES = 256 * 1024
MAX_ERROR_BODY = 64 * 1024
ERROR_BODY_SECONDS = 5.0
DRAIN_SECONDS = 1.0

logger = logging.getLogger(__name__)


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
            raise transport_trouble(error) from error
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


@dataclass(frozen=True, slots=True)
class Route:
    """How a provider is reached.

    `proxy` is the address of a proxy, `none` for no proxy, or empty to follow the usual variables of the
    environment.
    """

    proxy: str = DIRECT
    tls: TlsSettings = field(default_factory=TlsSettings)


class Connector:
    """Shared sessions, made with the first call."""

    def __init__(self) -> None:
        # Two sessions: one follows the proxies of the environment, one does not.
        self._sessions: dict[bool, aiohttp.ClientSession] = {}
        self._contexts: dict[tuple[str, ...], ssl.SSLContext] = {}
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
        route: Route,
        on_sent: OnSent | None = None,
    ) -> Exchange:
        """Send a POST and return as soon as the status and headers are there. Raises TransportTrouble."""
        session = await self._ready(from_environment=not route.proxy)
        departure = _Departure(limits, on_sent)
        try:
            async with departure.deadline:
                response = await session.post(
                    url,
                    data=body,
                    headers=headers,
                    proxy=None if route.proxy in ("", DIRECT) else route.proxy,
                    ssl=await self._tls(route.tls),
                    timeout=self._timeout,
                    allow_redirects=False,
                    trace_request_ctx=departure.sent,
                )
        except self.errors as error:
            if departure.deadline.expired():
                raise departure.late() from error
            raise transport_trouble(error) from error
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

    async def _ready(self, *, from_environment: bool) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._sessions, self._loop = {}, loop
        if from_environment not in self._sessions:
            module = await asyncio.to_thread(importlib.import_module, "aiohttp")
            if from_environment not in self._sessions:
                self._sessions[from_environment] = self._make(module, from_environment=from_environment)
        return self._sessions[from_environment]

    def _make(self, module: Any, *, from_environment: bool) -> aiohttp.ClientSession:
        # A TimeoutError is an OSError; a connection that is closed already raises RuntimeError.
        self.errors = (module.ClientError, OSError, RuntimeError)
        self._timeout = module.ClientTimeout(total=None)
        tracing = module.TraceConfig()
        tracing.on_request_headers_sent.append(_headers_sent)
        session: aiohttp.ClientSession = module.ClientSession(
            connector=module.TCPConnector(limit=0, ttl_dns_cache=300, keepalive_timeout=60),
            trust_env=from_environment,
            read_bufsize=READ_BYTES,
            trace_configs=[tracing],
            cookie_jar=module.DummyCookieJar(),
        )
        return session

    async def _tls(self, tls: TlsSettings) -> ssl.SSLContext | bool:
        if tls == TlsSettings():
            return True
        key = (tls.ca, tls.cert, tls.key, str(tls.verify))
        if key not in self._contexts:
            self._contexts[key] = await asyncio.to_thread(tls_context, tls)
        return self._contexts[key]


class HttpTransport:
    """Sends to one provider through the shared sessions."""

    def __init__(self, connector: Connector, base_url: str, route: Route) -> None:
        self._connector = connector
        self._base_url = base_url
        self._route = route

    async def open(
        self,
        path: str,
        headers: Mapping[str, str],
        body: bytes,
        limits: LimitSettings,
        *,
        on_sent: OnSent | None = None,
    ) -> Exchange:
        """Send a POST below the base address. Raises TransportTrouble."""
        url = self._base_url + path
        return await self._connector.open(url, headers, body, limits, route=self._route, on_sent=on_sent)


def tls_context(tls: TlsSettings) -> ssl.SSLContext:
    """Build the context that these settings ask for. Raises OSError where a file cannot be read."""
    context = ssl.create_default_context()
    if tls.ca:
        context.load_verify_locations(cafile=tls.ca)
    if tls.cert:
        context.load_cert_chain(tls.cert, tls.key or None)
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
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
