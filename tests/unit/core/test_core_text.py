"""Characters that may not travel are refused in requests and repaired everywhere else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwire.core.errors import InvalidRequest
from turnwire.core.text import REPLACEMENT, SurrogateJoiner, cut, cut_utf8, is_clean, repair, require_clean

any_text = st.text(
    st.one_of(st.characters(), st.sampled_from(["\0", "\ud83d", "\ude00", "\udfff", "\U0001f600", "ж"]))
)


@given(any_text)
def test_repaired_text_is_clean_and_clean_text_stays(text: str) -> None:
    mended = repair(text)
    assert is_clean(mended)
    mended.encode()
    assert (mended == text) == is_clean(text)
    assert repair(mended) == mended


def test_each_bad_character_becomes_one_replacement_and_halves_side_by_side_one_character() -> None:
    assert repair("a\0b\ud800c\udc00") == f"a{REPLACEMENT}b{REPLACEMENT}c{REPLACEMENT}"
    assert repair("\ud83d\ude00!") == "\U0001f600!"


@pytest.mark.parametrize("text", ["a\0", "\ud800"])
def test_a_request_with_such_a_character_is_refused_by_field(text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        require_clean(text, "spec.input")
    assert caught.value.violations[0].field == "spec.input"
    assert text not in caught.value.message


def test_clean_requests_pass_unchanged() -> None:
    assert require_clean("чат \U0001f600", "text") == "чат \U0001f600"


def test_a_pair_split_over_two_deltas_is_joined() -> None:
    joiner = SurrogateJoiner()
    assert joiner.feed("hi \ud83d") == "hi "
    assert joiner.feed("\ude00 there") == "\U0001f600 there"
    assert joiner.flush() == ""


def test_half_a_pair_that_stays_alone_is_replaced_in_place() -> None:
    joiner = SurrogateJoiner()
    assert joiner.feed("\ud83d") == ""
    assert joiner.feed("") == ""
    assert joiner.feed("x") == f"{REPLACEMENT}x"
    assert joiner.feed("\ud83d") == ""
    assert joiner.flush() == REPLACEMENT


@given(st.lists(any_text))
def test_deltas_joined_are_the_whole_repaired(deltas: list[str]) -> None:
    joiner = SurrogateJoiner()
    assert "".join([joiner.feed(delta) for delta in deltas]) + joiner.flush() == repair("".join(deltas))


@given(any_text, st.integers(0, 40))
def test_a_cut_fits_and_never_splits_a_code_point(text: str, limit: int) -> None:
    whole = repair(text)
    part = cut(text, limit)
    assert whole.startswith(part)
    assert len(part.encode()) <= limit or part == ""
    if part != whole:
        assert len(whole[: len(part) + 1].encode()) > limit
    assert cut_utf8(whole.encode(), limit) == part.encode()
