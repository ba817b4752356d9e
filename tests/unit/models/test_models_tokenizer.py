"""Tokens are counted exactly where a tokenizer's file is, and nothing is ever downloaded for it."""

from __future__ import annotations

import base64
import logging
import sys
from pathlib import Path

import pytest

from turnwire.extend.llm import TextPart, TokenUsage, UsageProvenance, UserMessage
from turnwire.runtime.engine.token_count import TokenCounter
from turnwire.runtime.models.tokenizer import Tokenizers


@pytest.fixture(params=["cl100k_base", "o200k_base"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A small vocabulary: each byte, and the pairs `th` and `he`."""
    tokens = [bytes([i]) for i in range(256)] + [b"th", b"he"]
    lines = [b"%b %d" % (base64.b64encode(token), rank) for rank, token in enumerate(tokens)]
    path = tmp_path / f"{request.param}.tiktoken"
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


def user(text: str) -> UserMessage:
    return UserMessage((TextPart(text),))


def test_a_file_of_tokens_counts_exactly(file: Path) -> None:
    tokenizer = Tokenizers(file, ["openai:*"]).of("openai:gpt")
    assert tokenizer is not None
    assert tokenizer.count("the the") == 5
    assert tokenizer.count("é") == 2
    assert tokenizer.count("") == 0
    counter = TokenCounter(4.0, tokenizer)
    assert counter.message(user("the the")) - counter.message(user("")) == 5


def test_it_counts_for_its_models_alone(file: Path) -> None:
    found = Tokenizers(file, ["openai:*", "azure:gpt"])
    assert found.of("anthropic:x") is None
    assert found.of("azure:gpt-4") is None
    assert found.of("azure:gpt") is found.of("openai:x") is not None


def test_a_long_text_without_a_space_is_counted_whole(file: Path) -> None:
    tokenizer = Tokenizers(file, ["openai:*"]).of("openai:gpt")
    assert tokenizer is not None
    assert tokenizer.count("z" * 300_000) == 300_000


@pytest.mark.parametrize(
    ("name", "content", "warning"),
    [
        ("cl100k_base.tiktoken", None, "tokenizer.unreadable"),
        ("cl100k_base.tiktoken", b"no tokens at all here", "tokenizer.unreadable"),
        ("other.tiktoken", b"", "tokenizer.unknown"),
    ],
)
def test_without_its_data_tokens_are_estimated_and_that_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, content: bytes | None, warning: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    found = Tokenizers(path, ["*"])
    with caplog.at_level(logging.WARNING):
        assert found.of("openai:x") is None
        assert found.of("openai:y") is None
    assert [r.getMessage() for r in caplog.records] == [warning]


def test_without_the_library_tokens_are_estimated(
    file: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    assert Tokenizers(file, ["*"]).of("openai:x") is None
    assert [r.getMessage() for r in caplog.records] == ["tokenizer.not_installed"]


def test_nothing_is_loaded_before_it_is_needed(file: Path) -> None:
    found = Tokenizers(file, ["openai:*"])
    file.unlink()
    assert found.of("anthropic:x") is None
    assert found._tried is False


def test_what_a_provider_reports_corrects_the_count() -> None:
    counter = TokenCounter()
    assert counter.calibrated(1000) == 1000
    counter.calibrate(1000, TokenUsage(1000, 300, 200, 7, provenance=UsageProvenance.REPORTED))
    assert counter.calibrated(1000) == 1500
    counter.calibrate(1000, TokenUsage(1, provenance=UsageProvenance.ESTIMATED))
    counter.calibrate(1000, None)
    counter.calibrate(0, TokenUsage(10, provenance=UsageProvenance.REPORTED))
    counter.calibrate(1000, TokenUsage(provenance=UsageProvenance.REPORTED))
    assert counter.calibrated(1000) == 1500
    counter.calibrate(1000, TokenUsage(1, provenance=UsageProvenance.REPORTED))
    assert counter.calibrated(1000) == 500
    counter.calibrate(1000, TokenUsage(10**9, provenance=UsageProvenance.REPORTED))
    assert counter.calibrated(1000) == 4000
