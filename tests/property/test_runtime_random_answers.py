"""Random answers and schemas: fences never change an answer, and the check agrees with the library's own."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from jsonschema.validators import Draft202012Validator

from turnwire.runtime.domain.answer_schema import check_answer, schema_problem, unfenced

WORDS = st.sampled_from(["a", "b", "ab", "x-a", ""])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.5, 1.0]) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=8,
)
TYPES = ["null", "boolean", "integer", "number", "string", "array", "object"]


def schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some = st.lists(inner, min_size=1, max_size=3)
    named = st.dictionaries(WORDS, inner, max_size=3)
    return st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(TYPES) | st.lists(st.sampled_from(TYPES), min_size=1, unique=True),
            "properties": named,
            "required": st.lists(WORDS, max_size=2, unique=True),
            "additionalProperties": inner | st.booleans(),
            "patternProperties": st.dictionaries(st.sampled_from(["^x-", "a", "^$"]), inner, max_size=2),
            "pattern": st.sampled_from(["^a", "b$", "^$"]),
            "propertyNames": inner,
            "items": inner | st.booleans(),
            "prefixItems": some,
            "contains": inner,
            "uniqueItems": st.booleans(),
            "minItems": st.integers(0, 2),
            "maximum": st.integers(-2, 2),
            "enum": st.lists(VALUES, min_size=1, max_size=3),
            "const": VALUES,
            "allOf": some,
            "anyOf": some,
            "oneOf": some,
            "not": inner,
            "if": inner,
            "then": inner,
            "else": inner,
            "$ref": st.just("#/$defs/d"),
        },
    )


SCHEMAS = st.recursive(schemas(st.just({})), schemas, max_leaves=6).map(
    lambda schema: {**schema, "$defs": {"d": {"type": ["integer", "array"], "items": {"$ref": "#/$defs/d"}}}}
)
PLAIN = st.text(st.sampled_from('`{}[]"1a \n\t'), max_size=30)


@given(SCHEMAS, VALUES)
def test_the_check_agrees_with_the_library(schema: dict[str, Any], value: Any) -> None:
    text = json.dumps(schema)
    assert schema_problem(text) == ""
    fits = Draft202012Validator(schema).is_valid(value)
    assert (check_answer(text, json.dumps(value)).violations == ()) is fits


@given(
    VALUES, st.integers(3, 6), st.sampled_from(["", "json", "json title"]), st.sampled_from(["\n", "\r\n"])
)
def test_an_answer_in_one_fence_is_the_answer(value: Any, ticks: int, word: str, newline: str) -> None:
    answer = json.dumps(value, indent=1)
    fence = "`" * ticks
    fenced = f" {fence}{word}{newline}{answer}{newline}{fence}\n"
    assert unfenced(fenced) == answer
    assert json.loads(check_answer("{}", fenced).text) == value


@given(PLAIN)
def test_what_has_no_fence_around_it_is_only_trimmed(text: str) -> None:
    found = unfenced(text)
    trimmed = text.strip(" \t\r\n")
    if found != trimmed:
        first, *_, last = trimmed.split("\n")
        assert first.startswith("```")
        assert last.strip(" \t\r") == "`" * (len(first) - len(first.lstrip("`")))
        assert found in trimmed


@given(st.text())
def test_any_text_is_read_or_refused_and_never_raises(text: str) -> None:
    found = check_answer('{"type": "object"}', text)
    assert found.violations or isinstance(json.loads(found.text), dict)


@given(st.text(max_size=200) | SCHEMAS.map(json.dumps))
def test_any_text_is_taken_as_a_schema_or_refused_in_words(text: str) -> None:
    assert len(schema_problem(text).encode()) <= 400
