"""A function's signature is its schema, and wrong arguments come back as words the model can act on."""

from __future__ import annotations

import json
from datetime import date, timedelta
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field

from turnwire.extend.tool_arguments import parse_arguments
from turnwire.extend.tools import (
    ArgumentError,
    Mode,
    Parameter,
    Risk,
    Tool,
    ToolContext,
    ToolResult,
    command_tool,
    tool,
)


class Place(BaseModel):
    """Where."""

    city: str
    zip: int | None = None


@tool(timeout=30, mode=Mode.PARALLEL, repeatable=True, risk=Risk.SENSITIVE)
async def plan(
    context: ToolContext,
    place: Place,
    day: date,
    kind: Literal["walk", "ride"] = "walk",
    hours: Annotated[int, Field(ge=1, le=12)] = 2,
    schema: bool = False,
) -> str:
    """Plan a trip.

    More about it.

    Args:
        place: Where to
            start.
        kind: What to do.
    """
    return f"{kind} {hours} {place.city} {day} {schema}"


def test_a_tool_is_five_lines() -> None:
    @tool
    def double(number: int) -> int:
        """Double a number."""
        return number * 2

    assert double(4) == 8
    assert isinstance(double, Tool)
    assert double.spec.name == "double"
    assert double.spec.description == "Double a number."
    assert double.spec.mode is Mode.EXCLUSIVE
    assert double.spec.timeout is None


def test_the_schema_comes_from_the_signature_without_the_context() -> None:
    schema = plan.spec.input_schema
    properties = schema["properties"]
    assert list(properties) == ["place", "day", "kind", "hours", "schema"]
    assert properties["place"]["description"] == "Where to start."
    assert properties["kind"] == {
        "default": "walk",
        "description": "What to do.",
        "enum": ["walk", "ride"],
        "type": "string",
    }
    assert properties["hours"] == {"default": 2, "maximum": 12, "minimum": 1, "type": "integer"}
    assert schema["required"] == ["place", "day"]
    assert schema["additionalProperties"] is False
    assert "title" not in json.dumps(schema)
    assert plan.spec.description == "Plan a trip.\n\nMore about it."
    assert plan.spec.timeout == timedelta(seconds=30)


def test_arguments_are_validated_into_the_annotated_types() -> None:
    arguments = plan.arguments('{"place": {"city": "Oslo"}, "day": "2026-05-01", "hours": "3"}')
    assert arguments == {
        "place": Place(city="Oslo"),
        "day": date(2026, 5, 1),
        "kind": "walk",
        "hours": 3,
        "schema": False,
    }


def test_wrong_arguments_name_each_field_and_the_schema() -> None:
    with pytest.raises(ArgumentError) as caught:
        plan.arguments('{"place": {}, "day": "soon", "hours": 20, "extra": 1}')
    lines = str(caught.value).splitlines()
    assert lines[0] == "The arguments of plan are not valid:"
    assert lines[1] == "- place.city: Field required"
    assert lines[2].startswith("- day: Input should be a valid date")
    assert "(got 'soon')" in lines[2]
    assert lines[3] == "- hours: Input should be less than or equal to 12 (got 20)"
    assert lines[4] == "- extra: Extra inputs are not permitted"
    assert lines[5].startswith("They must fit this schema: {")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[]", "one JSON object"),
        ("{", "not valid JSON"),
        ('{"a": 1, "a": 2}', "stands twice"),
        ('{"a": {"b": 1, "b": 1}}', "stands twice"),
        ('{"a": NaN}', "not a JSON number"),
        ('{"a": ' + "[" * 65 + "]" * 65 + "}", "nested deeper"),
        ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested deeper"),
        ('{"a": ' + "9" * 5_000 + "}", "not valid JSON"),
        ('{"a": "' + "x" * (256 << 10) + '"}', "longer than"),
    ],
)
def test_ambiguous_or_excessive_json_is_refused(text: str, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        parse_arguments(text)


def test_blank_arguments_are_the_empty_object() -> None:
    assert parse_arguments("") == parse_arguments("  ") == {}


def test_big_integers_stay_exact_and_odd_characters_are_replaced() -> None:
    assert parse_arguments('{"id": 9007199254740993, "t": "\\ud83d\\u0000"}') == {
        "id": 9007199254740993,
        "t": "\ufffd\ufffd",
    }


def test_names_that_no_provider_takes_are_refused() -> None:
    with pytest.raises(ValueError, match="must match"):
        tool(name="has blank")(lambda: None)


def test_parameters_without_a_name_are_refused() -> None:
    @tool
    def variable(*values: int) -> int:
        return sum(values)

    with pytest.raises(TypeError, match="ordinary named parameter"):
        _ = variable.spec


def test_the_digest_changes_with_the_code_and_with_nothing_else() -> None:
    def make(version: str, risk: Risk = Risk.NORMAL) -> str:
        @tool(name="one", version=version, risk=risk)
        def one(a: int) -> int:
            """One."""
            return a

        return one.spec.digest

    assert make("1") == make("1")
    assert len({make("1"), make("2"), make("1", Risk.DANGEROUS)}) == 3


def test_a_command_tool_has_a_schema_and_refuses_half_a_command() -> None:
    search = command_tool(
        "search",
        ["grep", "{pattern}", "{files}"],
        parameters={
            "pattern": Parameter(description="What to find"),
            "files": Parameter("strings", default=[]),
            "mode": Parameter(choices=("a", "b"), default="a"),
        },
        timeout=5,
    )
    assert search.spec.input_schema["properties"]["mode"]["enum"] == ["a", "b"]
    assert search.arguments('{"pattern": "x"}') == {"pattern": "x", "files": [], "mode": "a"}
    with pytest.raises(ArgumentError):
        search.arguments('{"pattern": "x", "mode": "c"}')
    with pytest.raises(ValueError, match="either argv or shell"):
        command_tool("neither")


def test_a_context_reports_through_whatever_runs_the_tool() -> None:
    heard: list[str] = []
    context = ToolContext(report=heard.append)
    context.progress("half")
    assert heard == ["half"]
    assert ToolResult("x") == ToolResult("x", (), False)
