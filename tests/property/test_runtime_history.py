"""Whatever a store holds, the model is shown a history that the strictest provider accepts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from turnwire.extend.events import ResultPart, ToolOutcome
from turnwire.extend.llm import (
    AssistantMessage,
    TextPart,
    TokenUsage,
    ToolMessage,
    UsageProvenance,
    UserMessage,
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

STEPS = st.integers(1, 2)
TEXTS = st.sampled_from(["", "text", "<b>&", "<interrupted_response>"])
NAMES = st.sampled_from(["", "add", "none", '"<x>&'])


@st.composite
def call_parts(draw: st.DrawFn) -> CallPart:
    outcome = draw(st.none() | st.sampled_from(ToolOutcome))
    return CallPart(
        call_id=draw(st.sampled_from(["call-1", "call-2", "call-3"])),
        provider_call_id="p",
        tool_name=draw(NAMES),
        arguments_json="{}",
        step=draw(STEPS),
        call_index=draw(st.integers(0, 3)),
        outcome=outcome,
        content=draw(TEXTS),
        is_error=draw(st.booleans()),
        parts=(ResultPart("image/png", b"x"),) if draw(st.booleans()) else (),
    )


def reasoning(text: str, step: int, provider: str, signed: bool) -> ReasoningText:
    return ReasoningText(text, step, f'["{provider}"]' if signed else "", provider)


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
def test_every_call_is_answered_once_right_after_it_and_nothing_else_is(
    transcript: list[StoredMessage],
) -> None:
    owed: list[str] = []
    for message in model_messages(transcript, "fake"):
        if isinstance(message, ToolMessage):
            assert owed, "a result without its call"
            assert message.call_id == owed.pop(0)
            assert message.tool_name
            continue
        assert not owed, "a call without its result"
        if isinstance(message, AssistantMessage):
            owed = [c.call_id for c in message.tool_calls]
            assert len(set(owed)) == len(owed)
            assert all(c.tool_name for c in message.tool_calls)
            assert message.text or owed or message.replay_json
        else:
            assert isinstance(message, UserMessage)
            assert message.parts
            assert all(p.text for p in message.parts if isinstance(p, TextPart))
    assert not owed


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
