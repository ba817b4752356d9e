"""The schema of an answer goes where each provider is sure to take it: its own field, or the instructions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from turnwire.extend.llm import ModelRequest, SystemMessage, TextPart, ToolDefinition, UserMessage
from turnwire.runtime.models.dialects import DIALECTS
from turnwire.runtime.models.openai_request import is_strict
from turnwire.runtime.models.settings import ProviderProfile, WireFormat

CLOSED = {
    "type": "object",
    "properties": {"a": {"type": "integer"}},
    "required": ["a"],
    "additionalProperties": False,
}
LIST = {"type": "array", "items": {"type": "integer"}}
TALK = (SystemMessage("Be brief."), UserMessage((TextPart("Hi"),)))
TOOL = ToolDefinition("get", "Gets.", "{}")
FIELDS: dict[WireFormat, tuple[str, ...]] = {
    "openai-chat": ("response_format", "json_schema", "schema"),
    "openai-responses": ("text", "format", "schema"),
    "gemini": ("generationConfig", "responseJsonSchema"),
    "anthropic": ("output_config", "format", "schema"),
}


def body(
    wire: WireFormat, schema: dict[str, Any], *tools: ToolDefinition, mode: str = "auto"
) -> dict[str, Any]:
    profile = ProviderProfile.model_validate({"format": wire, "response_schema": mode})
    request = ModelRequest("m", TALK, tools, response_schema_json=json.dumps(schema))
    found: dict[str, Any] = json.loads(DIALECTS[wire].encode(request, profile, True))
    return found


def in_field(wire: WireFormat, found: dict[str, Any]) -> Any:
    value: Any = found
    for name in FIELDS[wire]:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def in_prompt(found: dict[str, Any], schema: dict[str, Any]) -> bool:
    text = json.dumps(schema)
    return any(text in told for told in texts(found))


def texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for item in inner for text in texts(item)]


@pytest.mark.parametrize(
    ("wire", "schema", "tools", "field"),
    [
        ("openai-chat", CLOSED, (), True),
        ("openai-chat", CLOSED, (TOOL,), True),
        ("openai-chat", LIST, (), False),
        ("openai-responses", CLOSED, (TOOL,), True),
        ("openai-responses", LIST, (), False),
        ("gemini", CLOSED, (), True),
        ("gemini", LIST, (), True),
        ("gemini", CLOSED, (TOOL,), False),
        ("anthropic", CLOSED, (), False),
    ],
)
def test_each_format_carries_the_schema_in_one_place(
    wire: WireFormat, schema: dict[str, Any], tools: tuple[ToolDefinition, ...], field: bool
) -> None:
    found = body(wire, schema, *tools)
    assert (in_field(wire, found) == schema) is field
    assert in_prompt(found, schema) is not field


@pytest.mark.parametrize("wire", FIELDS)
@pytest.mark.parametrize("mode", ["field", "prompt"])
def test_a_profile_may_say_where_it_goes(wire: WireFormat, mode: str) -> None:
    found = body(wire, CLOSED, mode=mode)
    assert (in_field(wire, found) == CLOSED) is (mode == "field")
    assert in_prompt(found, CLOSED) is (mode == "prompt")


@pytest.mark.parametrize("wire", FIELDS)
def test_a_request_without_a_schema_says_nothing_of_one(wire: WireFormat) -> None:
    told = DIALECTS[wire].encode(ModelRequest("m", TALK), ProviderProfile(format=wire), True).decode()
    assert "schema" not in told.lower()


def test_the_instruction_stands_behind_the_agents_own_and_before_what_was_said() -> None:
    roles = [m["role"] for m in body("openai-chat", CLOSED, mode="prompt")["messages"]]
    assert roles == ["system", "system", "user"]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "pattern": "a"},
        {"allOf": [CLOSED]},
        {"type": "object", "properties": {"a": {}}, "additionalProperties": False},
        {"type": "array", "items": {"type": "object", "properties": {"a": {}}}},
        {**CLOSED, "$defs": {"x": {"type": "string", "minLength": 2}}},
    ],
)
def test_a_schema_with_what_strict_modes_do_not_know_is_not_called_strict(schema: dict[str, Any]) -> None:
    assert is_strict(CLOSED)
    assert not is_strict(schema)
