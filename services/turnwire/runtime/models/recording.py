"""`record:FILE:MODEL` keeps the raw bytes of every answer of a model; `replay:FILE` plays them, in order.

A recording is the bodies as they came, each after a comment line that server-sent events ignore:
`: turnwire-recording {"format": ..., "provider": ..., "model": ...}`. A file without such lines is one body.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnwire.extend.llm import (
    AssistantMessage,
    FailureKind,
    LlmEvent,
    ModelRequest,
)
from turnwire.runtime.models.base import BatchedModel, Batches, OnSent, OnWait
from turnwire.runtime.models.dialects import DIALECTS, make_normaliser
from turnwire.runtime.models.failures import failure_of
from turnwire.runtime.models.script_events import event_of, json_of
from turnwire.runtime.models.settings import ProviderProfile
from turnwire.runtime.ports import RequestRefusal

__all__ = ["FileTap", "RecordedModel", "Recording", "ReplayModel", "read_recordings"]

logger = logging.getLogger(__name__)

MARK = b": turnwire-recording "
_SEPARATOR = b"\n\n" + MARK
EVENTS = "events"
PIECE_BYTES = 512


@dataclass(frozen=True, slots=True)
class Recording:
    """One answer: its wire format, who gave it, and its bytes."""

    format: str
    provider: str
    model: str
    body: bytes


class FileTap:
    """Appends one answer to a file when it is over, with one write, so that answers never interleave."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._parts: list[bytes] = []

    def begin(self, provider: str, profile: ProviderProfile, model: str) -> None:
        """An answer begins."""
        self.begin_format(provider, profile.format, model)

    def begin_format(self, provider: str, form: str, model: str) -> None:
        """An answer in a format of our own begins."""
        head = json.dumps({"format": form, "provider": provider, "model": model}).encode()
        self._parts = [_SEPARATOR, head, b"\n\n"]

    def data(self, data: bytes) -> None:
        """The next bytes of it."""
        self._parts.append(data)

    def end(self) -> None:
        """The answer is over: write it. A disk that fails costs the recording, not the turn."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab") as file:
                file.write(b"".join(self._parts))
        except OSError as error:
            logger.error("model.recording_failed", extra={"error": error.strerror})
        self._parts = []


class RecordedModel(BatchedModel):
    """Keeps the events of a model that has no bytes, such as a scripted one."""

    def __init__(self, inner: BatchedModel, tap: Callable[[], FileTap]) -> None:
        super().__init__(inner.name, inner.provider)
        self._inner = inner
        self._tap = tap

    def refusal(self, request: ModelRequest) -> RequestRefusal | None:
        """Return why this request cannot be put to the model."""
        return self._inner.refusal(request)

    async def batches(
        self, request: ModelRequest, *, on_sent: OnSent | None, on_wait: OnWait | None
    ) -> Batches:
        """Yield what the model gives, and keep it."""
        tap = self._tap()
        tap.begin_format(self.provider, EVENTS, self.name)
        try:
            async with aclosing(self._inner.batches(request, on_sent=on_sent, on_wait=on_wait)) as batches:
                async for batch in batches:
                    for event in batch:
                        if (item := json_of(event)) is not None:
                            tap.data(b"data: " + json.dumps(item).encode() + b"\n\n")
                    yield batch
        finally:
            tap.end()


def read_recordings(data: bytes) -> list[Recording]:
    """Cut a file into its answers.

    Raises:
        ValueError: a mark is not followed by JSON.
    """
    found: list[Recording] = []
    pieces = (b"\n\n" + data).split(_SEPARATOR) if data.startswith(MARK) else data.split(_SEPARATOR)
    head, *marked = pieces
    if head.strip():
        found.append(Recording(_guess(head), "replay", "", head))
    for piece in marked:
        line, _, body = piece.partition(b"\n\n")
        about: dict[str, Any] = json.loads(line)
        form, provider = str(about.get("format")), str(about.get("provider", "replay"))
        found.append(Recording(form, provider, str(about.get("model", "")), body))
    return found


def _guess(body: bytes) -> str:
    start = body[:20_000]
    if b'"type":"message_start"' in start.replace(b" ", b"") or b"event: message_start" in start:
        return "anthropic"
    if b"response.created" in start:
        return "openai-responses"
    gemini = b'"candidates"' in start or b'"promptFeedback"' in start
    return "gemini" if gemini else "openai-chat"


class ReplayModel(BatchedModel):
    """Plays recordings: the n-th answer of a thread is the n-th recording, the last one from there on.

    Args:
        recordings: at least one.
        name: full name, for events and logs.
        pause_seconds: wait between two pieces of a body; 0 only lets others run.
    """

    def __init__(
        self, recordings: list[Recording], name: str = "replay:", pause_seconds: float = 0.0
    ) -> None:
        super().__init__(name, recordings[0].provider)
        self._recordings = recordings
        self._pause = pause_seconds

    async def batches(
        self, request: ModelRequest, *, on_sent: OnSent | None, on_wait: OnWait | None
    ) -> Batches:
        """Play the recording that is due."""
        if on_sent is not None:
            on_sent()
        index = sum(isinstance(message, AssistantMessage) for message in request.messages)
        recording = self._recordings[min(index, len(self._recordings) - 1)]
        pieces = _events(recording) if recording.format == EVENTS else _normalised(recording)
        for batch in pieces:
            if batch:
                yield batch
            await asyncio.sleep(self._pause)


def _normalised(recording: Recording) -> list[list[LlmEvent]]:
    form = next((form for form in DIALECTS if form == recording.format), None)
    if form is None:
        what = f"recordings of the format {recording.format} cannot be played"
        return [[failure_of(FailureKind.INVALID_REQUEST, what, provider=recording.provider)]]
    normaliser = make_normaliser(recording.provider, ProviderProfile(format=form))
    body = recording.body
    found = [normaliser.feed(body[i : i + PIECE_BYTES]) for i in range(0, len(body), PIECE_BYTES)]
    return [*found, normaliser.close()]


def _events(recording: Recording) -> list[list[LlmEvent]]:
    lines = [line[6:] for line in recording.body.split(b"\n") if line.startswith(b"data: ")]
    found = [[event_of(json.loads(line), recording.provider)] for line in lines]
    if found:
        return found
    return [[failure_of(FailureKind.INCOMPLETE, "the recording is empty", provider=recording.provider)]]
