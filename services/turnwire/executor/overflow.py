"""Outputs too long to be shown: kept in the object store under a handle, read back by bytes or by lines."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from turnwire.core.errors import Expired, NotFound, Unavailable
from turnwire.executor.domain import Call, StoredBytes
from turnwire.storage.objects import OverflowStore

__all__ = ["CHUNK_BYTES", "Chunk", "Match", "Overflow", "Unit"]

logger = logging.getLogger(__name__)

# Most bytes of one chunk on the wire.
CHUNK_BYTES = 32 << 10
_BLOCK_BYTES = 1 << 20
_MATCH_BYTES = 300


class Unit(Enum):
    """What the bounds of a range count."""

    BYTES = "bytes"
    LINES = "lines"


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a stored result and where it stands in it."""

    data: bytes
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Match:
    """A line that holds what was searched; `number` counts from 1."""

    number: int
    line: bytes


class Overflow:
    """Keeps and reads stored results; every method that reads is bound to one scope."""

    def __init__(self, store: OverflowStore) -> None:
        self._store = store

    async def keep_file(
        self, call: Call, path: str, size_bytes: int, sha256: str, media_type: str
    ) -> StoredBytes | None:
        """Keep a file, or say by None that it cannot be kept; the result is then shown without a handle."""
        key = call.key
        try:
            handle = await self._store.put_file(
                key.scope, key.thread, Path(path), sha256, size_bytes, media_type
            )
        except (Unavailable, OSError, ValueError) as error:
            logger.warning("executor.overflow.failed", extra={"error": type(error).__name__})
            return None
        return StoredBytes(handle, size_bytes, sha256, media_type)

    async def keep_bytes(self, call: Call, data: bytes, media_type: str) -> StoredBytes | None:
        """Keep bytes, or say by None that they cannot be kept."""
        try:
            handle = await self._store.put_bytes(call.key.scope, call.key.thread, data, media_type)
        except (Unavailable, OSError) as error:
            logger.warning("executor.overflow.failed", extra={"error": type(error).__name__})
            return None
        return StoredBytes(handle, len(data), handle.removeprefix("sha256:"), media_type)

    async def delete_thread(self, scope: str, thread: str) -> int:
        """Remove everything kept for a thread. Raises StoreUnavailable; may be repeated."""
        return await self._store.delete_thread(scope, thread)

    async def read(
        self, scope: str, handle: str, unit: Unit = Unit.BYTES, offset: int = 0, length: int = 0
    ) -> AsyncIterator[Chunk]:
        """Give the chunks of a range, at least one; `length` 0 means to the end.

        Raises:
            InvalidRequest: `handle` is not a handle.
            NotFound: RESULT_NOT_FOUND, this scope has no such result.
            Expired: RANGE_INVALID, the range starts behind the end.
            StoreUnavailable: the store does not answer.
        """
        size = await self._size(scope, handle)
        if unit is Unit.LINES:
            start, end = await self._line_bounds(scope, handle, size, offset, length)
        else:
            start, end = offset, size if length == 0 else min(size, offset + length)
        if start > size:
            raise _behind(offset, size, unit, size)
        if start >= end:
            yield Chunk(b"", start, size)
        while start < end:
            block = await self._block(scope, handle, start, min(_BLOCK_BYTES, end - start))
            if not block:
                return
            for position in range(0, len(block), CHUNK_BYTES):
                yield Chunk(block[position : position + CHUNK_BYTES], start + position, size)
            start += len(block)

    async def search(self, scope: str, handle: str, text: str, limit: int) -> tuple[list[Match], bool]:
        """Find lines that hold `text`, letter case ignored for ASCII; the flag says that there are more.

        Raises what `read` raises.
        """
        wanted = text.encode().lower()
        found: list[Match] = []
        number = 0
        async for lines in self._lines(scope, handle):
            for line in lines:
                number += 1
                if wanted not in line.lower():
                    continue
                if len(found) >= limit:
                    return found, True
                found.append(Match(number, line[:_MATCH_BYTES]))
        return found, False

    async def _size(self, scope: str, handle: str) -> int:
        try:
            return (await self._store.stat(scope, handle)).size
        except NotFound:
            raise _missing() from None

    async def _block(self, scope: str, handle: str, start: int, length: int) -> bytes:
        try:
            return await self._store.read_range(scope, handle, start, length)
        except NotFound:  # removed since its size was read
            raise _missing() from None

    async def _blocks(self, scope: str, handle: str, size: int) -> AsyncIterator[bytes]:
        position = 0
        while position < size:
            block = await self._block(scope, handle, position, _BLOCK_BYTES)
            if not block:
                return
            position += len(block)
            yield block

    async def _lines(self, scope: str, handle: str) -> AsyncIterator[list[bytes]]:
        rest = b""
        async for block in self._blocks(scope, handle, await self._size(scope, handle)):
            *lines, rest = (rest + block).split(b"\n")
            if len(rest) > _BLOCK_BYTES:
                # A line without end is searched in pieces rather than gathered.
                lines, rest = [*lines, rest], b""
            yield lines
        if rest:
            yield [rest]

    async def _line_bounds(
        self, scope: str, handle: str, size: int, first: int, count: int
    ) -> tuple[int, int]:
        """Give the bytes where line `first` (from 0) starts and where `count` lines later it ends."""
        start = 0 if first == 0 else -1
        seen = position = 0
        async for block in self._blocks(scope, handle, size):
            lines = block.count(b"\n")
            if start < 0 and seen + lines >= first:
                start = position + _after_newline(block, first - seen)
            if start >= 0 and count and seen + lines >= first + count:
                return start, position + _after_newline(block, first + count - seen)
            if start >= 0 and not count:
                return start, size
            seen += lines
            position += len(block)
        if start < 0:
            raise _behind(first, seen, Unit.LINES, size)
        return start, size


def _after_newline(block: bytes, number: int) -> int:
    """Give the position behind the newline of that number, counted from 1; 0 for number 0."""
    position = 0
    for _ in range(number):
        position = block.index(b"\n", position) + 1
    return position


def _missing() -> NotFound:
    return NotFound("there is no such stored result", reason="RESULT_NOT_FOUND")


def _behind(offset: int, end: int, unit: Unit, size: int) -> Expired:
    return Expired(
        f"the range starts at {offset}, but the result has {end} {unit.value}",
        reason="RANGE_INVALID",
        size_bytes=str(size),
    )
