"""Ids and names: what is minted is valid, what is parsed formats back, anything else is refused by field."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwire.core.errors import InvalidRequest
from turnwire.core.ids import (
    ActionRef,
    AgentRef,
    MessageRef,
    ThreadRef,
    TurnRef,
    is_segment,
    mint_id,
    require_request_id,
    require_segment,
)

segment = st.from_regex(r"[a-z0-9-]{4,63}", fullmatch=True)


def test_minted_ids_are_valid_segments_and_differ() -> None:
    ids = {mint_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(len(value) == 20 and is_segment(value) for value in ids)


def test_ids_of_later_seconds_come_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """New rows stand together in an index, so a large store costs them no more pages than a small one."""
    made = []
    for second in (0, 1, 1_700_000_000, 1_700_000_001, 2**32 - 1):
        monkeypatch.setattr("turnwire.core.ids.time.time", lambda second=second: second + 0.5)
        made.append(mint_id())
    assert made == sorted(made)


@given(segment, segment, segment)
def test_every_name_parses_back(one: str, two: str, three: str) -> None:
    refs: list[Any] = [
        AgentRef(one),
        ThreadRef(one),
        TurnRef(one, two),
        MessageRef(one, two),
        ActionRef(one, two, three),
    ]
    for ref in refs:
        assert type(ref).parse(ref.name) == ref
    assert ThreadRef(one).turn(two).action(three).parent.parent == ThreadRef(one)
    assert ThreadRef(one).message(two) == MessageRef(one, two)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "threads/",
        "threads/abc",
        "threads/ABCD",
        "threads/abcd/",
        "threads/abcd\n",
        "agents/abcd",
        "threads/жжжж",
    ],
)
def test_anything_else_is_refused_under_its_field(name: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        ThreadRef.parse(name, "parent")
    assert caught.value.violations[0].field == "parent"
    with pytest.raises(InvalidRequest):
        TurnRef.parse(f"{name}/turns/abcd")


@pytest.mark.parametrize("text", ["abc", "a" * 64, "Abcd", "ab cd", "ab_cd", "abcd\n"])
def test_segments_have_four_to_sixty_three_plain_characters(text: str) -> None:
    with pytest.raises(InvalidRequest):
        require_segment(text, "thread_id")
    assert require_segment("default-org", "scope") == "default-org"


def test_request_ids_are_uuids_in_one_canonical_form() -> None:
    upper = "7D3F2C1E-8F0A-4A37-9A55-0C6F3A1F9B10"
    assert require_request_id(upper) == upper.lower()
    for wrong in ("", "7d3f2c1e8f0a4a379a550c6f3a1f9b10", "x" * 36):
        with pytest.raises(InvalidRequest):
            require_request_id(wrong)
