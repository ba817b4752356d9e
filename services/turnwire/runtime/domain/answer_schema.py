"""The schema that an answer must fit: what of JSON Schema is taken, and how an answer is read and checked.

Draft 2020-12, one document that refers to nothing outside of it. What is left out - anchors, dynamic
references, ids below the top - is what makes a schema's meaning depend on more than its text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

from turnwire.core.text import cut
from turnwire.runtime.domain.pattern_size import pattern_size
from turnwire.runtime.domain.plain_json import read_json

__all__ = ["MAX_SCHEMA_BYTES", "CheckedAnswer", "check_answer", "schema_problem", "unfenced"]

MAX_SCHEMA_BYTES = 64 * 1024
MAX_SCHEMA_DEPTH = 32
MAX_ANSWER_BYTES = 1024 * 1024
MAX_ANSWER_DEPTH = 32
MAX_VIOLATIONS = 10
MAX_VIOLATION_BYTES = 300
# Schemas that look at the same value, one by way of the other.
MAX_CHAIN = 64
MAX_PATTERN_CHARS = 1024
# With the counts in a pattern copied out.
MAX_PATTERN_SIZE = 5_000
# Each costs time before anything is checked.
MAX_PATTERNS = 32
MAX_SCHEMAS = 500

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_REFUSED = ("$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor", "$vocabulary")
_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
_SINGLES = (
    *("items", "contains", "additionalProperties", "propertyNames", "unevaluatedItems"),
    *("unevaluatedProperties", "if", "then", "else", "not", "contentSchema"),
)
# Keywords whose schemas are for the very value that their own schema is for.
_IN_PLACE = frozenset(("dependentSchemas", "allOf", "anyOf", "oneOf", "if", "then", "else", "not"))
_BLANK = " \t\r\n"


class _Problem(ValueError):
    """Why a schema is not taken; begins with where in the schema."""


@dataclass(frozen=True, slots=True)
class CheckedAnswer:
    """An answer without its fence, and how it misses the schema: nothing when it fits."""

    text: str
    violations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Node:
    """A schema of the document with the pointers of those that look at the same value."""

    schema: Mapping[str, Any]
    in_place: tuple[str, ...]


@lru_cache(maxsize=64)
def schema_problem(text: str) -> str:
    """Return why a schema is not taken, empty when it is. The first look at one takes up to a second."""
    try:
        _check_schema(text)
    except _Problem as problem:
        return str(problem)
    return ""


def _check_schema(text: str) -> None:
    from turnwire.runtime.domain.answer_keywords import check_meta

    if len(text.encode()) > MAX_SCHEMA_BYTES:
        raise _Problem(f"is above {MAX_SCHEMA_BYTES} bytes")
    try:
        schema = read_json(text, MAX_SCHEMA_DEPTH)
    except ValueError as error:
        raise _Problem(f"cannot be read: {error}") from None
    if not isinstance(schema, dict):
        raise _Problem("must be a JSON object")
    if str(schema.get("$schema", _DRAFT)).removesuffix("#") != _DRAFT:
        raise _Problem(f"at /$schema: only {_DRAFT} is known")
    if text.count("{") > MAX_SCHEMAS or text.count("[") > MAX_SCHEMAS:
        raise _Problem(f"has more than {MAX_SCHEMAS} objects or lists")
    wrong = check_meta(schema)
    if wrong is not None:
        raise _problem(_pointer(wrong[0]), wrong[1])
    nodes = dict(_nodes(schema))
    for pointer, node in nodes.items():
        _check_node(pointer, node.schema, nodes)
    _check_patterns(nodes)
    _check_chains(nodes)
    _check_evaluation(nodes)


def _problem(pointer: str, why: str) -> _Problem:
    return _Problem(cut(f"at {pointer or '/'}: {why}", MAX_VIOLATION_BYTES))


def _escape(name: str | int) -> str:
    return str(name).replace("~", "~0").replace("/", "~1")


def _pointer(path: Sequence[str | int]) -> str:
    return "".join(f"/{_escape(name)}" for name in path)


def _nodes(root: Mapping[str, Any]) -> Iterator[tuple[str, _Node]]:
    """Give each schema of the document that is an object, by its pointer."""
    waiting: list[tuple[str, Any]] = [("", root)]
    while waiting:
        pointer, schema = waiting.pop()
        if not isinstance(schema, dict):
            continue
        below = list(_below(pointer, schema))
        in_place = [where for keyword, where, _ in below if keyword in _IN_PLACE]
        if isinstance(schema.get("$ref"), str):
            in_place.append(unquote(schema["$ref"].removeprefix("#")))
        yield pointer, _Node(schema, tuple(in_place))
        waiting.extend((where, found) for _, where, found in below)


def _below(pointer: str, schema: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Give the schemas directly below one: keyword, pointer, schema."""
    for keyword in _MAPS:
        for name, found in schema.get(keyword, {}).items():
            yield keyword, f"{pointer}/{keyword}/{_escape(name)}", found
    for keyword in _LISTS:
        for index, found in enumerate(schema.get(keyword, ())):
            yield keyword, f"{pointer}/{keyword}/{index}", found
    for keyword in _SINGLES:
        if keyword in schema:
            yield keyword, f"{pointer}/{keyword}", schema[keyword]


def _check_node(pointer: str, schema: Mapping[str, Any], nodes: Mapping[str, _Node]) -> None:
    for keyword in _REFUSED:
        if keyword in schema:
            raise _problem(f"{pointer}/{keyword}", f"{keyword} is not supported")
    if "$id" in schema and pointer:
        raise _problem(f"{pointer}/$id", "$id is supported at the top only")
    reference = schema.get("$ref")
    if reference is not None and not (reference.startswith("#") and unquote(reference[1:]) in nodes):
        raise _problem(f"{pointer}/$ref", f"{reference!r} is no schema of this document: write #/$defs/NAME")


def _check_patterns(nodes: Mapping[str, _Node]) -> None:
    from turnwire.runtime.domain.answer_keywords import regex_problem

    found: dict[str, str] = {}
    for pointer, node in nodes.items():
        patterns = [node.schema["pattern"]] if "pattern" in node.schema else []
        found.update(dict.fromkeys((*patterns, *node.schema.get("patternProperties", ())), pointer))
    if len(found) > MAX_PATTERNS:
        raise _Problem(f"has more than {MAX_PATTERNS} patterns")
    for pattern, pointer in found.items():
        why = _pattern_problem(pattern) or regex_problem(pattern)
        if why:
            raise _problem(pointer, f"the pattern {pattern[:60]!r} cannot be used: {why}")


def _pattern_problem(pattern: str) -> str:
    if len(pattern) > MAX_PATTERN_CHARS:
        return f"it has more than {MAX_PATTERN_CHARS} characters"
    if pattern_size(pattern) > MAX_PATTERN_SIZE:
        return f"its counts make it longer than {MAX_PATTERN_SIZE} characters"
    return ""


def _check_chains(nodes: Mapping[str, _Node]) -> None:
    """Refuse schemas that would look at one value for ever."""
    known: dict[str, int] = {}

    def length(pointer: str, trail: tuple[str, ...]) -> int:
        if pointer in trail:
            raise _problem(trail[-1], f"it comes back to itself by way of {pointer or '/'}")
        if len(trail) >= MAX_CHAIN:
            raise _problem(
                pointer, f"more than {MAX_CHAIN} schemas look at one value, each by way of another"
            )
        if pointer not in known:
            # What is not among the nodes is true or false.
            next_ones = nodes[pointer].in_place if pointer in nodes else ()
            known[pointer] = 1 + max((length(found, (*trail, pointer)) for found in next_ones), default=0)
        if len(trail) + known[pointer] > MAX_CHAIN:
            raise _problem(
                pointer, f"more than {MAX_CHAIN} schemas look at one value, each by way of another"
            )
        return known[pointer]

    for pointer in nodes:
        length(pointer, ())


def _check_evaluation(nodes: Mapping[str, _Node]) -> None:
    """Refuse the one pair of keywords for which the library matches regexes of its own."""
    used = {keyword: pointer for pointer, node in nodes.items() for keyword in node.schema}
    if "unevaluatedProperties" in used and "patternProperties" in used:
        raise _problem(
            f"{used['unevaluatedProperties']}/unevaluatedProperties",
            "unevaluatedProperties is not supported beside patternProperties",
        )


def unfenced(text: str) -> str:
    """Return an answer without the one pair of code fences around it, if it has one; trimmed either way.

    The first line is three or more backticks and perhaps a word, the last line the same backticks alone.
    """
    text = text.strip(_BLANK)
    first, newline, rest = text.partition("\n")
    ticks = len(first) - len(first.lstrip("`"))
    if not newline or ticks < 3 or "`" in first[ticks:]:
        return text
    body, _, last = rest.rpartition("\n")
    return body.strip(_BLANK) if last.strip(_BLANK) == "`" * ticks else text


@lru_cache(maxsize=64)
def _read(schema_json: str) -> Mapping[str, Any]:
    schema: Mapping[str, Any] = read_json(schema_json, MAX_SCHEMA_DEPTH)
    return schema


def check_answer(schema_json: str, text: str) -> CheckedAnswer:
    """Check an answer against a schema that `schema_problem` lets through. May take a second."""
    from turnwire.runtime.domain.answer_keywords import TooCostly, first_errors

    answer = unfenced(text)
    if len(answer.encode(errors="replace")) > MAX_ANSWER_BYTES:
        return CheckedAnswer(answer, (f"the answer is above {MAX_ANSWER_BYTES} bytes",))
    try:
        value = read_json(answer, MAX_ANSWER_DEPTH)
    except ValueError as error:
        return CheckedAnswer(answer, (f"the answer cannot be read: {error}",))
    try:
        errors = first_errors(_read(schema_json), value, MAX_VIOLATIONS)
    except (TooCostly, RecursionError):
        return CheckedAnswer(answer, ("the answer is too large or too deep to be checked with this schema",))
    return CheckedAnswer(answer, tuple(_violation(path, message) for path, message in errors))


def _violation(path: Sequence[str | int], message: str) -> str:
    place = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in path)
    where = cut(f"${place}", MAX_VIOLATION_BYTES // 3)
    return cut(f"{where}: {message}", MAX_VIOLATION_BYTES)
