"""What pages say about names, defaults and what is served is held against the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from support.doc_pages import ROOT, blocks, page, pages, table
from turnwire.api.runtime.v1 import turn_event_pb2
from turnwire.control.settings import ControlSettings
from turnwire.core.settings_docs import rows
from turnwire.executor.settings import ExecutorSettings
from turnwire.executor.tools import builtin_tools
from turnwire.extend.events import ToolOutcome
from turnwire.extend.tools import CommandTool, Tool
from turnwire.runtime.domain.agent import AgentDefinition, AgentLimits
from turnwire.runtime.domain.call_terms import CallTerms
from turnwire.runtime.domain.stop import STATE_OF
from turnwire.runtime.models.scripted import ScriptedModel
from turnwire.runtime.models.settings import ProviderProfile
from turnwire.runtime.settings import PROVIDER_NAMES, RuntimeSettings
from turnwire.wire.auth import ROLES, load_tokens

SETTINGS = {row.name: row for s in (RuntimeSettings, ControlSettings, ExecutorSettings) for row in rows(s)}
# Variables that are no settings of a service: what tools see, what the command line and the gate read.
OTHER_NAMES = {
    *("TURNWIRE_THREAD", "TURNWIRE_TURN", "TURNWIRE_CALL_ID", "TURNWIRE_AGENT", "TURNWIRE_WORKSPACE"),
    *("TURNWIRE_TIMEOUT_SECONDS", "TURNWIRE_ARGUMENTS", "TURNWIRE_TARGET", "TURNWIRE_CONTROL_TARGET"),
    *("TURNWIRE_TOKEN", "TURNWIRE_SCOPE", "TURNWIRE_DATA", "TURNWIRE_TLS_CA", "TURNWIRE_TLS_CERT"),
    *("TURNWIRE_TLS_KEY", "TURNWIRE_TEST_NO_SKIP", "TURNWIRE_TEST_STREAMS"),
}
FIFTEEN = [
    *("round_start", "token", "tool_call", "tool_result", "confirm_required", "confirm_response"),
    *("compaction", "subagent_checkpoint", "subagent_paused", "final", "error"),
    *("subagent_started", "subagent_progress", "subagent_completed", "subagent_error"),
]


def names(cell: str) -> list[str]:
    """The words in backticks."""
    return re.findall(r"`([^`]+)`", cell)


def is_setting(name: str) -> bool:
    """Tell whether a setting has this name, this end of a name or, if it ends in `_`, this beginning."""
    if name.endswith("_"):
        return any(known.startswith(name) for known in SETTINGS)
    return any(known == name or known.endswith(f"_{name}") for known in SETTINGS)


def test_the_page_of_stop_reasons_is_the_table_of_the_code() -> None:
    told = {names(row[0])[0]: row[1] for row in table(page("docs/stop-reasons.md"), "stop reason")}
    assert told == {reason: state.name for reason, state in STATE_OF.items()}
    assert list(told) == list(STATE_OF)


def test_the_error_reasons_of_that_page_are_in_the_catalog() -> None:
    catalog = {names(row[0])[0] for row in table(page("docs/errors.md"), "reason")}
    told = {name for row in table(page("docs/stop-reasons.md"), "stop reason") for name in names(row[3])}
    assert told <= catalog


def test_the_page_of_agents_has_every_key_and_no_other() -> None:
    text = page("docs/agents.md")
    assert [names(row[0])[0] for row in table(text, "key")] == sorted_as(AgentDefinition, text, "key")
    limits = {names(row[0])[0]: row[2] for row in table(text, "key under `limits`")}
    assert limits.keys() == AgentLimits.model_fields.keys()
    assert float(limits["tool_timeout"]) == AgentLimits().tool_timeout


def sorted_as(model: type[AgentDefinition], text: str, heading: str) -> list[str]:
    """The fields of a model in the order in which the page has them, and after that what it lacks."""
    told = [names(row[0])[0] for row in table(text, heading)]
    return sorted(model.model_fields, key=lambda name: told.index(name) if name in told else len(told))


def test_the_wrong_names_of_that_page_are_refused_with_the_right_one() -> None:
    section = page("docs/agents.md").split("## Wrong names")[1].split("##")[0]
    wrong = {"max_iter", "max_tool_rounds", "llm", "system_prompt", "prompt", "timeout", "verbose"}
    assert wrong <= set(names(section))
    for name in wrong:
        with pytest.raises(ValidationError, match=f"an agent has no '{name}': use "):
            AgentDefinition.model_validate({"name": "test", "model": "demo:", name: 1})


def test_the_agent_file_of_that_page_is_one() -> None:
    (text,) = blocks(page("docs/agents.md"), "yaml")
    agent = AgentDefinition.model_validate(yaml.safe_load(text))
    assert agent.allows_tool("notes_add")


@pytest.mark.parametrize("name", sorted(pages()))
def test_every_setting_that_a_page_names_exists(name: str) -> None:
    text = pages()[name]
    full = set(re.findall(r"\bTURNWIRE_[A-Z0-9_]+", text)) - OTHER_NAMES
    short = set(re.findall(r"(?<![A-Z0-9_])(?!TURNWIRE_)[A-Z]+__[A-Z0-9_]+", text))
    assert not sorted(word for word in full | short if not is_setting(word))


def test_the_settings_map_tells_our_names_and_defaults_as_they_are() -> None:
    for row in table(page("docs/settings-map.md"), "name there"):
        ours = names(row[2])
        assert ours or row[2] == "not served yet", row[0]
        assert ours or row[0]
        variables = [name for name in ours if name.startswith("TURNWIRE_")]
        keys = [name for name in ours if name not in variables]
        assert all(key in (*AgentDefinition.model_fields, *limit_keys()) for key in keys), row[0]
        defaults = {SETTINGS[name].default.strip("`") for name in variables}
        assert defaults <= {row[3].replace(",", "")}, row[0]


def limit_keys() -> list[str]:
    limits = [f"limits.{name}" for name in AgentLimits.model_fields]
    return limits + [f"model_call.{name}" for name in CallTerms.model_fields]


def test_the_settings_map_has_every_name_that_people_come_with() -> None:
    told = {
        name: row[1] for row in table(page("docs/settings-map.md"), "name there") for name in names(row[0])
    }
    expected = {
        "AGX_LLM_INVOKE_TIMEOUT_SECONDS": "120",
        "AGX_LLM_HEARTBEAT_TIMEOUT_SECONDS": "60",
        "AGX_LLM_HARD_TIMEOUT_SECONDS": "300",
        "AGX_LLM_FIRST_FEEDBACK_SECONDS": "8",
        "AGX_STATUS_QUERY_BUDGET_PER_TURN": "2",
        "AGX_STATUS_QUERY_COOLDOWN_SECONDS": "8",
        "safety.turn.tool_timeout_seconds": "540",
    }
    assert expected.items() <= told.items()
    assert told["AGX_MAX_TOOL_ROUNDS"].startswith("30")


def test_the_fifteen_events_of_other_runtimes_have_each_an_arm() -> None:
    told = table(page("docs/wire-contract.md"), "event there")
    assert [names(row[0])[0] for row in told] == FIFTEEN
    arms = set(turn_event_pb2.TurnEvent.DESCRIPTOR.fields_by_name)
    for row in told:
        assert {name.partition(".")[0] for name in names(row[1])} <= arms, row


def test_the_methods_told_as_not_served_are_those_that_refuse() -> None:
    told = {
        name
        for row in table(page("docs/wire-contract.md"), "part of the contract")
        if row[0].startswith("methods of")
        for name in names(row[1])
    }
    refused = set[str]()
    for file in (ROOT / "services/turnwire/runtime").glob("*_servicer.py"):
        source = file.read_text(encoding="utf-8")
        refused |= {
            method
            for method, feature in re.findall(
                r'async def (\w+)\([^)]*\)[^:]*:\s+"""Not served yet\."""\s+'
                r'raise request_codec\.not_served\("(\w+)"\)',
                source,
            )
            if method == feature
        }
    assert told == refused


def test_the_fields_told_as_not_served_are_those_that_are_refused() -> None:
    told = page("docs/wire-contract.md").split("## What this version serves")[1].split("\n## ")[0]
    source = "".join(
        (ROOT / "services/turnwire/runtime" / name).read_text(encoding="utf-8")
        for name in ("request_codec.py", "turn_servicer.py")
    )
    refused = set(re.findall(r'not_served\(f?"(?:spec\.|thread\.)?([a-z_.{}]+)"\)', source)) - {"view"}
    for feature in refused:
        assert f"`{feature.replace('{field}.', '')}" in told, feature
    assert "FULL view" in told


def test_the_profile_keys_of_the_models_page_are_those_of_the_model() -> None:
    told = {name for row in table(page("docs/models.md"), "key of a profile") for name in names(row[0])}
    assert told == ProviderProfile.model_fields.keys()


def test_the_keys_of_providers_on_the_models_page_are_read() -> None:
    told = set(re.findall(r"`([A-Z]+_(?:API_KEY|BASE_URL))`", page("docs/models.md")))
    assert told == PROVIDER_NAMES.keys()


def test_the_script_of_the_models_page_is_one() -> None:
    (text,) = blocks(page("docs/models.md"), "yaml")
    ScriptedModel(yaml.safe_load(text))


def test_the_tools_of_the_tools_page_have_schemas() -> None:
    python, command = blocks(page("docs/tools.md"), "python")
    found: dict[str, object] = {}
    exec(compile(python, "tools.md", "exec", dont_inherit=True), found)
    exec(compile(command, "tools.md", "exec", dont_inherit=True), found)
    made = [value for value in found.values() if isinstance(value, Tool | CommandTool)]
    assert {tool.spec.name: sorted(tool.spec.input_schema["properties"]) for tool in made} == {
        "track": ["number"],
        "grep": ["pattern"],
    }


def test_the_tools_page_names_every_outcome_and_every_built_in_tool() -> None:
    text = page("docs/tools.md")
    told = {word.strip() for row in table(text, "outcome") for word in row[0].split(",")}
    assert told == {outcome.name for outcome in ToolOutcome}
    listed = {name for row in table(text, "tool") for name in names(row[0])} - {"shell"}
    assert listed == built_in_names()


def built_in_names() -> set[str]:
    from turnwire.core.clock import SystemClock
    from turnwire.executor.overflow import Overflow
    from turnwire.executor.tools.http import HttpSettings
    from turnwire.executor.workspace import Workspaces
    from turnwire.storage.objects import OverflowStore

    nowhere = Path("does-not-exist")
    overflow = Overflow(OverflowStore(nowhere))
    tools = builtin_tools(Workspaces(nowhere), HttpSettings(), overflow, SystemClock())
    return {tool.name for tool in tools}


def test_the_tokens_file_of_the_security_page_can_be_read(tmp_path: Path) -> None:
    text = page("docs/security.md")
    (example,) = blocks(text, "yaml")
    file = tmp_path / "tokens.yaml"
    file.write_text(example, encoding="utf-8")
    tokens = load_tokens(file)
    known = tokens.authenticate({"authorization": "Bearer a-token-of-at-least-16-characters"})
    assert known.roles == {"runtime"}
    assert {names(row[0])[0] for row in table(text, "role")} == ROLES


def test_every_decision_is_in_the_list_and_has_all_its_parts() -> None:
    folder = ROOT / "docs" / "adr"
    pages_of = sorted(path.name for path in folder.glob("[0-9]*.md"))
    listed = re.findall(r"\]\((\d{4}[a-z0-9-]+\.md)\)", page("docs/adr/README.md"))
    assert listed == pages_of
    for number, name in enumerate(pages_of, 1):
        text = (folder / name).read_text(encoding="utf-8")
        assert text.startswith(f"# {number:04}: ")
        assert re.search(r"^- Date: \d{4}-\d\d-\d\d$", text, re.MULTILINE)
        headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
        assert headings == ["Context", "Options", "Decision", "Consequences"]
        assert {"Good", "Bad", "Neutral"} <= set(re.findall(r"^- (\w+):", text, re.MULTILINE))
        assert len(text.splitlines()) <= 60
