"""The demo and the examples do what they say, run as a reader would run them."""

from __future__ import annotations

import hashlib
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from support.cli_process import ROOT, environment
from support.live_fleet import Fleet, live_fleet

pytestmark = pytest.mark.e2e
EXAMPLES = ROOT / "examples"


def python(*words: str, timeout: float = 90) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], env=environment(), capture_output=True, text=True, timeout=timeout, cwd=ROOT
    )


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with live_fleet(tmp_path_factory.mktemp("fleet"), "--tools", str(EXAMPLES / "first_tool.py")) as running:
        yield running


def test_the_demo_runs_to_its_end_and_what_it_leaves_can_be_replayed(tmp_path: Path) -> None:
    done = python(str(EXAMPLES / "demo" / "run.py"), "--data", str(tmp_path / "kept"))
    assert done.returncode == 0, done.stdout + done.stderr
    pids = re.findall(r"turnwire-\w+ +127\.0\.0\.1:\d+ +pid (\d+)", done.stdout)
    assert len(set(pids)) == 3
    a, b = map(int, re.findall(r"multiply (\d+) by (\d+)", done.stdout)[0])
    assert "succeeded after" in done.stdout
    assert str(a * b) in done.stdout
    assert "cancelled" in done.stdout
    assert "timed_out after 1." in done.stdout
    turns = re.findall(r"turnwire watch (\S+) --after 0 --json", done.stdout)
    assert len(turns) == 4
    data = tmp_path / "kept"
    assert {path.name for path in data.glob("*.db")} == {"control.db", "executor.db", "runtime.db"}
    digest = hashlib.sha256(re.findall(r"-> multiply (\{.*\})", done.stdout)[0].encode()).hexdigest()
    with closing(sqlite3.connect(data / "executor.db")) as ledger:
        (row,) = ledger.execute(
            "SELECT arguments_sha256, end_json FROM execution WHERE tool_name = 'multiply'"
        ).fetchall()
    assert row[0] == digest
    assert str(a * b) in row[1]
    with live_fleet(tmp_path, "--data", str(data)) as fleet:
        replay = python(
            "-m", "turnwire.cli.main", "--target", fleet.target, "watch", turns[0], "--after", "0", "--json"
        )
    assert replay.returncode == 0, replay.stderr
    assert str(a * b) in replay.stdout.splitlines()[-1]
    assert '"turnAccepted"' in replay.stdout.splitlines()[0]


def test_the_demo_fails_with_a_clear_text_when_the_services_cannot_start(tmp_path: Path) -> None:
    data = tmp_path / "kept"
    data.mkdir()
    (data / "control.db").write_bytes(b"this is no database" * 100)
    done = python(str(EXAMPLES / "demo" / "run.py"), "--data", str(data))
    assert done.returncode == 1
    assert "The demo failed: the services ended with exit code 7" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_ten_line_client_prints_the_answer(fleet: Fleet) -> None:
    program = EXAMPLES / "client_ten_lines.py"
    code = [line for line in program.read_text().splitlines() if line.strip() and not line.startswith('"""')]
    assert len(code) <= 10
    done = python(str(program), fleet.target)
    assert done.returncode == 0, done.stderr
    assert "42" in done.stdout


def test_the_first_tool_has_five_lines_and_runs(fleet: Fleet) -> None:
    source = (EXAMPLES / "first_tool.py").read_text().split('"""\n', 2)[-1]
    assert len([line for line in source.splitlines() if line.strip()]) <= 5
    words = ("run", "--agent", "demo", 'call shout {"text": "hello"}')
    done = python("-m", "turnwire.cli.main", "--target", fleet.target, *words)
    assert done.returncode == 0, done.stderr
    assert "HELLO" in done.stdout
