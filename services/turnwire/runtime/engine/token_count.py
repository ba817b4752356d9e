"""How many tokens messages have: counted by a tokenizer where there is one, else estimated from their bytes.

An estimate is corrected by what the provider reported of the call before: no tokenizer knows how a provider
frames messages, tools and images.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from turnwire.extend.llm import ModelMessage, TokenUsage, ToolDefinition, UsageProvenance
from turnwire.runtime.engine.estimates import (
    BYTES_PER_TOKEN,
    MEDIA_TOKENS,
    MESSAGE_TOKENS,
    message_pieces,
    text_tokens,
)

__all__ = ["TokenCounter", "Tokenizer", "TokenizerOf", "no_tokenizer"]

# No text is so far from the estimate; a report beyond it is no report.
LEAST_FACTOR, MOST_FACTOR = 0.5, 4.0


class Tokenizer(Protocol):
    """Counts exactly."""

    def count(self, text: str) -> int:
        """Return how many tokens a text has."""
        ...


# Gives what counts for `provider:model`, None when its tokens are estimated.
TokenizerOf = Callable[[str], Tokenizer | None]


def no_tokenizer(model: str) -> Tokenizer | None:
    """Have the tokens of every model estimated."""
    return None


class TokenCounter:
    """Counts tokens for one model. What it returns is not calibrated until `calibrated` says so.

    Args:
        bytes_per_token: of the estimate; 0 means that usage is not estimated, sizes still are.
        tokenizer: counts instead, None = none.
    """

    __slots__ = ("_bytes_per_token", "_factor", "_tokenizer")

    def __init__(self, bytes_per_token: float = BYTES_PER_TOKEN, tokenizer: Tokenizer | None = None) -> None:
        self._bytes_per_token = bytes_per_token or BYTES_PER_TOKEN
        self._tokenizer = tokenizer
        self._factor = 1.0

    def message(self, message: ModelMessage) -> int:
        """Return the tokens of one message."""
        return self.pieces(*message_pieces(message))

    def pieces(self, texts: Iterable[str], files: int) -> int:
        """Return the tokens of a message of these texts and so many files."""
        return self.texts(texts) + files * MEDIA_TOKENS + MESSAGE_TOKENS

    def tools(self, tools: Iterable[ToolDefinition]) -> int:
        """Return the tokens of tool definitions."""
        return self.texts(t for tool in tools for t in (tool.name, tool.description, tool.input_schema_json))

    def texts(self, texts: Iterable[str]) -> int:
        """Return the tokens of texts."""
        if self._tokenizer is not None:
            return sum(map(self._tokenizer.count, texts))
        return text_tokens(texts, self._bytes_per_token)

    def calibrate(self, counted: int, usage: TokenUsage | None) -> None:
        """Take in what a provider reported of a request that was counted as `counted` tokens."""
        if usage is None or usage.provenance is not UsageProvenance.REPORTED or counted <= 0:
            return
        prompt = usage.input_tokens + usage.cache_read_tokens + usage.cache_creation_tokens
        if prompt > 0:
            self._factor = min(max(prompt / counted, LEAST_FACTOR), MOST_FACTOR)

    def calibrated(self, counted: int) -> int:
        """Return how many tokens a provider is expected to count."""
        return round(counted * self._factor)
