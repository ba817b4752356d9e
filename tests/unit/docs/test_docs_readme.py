"""What the README shows is run as it stands there, against the services that it tells to start."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from support.cli_process import ROOT, environment
from support.doc_pages import blocks, page
from support.live_fleet import Fleet, live_fleet
from turnwire.runtime.domain.agent import AgentDefinition

README = page("README.md")
CLIENT, TOOL = blocks(README, "python")


def run(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, *words], env=environment(), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("readme")
    (folder / "my_tools.py").write_text(TOOL, encoding="utf-8")
    with live_fleet(folder, "--tools", str(folder / "my_tools.py")) as running:
        yield running


def lines_of(code: str) -> list[str]:
    return [line for line in code.splitlines() if line.strip()]


def test_the_two_commands_of_the_readme_exist_and_the_gate_runs_the_same_tests() -> None:
    (commands,) = [block for block in blocks(README, "sh") if "make demo" in block]
    assert [line.split("#")[0].split() for line in lines_of(commands)] == [["make", "demo"], ["make", "test"]]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "\ndemo:" in makefile
    assert "\ntest:" in makefile
    assert "section test make test" in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()


def test_the_quickstart_and_the_examples_are_as_short_as_they_say() -> None:
    (quickstart,) = [block for block in blocks(README, "sh") if "turnwire chat" in block]
    assert len(lines_of(quickstart)) <= 10
    assert len(lines_of(CLIENT)) <= 10
    assert len(lines_of(TOOL)) <= 5


def test_the_agent_file_of_the_readme_is_one() -> None:
    (text,) = blocks(README, "yaml")
    agent = AgentDefinition.model_validate(yaml.safe_load(text))
    assert agent.allows_tool("word_count")


@pytest.mark.e2e
def test_the_client_of_the_readme_prints_the_answer_and_replays_it(fleet: Fleet, tmp_path: Path) -> None:
    program = tmp_path / "client.py"
    program.write_text(CLIENT.replace("127.0.0.1:50051", fleet.target), encoding="utf-8")
    assert "42" in run(str(program))


@pytest.mark.e2e
def test_the_tool_of_the_readme_runs(fleet: Fleet) -> None:
    words = ("run", "--agent", "demo", 'call word_count {"text": "one two three"}')
    assert "3" in run("-m", "turnwire.cli.main", "--target", fleet.target, *words)


@pytest.mark.e2e
def test_the_turn_of_the_quickstart_answers(fleet: Fleet) -> None:
    words = ("run", "multiply", "12", "by", "34")
    assert "408" in run("-m", "turnwire.cli.main", "--target", fleet.target, *words)
