"""What tokens cost. Prices are dollars per million tokens: tokens times price is millionths of a dollar."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_HALF_UP, Decimal
from functools import cached_property
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from turnwire.extend.llm import TokenUsage, UsageProvenance

__all__ = ["NO_PRICES", "Price", "PriceTable"]

Dollars = Annotated[Decimal, Field(ge=0, le=1_000_000, allow_inf_nan=False)]


class Price(BaseModel):
    """Prices of one model in US dollars per million tokens.

    What is read from or written to the provider's cache costs what other input does, unless it is said.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: Dollars
    output: Dollars
    cache_read: Dollars | None = None
    cache_creation: Dollars | None = None

    def cost_micro_usd(self, usage: TokenUsage) -> int:
        """Return what the tokens cost in millionths of a US dollar, to the nearest one."""
        read = self.input if self.cache_read is None else self.cache_read
        written = self.input if self.cache_creation is None else self.cache_creation
        cost = (
            usage.input_tokens * self.input
            + usage.cache_read_tokens * read
            + usage.cache_creation_tokens * written
            + usage.output_tokens * self.output
        )
        return int(cost.quantize(Decimal(1), ROUND_HALF_UP))


class PriceTable(BaseModel):
    """Prices by `provider:model`; a name that ends in `*` stands for all that begin so, the longest wins."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    models: Mapping[str, Price] = Field(default_factory=dict)

    @cached_property
    def _patterns(self) -> list[tuple[str, Price]]:
        found = [(name[:-1], price) for name, price in self.models.items() if name.endswith("*")]
        return sorted(found, key=lambda pair: len(pair[0]), reverse=True)

    def price_of(self, model: str) -> Price | None:
        """Return the price of a model by its full name, None when the table has none."""
        if (exact := self.models.get(model)) is not None:
            return exact
        return next((price for start, price in self._patterns if model.startswith(start)), None)

    def cost_micro_usd(self, model: str, usage: TokenUsage) -> int | None:
        """Return what a call cost in millionths of a US dollar, None when nobody knows."""
        price = self.price_of(model)
        if price is not None and usage.provenance is not UsageProvenance.UNKNOWN:
            return price.cost_micro_usd(usage)
        # What used nothing costs nothing at any price.
        known = usage.provenance is not UsageProvenance.UNKNOWN
        return 0 if known and usage == TokenUsage(provenance=usage.provenance) else None

    def with_prices(self, others: Mapping[str, Price]) -> PriceTable:
        """Return this table with other prices in front of its own."""
        return PriceTable(models={**self.models, **others}) if others else self


NO_PRICES = PriceTable()
