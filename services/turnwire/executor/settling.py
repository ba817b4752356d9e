"""From the end of a body to what is stored and sent: what a result names is kept before it."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

from turnwire.executor.domain import Call, Ending, Part, Result, StoredBytes
from turnwire.executor.limits import Captured, clip, render
from turnwire.extend.tools import ToolPart

__all__ = ["MAX_PART_BYTES", "Keeper", "settle"]

TEXT_MEDIA_TYPE = "text/plain; charset=utf-8"
# Longer parts stand behind a handle: a result has to fit an event of the turn.
MAX_PART_BYTES = 64 << 10
_MAX_PARTS = 16
_NOTE_CHARS = 2_000
_MEDIA_TYPE_CHARS = 200


class Keeper(Protocol):
    """Keeps bytes apart and gives a handle, or None when they cannot be kept."""

    async def keep_file(
        self, call: Call, path: str, size_bytes: int, sha256: str, media_type: str
    ) -> StoredBytes | None:
        """Keep a file; it is moved away or deleted whatever happens."""
        ...

    async def keep_bytes(self, call: Call, data: bytes, media_type: str) -> StoredBytes | None:
        """Keep bytes."""
        ...


async def settle(call: Call, ending: Ending, elapsed: float, keeper: Keeper) -> Result:
    """Store what is too long to be shown and make the result."""
    overflow = await _keep_text(call, ending.captured, keeper)
    parts = []
    content = render(ending.captured, overflow.handle if overflow is not None else "")
    if len(ending.parts) > _MAX_PARTS:
        content += f"\n[{len(ending.parts) - _MAX_PARTS} more parts are left out]"
    for part in ending.parts[:_MAX_PARTS]:
        kept = await _keep_part(call, part, keeper)
        if kept is None:
            content += f"\n[a part of type {part.media_type} was too long to be shown and could not be kept]"
            continue
        parts.append(kept)
    return Result(
        outcome=ending.outcome,
        content=content,
        is_error=ending.is_error,
        overflow=overflow,
        parts=tuple(parts),
        elapsed=elapsed,
        execution_timeout=call.timeout,
        exit_code=ending.exit_code,
        cancel_note=clip(ending.cancel_note, _NOTE_CHARS),
        total_chars=ending.captured.total_chars,
    )


async def _keep_text(call: Call, captured: Captured, keeper: Keeper) -> StoredBytes | None:
    if not captured.spill_path:
        return None
    try:
        return await keeper.keep_file(
            call, captured.spill_path, captured.stored_bytes, captured.sha256, TEXT_MEDIA_TYPE
        )
    finally:
        with suppress(FileNotFoundError):
            os.unlink(captured.spill_path)


async def _keep_part(call: Call, part: ToolPart, keeper: Keeper) -> Part | None:
    media_type = clip(part.media_type, _MEDIA_TYPE_CHARS)
    whole = Part(media_type, part.data)
    if len(part.data) <= MAX_PART_BYTES:
        return whole
    stored = await keeper.keep_bytes(call, part.data, media_type)
    return None if stored is None else replace(whole, data=b"", stored=stored)
