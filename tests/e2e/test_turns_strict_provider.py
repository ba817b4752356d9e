"""The strict provider is strict: what a real one refuses, it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from support.history_rules import chat_fault, messages_fault

USER = {"role": "user", "content": "hello"}


def asks(*ids: str, arguments: str = "{}") -> dict[str, Any]:
    calls = [{"id": i, "type": "function", "function": {"name": "add", "arguments": arguments}} for i in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(call_id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": "3"}


def uses(*ids: str) -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": i, "name": "add", "input": {}} for i in ids],
    }


def results(*ids: str) -> dict[str, Any]:
    return {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": i, "content": "3"} for i in ids],
    }


@pytest.mark.parametrize(
    "history",
    [
        [USER],
        [{"role": "system", "content": "be kind"}, USER, asks("a", "b"), result("b"), result("a"), USER],
        [USER, {"role": "assistant", "content": "hi"}, USER],
        [USER, asks("a"), result("a"), asks("b"), result("b")],
        [{"role": "system", "content": "be kind"}, {"role": "system", "content": "[compacted] 3 ..."}, USER],
    ],
)
def test_chat_histories_in_good_order_pass(history: list[dict[str, Any]]) -> None:
    assert chat_fault(history) == ""


@pytest.mark.parametrize(
    "history",
    [
        pytest.param([USER, asks("a"), USER], id="a call without its result"),
        pytest.param([USER, asks("a")], id="a last call without its result"),
        pytest.param([USER, asks("a", "b"), result("a"), USER], id="one result of two"),
        pytest.param([USER, asks("a"), USER, result("a")], id="a result that comes late"),
        pytest.param([USER, result("a")], id="a result without its call"),
        pytest.param([USER, asks("a"), result("a"), result("a")], id="two results of a call"),
        pytest.param([USER, asks("a"), result("b")], id="the result of another call"),
        pytest.param([USER, asks("a", "a"), result("a")], id="two calls of one id"),
        pytest.param([USER, asks("a"), result("a"), asks("a"), result("a")], id="an id that comes again"),
        pytest.param([USER, {"role": "system", "content": "[compacted]"}, USER], id="late instructions"),
        pytest.param([{"role": "system", "content": "a"}] * 2, id="instructions twice"),
        pytest.param([USER, asks("a", arguments="[]"), result("a")], id="arguments that are no object"),
        pytest.param([USER, asks("a"), {**result("a"), "content": ""}], id="an empty result"),
        pytest.param([USER, asks("a", arguments="{"), result("a")], id="arguments that are no JSON"),
        pytest.param([USER, {"role": "assistant", "content": ""}], id="an empty answer"),
        pytest.param([{"role": "user", "content": []}], id="an empty question"),
    ],
)
def test_chat_histories_that_a_real_provider_refuses_are_refused(history: list[dict[str, Any]]) -> None:
    assert chat_fault(history)


def test_histories_of_the_messages_format_are_held_to_the_same() -> None:
    assert messages_fault([USER, uses("a", "b"), results("a", "b"), uses("c"), results("c")]) == ""
    for history in (
        [USER, uses("a"), USER],
        [USER, uses("a")],
        [USER, uses("a", "b"), results("a")],
        [USER, results("a")],
        [USER, uses("a"), results("a", "a")],
        [USER, {"role": "assistant", "content": []}],
        [USER, {"role": "assistant", "content": " "}],
        [USER, USER],
        [{"role": "assistant", "content": "hi"}, USER],
    ):
        assert messages_fault(history), history
