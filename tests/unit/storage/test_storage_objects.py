"""Overflow objects: a handle is given out only for what is stored, and scopes and threads never meet."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import pytest
from obstore.store import MemoryStore

from turnwire.core.errors import InvalidRequest, NotFound
from turnwire.storage.objects import ObjectInfo, OverflowStore
from turnwire.storage.units import StoreUnavailable

TYPE = "text/plain"


@pytest.fixture(params=["directory", "memory"])
def store(tmp_path: Path, request: pytest.FixtureRequest) -> OverflowStore:
    if request.param == "memory":
        return OverflowStore(tmp_path / "overflow", MemoryStore())
    return OverflowStore(tmp_path / "overflow")


def staged(store: OverflowStore, body: bytes) -> tuple[Path, str, int]:
    path = store.staging_path()
    path.write_bytes(body)
    return path, hashlib.sha256(body).hexdigest(), len(body)


async def test_a_stored_file_is_read_back_in_ranges(store: OverflowStore) -> None:
    body = os.urandom(3_000_000)
    handle = await store.put_file("acme", "threads/t-1", *staged(store, body), TYPE)
    assert handle == "sha256:" + hashlib.sha256(body).hexdigest()
    assert await store.stat("acme", handle) == ObjectInfo(handle, len(body), TYPE)
    assert await store.read_range("acme", handle, 0, len(body)) == body
    assert await store.read_range("acme", handle, 10, 5) == body[10:15]
    assert await store.read_range("acme", handle, len(body) - 3, 100) == body[-3:]
    assert await store.read_range("acme", handle, len(body), 1) == b""
    assert await store.read_range("acme", handle, 0, 0) == b""


async def test_an_empty_object_is_an_object(store: OverflowStore) -> None:
    handle = await store.put_bytes("acme", "t-1", b"", TYPE)
    assert (await store.stat("acme", handle)).size == 0
    assert await store.read_range("acme", handle, 0, 10) == b""


async def test_the_same_content_stored_twice_is_one_object(store: OverflowStore) -> None:
    first = await store.put_bytes("acme", "t-1", b"same", TYPE)
    second = await store.put_file("acme", "threads/t-1", *staged(store, b"same"), TYPE)
    assert first == second
    assert await store.delete_thread("acme", "t-1") == 1


async def test_a_file_that_is_not_what_it_is_said_to_be_gets_no_handle(store: OverflowStore) -> None:
    path, sha256, size = staged(store, b"content")
    for wrong in ((path, "0" * 64, size), (path, sha256, size + 1)):
        with pytest.raises(ValueError, match="is not the"):
            await store.put_file("acme", "t-1", *wrong, TYPE)
    with pytest.raises(FileNotFoundError):
        await store.put_file("acme", "t-1", path.with_name("gone"), sha256, size, TYPE)
    assert await store.delete_thread("acme", "t-1") == 0


async def test_another_scope_does_not_see_an_object(store: OverflowStore) -> None:
    handle = await store.put_bytes("acme", "t-1", b"secret", TYPE)
    for scope in ("other", "acm", "", "ACME", "../acme", "acme/data"):
        with pytest.raises(NotFound) as caught:
            await store.read_range(scope, handle, 0, 1)
        assert caught.value.reason == "OBJECT_NOT_FOUND"


async def test_deleting_a_thread_leaves_the_same_content_of_another(store: OverflowStore) -> None:
    handle = await store.put_bytes("acme", "t-1", b"same", TYPE)
    await store.put_bytes("acme", "t-2", b"same", TYPE)
    only = await store.put_bytes("acme", "t-1", b"only in one", TYPE)
    assert await store.delete_thread("acme", "threads/t-1") == 2
    assert await store.read_range("acme", handle, 0, 10) == b"same"
    with pytest.raises(NotFound):
        await store.stat("acme", only)
    assert await store.delete_thread("acme", "t-1") == 0
    assert await store.delete_thread("acme", "t-2") == 1
    with pytest.raises(NotFound):
        await store.stat("acme", handle)
    assert await store.put_bytes("acme", "t-2", b"same", TYPE) == handle


async def test_a_thread_whose_name_begins_like_another_is_another(store: OverflowStore) -> None:
    await store.put_bytes("acme", "t-1", b"one", TYPE)
    handle = await store.put_bytes("acme", "t-11", b"eleven", TYPE)
    await store.delete_thread("acme", "t-1")
    assert await store.read_range("acme", handle, 0, 10) == b"eleven"


@pytest.mark.parametrize("name", ["..", "a/b", "Ärger", "x" * 300, "_", "", "\ud800"])
async def test_any_name_is_a_safe_place(store: OverflowStore, name: str, tmp_path: Path) -> None:
    handle = await store.put_bytes(name, name, b"body", TYPE)
    assert await store.read_range(name, handle, 0, 10) == b"body"
    assert set(os.listdir(tmp_path)) <= {"overflow"}
    assert await store.delete_thread(name, name) == 1


async def test_what_is_not_a_handle_or_a_range_is_refused(store: OverflowStore) -> None:
    handle = await store.put_bytes("acme", "t-1", b"body", TYPE)
    for wrong in ("", "sha256:", handle.upper(), handle + "0", "../" + handle):
        with pytest.raises(InvalidRequest):
            await store.stat("acme", wrong)
    for offset, length in ((-1, 1), (0, -1)):
        with pytest.raises(InvalidRequest):
            await store.read_range("acme", handle, offset, length)


async def test_bytes_without_a_handle_are_not_readable_and_go_with_the_thread(tmp_path: Path) -> None:
    store = OverflowStore(tmp_path)
    handle = await store.put_bytes("acme", "t-1", b"body", TYPE)
    marker = tmp_path / "acme" / "handles" / handle.removeprefix("sha256:") / "t-1"
    marker.unlink()
    with pytest.raises(NotFound):
        await store.read_range("acme", handle, 0, 1)
    assert await store.delete_thread("acme", "t-1") == 1


async def test_deletion_leaves_no_empty_directories(tmp_path: Path) -> None:
    store = OverflowStore(tmp_path)
    await store.put_bytes("acme", "t-1", b"body", TYPE)
    await store.delete_thread("acme", "t-1")
    assert os.listdir(tmp_path) == []


async def test_a_directory_that_cannot_be_used_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "acme").write_text("a file where a directory should be")
    with pytest.raises(StoreUnavailable):
        await OverflowStore(tmp_path).put_bytes("acme", "t-1", b"body", TYPE)


def test_only_old_staging_files_are_cleared(tmp_path: Path) -> None:
    store = OverflowStore(tmp_path)
    assert store.clear_staging() == 0
    old, new = store.staging_path(), store.staging_path()
    for path in (old, new):
        path.write_bytes(b"")
    two_days_ago = time.time() - 2 * 86400
    os.utime(old, (two_days_ago, two_days_ago))
    assert store.clear_staging() == 1
    assert new.exists()
