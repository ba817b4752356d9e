"""The process that forks, so that the one that serves gRPC never has to.

It is started before gRPC is loaded, has one thread and imports the standard library only. Each request on its
control socket carries the descriptors of one shim; the shim then talks to the service by itself, so it and
its command outlive a spawner that dies.
"""

from __future__ import annotations

import array
import contextlib
import gc
import os
import signal
import socket
import sys

from turnwire.executor.limits import clip
from turnwire.executor.workers.protocol import encode
from turnwire.executor.workers.shim import Shim

__all__ = ["CONTROL_FD", "main"]

CONTROL_FD = 3
_MAX_FDS = 2


def _receive(control: socket.socket) -> list[int] | None:
    """Wait for one request; None when the service has gone."""
    fds = array.array("i")
    try:
        data, ancillary, _, _ = control.recvmsg(64, socket.CMSG_LEN(_MAX_FDS * fds.itemsize))
    except ConnectionResetError:
        return None
    if not data:
        return None
    for level, kind, payload in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
    return list(fds)


def _close_others(keep: set[int]) -> None:
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        if fd > 2 and fd not in keep:
            with contextlib.suppress(OSError):
                os.close(fd)


def _run_shim(fds: list[int]) -> None:
    """Be a shim; never returns."""
    code = 1
    try:
        _close_others(set(fds))
        os.setsid()
        sock = socket.socket(fileno=fds[0])
        Shim(sock, fds[1] if len(fds) > 1 else -1).run()
        code = 0
    except BaseException as error:  # The shim must not fall back into the spawner's loop.
        sys.stderr.write(f"turnwire: a shim failed: {clip(repr(error), 300)}\n")
        sys.stderr.flush()
    finally:
        os._exit(code)


def _fork(fds: list[int]) -> None:
    try:
        pid = os.fork()
    except OSError as error:
        answer = {"kind": "end", "cause": "start-error", "error": clip(f"cannot fork: {error}", 500)}
        os.write(fds[0], encode(answer))
        return
    if pid == 0:
        _run_shim(fds)


def main() -> int:
    """Serve requests until the control socket closes."""
    _close_others({CONTROL_FD})
    os.setsid()
    # Ignored, so that the kernel reaps shims and no zombie is left; shims set their own handler.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    control = socket.socket(fileno=CONTROL_FD)
    # Collected once and frozen: a collection in a forked child would copy every page.
    gc.disable()
    gc.freeze()
    control.send(b"ready")
    while (fds := _receive(control)) is not None:
        if fds:
            _fork(fds)
        for fd in fds:
            os.close(fd)
    return 0


if __name__ == "__main__":
    sys.exit(main())
