"""Any range of a stored result is exactly that range of its bytes or lines."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwire.core.errors import Expired
from turnwire.executor import overflow as module
from turnwire.executor.overflow import Overflow, Unit
from turnwire.storage.objects import OverflowStore

contents = st.lists(st.sampled_from([b"a", b"bb\n", b"\n", b"ccc", "é\n".encode()]), max_size=40).map(
    b"".join
)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    # So that ranges cross blocks and chunks without megabytes of content.
    monkeypatch.setattr(module, "_BLOCK_BYTES", 16)
    monkeypatch.setattr(module, "CHUNK_BYTES", 5)


async def read(
    content: bytes, unit: Unit, offset: int, length: int, folder: Path
) -> tuple[bytes, list[module.Chunk]]:
    store = OverflowStore(folder, durable=False)
    handle = await store.put_bytes("default-org", "threads/abcd", content, "text/plain")
    chunks = [chunk async for chunk in Overflow(store).read("default-org", handle, unit, offset, length)]
    return b"".join(chunk.data for chunk in chunks), chunks


@given(contents, st.sampled_from(Unit), st.integers(0, 60), st.integers(0, 60))
@settings(deadline=None, max_examples=60)
def test_ranges_are_exact(content: bytes, unit: Unit, offset: int, length: int) -> None:
    lines = content.splitlines(keepends=True) if b"\r" not in content else []
    newlines = content.count(b"\n")
    if unit is Unit.BYTES:
        behind = offset > len(content)
        wanted = content[offset : offset + length if length else None]
    else:
        behind = offset > newlines
        wanted = b"".join(lines[offset : offset + length if length else None])
    with tempfile.TemporaryDirectory() as folder:
        if behind:
            with pytest.raises(Expired) as caught:
                asyncio.run(read(content, unit, offset, length, Path(folder)))
            assert caught.value.reason == "RANGE_INVALID"
            return
        data, chunks = asyncio.run(read(content, unit, offset, length, Path(folder)))
    assert data == wanted
    assert chunks
    position = chunks[0].offset
    for chunk in chunks:
        assert len(chunk.data) <= 5
        assert chunk.offset == position
        assert chunk.size == len(content)
        position += len(chunk.data)


@given(contents)
@settings(deadline=None, max_examples=30)
def test_a_search_finds_every_line_once(content: bytes) -> None:
    async def scenario(folder: Path) -> tuple[list[int], bool]:
        store = OverflowStore(folder, durable=False)
        handle = await store.put_bytes("default-org", "threads/abcd", content, "text/plain")
        found, more = await Overflow(store).search("default-org", handle, "BB", 3)
        return [match.number for match in found], more

    with tempfile.TemporaryDirectory() as folder:
        numbers, more = asyncio.run(scenario(Path(folder)))
    every = [number for number, line in enumerate(content.split(b"\n"), 1) if b"bb" in line]
    assert numbers == every[:3]
    assert more == (len(every) > 3)
