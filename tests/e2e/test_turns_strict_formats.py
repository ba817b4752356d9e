"""The strict provider is as strict in the responses format and in Gemini's."""

from __future__ import annotations

from typing import Any

import pytest

from support.strict_formats import format_of, gemini_fault, model_of, responses_fault

ASKED = {"role": "user", "content": [{"type": "input_text", "text": "hello"}]}


def called(call_id: str, arguments: str = "{}") -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": "add", "arguments": arguments}


def output(call_id: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": "3"}


def user(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "parts": list(parts) or [{"text": "hello"}]}


def model(*names: str) -> dict[str, Any]:
    return {"role": "model", "parts": [{"functionCall": {"name": name, "args": {}}} for name in names]}


def response(name: str) -> dict[str, Any]:
    return {"functionResponse": {"name": name, "response": {"result": 3}}}


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        ("/v1/chat/completions", {"model": "m"}, ("chat", "m")),
        ("/v1/responses", {"model": "m"}, ("responses", "m")),
        ("/v1/messages", {"model": "m"}, ("messages", "m")),
        ("/v1beta/models/m:streamGenerateContent?alt=sse", {}, ("gemini", "m")),
    ],
)
def test_the_path_says_the_format(path: str, body: dict[str, Any], expected: tuple[str, str]) -> None:
    assert (format_of(path), model_of(path, body)) == expected


def test_responses_are_held_to_the_rules_of_histories() -> None:
    reasoning = {"type": "reasoning", "encrypted_content": "x"}
    assert responses_fault([ASKED, reasoning, called("a"), called("b"), output("a"), output("b")]) == ""
    assert responses_fault([ASKED, {"role": "assistant", "content": "hi"}, ASKED]) == ""
    for history in (
        [ASKED, called("a")],
        [ASKED, called("a"), ASKED],
        [ASKED, output("a")],
        [ASKED, called("a"), output("a"), output("a")],
        [ASKED, called("a"), called("a"), output("a")],
        [ASKED, called("a", "["), output("a")],
        [{"role": "user", "content": []}],
    ):
        assert responses_fault(history), history


def test_contents_of_gemini_are_held_to_the_rules_of_histories() -> None:
    assert gemini_fault([user(), model("add", "get"), user(response("add"), response("get"))]) == ""
    assert gemini_fault([user(), model("add"), user(response("add"), {"text": "and now"})]) == ""
    for history in (
        [user(), model("add")],
        [user(), model("add"), user()],
        [user(), model("add", "get"), user(response("get"), response("add"))],
        [user(), model("add", "get"), user(response("add"))],
        [user(), model("add"), user(response("add"), response("add"))],
        [user(), user()],
        [model("add")],
        [user(), {"role": "model", "parts": []}],
    ):
        assert gemini_fault(history), history
