"""What a turn and a step cost the store does not grow with what the store holds: `python -m bench.flat`.

A store with 100 threads is measured beside one with 100,000, each thread with 20 messages and a log; and a
step in a thread of 10 messages beside one in a thread of 2,000. Every measurement is a process of its own
that opens the file anew.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.figures import Gate, pair_ratios, spread
from bench.meter import machine
from bench.store_files import build

GATE = 1.3
SMALL, LARGE = 100, 100_000
MESSAGES = 20
SHORT, LONG = 10, 2_000


async def measure(path: Path, *words: str) -> float:
    """CPU seconds of one turn or step, measured in a process of its own."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.flat_turns", str(path), *words, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"the measurement ended with {process.returncode}")
    return float(json.loads(out)["cpu"])


async def pairs(
    name: str, less: tuple[Path, Sequence[str]], more: tuple[Path, Sequence[str]], count: int
) -> Gate:
    """Measure two files in turn, in an order that turns round, and gate the median of the ratios."""
    figures: dict[Path, list[float]] = {less[0]: [], more[0]: []}
    for number in range(count):
        for path, words in (less, more) if number % 2 == 0 else (more, less):
            figures[path].append(await measure(path, *words))
    for path, values in figures.items():
        print(f"  {path.stem:<24} CPU {spread(values).show(1e6, 0)} us a {name}", flush=True)
    ratios = pair_ratios(figures[more[0]], figures[less[0]])
    print(f"  ratio {spread(ratios).show()}", flush=True)
    return Gate(f"CPU a {name}, {more[0].stem} over {less[0].stem}", spread(ratios).median, 1.0, " x", GATE)


def made(folder: Path, name: str, threads: int, messages: int) -> Path:
    """Make a store and say what it took."""
    path = folder / f"{name}.db"
    begun = time.monotonic()
    build(path, threads, messages)
    size = path.stat().st_size / 2**20
    print(f"  {name}: {size:.0f} MiB, made in {time.monotonic() - begun:.0f} s", flush=True)
    return path


async def run(options: argparse.Namespace) -> int:
    """Measure both; returns 1 when a gate is closed."""
    print(machine(), flush=True)
    with tempfile.TemporaryDirectory(prefix="turnwire-flat-", dir=options.directory) as name:
        folder = Path(name)
        few = made(folder, f"{SMALL}-threads", SMALL, MESSAGES)
        many = made(folder, f"{options.threads}-threads", options.threads, MESSAGES)
        turns = ("--turns", str(options.turns))
        gates = [
            await pairs(
                "turn",
                (few, ("--threads", str(SMALL), *turns)),
                (many, ("--threads", str(options.threads), *turns)),
                options.pairs,
            )
        ]
        short = made(folder, f"{SHORT}-messages", 1, SHORT)
        long = made(folder, f"{LONG}-messages", 1, LONG)
        steps = ("--steps", str(options.steps))
        gates.append(await pairs("step", (short, steps), (long, steps), options.pairs))
    print("\n".join(f"  {gate.show()}" for gate in gates), flush=True)
    return int(not all(gate.passed for gate in gates))


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the options."""
    parser = argparse.ArgumentParser(description="Measure whether the store's work grows with what it holds.")
    parser.add_argument("--directory", default=None, help="where the files lie; the temporary directory")
    parser.add_argument("--threads", type=int, default=LARGE, help="threads of the large store (100,000)")
    parser.add_argument("--turns", type=int, default=200, help="turns of a measurement (200)")
    parser.add_argument("--steps", type=int, default=200, help="steps of a measurement (200)")
    parser.add_argument("--pairs", type=int, default=5, help="rounds (5)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(asyncio.run(run(parse())))
