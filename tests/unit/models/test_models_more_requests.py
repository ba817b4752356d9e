"""A model request in the words of the responses and Gemini formats."""

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
from turnwire.runtime.models.gemini_request import encode_gemini, gemini_path
from turnwire.runtime.models.responses_request import encode_responses
from turnwire.runtime.models.settings import ProviderProfile

SCHEMA = '{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}'
TOOL = ToolDefinition("get", "Gets.", SCHEMA)
PNG = MediaPart("image/png", b"\x89PNG")
CALL = AssistantMessage("Asking.", tool_calls=(ToolCallPart("c1", "get", '{"a": 1}'),))
RESULT = ToolMessage("c1", "get", "one", media=(PNG,))
TALK = (SystemMessage("Be brief."), UserMessage((TextPart("Hi"), PNG)), CALL, RESULT)


def responses(request: ModelRequest) -> Any:
    return json.loads(encode_responses(request, ProviderProfile(format="openai-responses"), stream=True))


def gemini(request: ModelRequest) -> Any:
    return json.loads(encode_gemini(request, ProviderProfile(format="gemini"), stream=True))


def test_a_conversation_becomes_items() -> None:
    body = responses(ModelRequest("m", TALK, (TOOL,), ToolChoice("tool", "get")))
    image = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw=="}
    assert body["input"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "input_text", "text": "Hi"}, image]},
        {"role": "assistant", "content": "Asking."},
        {"type": "function_call", "call_id": "c1", "name": "get", "arguments": '{"a": 1}'},
        {
            "type": "function_call_output",
            "call_id": "c1",
            "output": [{"type": "input_text", "text": "one"}, image],
        },
    ]
    assert body["tools"][0]["parameters"] == json.loads(SCHEMA)
    assert body["tool_choice"] == {"type": "function", "name": "get"}
    assert (body["store"], body["stream"]) == (False, True)
    assert body["include"] == ["reasoning.encrypted_content"]


def test_encrypted_reasoning_goes_back_before_its_call() -> None:
    replay = json.dumps(
        [
            {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "e", "status": "completed"},
            {"type": "message", "id": "m", "content": [{"type": "output_text", "text": "Asking."}]},
            {"type": "function_call", "position": 0},
        ]
    )
    answer = AssistantMessage("Asking.", tool_calls=CALL.tool_calls, replay_json=replay)
    items = responses(ModelRequest("m", (answer, RESULT)))["input"]
    assert [item.get("type", item.get("role")) for item in items] == [
        "reasoning",
        "assistant",
        "function_call",
        "function_call_output",
    ]
    changed = AssistantMessage("Other.", tool_calls=CALL.tool_calls, replay_json=replay)
    items = responses(ModelRequest("m", (changed, RESULT)))["input"]
    assert items[0]["encrypted_content"] == "e"
    assert items[1] == {"role": "assistant", "content": "Other."}


def test_options_of_responses_are_sent_and_what_does_not_exist_is_refused() -> None:
    options = ModelOptions(0.5, 0.9, 100, (), "low")
    body = responses(ModelRequest("m", TALK, options=options, response_schema_json=SCHEMA))
    assert (body["temperature"], body["top_p"], body["max_output_tokens"]) == (0.5, 0.9, 100)
    assert body["reasoning"] == {"effort": "low", "summary": "auto"}
    assert body["text"]["format"]["schema"] == json.loads(SCHEMA)
    with pytest.raises(ValueError, match="stop"):
        responses(ModelRequest("m", TALK, options=ModelOptions(stop=("END",))))


def test_a_conversation_becomes_contents() -> None:
    body = gemini(ModelRequest("m", TALK, (TOOL,), ToolChoice("tool", "get")))
    image = {"inlineData": {"mimeType": "image/png", "data": "iVBORw=="}}
    assert body["systemInstruction"] == {"parts": [{"text": "Be brief."}]}
    assert body["contents"] == [
        {"role": "user", "parts": [{"text": "Hi"}, image]},
        {
            "role": "model",
            "parts": [{"text": "Asking."}, {"functionCall": {"name": "get", "args": {"a": 1}}}],
        },
        {
            "role": "user",
            "parts": [{"functionResponse": {"name": "get", "response": {"result": "one"}}}, image],
        },
    ]
    assert body["tools"][0]["functionDeclarations"][0]["parametersJsonSchema"] == json.loads(SCHEMA)
    assert body["toolConfig"]["functionCallingConfig"] == {"mode": "ANY", "allowedFunctionNames": ["get"]}


def test_signed_parts_go_back_with_their_calls() -> None:
    replay = json.dumps(
        [
            {"type": "gemini.part", "part": {"text": "Asking."}},
            {"type": "gemini.part", "part": {"thoughtSignature": "s"}, "position": 0},
        ]
    )
    answer = AssistantMessage("Asking.", tool_calls=CALL.tool_calls, replay_json=replay)
    first, told, _ = gemini(ModelRequest("m", (answer, RESULT)))["contents"]
    assert told["parts"] == [
        {"text": "Asking."},
        {"functionCall": {"name": "get", "args": {"a": 1}}, "thoughtSignature": "s"},
    ]
    # A conversation begins with a user, whatever was hidden of it.
    assert first == {"role": "user", "parts": [{"text": "(no content)"}]}


def test_options_of_gemini_are_sent() -> None:
    options = ModelOptions(0.5, 0.9, 100, ("END",), "low")
    config = gemini(ModelRequest("m", TALK, options=options, response_schema_json=SCHEMA))["generationConfig"]
    assert config == {
        "temperature": 0.5,
        "topP": 0.9,
        "maxOutputTokens": 100,
        "stopSequences": ["END"],
        "thinkingConfig": {"thinkingBudget": 2048, "includeThoughts": True},
        "responseMimeType": "application/json",
        "responseJsonSchema": json.loads(SCHEMA),
    }
    assert "generationConfig" not in gemini(ModelRequest("m", TALK))


def test_the_path_names_the_model_and_whether_it_streams() -> None:
    assert gemini_path("gemini-3-pro", True) == "/models/gemini-3-pro:streamGenerateContent?alt=sse"
    assert gemini_path("tuned/x y", False) == "/tuned/x%20y:generateContent"
