"""A model request becomes the JSON that each provider takes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from turnwire.extend.llm import (
    AssistantMessage,
    MediaPart,
    ModelOptions,
    ModelRequest,
    SystemMessage,
    TextPart,
    ToolCallPart,
    ToolChoice,
    ToolDefinition,
    ToolMessage,
    UserMessage,
)
from turnwire.runtime.models.anthropic_request import encode_messages
from turnwire.runtime.models.openai_request import encode_chat, is_strict
from turnwire.runtime.models.settings import ProviderProfile

SCHEMA = '{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}'
TOOL = ToolDefinition("get", "Gets.", SCHEMA)
PNG = MediaPart("image/png", b"\x89PNG")
CALL = AssistantMessage("Asking.", tool_calls=(ToolCallPart("c1", "get", '{"a": 1}'),))
RESULT = ToolMessage("c1", "get", "one")


def user(text: str) -> UserMessage:
    return UserMessage((TextPart(text),))


def chat(request: ModelRequest, stream: bool = True, **profile: Any) -> Any:
    return json.loads(encode_chat(request, ProviderProfile(**profile), stream=stream))


def message(request: ModelRequest, **profile: Any) -> Any:
    profile = {"prompt_cache": False, **profile}
    return json.loads(encode_messages(request, ProviderProfile(format="anthropic", **profile), stream=True))


# --- chat completions ---


def test_a_conversation_with_a_call_keeps_its_pairs() -> None:
    body = chat(
        ModelRequest("m", (SystemMessage("Be brief."), user("Hi"), CALL, RESULT, user("And?")), (TOOL,))
    )
    assert body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {
            "role": "assistant",
            "content": "Asking.",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "get", "arguments": '{"a": 1}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "one"},
        {"role": "user", "content": "And?"},
    ]
    assert body["tools"] == [
        {
            "type": "function",
            "function": {"name": "get", "description": "Gets.", "parameters": json.loads(SCHEMA)},
        }
    ]
    assert "tool_choice" not in body
    assert body["stream"] is True
    assert body["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize(
    ("choice", "wanted"),
    [
        (ToolChoice("none"), "none"),
        (ToolChoice("required"), "required"),
        (ToolChoice("tool", "get"), {"type": "function", "function": {"name": "get"}}),
    ],
)
def test_the_choice_of_tools_is_sent_to_chat(choice: ToolChoice, wanted: Any) -> None:
    assert chat(ModelRequest("m", (user("Hi"),), (TOOL,), choice))["tool_choice"] == wanted


def test_options_are_sent_only_where_they_are_set() -> None:
    assert set(chat(ModelRequest("m", (user("Hi"),)), stream=False)) == {"model", "messages", "stream"}
    options = ModelOptions(0.5, 0.9, 100, ("END",), "low")
    body = chat(ModelRequest("m", (user("Hi"),), options=options), max_tokens_field="max_completion_tokens")
    assert body["temperature"] == 0.5
    assert body["top_p"] == 0.9
    assert body["max_completion_tokens"] == 100
    assert body["stop"] == ["END"]
    assert body["reasoning_effort"] == "low"


def test_our_fields_win_over_the_extra_ones_of_a_profile() -> None:
    body = chat(ModelRequest("m", (user("Hi"),)), extra_body={"model": "other", "seed": 7})
    assert (body["model"], body["seed"]) == ("m", 7)


def test_media_of_a_message_become_parts() -> None:
    parts = (
        TextPart("Look"),
        PNG,
        MediaPart("image/jpeg", uri="https://example.com/a.jpg"),
        MediaPart("application/pdf", b"%PDF", filename="a.pdf"),
        MediaPart("text/csv", b"a,b", filename="a.csv"),
        MediaPart("audio/mpeg", b"ID3"),
    )
    content = chat(ModelRequest("m", (UserMessage(parts),)))["messages"][0]["content"]
    assert content[1] == {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}}
    assert content[2] == {"type": "image_url", "image_url": {"url": "https://example.com/a.jpg"}}
    assert content[3]["file"] == {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERg=="}
    assert content[4] == {"type": "text", "text": "<file name='a.csv'>\na,b\n</file>"}
    assert content[5]["input_audio"]["format"] == "mp3"


def test_images_of_results_follow_the_last_result_of_their_group() -> None:
    calls = AssistantMessage(tool_calls=(ToolCallPart("c1", "get", "{}"), ToolCallPart("c2", "get", "{}")))
    first = ToolMessage("c1", "get", "one", media=(PNG,))
    body = chat(ModelRequest("m", (user("Hi"), calls, first, ToolMessage("c2", "get", "two"), user("So?"))))
    assert [item["role"] for item in body["messages"]] == [
        "user",
        "assistant",
        "tool",
        "tool",
        "user",
        "user",
    ]
    assert body["messages"][1]["content"] is None
    assert body["messages"][4]["content"][1]["type"] == "image_url"


@pytest.mark.parametrize("broken", ['{"path":"x","content":"abc', "[1]", '{"a":1,"a":2}', "not json"])
def test_a_refused_call_goes_back_in_a_form_that_every_provider_takes(broken: str) -> None:
    messages = (user("Hi"), AssistantMessage(tool_calls=(ToolCallPart("c1", "get", broken),)), RESULT)
    body = chat(ModelRequest("m", messages))
    assert body["messages"][1]["tool_calls"][0]["function"]["arguments"] == "{}"
    assert message(ModelRequest("m", messages))["messages"][1]["content"][0]["input"] == {}


def test_encrypted_reasoning_goes_back_to_chat_and_foreign_blocks_do_not() -> None:
    replay = json.dumps(
        [
            {"type": "reasoning.encrypted", "data": "x"},
            {"type": "thinking", "thinking": "t", "signature": "s"},
            {
                "type": "tool_call.extra",
                "position": 0,
                "extra_content": {"google": {"thought_signature": "g"}},
            },
        ]
    )
    answer = AssistantMessage("", "thought", (ToolCallPart("c1", "get", "{}"),), replay)
    body = chat(ModelRequest("m", (user("Hi"), answer, RESULT)), reasoning_field="reasoning_content")
    sent = body["messages"][1]
    assert sent["reasoning_details"] == [{"type": "reasoning.encrypted", "data": "x"}]
    assert sent["reasoning_content"] == "thought"
    assert sent["tool_calls"][0]["extra_content"] == {"google": {"thought_signature": "g"}}


def test_a_schema_for_the_answer_is_strict_only_where_it_can_be() -> None:
    body = chat(ModelRequest("m", (user("Hi"),), response_schema_json=SCHEMA))
    assert body["response_format"]["json_schema"]["strict"] is False
    closed = json.loads(SCHEMA) | {"additionalProperties": False}
    body = chat(ModelRequest("m", (user("Hi"),), response_schema_json=json.dumps(closed)))
    assert body["response_format"]["json_schema"] == {"name": "response", "schema": closed, "strict": True}
    assert not is_strict({"type": "array", "items": {"type": "object", "properties": {"a": {}}}})


def test_a_schema_that_is_no_object_is_refused() -> None:
    with pytest.raises(ValueError):
        chat(ModelRequest("m", (user("Hi"),), (ToolDefinition("get", "", "[]"),)))


# --- messages ---


def test_roles_alternate_and_results_come_first() -> None:
    body = message(
        ModelRequest(
            "m",
            (SystemMessage("Be brief."), user("Hi"), CALL, RESULT, SystemMessage("Now."), user("And?")),
            (TOOL,),
        )
    )
    assert body["system"] == [{"type": "text", "text": "Be brief."}]
    assert body["max_tokens"] == 8192
    assert body["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Asking."},
                {"type": "tool_use", "id": "c1", "name": "get", "input": {"a": 1}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "one"}]},
                {"type": "text", "text": "Now."},
                {"type": "text", "text": "And?"},
            ],
        },
    ]
    assert body["tools"] == [{"name": "get", "description": "Gets.", "input_schema": json.loads(SCHEMA)}]


@pytest.mark.parametrize(
    ("choice", "wanted"),
    [
        (ToolChoice("none"), {"type": "none"}),
        (ToolChoice("required"), {"type": "any"}),
        (ToolChoice("tool", "get"), {"type": "tool", "name": "get"}),
    ],
)
def test_the_choice_of_tools_is_sent_to_messages(choice: ToolChoice, wanted: Any) -> None:
    assert message(ModelRequest("m", (user("Hi"),), (TOOL,), choice))["tool_choice"] == wanted


def test_an_answer_with_signed_thinking_goes_back_as_it_came_with_our_ids() -> None:
    replay = json.dumps(
        [
            {"type": "thinking", "thinking": "t", "signature": "s"},
            {"type": "text", "text": "Asking."},
            {"type": "tool_use", "position": 0},
        ]
    )
    answer = AssistantMessage("Asking.", "t", (ToolCallPart("c1", "get", '{"a":1}'),), replay)
    blocks = message(ModelRequest("m", (user("Hi"), answer, RESULT)))["messages"][1]["content"]
    assert blocks == [
        {"type": "thinking", "thinking": "t", "signature": "s"},
        {"type": "text", "text": "Asking."},
        {"type": "tool_use", "id": "c1", "name": "get", "input": {"a": 1}},
    ]


def test_a_text_that_was_changed_since_wins_over_the_kept_blocks() -> None:
    replay = json.dumps(
        [{"type": "thinking", "thinking": "t", "signature": "s"}, {"type": "text", "text": "Old"}]
    )
    answer = AssistantMessage("New", replay_json=replay)
    blocks = message(ModelRequest("m", (user("Hi"), answer, user("And?"))))["messages"][1]["content"]
    assert [block.get("text", block["type"]) for block in blocks] == ["thinking", "New"]


def test_blocks_of_another_provider_are_left_out() -> None:
    replay = json.dumps([{"type": "reasoning.encrypted", "data": "x"}])
    answer = AssistantMessage("Hi", replay_json=replay)
    blocks = message(ModelRequest("m", (user("Hi"), answer, user("?"))))["messages"][1]["content"]
    assert blocks == [{"type": "text", "text": "Hi"}]


def test_thinking_gets_a_budget_below_the_output_limit_and_excludes_sampling() -> None:
    options = ModelOptions(temperature=0.2, max_output_tokens=1000, reasoning_effort="high")
    body = message(ModelRequest("m", (user("Hi"),), options=options))
    assert body["thinking"] == {"type": "enabled", "budget_tokens": 16384}
    assert body["max_tokens"] > 16384
    assert "temperature" not in body
    forced = ModelRequest("m", (user("Hi"),), (TOOL,), ToolChoice("required"), options)
    assert "thinking" not in message(forced)


def test_blank_texts_are_never_sent_as_blocks() -> None:
    body = message(ModelRequest("m", (AssistantMessage("Hello"), user(" "), user("Hi"))))
    assert body["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "(no content)"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "Hello"}]},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
    ]


def test_files_and_failed_results_become_blocks() -> None:
    failed = ToolMessage("c/1", "get", "", is_error=True, media=(PNG,))
    messages = (
        UserMessage((MediaPart("application/pdf", b"%PDF", filename="a.pdf"), MediaPart("text/csv", b"a,b"))),
        AssistantMessage(tool_calls=(ToolCallPart("c/1", "get", ""),)),
        failed,
    )
    sent = message(ModelRequest("m", messages))["messages"]
    assert sent[0]["content"][0]["type"] == "document"
    assert sent[0]["content"][1] == {"type": "text", "text": "<file name='file'>\na,b\n</file>"}
    assert sent[1]["content"][0]["id"] == "c_1"
    assert sent[2]["content"][0]["tool_use_id"] == "c_1"
    assert sent[2]["content"][0]["is_error"] is True
    assert sent[2]["content"][0]["content"][0]["type"] == "image"
