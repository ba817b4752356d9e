"""One process per SQLite file: the lock is the kernel's, so it goes when its holder dies, however it dies."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from turnwire.core.errors import WrongState

__all__ = ["FileLock"]


class FileLock:
    """An exclusive `flock` on `<file>.lock`; the file holds the pid of the process that has it."""

    def __init__(self, path: Path) -> None:
        self._store = path
        self._path = path.with_name(path.name + ".lock")
        self._fd: int | None = None

    @property
    def held(self) -> bool:
        return self._fd is not None

    def acquire(self) -> None:
        """Take the lock, or fail at once.

        Raises:
            WrongState: STORE_LOCKED, another process has the file; `pid` is in the metadata.
        """
        if self._fd is not None:
            return
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.read(fd, 32).decode("ascii", "replace").strip() or "unknown"
            os.close(fd)
            raise WrongState(
                f"{self._store} is in use by process {pid}. A SQLite store serves one process: stop that "
                "one, name another data directory, or use PostgreSQL to run several.",
                reason="STORE_LOCKED",
                path=str(self._store),
                pid=pid,
            ) from None
        except BaseException:
            os.close(fd)
            raise
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        self._fd = fd

    def release(self) -> None:
        """Give the lock back. The file stays: without it two processes could lock two files of one name."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
