"""File systems of a few MiB that fill up, grow, and break: real ones, so only root can have them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["BreakableDisk", "SmallDisk", "breakable_disk", "small_disk"]

_MIB = 1024 * 1024


def _run(*words: str | Path) -> None:
    done = subprocess.run(list(words), capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}: {done.stderr}"


def _mount(*words: str | Path) -> None:
    """Mount, or skip where that is not permitted."""
    done = subprocess.run(["mount", *words], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return
    text = f"mounting is not permitted here: {done.stderr.strip()}"
    if os.geteuid() == 0 and os.environ.get("TURNWIRE_TEST_NO_SKIP") == "1":
        pytest.fail(f"{text}, and TURNWIRE_TEST_NO_SKIP=1 forbids the skip")
    pytest.skip(text)


class SmallDisk:
    """A memory file system whose size can be changed while it is in use."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def resize(self, mib: int) -> None:
        """Make it larger, or smaller if nothing is in the way."""
        _run("mount", "-o", f"remount,size={mib}m", self.path)

    @property
    def free(self) -> int:
        """Bytes that are free."""
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_frsize


@contextmanager
def small_disk(path: Path, mib: int) -> Iterator[SmallDisk]:
    """A memory file system of so many MiB."""
    path.mkdir()
    _mount("-t", "tmpfs", "-o", f"size={mib}m,mode=700", "tmpfs", path)
    try:
        yield SmallDisk(path)
    finally:
        # Whoever still has it open was killed and may not be gone yet.
        _run("umount", "--lazy", path)


class BreakableDisk:
    """An ext4 file system in a file, which the kernel makes read-only when it finds an error."""

    def __init__(self, image: Path, path: Path) -> None:
        self.path = path
        self._image = image

    def mount(self) -> None:
        """Make it available, as it is."""
        _mount("-o", "loop,errors=remount-ro", self._image, self.path)

    def breaks(self) -> None:
        """Have the kernel find an error: from now on nothing can be written."""
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
        (device,) = (mount[0] for mount in mounts if mount[1] == str(self.path))
        trigger = Path("/sys/fs/ext4") / Path(device).name / "trigger_fs_error"
        trigger.write_text("on request of a test")

    def repair(self) -> None:
        """Check the file system and make it writable; nobody may use it meanwhile."""
        self.unmount()
        done = subprocess.run(["e2fsck", "-fy", self._image], capture_output=True, text=True, check=False)
        assert done.returncode <= 1, done.stdout
        self.mount()

    def unmount(self) -> None:
        """Take it away."""
        _run("umount", self.path)


@contextmanager
def breakable_disk(path: Path, mib: int) -> Iterator[BreakableDisk]:
    """An ext4 file system of so many MiB."""
    path.mkdir()
    image = path.with_suffix(".img")
    with image.open("wb") as file:
        file.truncate(mib * _MIB)
    _run("mkfs.ext4", "-q", "-F", image)
    disk = BreakableDisk(image, path)
    disk.mount()
    try:
        yield disk
    finally:
        _run("umount", "--lazy", path)
