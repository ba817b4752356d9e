"""The three services as real processes on loopback, each on a port of its own that survives a restart."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import grpc

from support.zygote import ForkedProcess, Zygote

__all__ = ["Cluster", "Process", "free_port"]

START_SECONDS = 60.0


def free_port() -> int:
    """Return a port that nobody listens on now."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


class Process:
    """One service process; `start` returns when it serves."""

    def __init__(self, name: str, folder: Path, environment: Mapping[str, str], data: Path) -> None:
        self.name = name
        self.port = free_port()
        self.environment = dict(environment)
        self.module = f"turnwire.{name}.main"
        # When there is one, processes are its forks, which start faster.
        self.zygote: Zygote | None = None
        self._folder = folder
        self._data = data
        self._ready = folder / f"{name}.ready"
        self.log = folder / f"{name}.log"
        self._process: asyncio.subprocess.Process | ForkedProcess | None = None

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.returncode is None

    async def launch(self, *words: str) -> None:
        """Start it with further command line words and wait for nothing."""
        self._ready.unlink(missing_ok=True)
        places = ["--data", str(self._data), "--port", str(self.port), "--ready-file", str(self._ready)]
        environment = {**os.environ, **self.environment}
        if self.zygote is not None:
            self._process = await self.zygote.spawn([*places, *words], environment, self.log)
            return
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                self.module,
                *places,
                *words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )

    async def start(self) -> None:
        """Start it and wait until it serves."""
        await self.launch()
        ended = asyncio.create_task(self.wait())
        try:
            async with asyncio.timeout(START_SECONDS):
                while not self._ready.exists():
                    done, _ = await asyncio.wait({ended}, timeout=0.02)
                    if done:
                        raise RuntimeError(f"{self.name} ended with {ended.result()}:\n{self.told()[-4000:]}")
        finally:
            ended.cancel()
        assert json.loads(self._ready.read_text())["port"] == self.port

    async def wait(self) -> int:
        """Return the exit code when it has ended."""
        assert self._process is not None
        return await self._process.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal and wait for nothing."""
        assert self._process is not None
        self._process.send_signal(number)

    def told(self) -> str:
        """Return everything it has written so far."""
        return self.log.read_text("utf-8", "replace")

    async def kill(self) -> None:
        """End it as a power cut would: no handler runs."""
        await self._end(signal.SIGKILL)

    async def terminate(self) -> int:
        """Ask it to leave and return its exit code."""
        return await self._end(signal.SIGTERM)

    async def restart(self) -> None:
        """Kill it and start it anew."""
        await self.kill()
        await self.start()

    def signal_to_leave(self) -> None:
        """Ask it to leave and do not wait."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)

    async def _end(self, number: signal.Signals) -> int:
        process = self._process
        if process is None or process.returncode is not None:
            return 0 if process is None or process.returncode is None else process.returncode
        process.send_signal(number)
        async with asyncio.timeout(START_SECONDS):
            return await process.wait()


class Cluster:
    """Runtime, control and executor in one data folder.

    Args:
        folder: for data, logs and agent files.
        agents: file name without ending to the YAML (or JSON) text of an agent.
        runtime, executor, control: more environment for each.
    """

    def __init__(
        self,
        folder: Path,
        agents: Mapping[str, str],
        *,
        runtime: Mapping[str, str] | None = None,
        executor: Mapping[str, str] | None = None,
        control: Mapping[str, str] | None = None,
    ) -> None:
        self.data = folder / "data"
        self.agents = folder / "agents"
        self.agents.mkdir(parents=True, exist_ok=True)
        for name, text in agents.items():
            (self.agents / f"{name}.yaml").write_text(text, encoding="utf-8")
        self.control = Process("control", folder, control or {}, self.data)
        self.executor = Process("executor", folder, executor or {}, self.data)
        links = {
            "TURNWIRE_RUNTIME_AGENTS": str(self.agents),
            "TURNWIRE_RUNTIME_EXECUTOR__TARGET": self.executor.target,
            "TURNWIRE_RUNTIME_CONTROL__TARGET": self.control.target,
        }
        self.runtime = Process("runtime", folder, {**links, **(runtime or {})}, self.data)
        self._channels: list[grpc.aio.Channel] = []

    @property
    def processes(self) -> Sequence[Process]:
        return (self.control, self.executor, self.runtime)

    async def __aenter__(self) -> Self:
        try:
            async with asyncio.TaskGroup() as tasks:
                for process in self.processes:
                    tasks.create_task(process.start())
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        for channel in self._channels:
            await channel.close()
        for process in self.processes:
            await process.kill()

    def channel(self, process: Process | None = None) -> grpc.aio.Channel:
        """Return a channel to a process, the runtime by default; closed with the cluster."""
        options: list[tuple[str, Any]] = [
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.max_reconnect_backoff_ms", 200),
        ]
        channel = grpc.aio.insecure_channel((process or self.runtime).target, options=options)
        self._channels.append(channel)
        return channel
