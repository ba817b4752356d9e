"""Values, schema, README and settings models say the same thing about the chart."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from chart import CHART, RefusedError, Render

SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
ROOT = Path(__file__).resolve().parents[2]

MODELS = {
    "runtime": ("turnwire.runtime.settings", "RuntimeSettings"),
    "control": ("turnwire.control.settings", "ControlSettings"),
    "executor": ("turnwire.executor.settings", "ExecutorSettings"),
}


def resolve(node: dict[str, Any]) -> dict[str, Any]:
    """Follow one reference inside the schema."""
    if "$ref" in node:
        found: dict[str, Any] = SCHEMA["$defs"][node["$ref"].rsplit("/", 1)[1]]
        return found
    return node


def objects(node: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each object that lists properties, with its path in the values."""
    node = resolve(node)
    if "properties" in node:
        yield path, node
        for key, child in node["properties"].items():
            yield from objects(child, f"{path}.{key}".lstrip("."))


def test_the_schema_is_closed_at_every_level() -> None:
    open_ones = [path for path, node in objects(SCHEMA, "") if node.get("additionalProperties") is not False]
    assert not open_ones


def test_values_and_schema_list_the_same_keys() -> None:
    optional = {"global", "claims"}  # keys that parents or Kubernetes may fill
    for path, node in objects(SCHEMA, ""):
        value: Any = VALUES
        for key in filter(None, path.split(".")):
            value = value[key]
        if isinstance(value, dict) and value:
            assert set(value) | optional >= set(node["properties"]), path or "the root"
            assert set(value) <= set(node["properties"]), path or "the root"


def test_the_three_components_have_the_same_keys() -> None:
    def keys(value: Any) -> Any:
        return {key: keys(child) for key, child in value.items()} if isinstance(value, dict) else None

    for name in ("control", "executor"):
        assert keys(VALUES[name]) | {"resources": 0} == keys(VALUES["runtime"]) | {"resources": 0}


@pytest.mark.parametrize(
    "values",
    [
        {"unknown": 1},
        {"runtime": {"replica": 1}},
        {"runtime": {"drain": {"graceSeconds": -1}}},
        {"runtime": {"config": {"LOG": {}}}},
        {"image": {"digest": "latest"}},
        {"executor": {"persistence": {"size": "much"}}},
    ],
    ids=lambda values: json.dumps(values),
)
def test_misspelt_and_senseless_values_are_refused(render: Render, values: dict[str, Any]) -> None:
    with pytest.raises(RefusedError, match="schema"):
        render({"insecure": True, **values})


@pytest.mark.parametrize("file", sorted(path.name for path in (CHART / "ci").glob("*-values.yaml")))
@pytest.mark.parametrize("name", MODELS)
def test_every_name_in_the_chart_exists_in_the_settings(
    render: Render, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, file: str
) -> None:
    module, cls = MODELS[name]
    model = getattr(importlib.import_module(module), cls)
    documents = render(file=file)
    data = next(
        d["data"] for (kind, title), d in documents.items() if kind == "ConfigMap" and title.endswith(name)
    )
    token = tmp_path / "token"
    token.write_text("secret", encoding="utf-8")
    for key, value in data.items():
        monkeypatch.setenv(key, str(token) if key.endswith("__TOKEN_FILE") else value)
    settings = model()
    assert str(settings.listen.port) == data[f"TURNWIRE_{name.upper()}_LISTEN__PORT"]
    assert settings.drain.termination_grace_seconds == float(
        data[f"TURNWIRE_{name.upper()}_DRAIN__TERMINATION_GRACE_SECONDS"]
    )
