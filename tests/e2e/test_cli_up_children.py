"""How `turnwire up` treats its children, shown with children that misbehave on purpose."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from support.cli_process import environment

pytestmark = pytest.mark.e2e

FAKE = str(Path(__file__).parents[1] / "support" / "fake_service.py")
PROGRAM = """
import asyncio, os, sys
from pathlib import Path
from turnwire.cli.up import UpOptions, up
folder = Path(sys.argv[1])
commands = {name: [sys.executable, sys.argv[2], name] for name in ("control", "executor", "runtime")}
options = UpOptions(
    environment=dict(os.environ), data=folder / "data", ready_file=folder / "ready.json", commands=commands,
    agents=folder / "agents", tools=(folder / "tools.py",),
)
sys.exit(asyncio.run(up(options)))
"""


@asynccontextmanager
async def fleet(folder: Path, **behaviour: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        PROGRAM,
        str(folder),
        FAKE,
        env=environment(**behaviour),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(30):
            yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def ready(process: asyncio.subprocess.Process, folder: Path) -> dict[str, dict[str, int]]:
    """Wait until the summary is printed; gives what the ready file says."""
    assert process.stdout is not None
    while b"ready: turnwire" not in (line := await process.stdout.readline()):
        assert line, "up ended before everything was ready"
    return json.loads((folder / "ready.json").read_text())


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def rest(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    out = (await process.stdout.read()).decode()
    await process.wait()
    return out


async def test_one_ctrl_c_drains_all_and_ends_with_0(tmp_path: Path) -> None:
    async with fleet(tmp_path) as process:
        facts = await ready(process, tmp_path)
        process.send_signal(signal.SIGINT)
        out = await rest(process)
    assert process.returncode == 0
    assert out.index("runtime drained") < out.index("control drained")
    assert "executor drained" in out
    assert not any(alive(pid) for pid in facts["pids"].values())


async def test_each_line_has_its_service_and_the_runtime_knows_the_others(tmp_path: Path) -> None:
    async with fleet(tmp_path) as process:
        assert process.stdout is not None
        lines = [(await process.stdout.readline()).decode() for _ in range(8)]
        process.send_signal(signal.SIGTERM)
        await rest(process)
    said = dict(line.split("| ", 1) for line in lines if "| {" in line)
    links = json.loads(said["runtime  "])["links"]
    assert links["TURNWIRE_RUNTIME_CONTROL__TARGET"] == "127.0.0.1:40007"
    assert links["TURNWIRE_RUNTIME_EXECUTOR__TARGET"] == "127.0.0.1:40008"
    assert links["TURNWIRE_RUNTIME_AGENTS"] == str(tmp_path / "agents")
    tools = json.loads(said["executor "])["links"]["TURNWIRE_EXECUTOR_TOOLS"]
    assert json.loads(tools) == [str(tmp_path / "tools.py")]
    assert json.loads(said["control  "])["data"] == str(tmp_path / "data")


async def test_a_second_ctrl_c_kills_what_does_not_leave(tmp_path: Path) -> None:
    async with fleet(tmp_path, FAKE_RUNTIME="deaf") as process:
        facts = await ready(process, tmp_path)
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        while b"stopping" not in await process.stdout.readline():
            pass
        process.send_signal(signal.SIGINT)
        await rest(process)
    assert process.returncode == 130
    assert not any(alive(pid) for pid in facts["pids"].values())


async def test_when_one_dies_the_others_stop_and_the_exit_code_says_so(tmp_path: Path) -> None:
    async with fleet(tmp_path, FAKE_EXECUTOR="die") as process:
        facts = await ready(process, tmp_path)
        (tmp_path / "data" / "die").touch()
        out = await rest(process)
    assert process.returncode == 7
    assert "executor ended with exit code 9 while it was serving" in out
    assert "runtime drained" in out
    assert not any(alive(pid) for pid in facts["pids"].values())


async def test_a_service_that_cannot_start_ends_the_others_and_its_words_are_shown(tmp_path: Path) -> None:
    async with fleet(tmp_path, FAKE_CONTROL="refuse") as process:
        out = await rest(process)
    assert process.returncode == 7
    assert "control  | the settings are wrong" in out
    assert "control ended with exit code 2 before it was ready" in out
    assert "Traceback" not in out


@pytest.mark.skipif(not os.path.exists("/usr/bin/setpriv"), reason="setpriv is not installed")
async def test_children_do_not_outlive_a_killed_parent(tmp_path: Path) -> None:
    async with fleet(tmp_path) as process:
        facts = await ready(process, tmp_path)
        process.kill()
        await process.wait()
        while any(alive(pid) for pid in facts["pids"].values()):
            await asyncio.sleep(0)
