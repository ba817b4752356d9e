"""The service's end of the spawner: starts it, asks it for shims, and starts it anew when it dies.

The spawner is started by posix_spawn, which runs no fork handlers, so a new one may be started while gRPC
serves. Executions do not depend on the spawner once their shim runs.
"""

from __future__ import annotations

import array
import asyncio
import json
import logging
import os
import signal
import socket
import struct
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from turnwire.executor.supervisor import Supervisor
from turnwire.executor.workers.protocol import MAX_FRAME_BYTES, FrameError, encode
from turnwire.executor.workers.spawner import CONTROL_FD

__all__ = ["Launcher", "ShimStream", "SpawnFailed"]

logger = logging.getLogger(__name__)

_SOURCE_ROOT = Path(__file__).resolve().parents[3]
_LAUNCH_ATTEMPTS = 3
_FULL_SOCKET_PAUSE_SECONDS = 0.005
_LENGTH = struct.Struct(">I")


class SpawnFailed(Exception):
    """No process could be started; nothing of the execution has run."""


class ShimStream:
    """The service's end of one shim, or of one worker process."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, sock: socket.socket) -> ShimStream:
        """Take over a connected socket."""
        sock.setblocking(False)
        return cls(*await asyncio.open_unix_connection(sock=sock))

    async def receive(self) -> dict[str, Any] | None:
        """Wait for one message; None when the far side has gone or sends nonsense."""
        try:
            (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
            if length > MAX_FRAME_BYTES:
                raise FrameError(f"announced {length} bytes")
            message = json.loads(await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        except (FrameError, ValueError) as error:
            logger.warning("executor.frame.broken", extra={"error": str(error)})
            return None
        return message if isinstance(message, dict) else None

    def send(self, message: dict[str, Any]) -> None:
        """Hand one message over; a far side that has gone is noticed by `receive`."""
        if not self._writer.is_closing():
            self._writer.write(encode(message))

    def close(self) -> None:
        """Close the connection; the far side then ends what it runs."""
        self._writer.close()


class Launcher:
    """Starts processes under shims. `start` blocks and belongs before the event loop and gRPC."""

    def __init__(self) -> None:
        self._control: socket.socket | None = None
        self._pid = 0
        self._restarting = asyncio.Lock()
        self._tasks = Supervisor()

    @property
    def pid(self) -> int:
        """Process id of the present spawner."""
        return self._pid

    def start(self) -> None:
        """Start the spawner. Raises OSError when the system refuses."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        env = {"PYTHONPATH": str(_SOURCE_ROOT), "PATH": os.defpath, "LANG": "C.UTF-8", "PYTHONUTF8": "1"}
        argv = [sys.executable, "-S", "-s", "-m", "turnwire.executor.workers.spawner"]
        actions = [(os.POSIX_SPAWN_DUP2, theirs.fileno(), CONTROL_FD)]
        try:
            self._pid = os.posix_spawn(sys.executable, argv, env, file_actions=actions)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        ours.setblocking(False)
        self._control = ours

    async def launch(self, spec: dict[str, Any], extra: socket.socket | None = None) -> ShimStream:
        """Start one process as `spec` tells; `extra` is handed on to it and closed here.

        Raises SpawnFailed when no shim could be started: then nothing has run.
        """
        try:
            for _ in range(_LAUNCH_ATTEMPTS):
                stream = await self._try_launch(spec, extra)
                if stream is not None:
                    return stream
            raise SpawnFailed("the spawner does not start processes")
        finally:
            if extra is not None:
                extra.close()

    async def close(self) -> None:
        """Close the control socket; the spawner ends by itself. Shims end when their streams close."""
        control, self._control = self._control, None
        if control is not None:
            control.close()
            self._tasks.start(asyncio.to_thread(_reap, self._pid))
        await self._tasks.wait()

    async def _try_launch(self, spec: dict[str, Any], extra: socket.socket | None) -> ShimStream | None:
        control = self._control
        ours, theirs = socket.socketpair()
        try:
            if control is None or not await self._pass(control, theirs, extra):
                ours.close()
                await self._restart(control)
                return None
        finally:
            theirs.close()
        stream = await ShimStream.open(ours)
        stream.send(spec)
        ready = await stream.receive()
        if ready is not None and ready.get("kind") == "ready":
            return stream
        stream.close()
        if ready is not None:
            raise SpawnFailed(str(ready.get("error", "the shim did not start")))
        await self._restart(control)
        return None

    async def _pass(self, control: socket.socket, theirs: socket.socket, extra: socket.socket | None) -> bool:
        fds = array.array("i", [theirs.fileno()] + ([extra.fileno()] if extra is not None else []))
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)]
        while True:
            try:
                control.sendmsg([b"shim"], ancillary)
            except BlockingIOError:
                await asyncio.sleep(_FULL_SOCKET_PAUSE_SECONDS)
                continue
            except OSError:
                return False
            return True

    async def _restart(self, failed: socket.socket | None) -> None:
        async with self._restarting:
            if self._control is not failed:
                return  # Another launch has started a new one meanwhile.
            logger.warning("executor.spawner.restarted", extra={"pid": self._pid})
            if failed is not None:
                failed.close()
                self._tasks.start(asyncio.to_thread(_reap, self._pid))
            self.start()


def _reap(pid: int) -> tuple[int, int]:
    """End a spawner and take its status; blocks until it has gone."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    try:
        return os.waitpid(pid, 0)
    except ChildProcessError:
        return pid, 0
