"""What the way from a model's socket to a committed event costs: `python -m bench.models`.

Three parts, each beside what it is held against: the runtime alone beside the bare reader, long answers
beside short ones, many streams at once beside the bare reader.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

from bench import gaps, long_answers
from bench.contestants import Bare
from bench.figures import Gate, pair_ratios, spread
from bench.measure import measure, warm_up
from bench.meter import machine
from bench.mock_client import Mock
from bench.unread import Unread, cpu_unread
from bench.workloads import WORKLOADS, Workload

PAIRS = 5
CPU_FIGURES = {"W1r": 3.0, "W1": 6.0}
# A long answer may cost this much more for each token, or byte, than a tenth of it.
LINEAR_SLACK = 1.2
TOKENS = 40_000
ARGUMENT_BYTES = 1_000_000
STREAMS = 200
STREAM_SECONDS = 10.0
GAUGE_SECONDS = 5.0
PARTS = ("cpu", "linear", "streams")

Measure = Callable[[], Awaitable[float]]


async def pairs(ours: Measure, theirs: Measure, count: int) -> tuple[list[float], list[float]]:
    """Measure two things in turn, in an order that turns round with each pair."""
    found: tuple[list[float], list[float]] = ([], [])
    for number in range(count):
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            found[which].append(await (ours, theirs)[which]())
    return found


async def run_cpu(name: str, count: int, quick: bool) -> Gate:
    """The runtime's CPU for a turn that nobody reads, beside the bare reader's for the same answer."""
    workload = replace(WORKLOADS[name], repeats=1) if quick else WORKLOADS[name]
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="turnwire-bench-")))
        mock, bare = Mock(folder), Bare()
        stack.push_async_callback(mock.stop)
        await mock.start()
        runtime = Unread(folder, mock.url, [workload])
        stack.push_async_callback(runtime.stop)
        await runtime.start()
        stack.push_async_callback(bare.stop)
        await bare.start(folder, mock.url, workload)
        await warm_up(bare, workload, mock)
        await cpu_unread(runtime, replace(workload, repeats=1), mock)

        async def bare_cpu() -> float:
            return (await measure(bare, workload, mock)).cpu

        ours, theirs = await pairs(lambda: cpu_unread(runtime, workload, mock), bare_cpu, count)
    ratios = spread(pair_ratios(ours, theirs))
    print(f"{name}: {workload.title}, nobody reads")
    print(f"  runtime CPU ms {spread(ours).show(1e3)}, F1 CPU ms {spread(theirs).show(1e3)}")
    print(f"  runtime/F1 {ratios.show()}", flush=True)
    return Gate(f"{name} CPU of the runtime alone over F1", ratios.median, CPU_FIGURES[name], " x")


def long_workloads(tokens: int, size: int) -> list[tuple[str, Workload, Workload]]:
    """What is compared, each with its short and its long workload; ten short ones are one measurement."""
    found = []
    for short in (True, False):
        tenth, repeats = (10, 10) if short else (1, 1)
        texts, bytes_ = tokens // tenth, size // tenth
        name = "short" if short else "long"
        found.append(
            (
                Workload(f"{name}-text", f"{texts} tokens", f"w:tokens={texts}", texts, repeats=repeats),
                Workload(
                    f"{name}-call",
                    f"a call of {bytes_} bytes",
                    f"w:tokens=1:rounds=1:args={bytes_}:piece=4",
                    tokens=2,
                    rounds=1,
                    repeats=repeats,
                ),
            )
        )
    (short_text, short_call), (long_text, long_call) = found
    return [("token of a text", short_text, long_text), ("byte of a call", short_call, long_call)]


async def run_linear(count: int, tokens: int, size: int) -> list[Gate]:
    """The runtime's CPU for a token and for a byte of a call, in long answers over that in short ones."""
    works = long_workloads(tokens, size)
    found: list[Gate] = []
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="turnwire-bench-")))
        mock = Mock(folder)
        stack.push_async_callback(mock.stop)
        await mock.start()
        runtime = Unread(folder, mock.url, [work for _, *both in works for work in both])
        stack.push_async_callback(runtime.stop)
        await runtime.start()
        for name, short, long in works:
            await cpu_unread(runtime, replace(short, repeats=1), mock)
            ours, theirs = await pairs(
                lambda long=long: cpu_unread(runtime, long, mock),  # type: ignore[misc]
                lambda short=short: cpu_unread(runtime, short, mock),  # type: ignore[misc]
                count,
            )
            # The long one is ten times the short one.
            ratios = spread(pair_ratios(ours, [value * 10 for value in theirs]))
            print(f"linear: {name}, {long.title} over {short.title}")
            print(f"  CPU ms {spread(ours).show(1e3)} over {spread(theirs).show(1e3)}", flush=True)
            print(f"  ratio for each {ratios.show()}", flush=True)
            found.append(
                Gate(f"runtime CPU a {name}, long over short", ratios.median, 1.0, " x", LINEAR_SLACK)
            )
    return found


def run_reading(tokens: int, size: int) -> list[Gate]:
    """The same of the reading alone, in this process, for each wire format."""
    found: list[Gate] = []
    for wire in long_answers.FORMATS:
        texts = [
            long_answers.cpu(wire, long_answers.text_body(wire, n), (n, 0, 1)) / n
            for n in (tokens // 10, tokens)
        ]
        calls = [
            long_answers.cpu(wire, long_answers.call_body(wire, n), (0, 1, 1)) / n for n in (size // 10, size)
        ]
        for name, (short, long) in (("token of a text", texts), ("byte of a call", calls)):
            print(
                f"reading {wire}, a {name}: {short * 1e6:.2f} us, {long * 1e6:.2f} us in a long answer",
                flush=True,
            )
            found.append(
                Gate(f"reading {wire}, a {name}, long over short", long / short, 1.0, " x", LINEAR_SLACK)
            )
    return found


async def run(options: argparse.Namespace) -> int:
    """Run the parts that are asked for; returns 1 when a gate is closed."""
    print(machine(), flush=True)
    parts, quick = options.parts.split(","), options.quick
    judged: list[Gate] = []
    found: list[Gate] = []
    if "cpu" in parts:
        found += [await run_cpu(name, 1 if quick else options.pairs, quick) for name in CPU_FIGURES]
    if "linear" in parts:
        tokens, size = (400, 4_000) if quick else (options.tokens, options.bytes)
        found += run_reading(tokens, size)
        found += await run_linear(1 if quick else options.pairs, tokens, size)
    if "streams" in parts:
        many = (5, 1.0, 0.5) if quick else (options.streams, options.seconds, GAUGE_SECONDS)
        whole, *rest = await gaps.run(*many)
        judged, found = [whole], found + rest
    judged = judged if quick else [*found, *judged]
    print("\n".join(f"  {gate.show()}" for gate in judged))
    print(machine())
    closed = [gate.name for gate in judged if not gate.passed]
    print("FAIL: " + ", ".join(closed) if closed else "PASS: every gate is open", flush=True)
    return 1 if closed else 0


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the options."""
    parser = argparse.ArgumentParser(description="Measure the way from a model's socket to committed events.")
    parser.add_argument("--parts", default=",".join(PARTS), help="which, joined by commas")
    parser.add_argument("--pairs", type=int, default=PAIRS, help="rounds of each measurement (5)")
    parser.add_argument("--tokens", type=int, default=TOKENS, help="tokens of a long answer (40,000)")
    parser.add_argument("--bytes", type=int, default=ARGUMENT_BYTES, help="bytes of a long call (1,000,000)")
    parser.add_argument("--streams", type=int, default=STREAMS, help="streams at once (200)")
    parser.add_argument("--seconds", type=float, default=STREAM_SECONDS, help="length of each stream (10)")
    parser.add_argument("--quick", action="store_true", help="little of it; only exactness is judged")
    return parser.parse_args(arguments)


def main() -> int:
    """Run from the command line."""
    return asyncio.run(run(parse()))


if __name__ == "__main__":
    sys.exit(main())
