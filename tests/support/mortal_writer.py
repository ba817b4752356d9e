"""The runtime service with a writer's thread that SIGUSR1 kills, as a defect in it would."""

from __future__ import annotations

import ctypes
import signal
import sys
import threading

import turnwire.runtime.main

__all__ = ["main"]


def _kill_writer(number: int, frame: object) -> None:
    (ident,) = (thread.ident for thread in threading.enumerate() if thread.name == "storage-writer")
    assert ident is not None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(SystemExit))


def main() -> int:
    """Run the service."""
    signal.signal(signal.SIGUSR1, _kill_writer)
    return turnwire.runtime.main.main()


if __name__ == "__main__":
    sys.exit(main())
