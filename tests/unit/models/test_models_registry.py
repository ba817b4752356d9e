"""Names become models, or errors that say what is missing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError

from turnwire.core.errors import InvalidRequest, WrongState
from turnwire.runtime.models.fallback import FallbackModel
from turnwire.runtime.models.registry import ModelRegistry
from turnwire.runtime.models.settings import ModelSettings, ProviderProfile

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("name", "variable"), [("openai:gpt-4o", "OPENAI_API_KEY"), ("anthropic:c", "ANTHROPIC_API_KEY")]
)
def test_a_missing_key_names_its_variable(name: str, variable: str) -> None:
    for settings in (
        ModelSettings(),
        ModelSettings(openai_api_key=SecretStr(" "), anthropic_api_key=SecretStr("")),
    ):
        with pytest.raises(WrongState) as caught:
            ModelRegistry(settings).resolve(name)
        assert caught.value.reason == "MODEL_NOT_CONFIGURED"
        assert caught.value.metadata["variable"] == variable
        assert variable in caught.value.message


def test_a_server_of_ones_own_needs_no_key() -> None:
    registry = ModelRegistry(ModelSettings(openai_base_url="http://model.internal:8000/v1"))
    assert registry.resolve("openai:qwen").name == "openai:qwen"


def test_a_key_makes_a_model() -> None:
    model = ModelRegistry(ModelSettings(openai_api_key=SecretStr("k"))).resolve("openai:gpt-4o")
    assert (model.name, model.provider) == ("openai:gpt-4o", "openai")


def test_names_of_models_may_hold_colons_and_slashes() -> None:
    registry = ModelRegistry(ModelSettings(openai_api_key=SecretStr("k")))
    assert registry.resolve("openai:ft:gpt/x:1").name == "openai:ft:gpt/x:1"


def test_more_providers_come_from_settings_and_may_replace_ours() -> None:
    groq = ProviderProfile(base_url="https://groq.example/v1/", needs_key=True, key_variable="GROQ_API_KEY")
    registry = ModelRegistry(ModelSettings(providers={"groq": groq, "empty": ProviderProfile()}))
    assert groq.base_url == "https://groq.example/v1"
    assert "groq" in registry.prefixes
    with pytest.raises(WrongState) as caught:
        registry.resolve("groq:x")
    assert caught.value.metadata["variable"] == "GROQ_API_KEY"
    with pytest.raises(WrongState):
        registry.resolve("empty:x")


def test_names_from_requests_reach_no_files_of_this_machine(tmp_path: Path) -> None:
    registry = ModelRegistry(ModelSettings())
    (tmp_path / "a.json").write_text(json.dumps([{"text": "hi"}]))
    for name in (f"scripted:{tmp_path}/a.json", f"replay:{tmp_path}/a.json", f"record:{tmp_path}/x:demo:"):
        registry.resolve(name)
        with pytest.raises(InvalidRequest):
            registry.resolve(name, from_caller=True)
    assert registry.resolve("demo:", from_caller=True).provider == "demo"


def test_development_models_can_be_switched_off() -> None:
    registry = ModelRegistry(ModelSettings(development_models=False))
    assert "demo" not in registry.prefixes
    with pytest.raises(InvalidRequest):
        registry.resolve("demo:")


def test_a_list_of_names_is_a_model_with_fallbacks() -> None:
    registry = ModelRegistry(ModelSettings(openai_api_key=SecretStr("k")))
    assert isinstance(registry.resolve_all(["openai:a", "demo:"]), FallbackModel)
    assert registry.resolve_all(["demo:"]).name == "demo:"


def test_a_script_keeps_its_place_between_two_looks(tmp_path: Path) -> None:
    registry = ModelRegistry(ModelSettings())
    source = '{"by":"order","calls":[[{"text":"a"}]]}'
    assert registry._script(source, "s") is registry._script(source, "s")


@pytest.mark.parametrize("url", ["ftp://x", "model.internal:8000"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ValidationError):
        ProviderProfile(base_url=url)


def test_keys_do_not_show_in_the_settings() -> None:
    settings = ModelSettings(openai_api_key=SecretStr("sk-very-secret"))
    assert "very-secret" not in repr(settings) + settings.model_dump_json()


def test_the_http_library_is_imported_with_the_first_call_only() -> None:
    code = "import sys, turnwire.runtime.models.registry; sys.exit('aiohttp' in sys.modules)"
    path = str(ROOT / "services")
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": path})
