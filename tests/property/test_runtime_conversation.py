"""Wherever a conversation is cut, what is sent breaks no rule, and later turns read the same as this one."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.history_rules import chat_fault, messages_fault, request_fault
from support.long_threads import stored, words
from support.strict_formats import gemini_fault, responses_fault
from turnwire.extend.events import MessageOrigin, ToolOutcome
from turnwire.extend.llm import ModelRequest, SystemMessage, UserMessage
from turnwire.runtime.domain.compaction import Compaction, StoredHistory
from turnwire.runtime.domain.message import BegunTools, CallPart, StoredMessage, StoredPart
from turnwire.runtime.engine.compaction_plan import Cut, plan_cut
from turnwire.runtime.engine.conversation import Conversation
from turnwire.runtime.engine.token_count import TokenCounter
from turnwire.runtime.models.anthropic_request import encode_messages
from turnwire.runtime.models.gemini_request import encode_gemini
from turnwire.runtime.models.openai_request import encode_chat
from turnwire.runtime.models.responses_request import encode_responses
from turnwire.runtime.models.settings import ProviderProfile

CHAT = ProviderProfile(format="openai-chat")
MESSAGES = ProviderProfile(format="anthropic")
RESPONSES = ProviderProfile(format="openai-responses")
GEMINI = ProviderProfile(format="gemini")
TEXTS = st.sampled_from(["", "a text", "<b>", "you must not"])


@st.composite
def answers(draw: st.DrawFn, position: int) -> StoredMessage:
    """An answer of up to three steps with up to four calls each, whatever became of it."""
    parts: list[StoredPart] = []
    for step in range(1, draw(st.integers(1, 3)) + 1):
        for index in range(draw(st.integers(0, 4))):
            outcome = draw(st.sampled_from([None, ToolOutcome.SUCCEEDED, ToolOutcome.OUTCOME_UNKNOWN]))
            # Ids come again, as no store should hold them.
            call_id = draw(st.sampled_from([f"c{position}-{step}-{index}", "c1", ""]))
            parts.append(CallPart(call_id, "p", "look", "{}", step, index, outcome, "r" if outcome else ""))
        if text := draw(TEXTS):
            parts.append(words(text, step))
    reason = draw(st.sampled_from(["", "", "cancelled"]))
    if reason and draw(st.booleans()):
        parts.append(BegunTools(("look",), 3))
    return replace(stored(position, "assistant", *parts), interrupted_reason=reason)


@st.composite
def threads(draw: st.DrawFn) -> list[StoredMessage]:
    """Any messages in any order, as edits, crashes and steers leave them."""
    found = []
    for position in range(1, draw(st.integers(1, 12)) + 1):
        if draw(st.booleans()):
            found.append(draw(answers(position)))
        else:
            origin = draw(st.sampled_from([None, *MessageOrigin]))
            found.append(stored(position, "user", words(draw(TEXTS)), origin=origin))
    return found


def loaded(history: StoredHistory) -> Conversation:
    conversation = Conversation("fake", TokenCounter(), "be kind")
    conversation.load(history)
    return conversation


def summary(found: Cut, before: Compaction | None, number: int) -> Compaction:
    count = found.size.messages + (before.count if before else 0)
    return Compaction(
        f"s{number}", found.through_message, found.through_step, count, f"sum {number}", kept=found.kept
    )


def kept_by_a_store(thread: list[StoredMessage], made: Compaction) -> StoredHistory:
    """What a store gives back: all from the message on that the summary ends in, and what it keeps."""
    (through,) = (m.position for m in thread if m.message_id == made.through_message)
    messages = [m for m in thread if m.position >= through or m.message_id in made.kept]
    return StoredHistory(messages, made)


def check(conversation: Conversation) -> None:
    request = ModelRequest("m", conversation.messages())
    assert request_fault(request) == ""
    assert chat_fault(json.loads(encode_chat(request, CHAT, stream=True))["messages"]) == ""
    body = json.loads(encode_messages(request, MESSAGES, stream=True))
    assert messages_fault(body["messages"]) == ""
    responses = json.loads(encode_responses(request, RESPONSES, stream=True))
    assert responses_fault(responses["input"]) == ""
    gemini = json.loads(encode_gemini(request, GEMINI, stream=True))
    assert gemini_fault(gemini["contents"]) == ""
    if conversation.compaction is not None:
        assert "[compacted]" in body["system"][0]["text"]
        assert "[compacted]" in gemini["systemInstruction"]["parts"][1]["text"]


def shape(conversation: Conversation) -> list[object]:
    # Ids that come again are told apart as they are met: that is not the same once some of them are gone.
    return [
        (type(m).__name__, getattr(m, "text", ""), getattr(m, "content", ""), getattr(m, "parts", ()))
        for m in conversation.messages()
    ]


@given(threads(), st.lists(st.integers(1, 12), min_size=1, max_size=3))
def test_any_cut_after_any_other_keeps_the_rules_and_reads_back_the_same(
    thread: list[StoredMessage], keeps: list[int]
) -> None:
    conversation = loaded(StoredHistory(thread))
    check(conversation)
    total = conversation.size.messages
    for number, keep in enumerate(keeps):
        found = plan_cut(conversation, keep)
        if found is None:
            continue
        made = summary(found, conversation.compaction, number)
        before = conversation.size
        conversation.compact(made)
        assert conversation.size == found.left
        assert before.messages == conversation.size.messages + found.size.messages
        assert made.count + conversation.size.messages == total
        assert conversation.size.messages >= min(keep, before.messages)
        check(conversation)
        assert shape(loaded(kept_by_a_store(thread, made))) == shape(conversation)


@given(threads(), st.integers(1, 12))
def test_the_latest_question_and_the_latest_user_message_always_stay(
    thread: list[StoredMessage], keep: int
) -> None:
    conversation = loaded(StoredHistory(thread))
    users = [p.exchange for p in conversation.placed if p.exchange.from_user]
    asks = [e for e in users if e.asks]
    found = plan_cut(conversation, keep)
    if found is None:
        return
    conversation.compact(summary(found, None, 0))
    stay = [p.exchange for p in conversation.placed]
    assert all(e in stay for e in (*users[-1:], *asks[-1:]))
    if users and users[0] not in found.tail and any(e in stay for e in users):
        first = conversation.messages()[2]
        older = any(e.from_user for e in (*found.pinned, *found.covered))
        assert isinstance(first, UserMessage) or not older


@given(threads(), st.integers(0, 40))
def test_what_is_added_step_by_step_is_what_is_read_in_one(thread: list[StoredMessage], at: int) -> None:
    whole = loaded(StoredHistory(thread))
    grown = loaded(StoredHistory(thread[:at]))
    for message in thread[at:]:
        rest = loaded(StoredHistory([message]))
        for placed in rest.placed:
            grown._place([placed.exchange])
    assert grown.size == whole.size
    assert shape(grown) == shape(whole)


def test_nothing_is_cut_off_before_the_only_question() -> None:
    thread = [stored(1, "user", words("hello"))]
    assert plan_cut(loaded(StoredHistory(thread)), 1) is None


@pytest.mark.parametrize("batch", [1, 2, 3, 4])
def test_every_cut_index_leaves_whole_exchanges(batch: int) -> None:
    calls = [
        CallPart(f"c{s}-{i}", "p", "look", "{}", s, i, ToolOutcome.SUCCEEDED, "r")
        for s in range(1, 6)
        for i in range(batch)
    ]
    thread = [
        stored(1, "user", words("one")),
        stored(2, "assistant", *calls, words("done", 6)),
        stored(3, "user", words("two")),
    ]
    sizes = set()
    for keep in range(1, 6 * (batch + 1) + 3):
        conversation = loaded(StoredHistory(thread))
        found = plan_cut(conversation, keep)
        if found is None:
            continue
        conversation.compact(summary(found, None, 0))
        check(conversation)
        told = conversation.messages()
        assert isinstance(told[0], SystemMessage)
        sizes.add(len(told))
    # Each place between two exchanges was the cut once.
    assert len(sizes) == 6
