"""Three services that can be made to die at a commit, be killed at any moment, and start again at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from support.cluster import Cluster, Process
from support.cut_proxy import CutProxy, cut_proxy
from support.fault_load import FaultProvider, fault_provider
from support.fault_points import FAULT_FILE, Fault, FaultFile
from support.turn_rig import AGENT, QUIET, TurnRig
from support.zygote import Zygote

__all__ = ["FaultCluster", "Kill", "fault_cluster"]

TOOLS = Path(__file__).parent / "fault_tools.py"
_QUICK_LINKS = {"GRPC_ENABLE_FORK_SUPPORT": "0"}


@dataclass
class Kill:
    """One death: whose, at which commit, or at which moment; `points` is what it had committed last."""

    victim: str
    fault: Fault | None
    time: int
    points: tuple[str, ...] = ()

    @property
    def named(self) -> str:
        """The commit point it stands for."""
        if self.fault is None:
            return f"{self.victim}:random"
        return _NAMES.get((self.fault.point, self.fault.when), self.fault.point)


# A death before the outcome's commit is one after the executor has the result: C5. At the executor, a start
# that the runtime has not heard of is C4, and an end it has not heard of C5.
_NAMES = {
    ("C6", "before"): "C5",
    ("X2", "before"): "C4",
    ("X2", "after"): "C4",
    ("X3", "before"): "C5",
    ("X3", "after"): "C5",
}


@dataclass
class FaultCluster:
    """What a fault run works with."""

    cluster: Cluster
    rig: TurnRig
    provider: FaultProvider
    files: Mapping[str, FaultFile]
    proxies: Mapping[str, CutProxy]
    folder: Path
    kills: list[Kill] = field(default_factory=list)
    _number: int = 0

    def process(self, name: str) -> Process:
        """The process of a service."""
        process: Process = getattr(self.cluster, name)
        return process

    def arm(self, name: str, point: str, when: str, count: int = 1) -> Fault:
        """Have a service die at a commit point."""
        self._number += 1
        fault = Fault(point, when, count, self._number)
        self.files[name].plan = fault
        return fault

    def disarm(self) -> None:
        """Take back every plan that was not carried out."""
        for file in self.files.values():
            file.plan = None

    def died(self, name: str, fault: Fault | None) -> Kill:
        """Note a death, and that its plan is carried out."""
        file = self.files[name]
        kill = Kill(name, fault, time.time_ns(), tuple(file.state.get("points", ())))
        file.plan = None
        self.kills.append(kill)
        return kill

    async def kill(self, name: str) -> Kill:
        """Kill a service at this moment."""
        process = self.process(name)
        self.files[name].plan = None
        await process.kill()
        return self.died(name, None)


@asynccontextmanager
async def fault_cluster(
    folder: Path,
    *,
    runtime: Mapping[str, str] | None = None,
    agent: str = AGENT,
) -> AsyncIterator[FaultCluster]:
    """Start the three services with links that can be cut; `runtime` is more environment for it."""
    folder.mkdir(parents=True, exist_ok=True)
    async with AsyncExitStack() as stack:
        provider = await stack.enter_async_context(fault_provider())
        cluster = Cluster(
            folder,
            {"main": agent},
            runtime={
                **QUIET,
                "OPENAI_BASE_URL": f"{provider.url}/v1",
                "ANTHROPIC_BASE_URL": provider.url,
                **(runtime or {}),
            },
            executor={"TURNWIRE_EXECUTOR_TOOLS": str(TOOLS)},
        )
        files, proxies = {}, {}
        for process in cluster.processes:
            process.zygote = Zygote(f"support.faulty_{process.name}")
            file = files[process.name] = FaultFile(folder / f"{process.name}.fault")
            file.reset()
            process.environment[FAULT_FILE] = str(file.path)
        for name in ("executor", "control"):
            proxy = proxies[name] = await stack.enter_async_context(
                cut_proxy("127.0.0.1", getattr(cluster, name).port)
            )
            cluster.runtime.environment[f"TURNWIRE_RUNTIME_{name.upper()}__TARGET"] = proxy.address
        async with asyncio.TaskGroup() as tasks:
            for process in cluster.processes:
                assert process.zygote is not None
                tasks.create_task(process.zygote.start())
        for process in cluster.processes:
            assert process.zygote is not None
            stack.push_async_callback(process.zygote.close)
        await stack.enter_async_context(cluster)
        yield FaultCluster(cluster, TurnRig(cluster, provider), provider, files, proxies, folder)
