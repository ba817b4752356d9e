"""Sums of usage: the last report wins within an attempt, sums run over attempts; unknown is never zero."""

from __future__ import annotations

from collections.abc import Callable

from turnwire.extend.events import UsageSummary
from turnwire.extend.llm import TokenUsage, UsageProvenance

__all__ = ["CostOf", "UsageMeter", "add_tokens"]

_RANK = {UsageProvenance.REPORTED: 0, UsageProvenance.ESTIMATED: 1, UsageProvenance.UNKNOWN: 2}

# What a call of a model cost in millionths of a US dollar, None when nobody knows.
CostOf = Callable[[str, TokenUsage], int | None]


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


def _no_price(model: str, usage: TokenUsage) -> int | None:
    return None


class UsageMeter:
    """Counts what one turn costs, on from what it has cost so far.

    The cost is told while that of every call is known: a sum without some parts would read as the whole.
    """

    def __init__(
        self,
        spent: UsageSummary = UsageSummary(),  # noqa: B008 - frozen
        cost_of: CostOf = _no_price,
    ) -> None:
        self._tokens: TokenUsage | None = spent.tokens if spent.model_calls else None
        self._model_calls = spent.model_calls
        self._cost = spent.cost_micro_usd if spent.model_calls else 0
        self._cost_of = cost_of
        self.tool_calls = spent.tool_calls

    def add_model_call(self, usage: TokenUsage | None, model: str = "") -> None:
        """Count one attempt at a model call; None when nobody knows what it used."""
        spent = usage or TokenUsage(provenance=UsageProvenance.UNKNOWN)
        self._tokens = spent if self._tokens is None else add_tokens(self._tokens, spent)
        self._model_calls += 1
        cost = self._cost_of(model, spent)
        self._cost = None if cost is None or self._cost is None else self._cost + cost

    @property
    def total_tokens(self) -> int:
        """Tokens in and out, as far as they are known."""
        t = self._tokens or TokenUsage()
        return t.input_tokens + t.cache_read_tokens + t.cache_creation_tokens + t.output_tokens

    @property
    def cost_micro_usd(self) -> int | None:
        """Cost so far in millionths of a US dollar, None when that of some call is not known."""
        return self._cost if self._model_calls else None

    def summary(self) -> UsageSummary:
        """Return the sums so far."""
        tokens = self._tokens or TokenUsage()
        return UsageSummary(tokens, self._model_calls, self.tool_calls, self.cost_micro_usd)
