"""Objects too large for a row, under the hash of their content: a handle exists only for what is stored.

Keys, below the root: `{scope}/data/{thread}/{sha256}` holds the bytes, `{scope}/handles/{sha256}/{thread}` is
written last and makes them readable. Threads share no bytes, so deleting one never empties another's handle.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from turnwire.core.errors import FieldViolation, InvalidRequest, NotFound
from turnwire.storage.units import StoreUnavailable

if TYPE_CHECKING:
    from obstore.store import ObjectStore

__all__ = ["ObjectInfo", "OverflowStore"]

_HANDLE = re.compile(r"sha256:([0-9a-f]{64})")
_PLAIN = re.compile(r"[a-z0-9-]{1,63}")
# Each part of a large object in flight is held whole: the library's twelve would cost 130 MiB.
_PARTS_IN_FLIGHT = 2
_READ_LIMIT = 16 * 1024 * 1024
_STALE_STAGING_SECONDS = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What a handle stands for; `size` in bytes."""

    handle: str
    size: int
    media_type: str


class OverflowStore:
    """Overflow objects of every scope, by default in a directory of this machine.

    Args:
        root: the directory; also holds `staging/`, where outputs are gathered before they are stored.
        store: any other object store; `root` then serves for staging only.
        durable: sync each object to the disk before its handle exists; local directories only.
    """

    def __init__(self, root: Path, store: ObjectStore | None = None, *, durable: bool = True) -> None:
        self._root = root
        self._staging = root / "staging"
        self._given = store
        self._durable = durable and store is None
        self._opened: ObjectStore | None = None

    def staging_path(self) -> Path:
        """Name a new file that does not exist yet, on the disk of the store; whoever fills it removes it."""
        self._staging.mkdir(parents=True, exist_ok=True)
        return self._staging / secrets.token_hex(12)

    def clear_staging(self) -> int:
        """Remove what crashed processes left more than a day ago; returns the number of files."""
        if not self._staging.is_dir():
            return 0
        old = time.time() - _STALE_STAGING_SECONDS
        stale = [entry for entry in self._staging.iterdir() if entry.stat().st_mtime < old]
        for entry in stale:
            entry.unlink(missing_ok=True)
        return len(stale)

    async def put_file(
        self, scope: str, thread: str, path: Path, sha256: str, size: int, media_type: str
    ) -> str:
        """Store a file, streaming, and return its handle. Storing the same content again changes nothing.

        Raises:
            OSError: the file cannot be read.
            ValueError: the file does not have that hash or size; nothing is stored.
            StoreUnavailable: the store cannot take it now.
        """
        if await asyncio.to_thread(_identify, path) != (sha256, size):
            raise ValueError(f"the file is not the {size} bytes of sha256 {sha256}")
        return await self._put(scope, thread, path, sha256, size, media_type)

    async def put_bytes(self, scope: str, thread: str, body: bytes, media_type: str) -> str:
        """Store bytes and return their handle.

        Raises:
            StoreUnavailable: the store cannot take it now.
        """
        sha256 = hashlib.sha256(body).hexdigest()
        return await self._put(scope, thread, body, sha256, len(body), media_type)

    async def stat(self, scope: str, handle: str) -> ObjectInfo:
        """Say what a handle stands for.

        Raises:
            InvalidRequest: it is not a handle.
            NotFound: OBJECT_NOT_FOUND, this scope has no such object.
            StoreUnavailable: the store does not answer.
        """
        return (await self._find(scope, handle))[0]

    async def read_range(self, scope: str, handle: str, offset: int, length: int) -> bytes:
        """Read up to `length` bytes (at most 16 MiB) from `offset`; fewer, or none, at the end of the object.

        Raises:
            InvalidRequest: it is not a handle, or the range is negative.
            NotFound: OBJECT_NOT_FOUND, this scope has no such object.
            StoreUnavailable: the store does not answer.
        """
        if offset < 0 or length < 0:
            raise _invalid("range", "offset and length must not be negative")
        info, thread = await self._find(scope, handle)
        length = min(length, info.size - offset, _READ_LIMIT)
        if length <= 0:
            return b""
        import obstore

        key = _data_key(_segment(scope), thread, _sha_of(handle))
        with _translated(handle):
            return bytes(await obstore.get_range_async(self._store(), key, start=offset, length=length))

    async def delete_thread(self, scope: str, thread: str) -> int:
        """Delete every object of a thread and return how many there were. May be repeated.

        Raises:
            StoreUnavailable: the store does not answer; what is left goes with the next try.
        """
        import obstore

        scope, thread = _segment(scope), _segment(thread)
        store = self._store()
        with _translated(""):
            batches = [batch async for batch in obstore.list(store, f"{scope}/data/{thread}")]
            keys = [meta["path"] for batch in batches for meta in batch]
            # Handles first: a crash in between leaves bytes without a handle, which the next try finds.
            await _delete(store, [_handle_key(scope, key.rpartition("/")[2], thread) for key in keys])
            await _delete(store, keys)
        return len(keys)

    async def _put(
        self, scope: str, thread: str, content: Path | bytes, sha256: str, size: int, media_type: str
    ) -> str:
        scope, thread = _segment(scope), _segment(thread)
        marker = _handle_key(scope, sha256, thread)
        with _translated(""):
            if not await _exists(self._store(), marker):
                await self._write(_data_key(scope, thread, sha256), content)
                await self._write(marker, json.dumps({"size": size, "type": media_type}).encode())
        return f"sha256:{sha256}"

    async def _write(self, key: str, content: Path | bytes) -> None:
        import obstore

        store = self._store()
        try:
            await obstore.put_async(store, key, content, max_concurrency=_PARTS_IN_FLIGHT)
        except FileNotFoundError:
            # A deletion beside us has just removed the directory, empty until now.
            await obstore.put_async(store, key, content, max_concurrency=_PARTS_IN_FLIGHT)
        if self._durable:
            await asyncio.to_thread(_sync_file, self._root, self._root / key)

    async def _find(self, scope: str, handle: str) -> tuple[ObjectInfo, str]:
        """Read the handle's entry of any thread; they all name the same content."""
        import obstore

        store = self._store()
        with _translated(handle):
            async for batch in obstore.list(store, f"{_segment(scope)}/handles/{_sha_of(handle)}"):
                for meta in batch:
                    entry = json.loads(
                        bytes(await (await obstore.get_async(store, meta["path"])).bytes_async())
                    )
                    return ObjectInfo(handle, entry["size"], entry["type"]), meta["path"].rpartition("/")[2]
        raise _missing(handle)

    def _store(self) -> ObjectStore:
        if self._opened is None:
            if self._given is not None:
                self._opened = self._given
            else:
                from obstore.store import LocalStore

                self._opened = LocalStore(self._root, mkdir=True, automatic_cleanup=True)
        return self._opened


def _identify(path: Path) -> tuple[str, int]:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest(), file.tell()


async def _exists(store: ObjectStore, key: str) -> bool:
    import obstore

    try:
        await obstore.head_async(store, key)
    except FileNotFoundError:
        return False
    return True


async def _delete(store: ObjectStore, keys: list[str]) -> None:
    """Delete keys, whether or not they exist."""
    import obstore

    for key in keys:
        try:
            await obstore.delete_async(store, key)
        except FileNotFoundError:
            continue


@contextmanager
def _translated(handle: str) -> Iterator[None]:
    from obstore.exceptions import BaseError

    try:
        yield
    except FileNotFoundError as error:
        raise _missing(handle) from error
    except (BaseError, OSError) as error:
        raise StoreUnavailable("the object store does not answer", retry_after=1.0) from error


def _segment(name: str) -> str:
    """Make one safe path segment of a scope, or of a thread's id or full name; different names stay apart."""
    name = name.removeprefix("threads/")
    if _PLAIN.fullmatch(name):
        return name
    return "_" + hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()


def _data_key(scope: str, thread: str, sha256: str) -> str:
    return f"{scope}/data/{thread}/{sha256}"


def _handle_key(scope: str, sha256: str, thread: str) -> str:
    return f"{scope}/handles/{sha256}/{thread}"


def _sha_of(handle: str) -> str:
    match = _HANDLE.fullmatch(handle)
    if match is None:
        raise _invalid("handle", "must be sha256: and 64 hex digits")
    return match[1]


def _invalid(field: str, description: str) -> InvalidRequest:
    return InvalidRequest(
        f"{field} {description}", violations=(FieldViolation(field, description),), field=field
    )


def _missing(handle: str) -> NotFound:
    return NotFound(f"there is no object {handle}", reason="OBJECT_NOT_FOUND", handle=handle)


def _sync_file(root: Path, path: Path) -> None:
    """Sync a file and the directories above it: the name must survive a power cut as well as the bytes."""
    for entry in (path, *path.parents):
        fd = os.open(entry, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
        if entry == root:
            return
