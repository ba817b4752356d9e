"""Exact token counts by tiktoken, whose data comes from a file: nothing is ever downloaded.

The library is an extra and is loaded on first use. Without it, or without its file, tokens are estimated.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from turnwire.runtime.engine.token_count import Tokenizer

__all__ = ["Tokenizers"]

logger = logging.getLogger(__name__)

# How each encoding cuts a text before it merges bytes, by the name of its file.
_PATTERNS = {
    "cl100k_base": (
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$"
        r"|\s*[\r\n]|\s+(?!\S)|\s"
    ),
    "o200k_base": (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
}
# A text is encoded in pieces, as the time for a long one without a space grows with its square.
_PIECE = 20_000


class Tokenizers:
    """Gives the tokenizer of a model, when there is one.

    Args:
        file: `cl100k_base.tiktoken` or `o200k_base.tiktoken`, None = every count is an estimate.
        models: names of the models that it is of, or prefixes that end in `*`.
    """

    def __init__(self, file: Path | None, models: Sequence[str]) -> None:
        self._file = file
        self._models = tuple(models)
        self._loaded: Tokenizer | None = None
        self._tried = False

    def of(self, model: str) -> Tokenizer | None:
        """Return what counts for `provider:model`, None when its tokens are estimated."""
        fits = (model == m or (m.endswith("*") and model.startswith(m[:-1])) for m in self._models)
        if self._file is None or not any(fits):
            return None
        if not self._tried:
            self._tried = True
            self._loaded = _load(self._file)
        return self._loaded


class _FileTokenizer:
    def __init__(self, encoding: Any) -> None:
        self._encoding = encoding

    def count(self, text: str) -> int:
        """Return how many tokens a text has."""
        pieces = (text[i : i + _PIECE] for i in range(0, len(text), _PIECE))
        return sum(len(self._encoding.encode_ordinary(piece)) for piece in pieces)


def _load(file: Path) -> Tokenizer | None:
    pattern = _PATTERNS.get(file.stem)
    if pattern is None:
        names = ", ".join(f"{name}.tiktoken" for name in _PATTERNS)
        logger.warning("tokenizer.unknown", extra={"file": str(file), "known": names})
        return None
    try:
        import tiktoken

        ranks = {
            base64.b64decode(token): int(rank)
            for token, rank in (line.split() for line in file.read_bytes().splitlines() if line)
        }
        return _FileTokenizer(
            tiktoken.Encoding(file.stem, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
        )
    except ImportError:
        logger.warning("tokenizer.not_installed", extra={"extra": "turnwire[tokenizers]"})
    except (OSError, ValueError) as error:
        logger.warning("tokenizer.unreadable", extra={"file": str(file), "error": str(error)})
    return None
