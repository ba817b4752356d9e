"""Sums of usage: the last report wins within an attempt, sums run over attempts; unknown is never zero."""

from __future__ import annotations

from turnwire.extend.events import UsageSummary
from turnwire.extend.llm import TokenUsage, UsageProvenance

__all__ = ["UsageMeter", "add_tokens"]

_RANK = {UsageProvenance.REPORTED: 0, UsageProvenance.ESTIMATED: 1, UsageProvenance.UNKNOWN: 2}


def add_tokens(a: TokenUsage, b: TokenUsage) -> TokenUsage:
    """Return the sum; it is as uncertain as its more uncertain part."""
    return TokenUsage(
        a.input_tokens + b.input_tokens,
        a.cache_read_tokens + b.cache_read_tokens,
        a.cache_creation_tokens + b.cache_creation_tokens,
        a.output_tokens + b.output_tokens,
        a.reasoning_tokens + b.reasoning_tokens,
        max(a.provenance, b.provenance, key=_RANK.__getitem__),
    )


class UsageMeter:
    """Counts what one turn costs, on from what it has cost so far."""

    def __init__(self, spent: UsageSummary = UsageSummary()) -> None:  # noqa: B008 - frozen
        self._tokens: TokenUsage | None = spent.tokens if spent.model_calls else None
        self._model_calls = spent.model_calls
        self.tool_calls = spent.tool_calls

    def add_model_call(self, usage: TokenUsage | None) -> None:
        """Count one attempt at a model call; None when the provider reported nothing."""
        spent = usage or TokenUsage(provenance=UsageProvenance.UNKNOWN)
        self._tokens = spent if self._tokens is None else add_tokens(self._tokens, spent)
        self._model_calls += 1

    @property
    def total_tokens(self) -> int:
        """Tokens in and out, as far as they are known."""
        t = self._tokens or TokenUsage()
        return t.input_tokens + t.cache_read_tokens + t.cache_creation_tokens + t.output_tokens

    def summary(self) -> UsageSummary:
        """Return the sums so far."""
        return UsageSummary(self._tokens or TokenUsage(), self._model_calls, self.tool_calls)
