"""The three services on this machine, as one: they start together, and none stays when one is gone."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.text import Text

from turnwire.cli.exit_codes import ExitCode
from turnwire.cli.processes import ChildDied, ChildProcess, ChildSpec, service_command
from turnwire.core.version import version

__all__ = ["UpOptions", "up"]

_START_TIMEOUT = 60.0
# What the services themselves grant running work, and a little more.
_STOP_TIMEOUT = 70.0
_COLOURS = {"control": "magenta", "executor": "yellow", "runtime": "cyan"}


@dataclass(frozen=True)
class UpOptions:
    """What `turnwire up` was asked for; a port of 0 lets the system choose.

    Attributes:
        environment: what the services inherit.
        ready_file: written as JSON once all serve: addresses and pids.
        commands: other programs to start in place of the services, by name.
    """

    environment: Mapping[str, str]
    data: Path = Path(".turnwire")
    host: str = "127.0.0.1"
    runtime_port: int = 50051
    control_port: int = 50052
    executor_port: int = 50053
    agents: Path | None = None
    tools: tuple[Path, ...] = ()
    ready_file: Path | None = None
    quiet: bool = False
    commands: Mapping[str, list[str]] = field(default_factory=dict)


async def up(options: UpOptions) -> ExitCode:
    """Run the services until a signal, or until one of them dies."""
    options.data.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="turnwire-up-") as folder:
        return await _Fleet(options, Path(folder)).run()


class _Stop(Exception):
    """Somebody asked for the end."""


class _Fleet:
    def __init__(self, options: UpOptions, folder: Path) -> None:
        self._options = options
        self._folder = folder
        self._console = Console(soft_wrap=True, highlight=False)
        self._children: list[ChildProcess] = []
        self._pumps: list[asyncio.Task[int]] = []
        self._signals = 0
        self._stop = asyncio.Event()

    async def run(self) -> ExitCode:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._signalled)
        code = ExitCode.OK
        async with asyncio.TaskGroup() as group:
            try:
                await self._start(group)
                self._tell()
                await self._watch()
            except ChildDied as error:
                self._say(str(error), "red")
                code = ExitCode.SERVICE_DIED
            except TimeoutError:
                self._say(f"a service was not ready after {_START_TIMEOUT:g} s", "red")
                code = ExitCode.SERVICE_DIED
            except _Stop:
                self._say("stopping: running turns may finish; Ctrl-C again ends them", "dim")
            finally:
                await self._end()
        if code is ExitCode.OK and self._signals > 1:
            return ExitCode.INTERRUPTED
        return code

    def _signalled(self) -> None:
        self._signals += 1
        self._stop.set()
        if self._signals > 1:
            for child in self._children:
                child.kill()

    async def _start(self, group: asyncio.TaskGroup) -> None:
        options = self._options
        control = await self._launch(group, "control", options.control_port, {})
        executor = await self._launch(group, "executor", options.executor_port, self._executor_environment())
        await self._ready(control)
        await self._ready(executor)
        links = {
            "TURNWIRE_RUNTIME_CONTROL__TARGET": f"{options.host}:{control.port}",
            "TURNWIRE_RUNTIME_EXECUTOR__TARGET": f"{options.host}:{executor.port}",
        }
        if options.agents is not None:
            links["TURNWIRE_RUNTIME_AGENTS"] = str(options.agents)
        await self._ready(await self._launch(group, "runtime", options.runtime_port, links))

    def _executor_environment(self) -> dict[str, str]:
        if not self._options.tools:
            return {}
        return {"TURNWIRE_EXECUTOR_TOOLS": json.dumps([str(path) for path in self._options.tools])}

    async def _launch(
        self, group: asyncio.TaskGroup, name: str, port: int, environment: Mapping[str, str]
    ) -> ChildProcess:
        options = self._options
        format_name = f"TURNWIRE_{name.upper()}_LOG__FORMAT"
        spec = ChildSpec(
            name,
            options.commands.get(name) or service_command(name),
            {format_name: "text", **options.environment, **environment},
            ["--host", options.host, "--port", str(port), "--data", str(options.data)],
        )
        child = ChildProcess(spec, self._folder, self._line)
        await child.start()
        self._children.append(child)
        self._pumps.append(group.create_task(child.pump(), name=f"up.{name}"))
        return child

    async def _ready(self, child: ChildProcess) -> None:
        await child.wait_ready(_START_TIMEOUT)
        if self._stop.is_set():
            raise _Stop

    async def _watch(self) -> None:
        """Wait for a signal or a death. Raises: _Stop or ChildDied."""
        while not self._stop.is_set():
            for child in self._children:
                if not child.running:
                    raise ChildDied(child.name, child.exit_code, ready=True)
            try:
                async with asyncio.timeout(0.2):
                    await self._stop.wait()
            except TimeoutError:
                continue
        raise _Stop

    async def _end(self) -> None:
        """Stop the runtime first, since its turns still need the others, then those; kill what stays."""
        ordered = list(reversed(self._children))
        for child in ordered:
            child.terminate()
            if child.name == "runtime":
                await self._gone(child)
        for child in ordered:
            await self._gone(child)
        if self._pumps:
            # A tool that outlived its executor may hold the pipe open; its lines are not worth waiting for.
            _, held = await asyncio.wait(self._pumps, timeout=2.0)
            for pump in held:
                pump.cancel()

    async def _gone(self, child: ChildProcess) -> None:
        try:
            async with asyncio.timeout(_STOP_TIMEOUT):
                await child.wait()
        except TimeoutError:
            self._say(f"{child.name} does not leave: killing it", "red")
            child.kill()

    def _tell(self) -> None:
        options = self._options
        addresses = {child.name: f"{options.host}:{child.port}" for child in self._children}
        pids = {child.name: child.pid for child in self._children}
        self._say(f"turnwire {version()}, data in {options.data}", "bold")
        for name, address in addresses.items():
            self._say(f"  {name:<9} {address}  pid {pids[name]}")
        if options.ready_file is not None:
            text = json.dumps({"addresses": addresses, "pids": pids, "data": str(options.data)})
            partial = options.ready_file.with_name(f"{options.ready_file.name}.{os.getpid()}")
            partial.write_text(text, encoding="utf-8")
            os.replace(partial, options.ready_file)
        here = "" if addresses["runtime"] == "127.0.0.1:50051" else f"--target {addresses['runtime']} "
        self._say(f"ready: turnwire {here}chat", "bold green")

    def _line(self, name: str, line: str) -> None:
        if self._options.quiet:
            return
        prefix = Text(f"{name:<9}| ", style=_COLOURS.get(name, ""))
        self._console.print(prefix + Text(line))

    def _say(self, text: str, style: str = "") -> None:
        self._console.print(Text(text, style=style))
        sys.stdout.flush()
