"""The keywords of JSON Schema as answers are checked by them: each step is counted, no regex can run away.

The schema comes from a caller and the answer from a model, so neither is trusted to be cheap: a check that
takes more steps than it may is given up, regexes are matched in linear time, and equal items are
found without comparing each with each. Imported on first use: the library takes a while.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from functools import lru_cache
from itertools import islice
from typing import Any

from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.validators import Draft202012Validator, extend
from pydantic_core import SchemaValidator, core_schema
from referencing import Registry

from turnwire.runtime.domain.pattern_size import pattern_size

__all__ = ["TooCostly", "check_meta", "first_errors", "regex_problem"]

MAX_STEPS = 200_000
# A longer text is not matched with a pattern at all.
MAX_MATCHED_CHARS = 8192
MAX_SHOWN_CHARS = 80

_left: ContextVar[list[int]] = ContextVar("answer_check_steps")
_Errors = Iterator[ValidationError]
_Keyword = Callable[[Any, Any, Any, Any], Any]


class TooCostly(Exception):
    """The check takes more steps than it may."""


def _spend(steps: int) -> None:
    left = _left.get()
    left[0] -= steps
    if left[0] < 0:
        raise TooCostly


def _counted(keyword: _Keyword) -> _Keyword:
    def run(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        _spend(1 + (len(value) if isinstance(value, (dict, list)) else 0))
        return keyword(validator, value, instance, schema)

    return run


@lru_cache(maxsize=256)
def _regex(pattern: str) -> SchemaValidator:
    return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))


def regex_problem(pattern: str) -> str:
    """Return why a regex cannot be used, empty when it can."""
    try:
        _regex(pattern)
    except (
        Exception
    ) as error:  # pydantic_core tells by its own SchemaError, which is no part of its interface
        return str(error).strip().splitlines()[-1][:200]
    return ""


def _matches(pattern: str, text: str) -> bool:
    _spend(1 + len(text) * pattern_size(pattern) // 256)
    return _regex(pattern).isinstance_python(text)


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> _Errors:
    if not isinstance(instance, str):
        return
    if len(instance) > MAX_MATCHED_CHARS:
        yield ValidationError(f"a text of {len(instance)} characters is too long to be matched")
    elif not _matches(pattern, instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _names(instance: Mapping[str, Any], patterns: Mapping[str, Any]) -> set[str]:
    """Return the names that some pattern is for."""
    short = [name for name in instance if len(name) <= MAX_MATCHED_CHARS]
    return {name for name in short if any(_matches(pattern, name) for pattern in patterns)}


def _pattern_properties(validator: Any, patterns: Any, instance: Any, schema: Any) -> _Errors:
    if not isinstance(instance, dict):
        return
    for pattern, subschema in patterns.items():
        for name in _names(instance, {pattern: subschema}):
            yield from validator.descend(instance[name], subschema, path=name, schema_path=pattern)


def _additional_properties(validator: Any, allowed: Any, instance: Any, schema: Any) -> _Errors:
    if not isinstance(instance, dict):
        return
    known = set(schema.get("properties", ())) | _names(instance, schema.get("patternProperties", {}))
    extras = [name for name in instance if name not in known]
    if isinstance(allowed, dict):
        for name in extras:
            yield from validator.descend(instance[name], allowed, path=name)
    elif allowed is False and extras:
        yield ValidationError(f"it has names that the schema does not: {', '.join(map(repr, extras[:10]))}")


def _unique_items(validator: Any, unique: Any, instance: Any, schema: Any) -> _Errors:
    if unique and isinstance(instance, list):
        _spend(len(instance))
        if len({_canonical(item) for item in instance}) < len(instance):
            yield ValidationError("it has equal items")


def _canonical(value: Any) -> str:
    """Return a text that is the same for equal JSON values: 1 and 1.0 are, 1 and true are not."""
    return json.dumps(_whole(value), sort_keys=True)


def _whole(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: _whole(item) for name, item in value.items()}
    return [_whole(item) for item in value] if isinstance(value, list) else value


_OWN: dict[str, _Keyword] = {
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "uniqueItems": _unique_items,
}
_Validator: Any = extend(  # type: ignore[no-untyped-call]
    Draft202012Validator,
    {name: _counted(found) for name, found in {**Draft202012Validator.VALIDATORS, **_OWN}.items()},
)
# Nothing is ever fetched: a reference to what is not in the schema itself is an error.
_NOTHING_ELSE: Registry[Any] = Registry()


def check_meta(schema: Mapping[str, Any]) -> tuple[tuple[str | int, ...], str] | None:
    """Return where and why it is no schema of draft 2020-12, None when it is one."""
    try:
        Draft202012Validator.check_schema(schema, format_checker=None)  # type: ignore[arg-type]
    except SchemaError as error:
        return tuple(error.absolute_path), error.message
    return None


def first_errors(schema: Mapping[str, Any], value: Any, most: int) -> list[tuple[tuple[str | int, ...], str]]:
    """Return where and how a value misses the schema, so many of these at most.

    Raises:
        TooCostly: it would take too long to find out.
    """
    token = _left.set([MAX_STEPS])
    try:
        validator = _Validator(schema, registry=_NOTHING_ELSE)
        return [(tuple(e.absolute_path), _words(e)) for e in islice(validator.iter_errors(value), most)]
    finally:
        _left.reset(token)


def _words(error: ValidationError) -> str:
    """Return what is wrong; a long value in it is cut, so that the reason behind it is seen."""
    shown = repr(error.instance)
    if len(shown) <= MAX_SHOWN_CHARS:
        return error.message
    return error.message.replace(shown, f"{shown[:MAX_SHOWN_CHARS]}...")
