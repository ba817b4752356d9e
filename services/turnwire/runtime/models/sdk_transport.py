"""The SDKs of OpenAI and Anthropic as senders of our requests, for the credentials that only they know.

The SDK addresses, signs and sends; the bytes of the answer go to our own reader. Repeats are ours alone. An
SDK is imported with the first call, off the loop.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from turnwire.extend.llm import FailureKind
from turnwire.runtime.models.base import OnSent
from turnwire.runtime.models.connector import Route, tls_context
from turnwire.runtime.models.profiles import DIRECT, ProviderProfile, TlsSettings
from turnwire.runtime.models.settings import LimitSettings
from turnwire.runtime.models.supervisor import Supervisor
from turnwire.runtime.models.transport import TransportTrouble, transport_trouble

__all__ = ["EVENT_STREAM_CLIENTS", "SdkTransport", "sdk_installed"]

logger = logging.getLogger(__name__)

# Their answers are framed as AWS event streams, which no reader of ours knows.
EVENT_STREAM_CLIENTS = frozenset({"AsyncAnthropicBedrock"})
MAX_ERROR_BODY = 64 * 1024
_PLAIN = {"openai": "AsyncOpenAI", "anthropic": "AsyncAnthropic"}
_TOKEN_ARGUMENT = ("Azure", "Foundry")


def sdk_installed(name: str) -> bool:
    """Whether the extra of that name is there; nothing is imported."""
    return importlib.util.find_spec(name) is not None


class SdkTransport:
    """Sends to one provider through a client of its SDK.

    Args:
        profile: which SDK, which client, and its arguments.
        route: proxy and TLS.
        supervisor: owns what closes connections after a call.
    """

    def __init__(self, profile: ProviderProfile, route: Route, supervisor: Supervisor) -> None:
        self._profile = profile
        self._route = route
        self._supervisor = supervisor
        self._client: Any = None
        self._sdk: Any = None

    async def open(
        self,
        path: str,
        headers: Mapping[str, str],
        body: bytes,
        limits: LimitSettings,
        *,
        on_sent: OnSent | None = None,
    ) -> _SdkAnswer:
        """Send a POST; the SDK makes the headers. Raises TransportTrouble."""
        await self._ready(limits)
        started = asyncio.get_running_loop().time()
        if on_sent is not None:
            on_sent()
        try:
            async with asyncio.timeout(min(limits.first_chunk_seconds, limits.whole_call_seconds)):
                stream = await self._client.post(
                    path,
                    body=json.loads(body),
                    cast_to=object,
                    stream=True,
                    stream_cls=self._sdk.AsyncStream[object],
                )
        except self._sdk.APIStatusError as error:
            return _SdkAnswer(error.response, limits, started, self._supervisor)
        except Exception as error:
            raise self._trouble(error, limits) from error
        return _SdkAnswer(stream.response, limits, started, self._supervisor)

    async def _ready(self, limits: LimitSettings) -> None:
        if self._client is not None:
            return
        try:
            self._client = await asyncio.to_thread(self._make, limits)
        except Exception as error:
            # Missing packages, options that the client does not know, credentials that are not there.
            logger.warning("model.sdk_unusable", extra={"error": type(error).__name__})
            text = f"the client of the SDK cannot be made: {type(error).__name__}: {error}"
            raise TransportTrouble(FailureKind.AUTH, text) from error

    def _trouble(self, error: Exception, limits: LimitSettings) -> TransportTrouble:
        if isinstance(error, TimeoutError):
            what = f"no answer began within {limits.first_chunk_seconds:g} s"
            return TransportTrouble(FailureKind.TIMEOUT, what)
        if isinstance(error, self._sdk.APITimeoutError):
            if type(error.__cause__).__name__ == "ConnectTimeout":
                # Also what the SDK calls a connection that was refused.
                return TransportTrouble(FailureKind.CONNECTION, "the connection failed")
            return TransportTrouble(FailureKind.TIMEOUT, "the connection timed out")
        if isinstance(error, self._sdk.APIConnectionError):
            return transport_trouble(error.__cause__ or error)
        # Credentials are fetched with the call, by libraries with errors of their own.
        text = f"the request was not sent: {type(error).__name__}: {error}"
        return TransportTrouble(FailureKind.AUTH, text)

    def _make(self, limits: LimitSettings) -> Any:
        """Import the SDK and make the client."""
        profile, tls, proxy = self._profile, self._route.tls, self._route.proxy
        self._sdk = importlib.import_module(profile.transport)
        name = profile.client or _PLAIN[profile.transport]
        options: dict[str, Any] = {k: v.get_secret_value() for k, v in profile.client_options.items()}
        if profile.api_key is not None:
            options["api_key"] = profile.api_key.get_secret_value()
        if profile.base_url:
            options["base_url"] = profile.base_url
        if profile.token_provider:
            azure = any(word in name for word in _TOKEN_ARGUMENT)
            options["azure_ad_token_provider" if azure else "api_key"] = _function(profile.token_provider)
        network: dict[str, Any] = {"follow_redirects": False, "trust_env": not proxy}
        if proxy not in ("", DIRECT):
            network["proxy"] = proxy
        if tls != TlsSettings():
            network["verify"] = tls_context(tls)
        return getattr(self._sdk, name)(
            **options,
            max_retries=0,
            timeout=limits.request_seconds,
            default_headers={n: value.get_secret_value() for n, value in profile.headers.items()},
            http_client=self._sdk.DefaultAioHttpClient(**network),
        )

    async def close(self) -> None:
        """Close the client's connections."""
        if self._client is not None:
            await self._client.close()
            self._client = None


def _function(reference: str) -> Callable[[], Any]:
    module, _, name = reference.partition(":")
    found: Callable[[], Any] = getattr(importlib.import_module(module), name)
    return found


class _SdkAnswer:
    """The raw answer of the SDK's HTTP library."""

    def __init__(self, response: Any, limits: LimitSettings, started: float, supervisor: Supervisor) -> None:
        self._response = response
        self._limits = limits
        self._supervisor = supervisor
        self._end = started + limits.whole_call_seconds
        self._wait = limits.first_chunk_seconds
        self._pieces: AsyncIterator[bytes] | None = None
        self.status: int = response.status_code
        self.headers: Mapping[str, str] = response.headers

    async def read(self) -> bytes:
        """Return what has arrived, b"" at the end. Raises TransportTrouble."""
        if self._pieces is None:
            self._pieces = aiter(self._response.aiter_bytes())
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout_at(min(self._end, loop.time() + self._wait)):
                while (data := await anext(self._pieces, None)) == b"":
                    pass
        except TimeoutError as error:
            raise TransportTrouble(FailureKind.TIMEOUT, "the answer passed a time limit") from error
        except Exception as error:
            raise transport_trouble(error) from error
        self._wait = self._limits.between_chunks_seconds
        return data or b""

    async def read_error(self) -> str:
        """Return the body, which the SDK has read already."""
        text: str = self._response.text
        return text[:MAX_ERROR_BODY]

    def close(self) -> None:
        """End the exchange and its connection at once."""
        self._supervisor.start(self._close())

    finish = close

    async def _close(self) -> None:
        try:
            await self._response.aclose()
        except Exception as error:
            # Whoever reads has gone; what is left is the library's to tell.
            logger.debug("model.sdk_close_failed", extra={"error": type(error).__name__})
