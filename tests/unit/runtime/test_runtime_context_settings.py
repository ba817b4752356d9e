"""What a deployment and an agent file say about long conversations is read by the process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.doc_pages import ROOT, page, table
from support.runtime_fakes import agent
from turnwire.core.errors import TurnwireError
from turnwire.runtime.agent_files import load_agents
from turnwire.runtime.domain.compaction import DEFAULT_PROMPT, DEFAULT_RULES, CompactionTerms
from turnwire.runtime.settings import ContextSettings

# Each setting by its name in the environment, with a value that is not its default.
READ: dict[str, Any] = {
    "ENABLED": False,
    "WINDOWS": {"openai:gpt-*": 400_000},
    "THRESHOLD": 0.7,
    "OUTPUT_RESERVE": 2000,
    "MESSAGES": 30,
    "CHARACTERS": 50_000,
    "KEEP_MESSAGES": 6,
    "GROWTH": 0.5,
    "MODEL": "openai:small",
    "PROMPT": "Shorten it.",
    "TIMEOUT_SECONDS": 20.0,
    "SUMMARY_CHARACTERS": 3000,
    "INPUT_CHARACTERS": 20_000,
    "TOKENIZER_FILE": "/data/o200k_base.tiktoken",
    "TOKENIZER_MODELS": ["openai:*"],
}


def test_the_process_reads_each_setting_of_a_context() -> None:
    environment = {
        f"TURNWIRE_RUNTIME_CONTEXT__{name}": value if isinstance(value, str) else json.dumps(value)
        for name, value in READ.items()
    }
    done = subprocess.run(
        [sys.executable, "-m", "turnwire.runtime.main", "check-config"],
        env={**os.environ, **environment, "PYTHONPATH": str(ROOT / "services")},
        capture_output=True,
        timeout=60,
        check=True,
    )
    shown = json.loads(done.stdout)["context"]
    assert shown == {name.lower(): value for name, value in READ.items()}
    assert set(ContextSettings.model_fields) == set(shown)


def test_the_defaults_of_the_settings_are_those_of_the_rules() -> None:
    made = ContextSettings().rules()
    assert {**made.windows, "x": 0} != {"x": 0}
    for name in DEFAULT_RULES.__dataclass_fields__:
        if name != "windows":
            assert getattr(made, name) == getattr(DEFAULT_RULES, name), name


def test_an_agent_file_says_its_window_and_its_own_rules(tmp_path: Path) -> None:
    (tmp_path / "main.yaml").write_text(
        "model: openai:gpt\ncontext_window: 128000\n"
        "compaction: {keep_messages: 5, prompt: Kurz., model: openai:small, timeout: 5}\n"
    )
    (found,) = load_agents(tmp_path, 30)
    rules = found.compaction.over(DEFAULT_RULES, found.context_window, found.model)
    assert (rules.window, rules.keep_messages, rules.prompt) == (128_000, 5, "Kurz.")
    assert (rules.model, rules.timeout, rules.threshold) == ("openai:small", 5.0, 0.8)


@pytest.mark.parametrize(
    "line",
    ["context_window: 999", "compaction: {messages: 7}", "compaction: {keep: 8}", "compaction: {growth: 0}"],
)
def test_an_agent_file_with_a_limit_out_of_bounds_stops_the_start(tmp_path: Path, line: str) -> None:
    (tmp_path / "main.yaml").write_text(f"model: openai:gpt\n{line}\n")
    with pytest.raises(TurnwireError):
        load_agents(tmp_path, 30)


def test_the_page_of_agents_has_every_key_of_compaction_and_that_of_contexts_the_prompt() -> None:
    told = [row[0].strip("`") for row in table(page("docs/agents.md"), "key under `compaction`")]
    assert told == list(CompactionTerms.model_fields)
    quoted = [line[2:] for line in page("docs/context.md").splitlines() if line.startswith("> ")]
    assert " ".join(quoted) == DEFAULT_PROMPT


def test_what_an_agent_says_of_its_context_is_part_of_its_digest() -> None:
    assert agent().digest != agent(context_window=8000).digest
    assert agent().digest != agent(compaction={"keep_messages": 6}).digest
