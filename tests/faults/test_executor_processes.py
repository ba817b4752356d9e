"""Processes die, and the executor says what is true: nothing runs on, nothing is told twice or made up."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.executor_process import ExecutorProcess, client, executor, processes_with
from turnwire.api.executor.v1 import execution_pb2 as ex

TOOLS = Path(__file__).parents[1] / "support" / "executor_tools.py"
STEP = 30

pytestmark = [pytest.mark.e2e]


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExecutorProcess]:
    with executor(tmp_path_factory.mktemp("executor"), tools=TOOLS) as started:
        yield started


def children(pid: int) -> dict[int, bytes]:
    """Give the command lines of a process's children."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                stat = Path(f"/proc/{name}/stat").read_bytes().rpartition(b") ")[2].split()
                if int(stat[1]) == pid:
                    found[int(name)] = Path(f"/proc/{name}/cmdline").read_bytes()
            except OSError:
                continue
    return found


def words_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def spawner(pid: int) -> int:
    return next(child for child, words in children(pid).items() if b"spawner" in words)


async def gone(text: str) -> None:
    """Wait until no process has `text` in its environment."""
    while processes_with(text):
        await asyncio.sleep(0)


async def test_a_dead_spawner_costs_nothing(process: ExecutorProcess) -> None:
    async with asyncio.timeout(STEP), client(process) as calls:
        running = calls.stream("call-1", "bash", {"script": "echo on; sleep 1; echo still"})
        await calls.until(running, "progress")
        first = spawner(process.pid)
        os.kill(first, signal.SIGKILL)
        assert (await calls.execute("call-2", "bash", {"script": "echo new"})).content == "new\n"
        assert spawner(process.pid) != first
        assert (await calls.follow(running)).content == "on\nstill\n"


async def test_a_dead_shim_is_an_unknown_end_and_its_tree_is_ended(process: ExecutorProcess) -> None:
    async with asyncio.timeout(STEP), client(process) as calls:
        running = calls.stream(
            "call-1",
            "bash",
            {"script": "setsid sleep 60 & echo $$; wait"},
            context={"variables": {"PROBE": "shim-dies"}},
        )
        shell = int((await calls.until(running, "progress")).progress.text)
        parent = int(Path(f"/proc/{shell}/stat").read_bytes().rpartition(b") ")[2].split()[1])
        os.kill(parent, signal.SIGKILL)
        told = await calls.follow(running)
        assert told.outcome == "OUTCOME_UNKNOWN"
        assert told.kinds.count("result") == 1
        assert processes_with("PROBE=shim-dies") == []
        assert (await calls.lookup("call-1")).state == ex.EXECUTION_STATE_LOST
        # It may have happened, and it is not repeatable: never again.
        again = await calls.execute("call-1", "bash", {"script": "setsid sleep 60 & echo $$; wait"})
        assert again.outcome == "OUTCOME_UNKNOWN"


async def test_a_dead_worker_is_an_unknown_end_and_is_replaced(process: ExecutorProcess) -> None:
    async with asyncio.timeout(STEP), client(process) as calls:
        running = calls.stream("call-1", "sleeper")
        await calls.until(running, "progress")
        for pid in processes_with(".worker"):
            if b"workers.python" in words_of(pid):
                os.kill(pid, signal.SIGKILL)
        assert (await calls.follow(running)).outcome == "OUTCOME_UNKNOWN"
        assert (await calls.execute("call-2", "greet", {"name": "x"})).outcome == "SUCCEEDED"


async def test_a_killed_service_leaves_nothing_and_tells_the_truth_later(tmp_path: Path) -> None:
    with executor(tmp_path, tools=TOOLS) as first:
        async with asyncio.timeout(STEP), client(first, thread="killed") as calls:
            done = await calls.execute("call-1", "greet", {"name": "x"}, epoch=4)
            running = calls.stream(
                "call-2",
                "bash",
                {"script": "trap '' TERM; setsid sleep 60 & echo on; while :; do sleep 1; done"},
                context={"variables": {"PROBE": "service-dies"}},
                epoch=4,
            )
            await calls.until(running, "progress")
            first.kill()
    with executor(tmp_path, tools=TOOLS) as second:
        async with asyncio.timeout(STEP), client(second, thread="killed") as calls:
            assert processes_with("PROBE=service-dies") == []
            stored = await calls.execute("call-1", "greet", {"name": "x"}, epoch=4)
            assert stored.result == done.result
            lost = await calls.lookup("call-2")
            assert lost.state == ex.EXECUTION_STATE_LOST
            assert not lost.repeatable
            told = await calls.execute("call-3", "greet", {"name": "x"}, epoch=4)
            assert told.outcome == "SUCCEEDED"


async def test_a_lost_repeatable_call_may_be_tried_again(tmp_path: Path) -> None:
    with executor(tmp_path, tools=TOOLS) as first:
        async with asyncio.timeout(STEP), client(first, thread="again") as calls:
            running = calls.stream("call-1", "nap", {"file": str(tmp_path / "woken")})
            await calls.until(running, "progress")
            first.kill()
    (tmp_path / "woken").touch()
    with executor(tmp_path, tools=TOOLS) as second:
        async with asyncio.timeout(STEP), client(second, thread="again") as calls:
            assert (await calls.lookup("call-1")).repeatable
            told = await calls.execute("call-1", "nap", {"file": str(tmp_path / "woken")}, attempt=2)
            assert told.content == "awake"


async def test_a_leaving_service_finishes_what_it_can_and_stops_the_rest(tmp_path: Path) -> None:
    variables = {"DRAIN__STOP_GRACE_SECONDS": "1", "DRAIN__DRAIN_DELAY_SECONDS": "0"}
    with executor(tmp_path, tools=TOOLS, **variables) as process:
        async with asyncio.timeout(STEP), client(process, thread="leaving") as calls:
            short = calls.stream("call-1", "sleeper", {"seconds": 0.3})
            long = calls.stream(
                "call-2", "bash", {"script": "echo on; sleep 60"}, context={"variables": {"PROBE": "drain"}}
            )
            await calls.until(short, "progress")
            await calls.until(long, "progress")
            process.process.send_signal(signal.SIGTERM)
            assert (await calls.follow(short)).content == "awake"
            assert (await calls.follow(long)).outcome == "STOPPED"
            await gone("PROBE=drain")
        assert await asyncio.to_thread(process.process.wait, 20) == 0
    with executor(tmp_path, tools=TOOLS) as process:
        async with asyncio.timeout(STEP), client(process, thread="leaving") as calls:
            assert (await calls.lookup("call-2")).state == ex.EXECUTION_STATE_FINISHED


async def test_tools_that_do_not_load_stop_the_start_with_the_reason(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("import no_such_module\n")
    with pytest.raises(AssertionError, match="ended with 2"), executor(tmp_path, tools=broken):
        pass
