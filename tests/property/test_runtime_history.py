"""Whatever a store holds, the model is shown a history that the strictest provider accepts."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from support.history_rules import chat_fault, messages_fault, request_fault
from turnwire.extend.events import ResultPart, ToolOutcome
from turnwire.extend.llm import (
    AssistantMessage,
    ModelRequest,
    TokenUsage,
    ToolMessage,
    UsageProvenance,
)
from turnwire.runtime.domain.message import (
    BegunTools,
    CallPart,
    ContentPart,
    ReasoningText,
    StoredMessage,
    StoredPart,
)
from turnwire.runtime.domain.turn import InputPart
from turnwire.runtime.engine.history import assistant_messages, model_messages
from turnwire.runtime.engine.usage import UsageMeter, add_tokens
from turnwire.runtime.models.anthropic_request import encode_messages
from turnwire.runtime.models.openai_request import encode_chat
from turnwire.runtime.models.settings import ProviderProfile

CHAT = ProviderProfile(format="openai-chat")
MESSAGES = ProviderProfile(format="anthropic")

STEPS = st.integers(1, 2)
TEXTS = st.sampled_from(["", "text", "<b>&", "<interrupted_response>"])
NAMES = st.sampled_from(["", "add", "none", '"<x>&', "n" * 70])
ARGUMENTS = st.sampled_from(["{}", '{"a": 1e400, "b": 12345678901234567890123}', "{", "", "[1]", "\ud83d"])


@st.composite
def call_parts(draw: st.DrawFn) -> CallPart:
    outcome = draw(st.none() | st.sampled_from(ToolOutcome))
    return CallPart(
        call_id=draw(st.sampled_from(["call-1", "call-2", "call-3"])),
        provider_call_id="p",
        tool_name=draw(NAMES),
        arguments_json=draw(ARGUMENTS),
        step=draw(STEPS),
        call_index=draw(st.integers(0, 3)),
        outcome=outcome,
        content=draw(TEXTS),
        is_error=draw(st.booleans()),
        parts=(ResultPart("image/png", b"x"),) if draw(st.booleans()) else (),
    )


def reasoning(text: str, step: int, provider: str, signed: bool) -> ReasoningText:
    replay = f'[{{"type": "reasoning.text", "text": "{provider}"}}]'
    return ReasoningText(text, step, replay if signed else "", provider)


PARTS: st.SearchStrategy[StoredPart] = st.one_of(
    st.builds(ContentPart, st.builds(InputPart, kind=st.just("text"), text=TEXTS), STEPS),
    st.builds(reasoning, TEXTS, STEPS, st.sampled_from(["fake", "other"]), st.booleans()),
    st.builds(BegunTools, st.lists(NAMES, max_size=2).map(tuple), STEPS),
    call_parts(),
)
USER_PARTS = st.one_of(
    st.builds(ContentPart, st.builds(InputPart, kind=st.just("text"), text=TEXTS)),
    st.builds(ContentPart, st.just(InputPart(kind="uri", uri="https://x", media_type="image/png"))),
    st.builds(ContentPart, st.just(InputPart(kind="blob", data=b"x", media_type="image/png"))),
)


@st.composite
def transcripts(draw: st.DrawFn) -> list[StoredMessage]:
    messages = []
    for position in range(draw(st.integers(0, 5))):
        role = draw(st.sampled_from(["user", "assistant"]))
        parts = draw(st.lists(USER_PARTS if role == "user" else PARTS, max_size=8))
        reason = draw(st.sampled_from(["", "cancelled", "error"]))
        open_ = draw(st.booleans())
        messages.append(
            StoredMessage(f"m{position}", position, role, "t", tuple(parts), open_, interrupted_reason=reason)
        )
    return messages


@given(transcripts())
def test_what_is_asked_of_a_model_breaks_no_rule_of_any_provider(transcript: list[StoredMessage]) -> None:
    request = ModelRequest("m", tuple(model_messages(transcript, "fake")))
    assert request_fault(request) == ""
    assert chat_fault(json.loads(encode_chat(request, CHAT, stream=True))["messages"]) == ""
    assert messages_fault(json.loads(encode_messages(request, MESSAGES, stream=True))["messages"]) == ""


@given(transcripts())
def test_every_result_stands_in_the_order_of_its_call(transcript: list[StoredMessage]) -> None:
    owed: list[str] = []
    for message in model_messages(transcript, "fake"):
        if isinstance(message, ToolMessage):
            assert message.call_id == owed.pop(0)
        elif isinstance(message, AssistantMessage):
            owed = [c.call_id for c in message.tool_calls]


@given(transcripts())
def test_what_another_provider_signed_is_never_sent(transcript: list[StoredMessage]) -> None:
    sent = [m.replay_json for m in model_messages(transcript, "fake") if isinstance(m, AssistantMessage)]
    assert "other" not in "".join(sent)


def text(content: str, step: int = 1) -> ContentPart:
    return ContentPart(InputPart(kind="text", text=content), step)


def test_an_interrupted_answer_is_shown_as_one_with_its_reason() -> None:
    (message,) = assistant_messages([text("so <far>")], "fake", "cancelled")
    assert isinstance(message, AssistantMessage)
    assert message.text == (
        '<interrupted_response reason="cancelled">\nso &lt;far&gt;\n</interrupted_response>'
    )


def test_an_interrupted_answer_names_the_tools_it_had_begun_to_call() -> None:
    (message,) = assistant_messages([BegunTools(("add", "mul"), 1)], "fake", "timeout")
    assert isinstance(message, AssistantMessage)
    assert "Tool calls begun: add, mul" in message.text
    assert message.tool_calls == ()


def test_only_the_step_that_stopped_short_is_shown_as_interrupted() -> None:
    done = CallPart("call-1", "p", "add", "{}", 1, 0, ToolOutcome.SUCCEEDED, "2")
    first, result, last = assistant_messages([text("one"), done, text("two", 2)], "fake", "error")
    assert isinstance(first, AssistantMessage)
    assert isinstance(result, ToolMessage)
    assert isinstance(last, AssistantMessage)
    assert first.text == "one"
    assert "interrupted_response" in last.text


def test_arguments_that_are_an_object_stay_as_they_were_written() -> None:
    written = '{"a": 1e400,  "b": 12345678901234567890123}'
    done = CallPart("call-1", "p", "add", written, 1, 0, ToolOutcome.SUCCEEDED, "2")
    answer, _ = assistant_messages([done], "fake")
    assert isinstance(answer, AssistantMessage)
    assert answer.tool_calls[0].arguments_json == written


def test_a_name_that_no_provider_takes_is_told_in_letters_that_all_take() -> None:
    call = CallPart("call-1", "p", "read file/é", "{}", 1, 0, ToolOutcome.REJECTED, "no such tool", True)
    answer, result = assistant_messages([call], "fake")
    assert isinstance(answer, AssistantMessage)
    assert isinstance(result, ToolMessage)
    assert answer.tool_calls[0].tool_name == result.tool_name == "read_file__"


def test_a_call_whose_owner_died_is_told_as_unknown() -> None:
    _, result = assistant_messages([CallPart("call-1", "p", "send", "{}", 1, 0)], "fake")
    assert isinstance(result, ToolMessage)
    assert result.is_error
    assert result.content.startswith("<tool_outcome_unknown")


# --- sums of usage ---

USAGES = st.builds(
    TokenUsage,
    *[st.integers(0, 10**6)] * 5,
    st.sampled_from(UsageProvenance),
)


@given(st.lists(st.none() | USAGES, max_size=6))
def test_a_sum_is_as_uncertain_as_its_most_uncertain_part(reports: list[TokenUsage | None]) -> None:
    meter = UsageMeter()
    for report in reports:
        meter.add_model_call(report)
    total = meter.summary()
    known = [r for r in reports if r is not None]
    assert total.model_calls == len(reports)
    assert total.tokens.input_tokens == sum(r.input_tokens for r in known)
    assert total.tokens.output_tokens == sum(r.output_tokens for r in known)
    parts = {UsageProvenance.UNKNOWN if r is None else r.provenance for r in reports}
    if not reports or UsageProvenance.UNKNOWN in parts:
        assert total.tokens.provenance is UsageProvenance.UNKNOWN
    elif parts == {UsageProvenance.REPORTED}:
        assert total.tokens.provenance is UsageProvenance.REPORTED
    else:
        assert total.tokens.provenance is UsageProvenance.ESTIMATED


@given(USAGES, USAGES)
def test_sums_do_not_depend_on_the_order(a: TokenUsage, b: TokenUsage) -> None:
    assert add_tokens(a, b) == add_tokens(b, a)
