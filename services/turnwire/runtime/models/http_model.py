"""A model behind HTTP: one exchange per attempt, read piece by piece, closed whenever the consumer leaves."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from turnwire.extend.llm import FailureKind, LlmEvent, ModelRequest, StreamFailure
from turnwire.runtime.models.base import BatchedModel, Batches, OnSent, OnWait
from turnwire.runtime.models.capabilities import prepared, refusal_of
from turnwire.runtime.models.dialects import DIALECTS, make_normaliser
from turnwire.runtime.models.failures import failure_of, http_failure
from turnwire.runtime.models.normaliser import Normaliser
from turnwire.runtime.models.settings import LimitSettings, ProviderProfile
from turnwire.runtime.models.transport import OpenAnswer, Transport, TransportTrouble
from turnwire.runtime.ports import RequestRefusal

__all__ = ["HttpModel", "Tap"]

logger = logging.getLogger(__name__)

_CANNOT_STREAM = re.compile(r"\bstream(?:ing|ed)?\b", re.I)


class Tap(Protocol):
    """Sees the raw bytes of each good answer."""

    def begin(self, provider: str, profile: ProviderProfile, model: str) -> None:
        """An answer begins."""

    def data(self, data: bytes) -> None:
        """The next bytes of it."""

    def end(self) -> None:
        """The answer is over, whole or not."""


class HttpModel(BatchedModel):
    """One model of one provider.

    Args:
        provider: prefix of the provider.
        model: the provider's name for the model.
        profile: where the provider is and how it differs.
        transport: what sends the requests.
        limits: time limits.
        tap: gives the observer of one call's bytes, if any.
    """

    def __init__(
        self,
        provider: str,
        model: str,
        profile: ProviderProfile,
        transport: Transport,
        limits: LimitSettings,
        *,
        tap: Callable[[], Tap] | None = None,
    ) -> None:
        super().__init__(f"{provider}:{model}", provider)
        self._model = model
        self._profile = profile
        self._transport = transport
        self._limits = limits
        self._tap = tap
        self._dialect = DIALECTS[profile.format]
        self._key = profile.api_key.get_secret_value() if profile.api_key else ""
        self._headers = {"content-type": "application/json", "accept-encoding": "identity"}
        self._headers |= self._dialect.headers(self._key)
        own = {name.lower(): value.get_secret_value() for name, value in profile.headers.items()}
        self._headers |= own
        options = (value.get_secret_value() for value in profile.client_options.values())
        self._secrets = (self._key, *own.values(), *options)

    async def batches(
        self, request: ModelRequest, *, on_sent: OnSent | None, on_wait: OnWait | None
    ) -> Batches:
        """Ask once; ask once more without streaming where the server refuses to stream with tools."""
        request = replace(request, model=self._model)
        tools = request.tools if request.tool_choice.mode != "none" else ()
        normaliser = make_normaliser(self.provider, self._profile, self._model, tools)
        found = await self._answer(request, self._profile.streaming, on_sent)
        if isinstance(found, StreamFailure) and self._profile.streaming and _wants_plain(request, found):
            logger.info("model.plain_request", extra={"model": self.name})
            if on_wait is not None:
                on_wait("model.plain_request", 0.0, found)
            found = await self._answer(request, False, on_sent)
        if isinstance(found, StreamFailure):
            yield normaliser.fail(found)
            return
        tap = self._tap() if self._tap is not None else None
        if tap is not None:
            tap.begin(self.provider, self._profile, self._model)
        try:
            while not normaliser.ended:
                try:
                    data = await found.read()
                except TransportTrouble as trouble:
                    found.close()
                    yield _broken(normaliser, trouble)
                    return
                if tap is not None:
                    tap.data(data)
                batch = normaliser.feed(data) if data else normaliser.close()
                if batch:
                    yield batch
        finally:
            (found.finish if normaliser.ended else found.close)()
            if tap is not None:
                tap.end()

    async def _answer(
        self, request: ModelRequest, streaming: bool, on_sent: OnSent | None
    ) -> OpenAnswer | StreamFailure:
        """Send the request: a good answer that can be read, or why there is none."""
        try:
            exchange = await self._open(request, streaming, on_sent)
        except ValueError as error:
            return failure_of(FailureKind.INVALID_REQUEST, f"the request cannot be written: {error}")
        except TransportTrouble as trouble:
            return failure_of(trouble.kind, trouble.message, secrets=self._secrets)
        if exchange.status < 300:
            return exchange
        try:
            body = await exchange.read_error()
        finally:
            exchange.close()
        return http_failure(
            exchange.status, body, exchange.headers, provider=self.provider, secrets=self._secrets
        )

    def refusal(self, request: ModelRequest) -> RequestRefusal | None:
        """Return why this request cannot be put to the model."""
        return refusal_of(request, self._profile.format, self._profile.capabilities)

    async def _open(self, request: ModelRequest, streaming: bool, on_sent: OnSent | None) -> OpenAnswer:
        request = prepared(request, self._profile.format, self._profile.capabilities)
        body = self._dialect.encode(request, self._profile, streaming)
        path = self._dialect.path(self._model, streaming)
        limits = self._limits
        if not streaming:
            # The whole answer is the first chunk.
            longest = max(limits.first_chunk_seconds, limits.whole_call_seconds)
            limits = limits.model_copy(update={"between_chunks_seconds": longest})
        return await self._transport.open(path, self._headers, body, limits, on_sent=on_sent)


def _broken(normaliser: Normaliser, trouble: TransportTrouble) -> list[LlmEvent]:
    if normaliser.reasoned and trouble.kind is FailureKind.CONNECTION:
        # The answer was whole; only its end mark got lost.
        return normaliser.close()
    return normaliser.fail(failure_of(trouble.kind, trouble.message))


def _wants_plain(request: ModelRequest, failure: StreamFailure) -> bool:
    """Whether the server refused because it cannot stream with tools."""
    refused = failure.status_code in (400, 405, 415, 422, 501)
    return bool(request.tools) and refused and bool(_CANNOT_STREAM.search(failure.message))
