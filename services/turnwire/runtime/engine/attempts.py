"""What the attempts of one model call used: voided ones and ones that broke off are paid for as well."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from turnwire.extend.llm import (
    Finish,
    ModelRequest,
    StreamFailure,
    TokenUsage,
    ToolCallComplete,
    UsageProvenance,
)
from turnwire.runtime.engine.estimates import estimated_usage

__all__ = ["AttemptCounter", "SpentAttempt"]

# A provider that refuses a request with a status has made nothing that it could charge for.
_REFUSED_FROM = 400
_NOTHING = TokenUsage(provenance=UsageProvenance.REPORTED)


class _Said(Protocol):
    """What an attempt has given so far."""

    text: list[str]
    reasoning: list[str]
    calls: list[ToolCallComplete]
    usage: TokenUsage | None
    end: Finish | StreamFailure | None

    @property
    def started(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class SpentAttempt:
    """What an attempt at a model used; None when nobody knows."""

    model: str
    usage: TokenUsage | None


class AttemptCounter:
    """Counts the attempts of one call. `sent` is whether the `request` of the current one has left.

    Args:
        model: who is asked first, `provider:model`.
        bytes_per_token: how unreported usage is estimated, 0 = it stays unknown.
    """

    __slots__ = ("_bytes_per_token", "_closed", "model", "request", "sent")

    def __init__(self, model: str, request: ModelRequest, bytes_per_token: float) -> None:
        self.request = request
        self._bytes_per_token = bytes_per_token
        self._closed: list[SpentAttempt] = []
        self.model = model
        self.sent = False

    def close(
        self, answer: _Said, failure: StreamFailure, reported: TokenUsage | None, next_model: str
    ) -> None:
        """Count an attempt that failed; the next one asks `next_model`, or the same one when it is empty.

        Args:
            reported: what the provider had reported and nobody has seen.
        """
        self._closed += self._spent(answer, failure, reported)
        self.model = next_model or self.model
        self.sent = False

    def all(self, answer: _Said) -> list[SpentAttempt]:
        """Return every attempt so far; the current one only if its request was sent."""
        return [*self._closed, *self._spent(answer, answer.end, None)]

    def _spent(
        self, answer: _Said, end: Finish | StreamFailure | None, reported: TokenUsage | None
    ) -> Sequence[SpentAttempt]:
        usage = reported or answer.usage
        if not self.sent and usage is None and not answer.started:
            return ()
        if usage is None or not isinstance(end, Finish):
            usage = self._guessed(answer, end, usage)
        return (SpentAttempt(self.model, usage),)

    def _guessed(
        self, answer: _Said, end: Finish | StreamFailure | None, reported: TokenUsage | None
    ) -> TokenUsage | None:
        """Return what an attempt used that has no final report."""
        refused = isinstance(end, StreamFailure) and end.status_code >= _REFUSED_FROM
        if refused and reported is None and not answer.started:
            return _NOTHING
        if not self._bytes_per_token:
            return None
        said = [*answer.text, *answer.reasoning, *(c.arguments_json for c in answer.calls)]
        return estimated_usage(reported, self.request, said, self._bytes_per_token)
