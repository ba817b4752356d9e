"""Agents: which one a turn gets, what a request may not ask of it, and what a wrong agent file is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.runtime_fakes import agent, spec
from turnwire.core.errors import InvalidRequest, NotFound, WrongState
from turnwire.runtime.agent_files import built_in_agents, load_agents
from turnwire.runtime.domain.agent import AgentDefinition
from turnwire.runtime.domain.turn import StartCommand, ThreadKey
from turnwire.runtime.engine.agents import AgentCatalog


def catalog(*agents: AgentDefinition, threads: dict[str, str] | None = None) -> AgentCatalog:
    known = threads or {}

    async def thread_agent(thread: ThreadKey) -> str:
        if thread.thread_id not in known:
            raise NotFound("no such thread", reason="THREAD_NOT_FOUND")
        return known[thread.thread_id]

    return AgentCatalog(agents, thread_agent)


def command(**fields: object) -> StartCommand:
    return StartCommand("team", "request-1", spec(**fields))


HELPER = agent(organization_id="team")
OTHER = agent(name="other", organization_id="team")


async def test_the_agent_of_the_request_wins_over_that_of_the_thread() -> None:
    agents = catalog(HELPER, OTHER, threads={"thread-1": "agents/helper"})
    assert (await agents.for_command(command(agent="other"))).name == "other"
    assert (await agents.for_command(command())).name == "helper"


async def test_the_only_agent_needs_no_name() -> None:
    agents = catalog(HELPER, threads={"thread-1": ""})
    assert (await agents.for_command(command())).name == "helper"


async def test_several_agents_need_a_name_and_the_refusal_lists_them() -> None:
    agents = catalog(HELPER, OTHER, threads={"thread-1": ""})
    with pytest.raises(InvalidRequest, match=r"agents/helper, agents/other") as caught:
        await agents.for_command(command())
    assert caught.value.violations[0].field == "spec.agent"


async def test_an_agent_of_another_scope_does_not_exist() -> None:
    agents = catalog(agent(organization_id="other-team"))
    with pytest.raises(NotFound) as caught:
        await agents.for_command(command(agent="helper"))
    assert caught.value.reason == "AGENT_NOT_FOUND"
    assert "other-team" not in caught.value.message
    assert agents.visible("team") == []


async def test_an_agent_for_every_scope_is_seen_in_each() -> None:
    agents = catalog(agent(organization_id="*"))
    assert [a.name for a in agents.visible("team")] == ["helper"]


async def test_a_turn_on_a_thread_that_is_not_there_is_refused() -> None:
    with pytest.raises(NotFound) as caught:
        await catalog(HELPER).for_command(command())
    assert caught.value.reason == "THREAD_NOT_FOUND"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"limits": {"steps": 31}}, "spec.limits.steps"),
        ({"limits": {"turn_timeout": 61.0}}, "spec.limits.turn_timeout"),
        ({"limits": {"tokens": 1001}}, "spec.limits.tokens"),
        ({"limits": {"tool_timeout": 541.0}}, "spec.limits.tool_timeout"),
        ({"options": {"model": "fake:huge"}}, "spec.model_options.model"),
        ({"allowed_tools": ["add", "shell"]}, "spec.allowed_tools[1]"),
        ({"tool_choice": {"mode": "tool", "tool_name": "shell"}}, "spec.tool_choice.tool_name"),
        (
            {"allowed_tools": ["add"], "tool_choice": {"mode": "tool", "tool_name": "file_read"}},
            "spec.tool_choice.tool_name",
        ),
    ],
)
async def test_a_request_beyond_its_agent_is_refused_by_field(fields: dict[str, object], field: str) -> None:
    limits = {"turn_timeout": 60.0, "tokens": 1000}
    tools = ["add", "file_*"]
    agents = catalog(agent(organization_id="team", limits=limits, tools=tools))
    with pytest.raises(InvalidRequest) as caught:
        await agents.for_command(command(agent="helper", **fields))
    assert [v.field for v in caught.value.violations] == [field]


@pytest.mark.parametrize(
    "fields",
    [
        {"limits": {"steps": 30, "turn_timeout": 999999.0}},
        {"options": {"model": "fake:model"}},
        {"options": {"model": "fast:anything"}},
        {"allowed_tools": ["file_read"], "tool_choice": {"mode": "tool", "tool_name": "file_read"}},
    ],
)
async def test_a_request_within_its_agent_is_taken(fields: dict[str, object]) -> None:
    agents = catalog(agent(organization_id="team", fallback_models=["fast:*"], tools=["file_*"]))
    assert await agents.for_command(command(agent="helper", **fields))


# --- files ---


def write(folder: Path, text: str, name: str = "helper.yaml") -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_an_agent_file_needs_a_model_and_takes_its_name_from_the_file(tmp_path: Path) -> None:
    (found,) = load_agents(write(tmp_path, "model: 'demo:'\n"), 25)
    assert (found.name, found.limits.steps, found.organization_id) == ("helper", 25, "default-org")
    assert found.id


def test_an_agent_keeps_its_id_when_nothing_but_its_text_changes(tmp_path: Path) -> None:
    (one,) = load_agents(write(tmp_path, "model: 'demo:'\nrole: a\n"), 25)
    (two,) = load_agents(write(tmp_path, "model: 'demo:'\nrole: b\n"), 25)
    assert one.id == two.id
    assert one.digest != two.digest


@pytest.mark.parametrize("text", ["max_iterations: 7", "limits: {steps: 7}"])
def test_max_iterations_is_another_name_of_steps(tmp_path: Path, text: str) -> None:
    (found,) = load_agents(write(tmp_path, f"model: 'demo:'\n{text}\n"), 25)
    assert found.limits.steps == 7


@pytest.mark.parametrize(
    ("text", "limit"),
    [("", 2), ("max_retry_limit: 5", 5), ("limits: {max_retry_limit: 0}", 0)],
)
def test_the_retries_of_an_answer_stand_at_the_top_or_among_the_limits(
    tmp_path: Path, text: str, limit: int
) -> None:
    (found,) = load_agents(write(tmp_path, f"model: 'demo:'\n{text}\n"), 25)
    assert found.limits.max_retry_limit == limit


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("max_iter: 5", "limits.steps"),
        ("max_tool_rounds: 5", "limits.steps"),
        ("llm: gpt", "model"),
        ("system_prompt: hi", "instructions"),
        ("verbose: true", "TURNWIRE_RUNTIME_LOG__LEVEL"),
        ("timeout: 5", "limits.turn_timeout"),
        ("colour: red", "colour"),
        ("delegates: [other]", "delegates is not served"),
        ("limits: {max_retry_limit: 11}", "limits.max_retry_limit"),
        ("max_retry_limit: -1", "limits.max_retry_limit"),
        ("limits: {steps: 500}", "limits.steps"),
        ("limits: 7", "limits"),
        ("name: X", "name"),
        ("- a list", "mapping"),
        ("model: [", "helper.yaml"),
    ],
)
def test_a_wrong_agent_file_is_told_file_and_right_name(tmp_path: Path, text: str, hint: str) -> None:
    body = text if text.startswith(("-", "model")) else f"model: 'demo:'\n{text}\n"
    with pytest.raises(WrongState) as caught:
        load_agents(write(tmp_path, body), 25)
    assert caught.value.reason == "AGENT_FILE_INVALID"
    assert "helper.yaml" in caught.value.message
    assert hint in caught.value.message


def test_a_folder_without_agents_and_a_name_used_twice_are_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongState, match="no agent file"):
        load_agents(tmp_path, 25)
    write(tmp_path, "model: 'demo:'\n", "helper.yaml")
    write(tmp_path, "model: 'demo:'\nname: helper\n", "other.yml")
    with pytest.raises(WrongState, match="two agents named helper"):
        load_agents(tmp_path, 25)


def test_without_files_there_is_a_demo_and_an_assistant_only_with_a_key() -> None:
    assert [a.name for a in built_in_agents(30, openai=False, anthropic=False)] == ["demo"]
    demo, assistant = built_in_agents(30, openai=True, anthropic=True)
    assert assistant.model.startswith("openai:")
    assert assistant.fallback_models == ("openai:*", "anthropic:*")
    assert demo.id != assistant.id


def test_a_system_text_is_made_of_what_the_file_says() -> None:
    assert agent().system_text() == ""
    full = agent(role="a clerk", goal="file it", backstory="You are old.", instructions="Be brief.")
    assert full.system_text() == "You are helper, a clerk.\n\nYour goal: file it\n\nYou are old.\n\nBe brief."
