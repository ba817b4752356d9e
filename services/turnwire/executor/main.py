"""The tool executor's process: reads the environment once, opens what the service needs, serves, leaves."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

# The process that serves gRPC forks nothing, so gRPC need not guard against it.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

from turnwire.api.executor.v1 import tool_executor_service_pb2_grpc as grpc_stubs
from turnwire.core.clock import SystemClock
from turnwire.core.errors import WrongState
from turnwire.executor.bodies import Body, Room
from turnwire.executor.catalog import Catalog, DuplicateTool, command_from_json, spec_from_json
from turnwire.executor.inline import InlineBody, InlineHost
from turnwire.executor.janitor import Janitor
from turnwire.executor.ledger import Ledger
from turnwire.executor.limits import OutputLimits
from turnwire.executor.overflow import Overflow
from turnwire.executor.runs import RunLimits, Runs
from turnwire.executor.servicer import SERVICE, ToolExecutorServicer, executor_roles
from turnwire.executor.settings import ExecutorSettings
from turnwire.executor.supervisor import Supervisor
from turnwire.executor.tools import builtin_tools
from turnwire.executor.tools.shell import shell_tool
from turnwire.executor.workers.command import CommandBody
from turnwire.executor.workers.environment import ProcessEnvironment
from turnwire.executor.workers.host import Isolation, ProcessHost
from turnwire.executor.workers.launcher import Launcher
from turnwire.executor.workers.pool import WorkerPool, WorkerStartFailed
from turnwire.executor.workers.python_body import PythonBody, PythonTool
from turnwire.executor.workers.tree import kill_marked
from turnwire.executor.workspace import Workspaces
from turnwire.storage.database import Database, database_at
from turnwire.storage.objects import OverflowStore
from turnwire.wire.drain import DrainHook
from turnwire.wire.process import Application, Host, serve
from turnwire.wire.services import Service

__all__ = ["main"]

# Kept back from the grace of a leaving process: stopping a tree that ignores TERM takes longest.
_STOPPING_SECONDS = 8.0


@asynccontextmanager
async def application(
    settings: ExecutorSettings, host: Host, *, environment: Mapping[str, str]
) -> AsyncIterator[Application]:
    """Open everything the service needs, in order, and close it the other way round."""
    async with AsyncExitStack() as stack:
        launcher = Launcher()
        launcher.start()
        stack.push_async_callback(launcher.close)
        clock = SystemClock()
        database = await _open_database(stack, settings, host)
        ledger = Ledger(database.writer, database.reader, clock)
        mark = f"turnwire-{database.info.log_id}"
        # What an earlier process left running is ended before its executions are called lost.
        await asyncio.to_thread(kill_marked, mark)
        await ledger.lose_started()
        objects = OverflowStore(settings.data / "overflow")
        overflow = Overflow(objects)
        tools = _ToolHosts(settings, launcher, _staging(objects), mark, environment)
        stack.push_async_callback(tools.close)
        catalog = await tools.catalog(overflow, clock)
        runs = Runs(catalog, ledger, overflow, clock, _run_limits(settings))
        stack.push_async_callback(runs.close)
        tasks = Supervisor()
        stack.push_async_callback(tasks.close)
        tasks.start(Janitor(ledger, overflow, clock, settings.store.retention_days * 86_400).run())
        servicer = ToolExecutorServicer(
            catalog,
            runs,
            ledger,
            overflow,
            default_timeout=settings.time.default_timeout_seconds,
            heartbeat_seconds=settings.time.heartbeat_seconds,
        )
        yield Application(
            services=[Service(grpc_stubs.add_ToolExecutorServiceServicer_to_server, servicer)],
            roles=executor_roles(),
            hooks=[DrainHook("executions", runs.refuse, partial(runs.finish, _patience(settings)))],
        )


async def _open_database(stack: AsyncExitStack, settings: ExecutorSettings, host: Host) -> Database:
    database = database_at(
        settings.data / "executor.db",
        "turnwire.executor",
        on_fatal=host.fail,
        on_health=partial(host.health.set, SERVICE),
        synchronous=settings.store.synchronous,
    )
    await database.open()
    stack.push_async_callback(database.close)
    return database


def _staging(objects: OverflowStore) -> Path:
    """Give the folder for outputs on their way to the store, free of what earlier processes left."""
    folder = objects.staging_path().parent
    for entry in folder.glob("*.part"):
        entry.unlink(missing_ok=True)
    return folder


def _patience(settings: ExecutorSettings) -> float:
    """Give the seconds for which a leaving process waits before it stops what still runs."""
    grace = settings.drain.stop_grace_seconds
    return max(grace - _STOPPING_SECONDS, grace / 2)


def _run_limits(settings: ExecutorSettings) -> RunLimits:
    return RunLimits(
        default_timeout=settings.time.default_timeout_seconds,
        max_timeout=settings.time.max_timeout_seconds,
        queue_timeout=settings.time.queue_timeout_seconds,
        max_queued=settings.pool.max_queued,
        max_result_chars=settings.result.max_chars,
    )


class _ToolHosts:
    """Where the three kinds of tools run."""

    def __init__(
        self,
        settings: ExecutorSettings,
        launcher: Launcher,
        staging: Path,
        mark: str,
        environment: Mapping[str, str],
    ) -> None:
        limits = OutputLimits(
            settings.result.max_chars,
            settings.result.head_ratio,
            settings.result.tail_ratio,
            settings.result.max_stored_bytes,
        )
        self._settings = settings
        self._tasks = Supervisor()
        self._inline = InlineHost(limits, str(staging), settings.pool.max_inline)
        self._processes = ProcessHost(
            launcher=launcher,
            environment=ProcessEnvironment(environment, settings.process_env, mark),
            workspaces=Workspaces(settings.workspaces.resolve()),
            isolation=Isolation(settings.isolation),
            limits=limits,
            staging=staging.resolve(),
            commands=Room(settings.pool.max_commands),
        )
        files = [str(Path(file).resolve()) for file in settings.tools]
        self._pool = WorkerPool(launcher, settings.pool, files, self._processes.worker_spec)

    async def catalog(self, overflow: Overflow, clock: SystemClock) -> Catalog:
        """Collect the tools there are. Raises WrongState when users' tools do not load."""
        tools = builtin_tools(self._processes.workspaces, self._settings.http, overflow, clock)
        bodies: list[Body] = [InlineBody(tool, self._inline) for tool in tools]
        if self._settings.shell_enabled:
            bodies.append(CommandBody(shell_tool(), self._processes))
        try:
            described = await self._pool.start()
            bodies += [self._body(item) for item in described]
            disabled = self._settings.disabled_tools
            return Catalog(body for body in bodies if body.spec.name not in disabled)
        except (WorkerStartFailed, DuplicateTool) as error:
            raise WrongState(f"the tools cannot be loaded: {error}", reason="TOOLS_UNLOADABLE") from error

    async def close(self) -> None:
        """End the workers."""
        await self._pool.close()
        await self._tasks.close()
        await self._inline.tasks.close()

    def _body(self, described: Mapping[str, Any]) -> Body:
        if "command" in described:
            return CommandBody(command_from_json(described), self._processes)
        tool = PythonTool(spec_from_json(described["spec"]), described["async"], described["on_cancel"])
        return PythonBody(tool, self._pool, self._processes, self._tasks)


def main() -> int:
    """Serve the tool executor until it is told to stop; returns the exit code."""
    environment = dict(os.environ)
    return serve(
        "turnwire-executor",
        ExecutorSettings,
        partial(application, environment=environment),
        argv=sys.argv[1:],
        environment=environment,
    )


if __name__ == "__main__":
    sys.exit(main())
