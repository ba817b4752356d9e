"""One shim stands over each process that the executor starts: it pumps its output and ends its whole tree.

The shim is a forked copy of the spawner. It adopts orphans, so "no child left" proves that nothing of the
execution runs on, double forks included. It ends the tree at the limit, on request, and when the service
dies. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import resource
import selectors
import signal
import socket
import subprocess
import time
from typing import Any

from turnwire.executor.limits import Capture, OutputLimits, clip
from turnwire.executor.workers.protocol import Link, encode
from turnwire.executor.workers.tree import adopt_orphans, descendants, die_with_parent, signal_all

__all__ = ["Shim"]

# After the command itself has ended, what it left in the pipe is read for this long.
_DRAIN_SECONDS = 0.1
# Processes that a command left behind when it ended get this long to end on TERM.
_LEFTOVER_GRACE_SECONDS = 0.5
# A process that survives SIGKILL for this long hangs in the kernel; the result then says so.
_KILL_PATIENCE_SECONDS = 5.0
_KILL_REPEAT_SECONDS = 0.01
_READ_BYTES = 1 << 18
_PIPE_BYTES = 1 << 20
_F_SETPIPE_SZ = 1031
_PROGRESS_SECONDS = 0.25
_PROGRESS_CHARS = 2_000
_PROGRESS_MAX = 200

_RUNNING, _DRAINING, _STOPPING, _KILLING, _DONE = range(5)


class Shim:
    """Runs one command as told by the first frame on `sock`; `extra_fd` is handed on to it, or -1."""

    def __init__(self, sock: socket.socket, extra_fd: int = -1) -> None:
        self._sock = sock
        self._link = Link(sock)
        self._extra_fd = extra_fd
        self._selector = selectors.DefaultSelector()
        self._spec: dict[str, Any] = {}
        self._capture = Capture(OutputLimits())
        self._out = bytearray()
        self._stdin = memoryview(b"")
        self._pipe_fd = -1
        self._stdin_fd = -1
        self._wake_fd = -1
        self._service_gone = False
        self._phase = _RUNNING
        self._cause = "exit"
        self._main_pid = 0
        self._status: int | None = None
        self._no_children = False
        self._started_at = self._ended_at = 0.0
        self._deadline = self._next_change = float("inf")
        self._give_up_at = float("inf")
        self._survivors = self._leftovers = self._progress_count = 0
        self._progress_text = ""
        self._progress_at = 0.0

    def run(self) -> None:
        """Run to the end of the tree; returns when there is nothing left to do."""
        adopt_orphans()
        self._send({"kind": "ready"})
        spec = self._link.receive()
        if spec is None:
            return
        self._spec = spec
        self._sock.setblocking(False)
        self._capture = Capture(OutputLimits(**spec["limits"]), spec["staging"])
        self._watch_children()
        try:
            self._start()
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            self._out += encode({"kind": "end", "cause": "start-error", "error": clip(str(error), 500)})
            self._flush()
            return
        self._send({"kind": "spawned", "pid": self._main_pid})
        while self._phase != _DONE:
            self._turn()
        self._report()

    def _watch_children(self) -> None:
        self._wake_fd, write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
        # A handler, not SIG_IGN: ignored children would be reaped by the kernel and their status lost.
        signal.signal(signal.SIGCHLD, lambda signum, frame: None)
        self._selector.register(self._wake_fd, selectors.EVENT_READ, self._on_wake)
        self._selector.register(self._sock, selectors.EVENT_READ, self._on_service)

    def _start(self) -> None:
        read_fd, write_fd = os.pipe2(os.O_CLOEXEC)
        with contextlib.suppress(OSError):
            fcntl_set_pipe_size(read_fd)
        os.set_blocking(read_fd, False)
        try:
            process = self._popen(write_fd)
        except BaseException:
            os.close(read_fd)
            raise
        finally:
            os.close(write_fd)
        self._main_pid = process.pid
        process.returncode = 0  # Reaped by this loop, not by Popen.
        self._started_at = time.monotonic()
        if self._spec["timeout"] is not None:
            self._deadline = self._started_at + self._spec["timeout"]
        self._pipe_fd = read_fd
        self._selector.register(read_fd, selectors.EVENT_READ, self._on_output)
        if process.stdin is not None:
            self._stdin_fd = os.dup(process.stdin.fileno())
            process.stdin.close()
            self._stdin = memoryview(self._spec["stdin"].encode())
            os.set_blocking(self._stdin_fd, False)
            self._selector.register(self._stdin_fd, selectors.EVENT_WRITE, self._on_stdin)

    def _popen(self, write_fd: int) -> subprocess.Popen[bytes]:
        spec = self._spec
        env = dict(spec["env"])
        pass_fds: tuple[int, ...] = ()
        if self._extra_fd >= 0:
            pass_fds = (self._extra_fd,)
            env["TURNWIRE_WORKER_FD"] = str(self._extra_fd)
        process = subprocess.Popen(
            spec["argv"],
            env=env,
            cwd=spec["cwd"],
            stdin=subprocess.DEVNULL if spec["stdin"] is None else subprocess.PIPE,
            stdout=write_fd,
            stderr=write_fd,
            bufsize=0,
            pass_fds=pass_fds,
            start_new_session=True,
            preexec_fn=self._prepare_child,
        )
        if self._extra_fd >= 0:
            os.close(self._extra_fd)
        return process

    def _prepare_child(self) -> None:
        die_with_parent()
        for name, value in self._spec["rlimits"].items():
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))
        # When memory runs out the kernel takes the tool, not the service.
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            file.write("500")

    def _turn(self) -> None:
        now = time.monotonic()
        wake_at = min(self._next_change, self._deadline if self._phase == _RUNNING else float("inf"))
        if self._progress_text and self._progress_count < _PROGRESS_MAX:
            wake_at = min(wake_at, self._progress_at)
        timeout = None if wake_at == float("inf") else max(0.0, wake_at - now)
        for key, _ in self._selector.select(timeout):
            key.data()
        self._reap()
        self._advance(time.monotonic())

    def _advance(self, now: float) -> None:
        self._send_progress(now)
        if self._no_children and (self._pipe_fd < 0 or self._phase >= _STOPPING):
            self._finish(now)
        elif self._phase == _RUNNING and self._status is not None:
            self._phase, self._next_change = _DRAINING, now + _DRAIN_SECONDS
        elif self._phase == _RUNNING and now >= self._deadline:
            self._stop("deadline", self._spec["grace"])
        elif self._phase == _DRAINING and (self._pipe_fd < 0 or now >= self._next_change):
            self._leave(now)
        elif self._phase == _STOPPING and now >= self._next_change:
            self._phase, self._give_up_at = _KILLING, now + _KILL_PATIENCE_SECONDS
        if self._phase == _KILLING:
            self._kill(now)

    def _leave(self, now: float) -> None:
        """The command has ended: end what it left behind, or finish when only the pipe is held elsewhere."""
        if self._no_children:
            self._finish(now)
            return
        self._leftovers = len(descendants(os.getpid()))
        self._stop(self._cause, _LEFTOVER_GRACE_SECONDS)

    def _stop(self, cause: str, grace: float) -> None:
        if self._phase >= _STOPPING:
            return
        self._cause, self._phase = cause, _STOPPING
        self._next_change = time.monotonic() + grace
        pids = descendants(os.getpid())
        signal_all(pids, signal.SIGTERM)
        signal_all(pids, signal.SIGCONT)  # A stopped process sees TERM only when it goes on.

    def _kill(self, now: float) -> None:
        if now >= self._give_up_at:
            self._survivors = len(descendants(os.getpid()))
            self._finish(now)
            return
        signal_all(descendants(os.getpid()), signal.SIGKILL)
        self._next_change = now + _KILL_REPEAT_SECONDS

    def _finish(self, now: float) -> None:
        while self._pipe_fd >= 0 and self._read_output():
            pass
        self._close_output()
        self._ended_at = self._ended_at or now
        self._phase = _DONE

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self._no_children = True
                return
            if pid == 0:
                return
            if pid == self._main_pid:
                self._status = status
                if self._phase == _RUNNING:
                    self._ended_at = time.monotonic()

    def _on_wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_fd, 4096)

    def _on_service(self) -> None:
        if self._out:
            self._flush()
        try:
            messages, open_ = self._link.available()
        except BlockingIOError:
            return
        for message in messages:
            if message.get("op") == "stop" and self._phase == _RUNNING:
                self._stop(message["cause"], self._spec["grace"])
        if not open_:
            self._service_gone = True
            self._selector.unregister(self._sock)
            self._stop("orphaned", _LEFTOVER_GRACE_SECONDS)

    def _on_stdin(self) -> None:
        try:
            self._stdin = self._stdin[os.write(self._stdin_fd, self._stdin) :] if self._stdin else self._stdin
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._stdin = memoryview(b"")
        if not self._stdin:
            self._selector.unregister(self._stdin_fd)
            os.close(self._stdin_fd)

    def _on_output(self) -> None:
        self._read_output()

    def _read_output(self) -> bool:
        """Take what is in the pipe; false when there is nothing now or the pipe has closed."""
        try:
            data = os.read(self._pipe_fd, _READ_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self._close_output()
            return False
        text = self._capture.feed(data)
        if not self._spec["worker"]:
            self._progress_text = (self._progress_text + text[-_PROGRESS_CHARS:])[-_PROGRESS_CHARS:]
        return True

    def _close_output(self) -> None:
        if self._pipe_fd >= 0:
            self._selector.unregister(self._pipe_fd)
            os.close(self._pipe_fd)
            self._pipe_fd = -1

    def _send_progress(self, now: float) -> None:
        if not self._progress_text or now < self._progress_at or self._progress_count >= _PROGRESS_MAX:
            return
        if self._phase != _RUNNING or self._out:
            return  # A slow service gets fewer reports; the pump and the clock never wait for it.
        self._progress_count += 1
        self._progress_at = now + _PROGRESS_SECONDS
        self._send({"kind": "progress", "text": self._progress_text})
        self._progress_text = ""

    def _send(self, message: dict[str, Any]) -> None:
        self._out += encode(message)
        self._flush()

    def _flush(self) -> None:
        try:
            while self._out:
                del self._out[: self._sock.send(self._out, socket.MSG_DONTWAIT)]
        except BlockingIOError:
            pass
        except (BrokenPipeError, ConnectionResetError):
            self._out.clear()
        if self._wake_fd >= 0 and not self._service_gone:
            interest = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._out else 0)
            self._selector.modify(self._sock, interest, self._on_service)

    def _report(self) -> None:
        captured = self._capture.finish()
        if self._service_gone:
            self._capture.discard()
            return
        exit_code = None if self._status is None else os.waitstatus_to_exitcode(self._status)
        end = {
            "kind": "end",
            "cause": self._cause,
            "exit_code": exit_code,
            "leftovers": self._leftovers,
            "survivors": self._survivors,
            "elapsed": self._ended_at - self._started_at,
            "captured": captured.to_dict(),
        }
        self._out += encode(end)
        self._sock.setblocking(True)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._sock.sendall(self._out)


def fcntl_set_pipe_size(fd: int) -> None:
    """Widen a pipe so that a loud command wakes its shim less often."""
    import fcntl

    fcntl.fcntl(fd, _F_SETPIPE_SZ, _PIPE_BYTES)
