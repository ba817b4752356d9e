"""What is taken as a schema, how an answer is read, and that neither can cost more than it may."""

from __future__ import annotations

import json
from typing import Any

import pytest

from turnwire.runtime.domain.answer_schema import MAX_SCHEMA_BYTES, check_answer, schema_problem, unfenced
from turnwire.runtime.domain.pattern_size import pattern_size

PERSON: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$id": "https://example.com/person",
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[A-Z]"},
        "age": {"type": "integer", "minimum": 0},
        "friends": {"type": "array", "items": {"$ref": "#"}, "uniqueItems": True},
        "tags": {
            "type": "object",
            "patternProperties": {"^x-": {"type": "string"}},
            "additionalProperties": False,
        },
        "a/b": {"$ref": "#/definitions/a~1b"},
    },
    "required": ["name"],
    "additionalProperties": False,
    "definitions": {"a/b": {"enum": [1, None]}},
}


def wrong(value: Any, schema: Any = PERSON) -> list[str]:
    return list(check_answer(json.dumps(schema), json.dumps(value)).violations)


def friends(*found: dict[str, Any]) -> dict[str, Any]:
    return {"name": "A", "friends": list(found)}


# --- schemas ---


@pytest.mark.parametrize(
    "schema",
    [
        {},
        PERSON,
        {"$ref": "#/$defs/a", "$defs": {"a": {"type": "array", "items": {"$ref": "#/$defs/a"}}}},
        {"$ref": "#/properties/a%20b", "properties": {"a b": True}} | {"properties": {"a b": {}}},
        {"properties": {"$ref": {"type": "string"}, "$anchor": {}}},
        {"const": {"$ref": "https://example.com", "pattern": "("}},
        {"anyOf": [{"type": "null"}, {"not": {"type": "object"}}], "unevaluatedProperties": False},
        {"pattern": r"^\p{L}{1,64}@[a-z.]{1,255}$"},
    ],
)
def test_a_schema_in_one_piece_is_taken(schema: Any) -> None:
    assert schema_problem(json.dumps(schema)) == ""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "there is no JSON"),
        ("[]", "must be a JSON object"),
        ("true", "must be a JSON object"),
        ('{"a": 1, "a": 2}', "stands twice"),
        ('{"type": "poem"}', "at /type:"),
        ('{"properties": {"a": {"type": "poem"}}}', "at /properties/a/type:"),
        ('{"required": "a"}', "at /required:"),
        ('{"$schema": "http://json-schema.org/draft-07/schema#"}', "at /$schema:"),
        ('{"$ref": "#"}', "comes back to itself"),
        ('{"not": {"$ref": "#/$defs/a"}, "$defs": {"a": {"not": {"$ref": "#"}}}}', "comes back to itself"),
        ('{"$ref": "https://example.com/schema"}', "is no schema of this document"),
        ('{"$ref": "file:///etc/passwd"}', "is no schema of this document"),
        ('{"$ref": "other.json#/a"}', "is no schema of this document"),
        ('{"$ref": "#/$defs/gone"}', "is no schema of this document"),
        ('{"$ref": "#/x-mine", "x-mine": {}}', "is no schema of this document"),
        ('{"items": {"$id": "other", "$ref": "#/items"}}', "$id is supported at the top only"),
        ('{"$anchor": "a"}', "$anchor is not supported"),
        ('{"$dynamicRef": "#a"}', "$dynamicRef is not supported"),
        ('{"pattern": "("}', "unclosed group"),
        ('{"pattern": "(?=a)b"}', "look-around"),
        ('{"patternProperties": {"[": {}}}', "cannot be used"),
        ('{"pattern": "((a{99}){99}){99}"}', "its counts make it longer"),
        (json.dumps({"pattern": "a" * 1025}), "more than 1024 characters"),
        (json.dumps({"allOf": [{"pattern": f"a{i}"} for i in range(33)]}), "more than 32 patterns"),
        (json.dumps({"allOf": [{}] * 501}), "more than 500"),
        (json.dumps({"title": "x" * MAX_SCHEMA_BYTES}), "is above"),
        ('{"not":' * 40 + "{}" + "}" * 40, "levels deep"),
        ('{"patternProperties": {"a": {}}, "unevaluatedProperties": false}', "not supported beside"),
    ],
)  # fmt: skip
def test_anything_else_is_refused_with_the_place_and_why(text: str, why: str) -> None:
    assert why in schema_problem(text)


def test_a_chain_of_schemas_for_one_value_has_an_end() -> None:
    def chain(length: int) -> str:
        names = {f"a{i}": {"$ref": f"#/$defs/a{i + 1}"} for i in range(length)}
        return json.dumps({"$ref": "#/$defs/a0", "$defs": {**names, f"a{length}": {"type": "null"}}})

    assert schema_problem(chain(60)) == ""
    assert check_answer(chain(60), "null").violations == ()
    assert "each by way of another" in schema_problem(chain(70))


@pytest.mark.parametrize(
    ("pattern", "size"),
    [
        ("", 0),
        ("abc", 3),
        ("(ab){3}c", 7),
        ("a{2,5}", 5),
        ("a{,4}", 4),
        (r"\{{3}", 3),
        ("[a{9}]{2}", 2),
        ("[[:alpha:]]{4}", 4),
        ("(a{10}b){10}", 110),
        ("((a{10}){10}){10}", 1000),
    ],
)
def test_the_size_of_a_pattern_counts_its_copies(pattern: str, size: int) -> None:
    assert pattern_size(pattern) == size


# --- answers ---


def test_an_answer_that_fits_has_nothing_wrong() -> None:
    friend = {"name": "Bo", "tags": {"x-a": "1"}, "a/b": None}
    assert wrong({"name": "Ada", "age": 3.0, "friends": [friend, {"name": "Cy", "a/b": 1}]}) == []


@pytest.mark.parametrize(
    ("value", "violation"),
    [
        ([], "$: [] is not of type 'object'"),
        ({}, "$: 'name' is a required property"),
        ({"name": "ada"}, "$.name: 'ada' does not match '^[A-Z]'"),
        ({"name": "A", "age": -1}, "$.age: -1 is less than the minimum of 0"),
        ({"name": "A", "age": True}, "$.age: True is not of type 'integer'"),
        ({"name": "A", "more": 1}, "$: it has names that the schema does not: 'more'"),
        (friends({"name": "B"}, {"name": "b"}), "$.friends[1].name: 'b' does not match '^[A-Z]'"),
        (friends({"name": "B", "age": 1}, {"name": "B", "age": 1.0}), "$.friends: it has equal items"),
        ({"name": "A", "tags": {"x-a": 1}}, "$.tags.x-a: 1 is not of type 'string'"),
        ({"name": "A", "tags": {"y": "1"}}, "$.tags: it has names that the schema does not: 'y'"),
        ({"name": "A", "a/b": 2}, "$.a/b: 2 is not one of [1, None]"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_place(value: Any, violation: str) -> None:
    assert wrong(value) == [violation]


def test_true_and_one_are_not_equal_items() -> None:
    assert wrong([1, True, "1", [1], 1.5], {"uniqueItems": True}) == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "there is no JSON"),
        ("The answer is 3.", "it is not JSON"),
        ("{'a': 1}", "it is not JSON"),
        ('{"a": 1} {"a": 1}', "something follows the JSON"),
        ('{"a": 1, "a": 1}', "stands twice"),
        ("NaN", "NaN is not JSON"),
        ("-Infinity", "-Infinity is not JSON"),
        ("1e999", "a number is too large"),
        ("9" * 4301, "more than 4300 digits"),
        ("[" * 40 + "]" * 40, "levels deep"),
        ("[" * 100_000, "levels deep"),
        ('"' + "a" * 1024 * 1024 + '"', "the answer is above"),
    ],
)
def test_an_answer_that_is_no_json_by_the_letter_misses(text: str, why: str) -> None:
    (violation,) = check_answer("{}", text).violations
    assert why in violation


def test_what_is_wrong_is_bounded_in_number_and_length() -> None:
    many = wrong({f"n{i}": "x" * 10_000 for i in range(100)}, {"additionalProperties": {"type": "integer"}})
    assert len(many) == 10
    assert all(len(violation.encode()) <= 300 for violation in many)
    deep = {"properties": {"k" * 5000: {"type": "integer"}}}
    (violation,) = wrong({"k" * 5000: "x"}, deep)
    assert "is not of type 'integer'" in violation


def test_halves_of_characters_in_an_answer_do_no_harm() -> None:
    (violation,) = check_answer('{"type": "integer"}', '"\\ud800"').violations
    violation.encode()


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        # Twice as many steps with each reference.
        (
            {
                "$ref": "#/$defs/a0",
                "$defs": {f"a{i}": {"allOf": [{"$ref": f"#/$defs/a{i + 1}"}] * 2} for i in range(28)}
                | {"a28": {}},
            },
            1,
        ),
        # Five times as many with each level.
        ({"allOf": [{"items": {"$ref": "#"}}] * 5}, [[[[[[[[[[[[]]]]]]]]]]]]),
        ({"items": {"enum": list(range(400))}}, [i % 400 for i in range(10_000)]),
    ],
)
def test_a_check_that_would_take_for_ever_is_given_up(schema: Any, value: Any) -> None:
    assert schema_problem(json.dumps(schema)) == ""
    (violation,) = wrong(value, schema)
    assert "too large or too deep" in violation


def test_a_regex_that_runs_away_elsewhere_is_matched_in_linear_time() -> None:
    (violation,) = wrong("a" * 8000 + "b", {"pattern": "^(a+)+$"})
    assert "does not match" in violation
    (violation,) = wrong("a" * 9000, {"pattern": "^a+$"})
    assert "too long to be matched" in violation


# --- fences ---


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (' {"a": 1}\n', '{"a": 1}'),
        ('```\n{"a": 1}\n```', '{"a": 1}'),
        ('```json\n{"a": 1}\n```\n', '{"a": 1}'),
        ('\r\n````json5 x\r\n{"a": 1}\r\n````', '{"a": 1}'),
        ("```json\n```", ""),
        ("```\n```\n1\n```\n```", "```\n1\n```"),
        # Not a pair around it: left as it is.
        ('```json\n{"a": 1}', '```json\n{"a": 1}'),
        ('```json\n{"a": 1}\n````', '```json\n{"a": 1}\n````'),
        ('```json {"a": 1}```', '```json {"a": 1}```'),
        ('``\n{"a": 1}\n``', '``\n{"a": 1}\n``'),
        ('Here:\n```json\n{"a": 1}\n```', 'Here:\n```json\n{"a": 1}\n```'),
    ],
)
def test_one_pair_of_fences_is_taken_off_and_nothing_else(text: str, answer: str) -> None:
    assert unfenced(text) == answer
