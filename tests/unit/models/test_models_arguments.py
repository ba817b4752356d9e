"""Tool arguments are taken as written or refused with the reason."""

from __future__ import annotations

import pytest

from turnwire.runtime.models.arguments import check_arguments, is_complete_object

WHOLE = '{"path": "x", "n": [1, -2.5e3, true, null, "\\u00e9 \\\\ud83d"], "o": {"k": "v"}}'


@pytest.mark.parametrize("raw", ["", " ", "\n\t"])
def test_no_arguments_are_the_empty_object(raw: str) -> None:
    assert check_arguments(raw) == ("{}", "")


@pytest.mark.parametrize(
    "raw", ["{}", WHOLE, '{"id": 9007199254740993, "x": 1e400}', '{"a":"\\ud83d\\ude00"}']
)
def test_a_whole_object_stays_as_written(raw: str) -> None:
    assert check_arguments(raw) == (raw, "")


def test_space_around_the_object_is_dropped() -> None:
    assert check_arguments(' {"a":1}\n') == ('{"a":1}', "")


@pytest.mark.parametrize("end", range(1, len(WHOLE)))
def test_a_cut_anywhere_is_called_a_cut(end: int) -> None:
    assert "cut off" in check_arguments(WHOLE[:end])[1]


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        ('{"a":1}{"b":2}', "more than one"),
        ('{"a":1} trailing', "more than one"),
        ('{"a":1,"a":2}', "'a' stands twice"),
        ('{"o":{"b":1,"b":1}}', "'b' stands twice"),
        ('{"a":NaN}', "NaN"),
        ('{"a":-Infinity}', "-Infinity"),
        ("[1]", "not a JSON object"),
        ('"text"', "not a JSON object"),
        ("12", "not a JSON object"),
        ('{"a":' + "1" * 4301 + "}", "4300 digits"),
        ("[" * 100_000, "levels deep"),
        ('{"a":' * 65 + "1" + "}" * 65, "64 levels"),
        ("{'a':1}", "not valid JSON"),
        ('{"a": bad, "b": 12345}', "not valid JSON"),
        ("x" * 300_000, "300000 bytes"),
    ],
)
def test_everything_else_is_refused_with_the_reason(raw: str, why: str) -> None:
    assert why in check_arguments(raw)[1]


def test_what_is_refused_stays_as_written_unless_it_is_too_large() -> None:
    assert check_arguments('{"a":1,"a":2}')[0] == '{"a":1,"a":2}'
    assert check_arguments("x" * 300_000)[0] == "{}"


def test_64_levels_are_allowed() -> None:
    assert check_arguments('{"a":' * 64 + "1" + "}" * 64)[1] == ""


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        ('{"a":"\\ud83d"}', '{"a":"\\ufffd"}'),
        ('{"a":"\\u0000"}', '{"a":"\\ufffd"}'),
        ('{"a":"\\\\ud83d"}', '{"a":"\\\\ud83d"}'),
        ('{"a":"\ud83d"}', '{"a":"\ufffd"}'),
    ],
)
def test_halves_of_pairs_and_nul_are_replaced_even_where_they_are_escaped(raw: str, clean: str) -> None:
    assert check_arguments(raw) == (clean, "")


@pytest.mark.parametrize(
    ("raw", "whole"), [('{"a":1}', True), (" {} ", True), ('{"a":', False), ("", False), ("[]", False)]
)
def test_a_whole_object_is_recognised(raw: str, whole: bool) -> None:
    assert is_complete_object(raw) is whole
