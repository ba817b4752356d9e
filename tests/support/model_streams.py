"""Bodies of model answers and what each must give: our own, and recorded ones where there are any."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnwire.extend.llm import (
    Finish,
    LlmEvent,
    ReasoningDelta,
    StreamFailure,
    TextDelta,
    ToolCallComplete,
    ToolCallFragment,
    UsageSnapshot,
)
from turnwire.runtime.models.dialects import make_normaliser
from turnwire.runtime.models.normaliser import Normaliser
from turnwire.runtime.models.settings import ProviderProfile, WireFormat

__all__ = ["OWN", "RECORDED", "Said", "Stream", "own_streams", "read", "recorded_streams", "said", "sha256"]

ROOT = Path(__file__).resolve().parents[2]
OWN = ROOT / "tests" / "streams"
RECORDED = Path(os.environ.get("TURNWIRE_TEST_STREAMS") or ROOT.parent / "shared" / "llm-streams")

FORMATS: dict[str, WireFormat] = {
    "openai.chat.completions": "openai-chat",
    "openai.responses": "openai-responses",
    "anthropic.messages": "anthropic",
    "gemini.streamGenerateContent": "gemini",
}


@dataclass(frozen=True)
class Stream:
    """One body."""

    name: str
    format: WireFormat
    body: bytes
    expected: dict[str, Any]

    def normaliser(self) -> Normaliser:
        """A fresh normaliser, set up as for a provider of this format."""
        return make_normaliser("test", ProviderProfile(format=self.format))


def own_streams() -> list[Stream]:
    """The streams of this repository."""
    return list(_streams(OWN))


def recorded_streams() -> list[Stream]:
    """The recorded streams, none where their folder is absent."""
    return list(_streams(RECORDED)) if (RECORDED / "index.json").is_file() else []


def _streams(folder: Path) -> Iterator[Stream]:
    for entry in json.loads((folder / "index.json").read_text(encoding="utf-8"))["streams"]:
        if entry["api"] in FORMATS:
            body = (folder / entry["file"]).read_bytes()
            if entry.get("format") == "jsonl":
                body = b"".join(b"data: %b\n\n" % line for line in body.splitlines() if line.strip())
            yield Stream(entry["file"], FORMATS[entry["api"]], body, entry["expected"])


def read(normaliser: Normaliser, pieces: Iterable[bytes]) -> list[LlmEvent]:
    """Feed the pieces and close."""
    found = [event for piece in pieces for event in normaliser.feed(piece)]
    return found + normaliser.close()


def sha256(text: str) -> str:
    """Hash of the text, as the indexes give it."""
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Said:
    """What a stream said in sum, however it was cut."""

    text: str
    reasoning: str
    calls: tuple[ToolCallComplete, ...]
    usage: UsageSnapshot | None
    end: Finish | StreamFailure


def said(events: list[LlmEvent]) -> Said:
    """Sum up, and check what holds for every stream: one terminal event, last; calls right before it."""
    ends = [event for event in events if isinstance(event, Finish | StreamFailure)]
    assert len(ends) == 1
    assert events[-1] is ends[0]
    calls = tuple(event for event in events if isinstance(event, ToolCallComplete))
    assert calls == tuple(events[len(events) - 1 - len(calls) : -1])
    assert not (calls and isinstance(ends[0], StreamFailure))
    assert all(event.argument_bytes >= 0 for event in events if isinstance(event, ToolCallFragment))
    for event in events:
        if isinstance(event, TextDelta | ReasoningDelta):
            assert event.text
            assert len(event.text.encode()) <= 32 * 1024
    usages = [event for event in events if isinstance(event, UsageSnapshot)]
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    if isinstance(ends[0], StreamFailure):
        assert text.startswith(ends[0].partial_content)
        assert len(ends[0].message) <= 500
    return Said(
        text,
        "".join(event.text for event in events if isinstance(event, ReasoningDelta)),
        calls,
        usages[-1] if usages else None,
        ends[0],
    )
