"""What a deployment and an agent say about model calls and their cost reaches the calls."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from support.doc_pages import ROOT
from support.model_replay import Answer, replay_server
from support.runtime_fakes import KEY, FakeModel, Turn, agent, spec
from turnwire.core.errors import InvalidRequest, WrongState
from turnwire.extend.llm import ModelRequest, StreamFailure, TextPart, UserMessage
from turnwire.runtime.agent_files import load_agents
from turnwire.runtime.agent_servicer import _agent
from turnwire.runtime.domain.call_terms import CallTerms
from turnwire.runtime.domain.prices import PriceTable
from turnwire.runtime.domain.turn import StartCommand
from turnwire.runtime.engine.agents import AgentCatalog
from turnwire.runtime.main import _agents
from turnwire.runtime.models.prices import load_prices
from turnwire.runtime.models.registry import ModelRegistry
from turnwire.runtime.models.settings import (
    BreakerSettings,
    LimitSettings,
    ModelSettings,
    ProviderProfile,
    RetrySettings,
    limits_of,
    retries_of,
)
from turnwire.runtime.settings import RuntimeSettings, TurnSettings

# Each setting of a model call by its name in the environment, with a value that is not its default.
READ: dict[str, Any] = {
    "MODELS__LIMITS__FIRST_CHUNK_SECONDS": 11.0,
    "MODELS__LIMITS__BETWEEN_CHUNKS_SECONDS": 12.0,
    "MODELS__LIMITS__WHOLE_CALL_SECONDS": 13.0,
    "MODELS__LIMITS__CONNECT_SECONDS": 14.0,
    "MODELS__RETRIES__ATTEMPTS": 5,
    "MODELS__RETRIES__FIRST_DELAY_SECONDS": 0.25,
    "MODELS__RETRIES__LONGEST_DELAY_SECONDS": 21.0,
    "MODELS__RETRIES__LONGEST_RETRY_AFTER_SECONDS": 22.0,
    "MODELS__RETRIES__VISIBLE": False,
    "MODELS__BREAKER__FAILURES": 4,
    "MODELS__BREAKER__WINDOW_SECONDS": 23.0,
    "MODELS__BREAKER__OPEN_SECONDS": 24.0,
    "MODELS__MAX_CONCURRENT_CALLS": 6,
    "MODELS__BYTES_PER_TOKEN": 3.5,
    "MODELS__PRICES_FILE": str(ROOT / "examples" / "prices.yaml"),
    "TURNS__MAX_STEPS": 25,
    "TURNS__FIRST_FEEDBACK_SECONDS": 7.0,
}
REQUEST = ModelRequest("m", (UserMessage((TextPart("Hi"),)),))
PRICED = PriceTable.model_validate({"models": {"fake:*": {"input": 1, "output": 1}}})


def test_the_process_reads_each_setting_of_a_call() -> None:
    environment = {f"TURNWIRE_RUNTIME_{name}": str(value).lower() for name, value in READ.items()}
    environment["TURNWIRE_RUNTIME_MODELS__PRICES_FILE"] = READ["MODELS__PRICES_FILE"]
    done = subprocess.run(
        [sys.executable, "-m", "turnwire.runtime.main", "check-config"],
        env={**os.environ, **environment, "PYTHONPATH": str(ROOT / "services")},
        capture_output=True,
        timeout=60,
        check=True,
    )
    shown = json.loads(done.stdout)
    for name, value in READ.items():
        found = shown
        for word in name.lower().split("__"):
            found = found[word]
        assert found == value, name


def test_every_setting_of_a_call_is_among_those_that_are_tried() -> None:
    groups = {"LIMITS": LimitSettings, "RETRIES": RetrySettings, "BREAKER": BreakerSettings}
    expected = {
        f"MODELS__{group}__{name.upper()}" for group, kind in groups.items() for name in kind.model_fields
    }
    assert expected <= set(READ)


@pytest.mark.parametrize(("asked", "used"), [(5, 10), (500, 120), (10, 10), (120, 120), (64, 64)])
def test_the_steps_of_a_deployment_are_clamped_with_a_warning(
    asked: int, used: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    settings = RuntimeSettings(turns=TurnSettings(max_steps=asked))
    (demo,) = [a for a in _agents(settings, PriceTable()) if a.name == "demo"]
    assert demo.limits.steps == used
    told = [r.__dict__["used"] for r in caplog.records if r.message == "settings.clamped"]
    assert told == ([] if asked == used else [used])


# --- what an agent says ---


def test_an_agent_wins_over_the_deployment_where_it_says_something() -> None:
    limits, retries = LimitSettings(), RetrySettings()
    terms = CallTerms(whole_call_seconds=900, attempts=1, retry_visible=False)
    assert limits_of(limits, CallTerms()) is limits
    assert retries_of(retries, CallTerms()) is retries
    assert limits_of(limits, terms).request_seconds == 915
    assert limits_of(limits, terms).first_chunk_seconds == 120
    assert (retries_of(retries, terms).attempts, retries_of(retries, terms).visible) == (1, False)


def test_every_limit_of_a_call_but_the_connection_may_be_an_agents() -> None:
    missing = set(LimitSettings.model_fields) - set(CallTerms.model_fields)
    assert missing == {"connect_seconds"}


@pytest.mark.parametrize("terms", [{"whole_call_seconds": 0}, {"attempts": 11}, {"first_byte": 1}])
def test_terms_that_make_no_sense_are_refused(terms: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        agent(model_call=terms)


async def test_the_terms_of_an_agent_reach_its_calls() -> None:
    turn = Turn(FakeModel([]), agent=agent(model_call={"attempts": 2}))
    await turn.run()
    assert turn.runner._context.models.terms == CallTerms(attempts=2)  # type: ignore[attr-defined]


@pytest.mark.parametrize("names", [["local:m"], ["local:m", "local:n"]])
async def test_a_call_ends_by_the_limit_of_its_agent(names: list[str]) -> None:
    async with replay_server(Answer(silent=True)) as server:
        settings = ModelSettings(providers={"local": ProviderProfile(base_url=server.url)})
        registry = ModelRegistry(settings)
        try:
            model = registry.resolve_all(names, terms=CallTerms(first_chunk_seconds=0.05, attempts=1))
            events = [event async for event in model.stream(REQUEST)]
        finally:
            await registry.close()
        assert len(server.seen) == len(names)
    assert isinstance(events[-1], StreamFailure)
    assert events[-1].message == "no answer began within 0.05 s"


# --- prices ---


def test_a_deployment_without_a_file_has_no_prices() -> None:
    assert load_prices(None).models == {}


def test_the_example_of_a_price_file_is_one() -> None:
    table = load_prices(ROOT / "examples" / "prices.yaml")
    assert table.models
    assert all(":" in name for name in table.models)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("- a list", "one mapping"),
        ("models: [", "prices.yaml"),
        ("models: {a: {input: 1}}", "models.a.output"),
        ("models: {a: {input: -1, output: 1}}", "models.a.input"),
        ("models: {a: {input: .nan, output: 1}}", "models.a.input"),
        ("models: {a: {input: 1, output: 1, cached: 1}}", "models.a.cached"),
        ("prices: {}", "prices"),
    ],
)
def test_a_wrong_price_file_is_told_file_and_field(tmp_path: Path, text: str, hint: str) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(WrongState) as caught:
        load_prices(file)
    assert caught.value.reason == "PRICES_FILE_INVALID"
    assert str(file) in caught.value.message
    assert hint in caught.value.message


def test_a_price_file_that_is_not_there_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(WrongState, match=r"none\.yaml"):
        load_prices(tmp_path / "none.yaml")


# --- limits of cost ---


def catalog(*agents: Any, prices: PriceTable = PRICED) -> AgentCatalog:
    async def nobody(_: object) -> str:
        return ""

    return AgentCatalog(agents, nobody, prices)


def command(**fields: Any) -> StartCommand:
    return StartCommand(KEY.scope, "r", spec(thread="", new_thread={}, agent="helper", **fields))


async def violations(agents: AgentCatalog, **fields: Any) -> list[str]:
    try:
        await agents.for_command(command(**fields))
    except InvalidRequest as error:
        return [v.field for v in error.violations]
    return []


def helper(**fields: Any) -> Any:
    return agent(organization_id="*", **fields)


async def test_a_request_asks_for_less_cost_than_its_agent_never_for_more() -> None:
    agents = catalog(helper(limits={"cost_usd": "0.5"}))
    assert await violations(agents, limits={"cost_micro_usd": 500_000}) == []
    assert await violations(agents, limits={"cost_micro_usd": 500_001}) == ["spec.limits.cost_micro_usd"]
    assert await violations(catalog(helper()), limits={"cost_micro_usd": 10**9}) == []


async def test_a_limit_of_cost_without_a_price_is_refused() -> None:
    asked = {"limits": {"cost_micro_usd": 5}}
    assert await violations(catalog(helper(), prices=PriceTable()), **asked) == ["spec.limits.cost_micro_usd"]
    own = helper(prices={"fake:model": {"input": 1, "output": 1}})
    assert await violations(catalog(own, prices=PriceTable()), **asked) == []
    other = helper(fallback_models=["other:*"])
    chosen = {"options": {"model": "other:m"}, **asked}
    assert await violations(catalog(other), **chosen) == ["spec.model_options.model"]


def test_an_agent_file_with_a_limit_of_cost_needs_the_prices_of_its_models(tmp_path: Path) -> None:
    text = "model: 'fake:a'\nfallback_models: ['other:b', 'open:*']\nlimits: {cost_usd: 0.25}\n"
    (tmp_path / "helper.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(WrongState, match=r"no price is known for other:b$"):
        load_agents(tmp_path, 30, PRICED)
    more = text + "prices: {'other:b': {input: 1, output: 2, cache_read: 0.1}}\n"
    (tmp_path / "helper.yaml").write_text(more, encoding="utf-8")
    (found,) = load_agents(tmp_path, 30, PRICED)
    assert found.limits.cost_usd == Decimal("0.25")
    assert _agent(found, ()).limits.cost_micro_usd == 250_000
