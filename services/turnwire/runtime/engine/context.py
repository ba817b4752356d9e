"""What the turns of one runtime share."""

from __future__ import annotations

from dataclasses import dataclass

from turnwire.runtime.domain.compaction import DEFAULT_RULES, CompactionRules
from turnwire.runtime.domain.prices import NO_PRICES, PriceTable
from turnwire.runtime.engine.approvals import EXPIRY_SECONDS
from turnwire.runtime.engine.estimates import BYTES_PER_TOKEN
from turnwire.runtime.engine.token_count import TokenizerOf, no_tokenizer
from turnwire.runtime.ports import ModelSource, Store, ToolExecutor

__all__ = ["TurnContext"]


@dataclass(frozen=True, slots=True)
class TurnContext:
    """The ports that a turn works through, and the settings of the deployment."""

    store: Store
    models: ModelSource
    executor: ToolExecutor
    first_feedback: float = 8.0
    # Seconds after which a question that nobody answers is answered with no.
    approval_timeout: float = EXPIRY_SECONDS
    prices: PriceTable = NO_PRICES
    # How usage is estimated that nobody reported; 0 leaves it unknown.
    bytes_per_token: float = BYTES_PER_TOKEN
    compaction: CompactionRules = DEFAULT_RULES
    tokenizer_of: TokenizerOf = no_tokenizer
