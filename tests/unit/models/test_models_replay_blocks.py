"""What a provider signed, encrypted or only thought goes back to that provider, whole, and to no other."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.model_streams import read, said
from turnwire.extend.llm import AssistantMessage, Finish, ModelOptions, ModelRequest, TextPart, UserMessage
from turnwire.runtime.domain.message import CallPart, ContentPart, ReasoningText, StoredPart
from turnwire.runtime.domain.turn import InputPart
from turnwire.runtime.engine.history import assistant_messages
from turnwire.runtime.models.dialects import DIALECTS, make_normaliser
from turnwire.runtime.models.settings import ProviderProfile, WireFormat


def event(payload: Any) -> bytes:
    return b"data: " + json.dumps(payload).encode() + b"\n\n"


def block(index: int, started: dict[str, Any], *deltas: dict[str, Any]) -> bytes:
    body = event({"type": "content_block_start", "index": index, "content_block": started})
    for delta in deltas:
        body += event({"type": "content_block_delta", "index": index, "delta": delta})
    return body + event({"type": "content_block_stop", "index": index})


def part(**fields: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"parts": [fields]}}]}


CHAT = (
    event(
        {
            "choices": [
                {"delta": {"reasoning_details": [{"type": "reasoning.text", "text": "Hm, ", "index": 0}]}}
            ]
        }
    )
    + event(
        {
            "choices": [
                {"delta": {"reasoning_details": [{"type": "reasoning.text", "text": "yes.", "index": 0}]}}
            ]
        }
    )
    + event({"choices": [{"delta": {"reasoning_details": [{"type": "reasoning.encrypted", "data": "e"}]}}]})
    + event({"choices": [{"delta": {"content": "Ask."}}]})
    + event(
        {
            "choices": [
                {
                    "delta": {
                        "tool_calls": [
                            {"index": 0, "id": "c", "function": {"name": "get", "arguments": "{}"}}
                        ]
                    },
                    "finish_reason": "tool_calls",
                }
            ]
        }
    )
    + b"data: [DONE]\n\n"
)
ANTHROPIC = (
    event({"type": "message_start", "message": {}})
    + block(
        0,
        {"type": "thinking", "thinking": ""},
        {"type": "thinking_delta", "thinking": "Hm."},
        {"type": "signature_delta", "signature": "signed"},
    )
    + block(1, {"type": "redacted_thinking", "data": "secret"})
    + block(2, {"type": "text", "text": ""}, {"type": "text_delta", "text": "Ask."})
    + block(3, {"type": "tool_use", "id": "t", "name": "get", "input": {}})
    + event({"type": "message_delta", "delta": {"stop_reason": "tool_use"}})
    + event({"type": "message_stop"})
)
REASONING = {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "Hm."}]}
RESPONSES = event(
    {
        "type": "response.completed",
        "response": {
            "status": "completed",
            "output": [
                REASONING | {"encrypted_content": "secret"},
                {"type": "message", "content": [{"type": "output_text", "text": "Ask."}]},
                {"type": "function_call", "call_id": "c", "name": "get", "arguments": "{}"},
            ],
        },
    }
)
GEMINI = (
    event(part(text="Hm.", thought=True))
    + event(part(text="Ask."))
    + event(part(functionCall={"name": "get", "args": {}}, thoughtSignature="signed"))
    + event({"candidates": [{"finishReason": "STOP"}]})
)
BODIES: dict[WireFormat, bytes] = {
    "openai-chat": CHAT,
    "anthropic": ANTHROPIC,
    "openai-responses": RESPONSES,
    "gemini": GEMINI,
}
# What must stand in the next request to the same provider.
MUST: dict[WireFormat, list[Any]] = {
    "openai-chat": [
        {"type": "reasoning.text", "index": 0, "text": "Hm, yes."},
        {"type": "reasoning.encrypted", "data": "e"},
    ],
    "anthropic": [
        {"type": "thinking", "thinking": "Hm.", "signature": "signed"},
        {"type": "redacted_thinking", "data": "secret"},
    ],
    "openai-responses": [REASONING | {"encrypted_content": "secret"}],
    "gemini": [{"functionCall": {"name": "get", "args": {}}, "thoughtSignature": "signed"}],
}


def stored(form: WireFormat, provider: str) -> list[StoredPart]:
    """The parts that a transcript keeps of the answer."""
    got = said(read(make_normaliser(provider, ProviderProfile(format=form)), [BODIES[form]]))
    assert isinstance(got.end, Finish), got.end
    assert got.reasoning.startswith("Hm")
    return [
        ReasoningText(got.reasoning, 1, got.end.replay_json, provider),
        ContentPart(InputPart(kind="text", text=got.text), 1),
        CallPart("ours", "theirs", got.calls[0].tool_name, got.calls[0].arguments_json, 1, 0),
    ]


def sent(form: WireFormat, parts: list[StoredPart], provider: str, **profile: Any) -> str:
    """The next request, as text without spaces."""
    messages = (UserMessage((TextPart("Hi"),)), *assistant_messages(parts, provider))
    body = DIALECTS[form].encode(ModelRequest("m", messages), ProviderProfile(format=form, **profile), True)
    return json.dumps(json.loads(body), sort_keys=True)


@pytest.mark.parametrize("form", BODIES)
def test_what_was_signed_goes_back_to_its_provider_whole(form: WireFormat) -> None:
    body = sent(form, stored(form, "one"), "one")
    for wanted in MUST[form]:
        assert json.dumps(wanted, sort_keys=True) in body


@pytest.mark.parametrize("form", BODIES)
def test_what_was_signed_goes_to_no_other_provider_even_of_the_same_format(form: WireFormat) -> None:
    body = sent(form, stored(form, "one"), "two", reasoning_field="reasoning_content")
    for word in ("signed", "secret", "Hm", "reasoning", "thinking"):
        assert word not in body.replace('"reasoning.encrypted_content"', "")
    assert "Ask." in body


def test_plain_reasoning_goes_back_in_the_field_that_the_profile_names_and_in_none_without() -> None:
    parts: list[StoredPart] = [
        ReasoningText("Hm.", 1, "", "deepseek"),
        ContentPart(InputPart(kind="text", text="Ask."), 1),
    ]
    assert '"reasoning_content": "Hm."' in sent(
        "openai-chat", parts, "deepseek", reasoning_field="reasoning_content"
    )
    assert "Hm." not in sent("openai-chat", parts, "deepseek")
    assert "Hm." not in sent("openai-chat", parts, "other", reasoning_field="reasoning_content")


def test_blocks_of_one_format_are_nothing_to_another() -> None:
    for form in BODIES:
        (_, *rest) = stored(form, "one")
        for other in BODIES:
            if other == form:
                continue
            replay = stored(form, "one")[0]
            assert isinstance(replay, ReasoningText)
            foreign = [ReasoningText("", 1, replay.replay_json, "one"), *rest]
            body = sent(other, foreign, "one")
            for word in ("signed", "secret", "Hm"):
                assert word not in body, (form, other)
            assert body.count("Ask.") == 1
            messages = assistant_messages(foreign, "one")
            assert isinstance(messages[0], AssistantMessage)


def test_calls_that_were_never_signed_are_marked_for_models_that_want_signatures() -> None:
    parts: list[StoredPart] = [CallPart("a", "", "get", "{}", 1, 0), CallPart("b", "", "get", "{}", 1, 1)]
    messages = (UserMessage((TextPart("Hi"),)), *assistant_messages(parts, "two"))

    def signatures(model: str) -> list[Any]:
        body = DIALECTS["gemini"].encode(
            ModelRequest(model, messages), ProviderProfile(format="gemini"), True
        )
        return [part.get("thoughtSignature") for part in json.loads(body)["contents"][1]["parts"]]

    assert signatures("gemini-3-pro") == ["c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I=", None]
    assert signatures("gemini-2.5-pro") == [None, None]
    signed = sent("gemini", stored("gemini", "one"), "one")
    assert signed.count("thoughtSignature") == 1


def test_open_calls_without_signed_thinking_are_answered_without_thinking() -> None:
    def thinks(parts: list[StoredPart], *more: Any, **profile: Any) -> bool:
        messages = (UserMessage((TextPart("Hi"),)), *assistant_messages(parts, "one"), *more)
        request = ModelRequest("m", messages, options=ModelOptions(reasoning_effort="low"))
        body = DIALECTS["anthropic"].encode(request, ProviderProfile(format="anthropic", **profile), True)
        return "thinking" in json.loads(body)

    foreign = stored("anthropic", "two")
    assert thinks(stored("anthropic", "one"))
    assert not thinks(foreign)
    assert thinks(foreign, thinking="adaptive")
    assert thinks(foreign, UserMessage((TextPart("And?"),)))
