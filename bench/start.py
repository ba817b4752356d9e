"""What the start of each service costs, and which modules it loads: `python -m bench.start`."""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from bench.figures import Gate, spread
from bench.meter import NOMINAL_SPEED, cpu_seconds, machine, machine_speed, status_mib, tree
from bench.process import Process, script

SERVICES = ("runtime", "control", "executor")
STARTS = 3
HEAVIEST = 12
CPU_FIGURE_SECONDS = 1.0
MEMORY_FIGURE_MIB = 80.0
IMPORT_LINE = re.compile(r"import time:\s+(\d+) \|\s+\d+ \|\s+(\S+)")


async def start_once(service: str, import_times: bool = False) -> tuple[float, dict[str, float], str]:
    """Start a service in an empty folder and end it.

    Returns:
        CPU seconds of its processes until it served, as they were; MiB by process, the root first; and what
        it printed.

    Raises:
        NotReady: it does not serve.
    """
    with tempfile.TemporaryDirectory(prefix="turnwire-bench-") as name:
        folder = Path(name)
        agents = folder / "agents"
        agents.mkdir()
        (agents / "bench.yaml").write_text('name: bench\nmodel: "openai:w:tokens=1"\n', encoding="utf-8")
        process = Process(service, folder)
        command = script(f"turnwire-{service}")
        if import_times:
            command = [sys.executable, "-X", "importtime", *command]
        command += ["--data", str(folder / "data")]
        agents_of = {"runtime": {"TURNWIRE_RUNTIME_AGENTS": str(agents)}}
        try:
            await process.start(command, {"OPENAI_API_KEY": "mock", **agents_of.get(service, {})})
            pids = sorted(tree([process.pid]), key=lambda pid: pid != process.pid)
            cpu = sum(map(cpu_seconds, pids))
            memory = {title(pid): status_mib(pid, "VmRSS") for pid in pids}
            return cpu, memory, process.log.read_text(errors="replace")
        finally:
            process.kill()


def title(pid: int) -> str:
    """A process for the report: its last two words and its id."""
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return f"{os.path.basename(words[min(2, len(words) - 1)]).decode(errors='replace') or 'child'}:{pid}"


def heavy_modules(lines: Iterable[str], number: int = HEAVIEST) -> list[tuple[str, float]]:
    """Sum the own import times by top-level package: the heaviest first, in milliseconds.

    `lines` are those of `python -X importtime`; others are passed over.
    """
    sums: dict[str, float] = defaultdict(float)
    for line in lines:
        if found := IMPORT_LINE.search(line):
            sums[found[2].partition(".")[0]] += int(found[1]) / 1000
    return sorted(sums.items(), key=lambda item: -item[1])[:number]


async def run(options: argparse.Namespace) -> int:
    """Report each service; returns 1 when a gate is closed."""
    print(machine())
    print(f"CPU is scaled to a machine whose speed probe takes {NOMINAL_SPEED * 1e3:.0f} ms")
    closed: list[str] = []
    for service in options.services.split(","):
        speed = machine_speed()
        starts = [await start_once(service) for _ in range(options.starts)]
        speed = min(speed, machine_speed())
        raw = spread([cpu for cpu, _, _ in starts]).median
        memory = [next(iter(memory.values())) for _, memory, _ in starts]
        children = dict(list(starts[-1][1].items())[1:])
        _, _, text = await start_once(service, import_times=True)
        found = [
            Gate(f"{service} start CPU, scaled", raw * NOMINAL_SPEED / speed, CPU_FIGURE_SECONDS, " s"),
            Gate(f"{service} memory after start", spread(memory).median, MEMORY_FIGURE_MIB, " MiB"),
        ]
        closed += [gate.name for gate in found if not gate.passed]
        print("\n".join(gate.show() for gate in found))
        print(f"  start CPU as measured here: {raw:.2f} s, speed probe {speed * 1e3:.0f} ms")
        print("  children: " + (", ".join(f"{k} {v:.0f} MiB" for k, v in children.items()) or "none"))
        heavy = ", ".join(f"{name} {ms:.0f} ms" for name, ms in heavy_modules(text.splitlines()))
        print(f"  heaviest imports: {heavy}", flush=True)
    print("FAIL: " + ", ".join(closed) if closed else "PASS: every gate is open", flush=True)
    return 1 if closed else 0


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the options."""
    parser = argparse.ArgumentParser(description="Measure what the start of each service costs.")
    parser.add_argument("--services", default=",".join(SERVICES), help="which, joined by commas")
    parser.add_argument("--starts", type=int, default=STARTS)
    return parser.parse_args(arguments)


def main() -> int:
    """Run from the command line."""
    return asyncio.run(run(parse()))


if __name__ == "__main__":
    sys.exit(main())
