"""The folders that tools may write: everything below one root, reached without following symbolic links."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path, PurePosixPath

__all__ = ["OutsideWorkspace", "Workspaces", "open_inside", "parts_of"]


class OutsideWorkspace(Exception):
    """The path leaves the workspace, or goes through a symbolic link."""


class Workspaces:
    """Gives each call its folder below `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, workspace: str) -> Path:
        """Give the folder of a call, making it when it is new. Raises OutsideWorkspace."""
        folder = self.root
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for part in parts_of(workspace):
            folder = folder / part
            if folder.is_symlink():
                raise OutsideWorkspace(f"{workspace} goes through a symbolic link")
            folder.mkdir(exist_ok=True)
        return folder


def parts_of(path: str) -> tuple[str, ...]:
    """Split a relative path. Raises OutsideWorkspace for absolute paths and for `..`."""
    pure = PurePosixPath(path or ".")
    if pure.is_absolute() or ".." in pure.parts or "\0" in path:
        raise OutsideWorkspace(f"{path} is not a path inside the workspace")
    return pure.parts


def open_inside(folder: Path, path: str, flags: int, *, make_parents: bool = False) -> int:
    """Open a file below `folder` step by step, so that no link, swapped in or not, leads outside.

    Raises:
        OutsideWorkspace: the path leaves the folder or goes through a symbolic link.
        OSError: the file cannot be opened.
    """
    parts = parts_of(path)
    if not parts:
        return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts[:-1]:
            at = _step(at, part, make_parents)
        return _open(parts[-1], flags, at)
    finally:
        os.close(at)


def _step(at: int, part: str, make: bool) -> int:
    if make:
        with contextlib.suppress(FileExistsError):
            os.mkdir(part, 0o755, dir_fd=at)
    below = _open(part, os.O_RDONLY | os.O_DIRECTORY, at)
    os.close(at)
    return below


def _open(name: str, flags: int, at: int) -> int:
    try:
        return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644, dir_fd=at)
    except OSError:
        if _is_link(name, at):
            raise OutsideWorkspace(f"{name} is a symbolic link; links are not followed") from None
        raise


def _is_link(name: str, at: int) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode)
    except OSError:
        return False
