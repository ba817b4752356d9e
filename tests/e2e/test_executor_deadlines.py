"""Limits and stops of real processes: the result is in time and nothing is left running."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.executor_process import ExecutorClient, ExecutorProcess, client, executor, processes_with

TOOLS = Path(__file__).parents[1] / "support" / "executor_tools.py"
# Beyond the limit itself: what this machine may add when it is busy.
SLACK = 1.5
LIMIT = 0.5

pytestmark = [pytest.mark.e2e]
_numbers = itertools.count()


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExecutorProcess]:
    with executor(tmp_path_factory.mktemp("executor"), tools=TOOLS) as started:
        yield started


def new_call() -> str:
    return f"call-{next(_numbers)}"


async def run_bash(
    calls: ExecutorClient, call: str, script: str, timeout: float = LIMIT
) -> tuple[str, float]:
    told = await calls.execute(
        call, "bash", {"script": script}, timeout=timeout, context={"variables": {"PROBE": call}}
    )
    assert told.outcome == "TIMED_OUT"
    assert told.kinds[-1] == "result"
    assert told.result is not None
    assert told.result.execution_timeout.ToMilliseconds() == timeout * 1000
    return told.content, told.seconds


@pytest.mark.parametrize(
    "script",
    [
        "sleep 60 & echo started; wait",
        "echo started; sleep 60",
        "echo started; exec sleep 60",
        "setsid sleep 60 & echo started; wait",
        "(setsid sleep 60 &) ; (setsid bash -c 'setsid sleep 60 & exit' &); echo started; sleep 60",
        "echo started; sleep 60 | cat",
        "echo started; kill -STOP $$",
    ],
)
async def test_a_limit_ends_the_whole_tree_in_time(process: ExecutorProcess, script: str) -> None:
    call = new_call()
    async with asyncio.timeout(30), client(process) as calls:
        content, seconds = await run_bash(calls, call, script)
    assert content == "started\n"
    assert LIMIT <= seconds <= LIMIT + 0.5 + SLACK
    assert processes_with(f"PROBE={call}") == []


async def test_processes_that_ignore_term_are_killed(process: ExecutorProcess) -> None:
    call = new_call()
    script = "trap '' TERM; (trap '' TERM; setsid sleep 60) & echo started; while :; do sleep 1; done"
    async with asyncio.timeout(30), client(process) as calls:
        content, seconds = await run_bash(calls, call, script)
    assert content == "started\n"
    assert LIMIT + 2.0 <= seconds <= LIMIT + 2.5 + SLACK
    assert processes_with(f"PROBE={call}") == []


async def test_output_printed_on_term_is_kept(process: ExecutorProcess) -> None:
    async with asyncio.timeout(30), client(process) as calls:
        script = "trap 'echo cleaned up; exit 0' TERM; echo started; while :; do sleep 0.05; done"
        content, _ = await run_bash(calls, new_call(), script)
    assert content.startswith("started\n")
    assert content.endswith("cleaned up\n")


async def test_what_a_command_leaves_behind_ends_with_it(process: ExecutorProcess) -> None:
    call = new_call()
    async with asyncio.timeout(30), client(process) as calls:
        told = await calls.execute(
            call,
            "bash",
            {"script": "setsid sleep 60 & echo done"},
            context={"variables": {"PROBE": call}},
        )
    assert told.outcome == "SUCCEEDED"
    assert told.content == "done\n[1 processes that the command left behind were ended]"
    assert processes_with(f"PROBE={call}") == []


async def test_a_stop_ends_the_tree_and_keeps_the_output(process: ExecutorProcess) -> None:
    call = new_call()
    async with asyncio.timeout(30), client(process) as calls:
        stream = calls.stream(
            call,
            "bash",
            {"script": "sleep 60 & echo started; wait"},
            context={"variables": {"PROBE": call}},
        )
        await calls.until(stream, "progress")
        await calls.cancel(call)
        told = await calls.follow(stream)
        await calls.cancel(call)  # A second one changes nothing.
    assert told.outcome == "STOPPED"
    assert told.content == "started\n"
    assert told.seconds < SLACK
    assert processes_with(f"PROBE={call}") == []


async def test_a_blocking_python_tool_is_killed_and_others_go_on(process: ExecutorProcess) -> None:
    async with asyncio.timeout(60), client(process) as calls:
        told = await calls.execute(new_call(), "sync_sleep", timeout=0.5)
        assert told.outcome == "TIMED_OUT"
        assert told.content == "working\n"
        assert (await calls.execute(new_call(), "greet", {"name": "you"})).content == "Hello, you!"


async def test_children_of_a_python_tool_end_with_it(process: ExecutorProcess) -> None:
    call = new_call()
    async with asyncio.timeout(60), client(process) as calls:
        stream = calls.stream(call, "sync_with_child", {"marker": call})
        await calls.until(stream, "progress")
        await calls.cancel(call)
        told = await calls.follow(stream)
    assert told.outcome == "STOPPED"
    assert processes_with(f"CHILD_OF={call}") == []


async def test_an_async_tool_that_swallows_cancellation_is_killed(process: ExecutorProcess) -> None:
    async with asyncio.timeout(60), client(process) as calls:
        told = await calls.execute(new_call(), "stubborn", timeout=0.5)
        assert told.outcome == "TIMED_OUT"
        assert told.content == "never\n"
        assert 2.5 <= told.seconds <= 3.0 + SLACK


async def test_calls_that_go_down_with_a_blocked_worker_end_as_unknown(process: ExecutorProcess) -> None:
    async with asyncio.timeout(60), client(process) as calls:
        neighbour_call = new_call()
        neighbour = calls.stream(neighbour_call, "sleeper")
        await calls.until(neighbour, "progress")
        hog = await calls.execute(new_call(), "hog", timeout=0.5)
        assert hog.outcome == "TIMED_OUT"
        told = await calls.follow(neighbour)
        assert told.outcome == "OUTCOME_UNKNOWN"
        assert told.content == "asleep\n"
        assert (await calls.lookup(neighbour_call)).state == 6  # LOST


async def test_an_async_python_tool_stops_at_once(process: ExecutorProcess) -> None:
    async with asyncio.timeout(30), client(process) as calls:
        call = new_call()
        stream = calls.stream(call, "sleeper")
        await calls.until(stream, "progress")
        await calls.cancel(call)
        told = await calls.follow(stream)
    assert told.outcome == "STOPPED"
    assert told.content == "asleep\n"
    assert told.seconds < SLACK


@pytest.mark.parametrize("tool", ["tidy_async", "tidy_sync"])
async def test_the_cancel_handler_runs_once_after_a_stop(
    process: ExecutorProcess, tool: str, tmp_path: Path
) -> None:
    call = new_call()
    file = tmp_path / "tidied"
    async with asyncio.timeout(60), client(process) as calls:
        stream = calls.stream(call, tool, context={"call_id": call, "variables": {"TIDY_FILE": str(file)}})
        await calls.until(stream, "started")
        await calls.cancel(call)
        told = await calls.follow(stream)
    assert told.outcome == "STOPPED"
    assert told.result is not None
    assert told.result.cancel_note == "tidied up"
    assert file.read_text() == call


async def test_a_built_in_tool_keeps_its_limit(process: ExecutorProcess) -> None:
    async with asyncio.timeout(30), client(process) as calls:
        # A route that swallows packets would do the same; here the limit is simply too short.
        told = await calls.execute(new_call(), "http_fetch", {"url": "http://192.0.2.1/"}, timeout=0.001)
    assert told.outcome in ("TIMED_OUT", "FAILED")


def _peak_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1])
    raise AssertionError("no VmHWM")


def _with_children(pid: int) -> list[int]:
    """A process and everything below it: the service, its spawners and its Python workers."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += _with_children(int(child))
    return found


@pytest.mark.parametrize(
    "size", [64 << 20, pytest.param(1 << 30, marks=[pytest.mark.slow, pytest.mark.timeout(300)])]
)
async def test_a_flood_of_output_costs_megabytes_in_all_processes_together(
    process: ExecutorProcess, size: int, tmp_path: Path
) -> None:
    call, told_peak = new_call(), tmp_path / "peak"
    # The process that pumps the output is gone after the call, so the tool, its child, notes its peak.
    script = f"yes 'a line of some output' | head -c {size}; grep VmHWM /proc/$PPID/status > {told_peak}"
    line = b"a line of some output\n"
    async with asyncio.timeout(280), client(process) as calls:
        lasting = _with_children(process.pid)
        before = {pid: _peak_kib(pid) for pid in lasting}
        told = await calls.execute(call, "bash", {"script": script}, timeout=270.0)
        assert told.outcome == "SUCCEEDED"
        assert told.result is not None
        assert len(told.content) < 50_000
        overflow = told.result.overflow
        assert (overflow.size_bytes, told.result.total_chars) == (size, size)
        digest, expected = hashlib.sha256(), hashlib.sha256()
        piece = 4 << 20
        for offset in range(0, size, piece):
            digest.update(await calls.read(overflow.handle, offset=offset, length=piece))
            first = offset % len(line)
            expected.update((line * (piece // len(line) + 2))[first : first + piece])
        assert digest.hexdigest() == expected.hexdigest() == overflow.sha256
    pump = int(told_peak.read_text().split()[1])
    # A pump begins as a copy of the spawner, which is the smallest of the processes.
    grown = sum(_peak_kib(pid) - before[pid] for pid in lasting) + pump - min(before.values())
    print(f"{size >> 20} MiB of output: all processes together grew by {grown / 1024:.1f} MiB")
    assert grown < 64 * 1024
