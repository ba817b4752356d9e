"""Stubs generated for Go and TypeScript run a turn against the live services."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cli_process import ROOT
from support.live_fleet import Fleet, live_fleet
from support.scripted_runtime import Leg, ScriptedRuntime, serving
from support.turn_story import multiplication
from turnwire.core.settings import ListenSettings
from turnwire.wire.server import server_options

pytestmark = pytest.mark.e2e
GO = ROOT / "clients" / "go"
TYPESCRIPT = ROOT / "clients" / "typescript"


def need(program: str) -> str:
    """Give a program's path; without it the test is skipped, or fails where nothing may be skipped."""
    found = shutil.which(program)
    if found:
        return found
    if os.environ.get("TURNWIRE_TEST_NO_SKIP") == "1":
        pytest.fail(f"{program} is not installed, and TURNWIRE_TEST_NO_SKIP=1 forbids the skip")
    pytest.skip(f"{program} is not installed")


def done(*words: str, cwd: Path, timeout: float = 100) -> str:
    ran = subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=timeout)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with live_fleet(tmp_path_factory.mktemp("fleet")) as running:
        yield running


def test_the_stubs_are_made_from_these_protos() -> None:
    done("scripts/gen_clients.sh", "--check", cwd=ROOT)


@pytest.mark.timeout(300)
def test_a_go_program_runs_a_turn(fleet: Fleet, tmp_path: Path) -> None:
    go = need("go")
    program = str(tmp_path / "runturn")
    done(go, "build", "-o", program, "./cmd/runturn", cwd=GO, timeout=280)
    out = done(program, fleet.target, "agents/demo", "multiply 123 by 45", cwd=GO)
    assert "[multiply: 5535]" in out
    assert "TURN_STATE_COMPLETED" in out


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_a_go_program_survives_a_silent_stream_with_the_fastest_pings_it_can_send(
    tmp_path: Path,
) -> None:
    go, program = need("go"), str(tmp_path / "runturn")
    await asyncio.to_thread(done, go, "build", "-o", program, "./cmd/runturn", cwd=GO, timeout=280)
    story = multiplication().events
    runtime = ScriptedRuntime(story, Leg(until=5, after_command=story[5:]))
    async with (
        serving(runtime, options=server_options(ListenSettings())) as target,
        asyncio.TaskGroup() as group,
    ):
        words = (program, target, "agents/demo", "hello")
        told = group.create_task(asyncio.to_thread(done, *words, cwd=GO))
        try:
            async with asyncio.timeout(35):
                await runtime.detached.wait()
        except TimeoutError:
            runtime.commanded.set()
        assert "6 times 7 is 42." in await told


@pytest.mark.timeout(300)
def test_a_typescript_program_runs_a_turn(fleet: Fleet) -> None:
    node, npm = need("node"), need("npm")
    if not (TYPESCRIPT / "node_modules").exists():
        done(npm, "ci", cwd=TYPESCRIPT, timeout=280)
    done(npm, "run", "build", cwd=TYPESCRIPT, timeout=200)
    out = done(node, "dist/run-turn.js", fleet.target, "agents/demo", "multiply 123 by 45", cwd=TYPESCRIPT)
    assert "[multiply: 5535]" in out
    assert "COMPLETED" in out
