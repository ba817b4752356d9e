"""Page sizes, page tokens and filters, as list requests bring them."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwire.core.errors import InvalidRequest
from turnwire.runtime.paging import page_size, parse_filter, read_token, write_token
from turnwire.runtime.store.rows import encode

FIELDS = {
    "state": ("t.state", "word"),
    "agent": ("t.agent", "text"),
    "create_time": ("t.create_time", "time"),
}


@pytest.mark.parametrize(("asked", "given_"), [(0, 50), (1, 1), (200, 200), (201, 200), (2**31 - 1, 200)])
def test_a_page_has_the_size_that_is_asked_for_within_bounds(asked: int, given_: int) -> None:
    assert page_size(asked) == given_


def test_a_negative_page_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        page_size(-1)


def test_a_token_goes_on_where_it_was_given() -> None:
    assert read_token(write_token((17, "turn-1"), "team", "filter"), "team", "filter") == (17, "turn-1")
    assert read_token("", "team") is None


@pytest.mark.parametrize("bound", [("other", "filter"), ("team", "other"), ("team",), ("teamfilter",)])
def test_a_token_of_another_request_is_refused(bound: tuple[str, ...]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_token(write_token((17, "turn-1"), "team", "filter"), *bound)
    assert caught.value.reason == "PAGE_TOKEN_MISMATCH"


@given(st.text(max_size=60))
def test_a_token_that_is_none_is_refused(token: str) -> None:
    if not token:
        return
    with pytest.raises(InvalidRequest):
        read_token(token, "team")


def test_a_forged_position_beyond_the_stores_integers_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        read_token(write_token((2**63, "x"), "team"), "team")


def test_terms_are_joined_and_labels_are_read_from_their_column() -> None:
    where = parse_filter(
        'state=RUNNING AND label.team/a="search it" AND create_time>=2024-01-02', FIELDS, "t.labels"
    )
    sql, values = where.sql()
    assert sql == " AND t.state = ? AND replace(t.labels, ?, '') <> t.labels AND t.create_time >= ?"
    assert values == ("running", '"team/a":"search it"', 1_704_153_600_000_000_000)


_KEYS = st.text("ab.:", min_size=1, max_size=3).filter(lambda key: ":" not in key)
_VALUES = st.text('ab:,"\\{}é', max_size=6)


@given(st.dictionaries(_KEYS, _VALUES, max_size=3), _KEYS, _VALUES.filter(lambda text: '"' not in text))
def test_a_label_is_found_in_the_json_text_where_it_stands_and_nowhere_else(
    labels: dict[str, str], key: str, value: str
) -> None:
    sql, values = parse_filter(f'label.{key}="{value}"', FIELDS, "t.labels").sql()
    with closing(sqlite3.connect(":memory:")) as db:
        (found,) = db.execute(
            f"SELECT count(*) FROM (SELECT ? AS labels) t WHERE 1 = 1{sql}", (encode(labels), *values)
        ).fetchone()
    assert bool(found) == (labels.get(key) == value)


def test_an_empty_filter_is_everything() -> None:
    assert parse_filter("  ", FIELDS, "t.labels").sql() == ("", ())


@pytest.mark.parametrize(
    "text",
    [
        "colour=red",
        "state>=RUNNING",
        "state",
        "state=",
        "state=RUNNING OR agent=x",
        "label.=x",
        "label.A=x",
        "label.a'b=x",
        "label.a>=x",
        "create_time=yesterday",
        "state=RUNNING AND ",
        "'; DROP TABLE turns",
    ],
)
def test_a_term_that_is_not_understood_is_refused_with_the_fields_there_are(text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_filter(text, FIELDS, "t.labels")
    assert caught.value.violations[0].field == "filter"
    assert "agent, create_time, state" in caught.value.message


@pytest.mark.parametrize("time", ["0001-01-01", "9999-12-31T23:59:59Z", "2024-01-01T00:00:00+14:00"])
def test_every_time_is_one_that_the_store_can_compare(time: str) -> None:
    (value,) = parse_filter(f"create_time<={time}", FIELDS, "t.labels").sql()[1]
    assert -(2**63) <= value < 2**63
