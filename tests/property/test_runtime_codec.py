"""The runtime's codecs: hand-written bytes equal protobuf's, and no field of the contract is forgotten."""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from turnwire.api.runtime.v1 import (
    content_pb2,
    message_pb2,
    thread_pb2,
    turn_event_pb2,
    turn_pb2,
    turn_service_pb2,
)
from turnwire.core.errors import NotServed
from turnwire.extend import events as ev
from turnwire.extend import llm
from turnwire.extend.events import MessageOrigin, ToolOutcome, TurnState
from turnwire.extend.llm import ReasoningDelta, TextDelta, ToolCallFragment
from turnwire.runtime import codec, request_codec
from turnwire.runtime.domain.execution import RiskTier
from turnwire.runtime.domain.message import BegunTools, CallPart, ContentPart, ReasoningText, StoredMessage
from turnwire.runtime.domain.thread import ThreadRow
from turnwire.runtime.domain.turn import InputPart, TaskSpec, ThreadKey, TurnKey, TurnRow
from turnwire.runtime.event_codec import duration, encode_event, event_to_proto, timestamp, trim_page

TURN = "threads/thread-1/turns/turn-1"
SEQUENCES = st.one_of(st.integers(1, 300), st.integers(2**31 - 2, 2**31 + 2), st.integers(1, 2**63 - 1))
TIMES = st.one_of(st.integers(10**9, 4 * 10**18), st.integers(1, 4 * 10**9).map(lambda s: s * 10**9))
STAMPS = st.tuples(*[st.one_of(st.integers(0, 3), st.integers(0, 2**32 - 1))] * 3)
# Arms that no event of today's runtime fills.
ARMS_NOT_SERVED = {
    "subagent_started",
    "subagent_progress",
    "subagent_checkpoint",
    "subagent_paused",
    "subagent_completed",
    "subagent_failed",
}
# Fields of served messages that nothing fills yet.
FIELDS_NOT_SERVED = {
    "turnwire.api.runtime.v1.Turn": {"retry_of", "open_actions", "checkpoint"},
    "turnwire.api.runtime.v1.Thread": {"forked_from"},
}
# Texts that are words of a closed list.
WORDS = {"risk_tier": st.sampled_from([tier.value for tier in RiskTier])}
EVENT_CLASSES = [
    c for c in (*typing.get_args(llm.LlmEvent), *typing.get_args(ev.TurnEvent)) if c is not ToolCallFragment
]
EVENT_CLASSES = list(dict.fromkeys(EVENT_CLASSES))


def values(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a type of the domain that the wire can carry."""
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return st.one_of(*[values(a) for a in typing.get_args(kind)])
    if origin is tuple:
        return st.lists(values(typing.get_args(kind)[0]), max_size=3).map(tuple)
    if kind is type(None):
        return st.none()
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        names = [f.name for f in dataclasses.fields(kind)]
        return st.builds(kind, **{n: WORDS[n] if n in WORDS else values(hints[n]) for n in names})
    if issubclass(kind, enum.Enum):
        return st.sampled_from(kind)
    return {
        bool: st.booleans(),
        int: st.integers(0, 2**31 - 1),
        float: st.floats(0, 10**6),
        str: st.text(max_size=20),
        bytes: st.binary(max_size=20),
    }[kind]


def full(kind: Any) -> Any:
    """A value of a type in which nothing has its default."""
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return full(next(a for a in typing.get_args(kind) if a is not type(None)))
    if origin is tuple:
        return (full(typing.get_args(kind)[0]),)
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        given_words = {"risk_tier": RiskTier.DANGEROUS.value}
        known = [f.name for f in dataclasses.fields(kind)]
        return kind(**{name: given_words.get(name) or full(hints[name]) for name in known})
    if issubclass(kind, enum.Enum):
        return list(kind)[-1]
    return {bool: True, int: 7, float: 1.5, str: "word", bytes: b"data"}[kind]


def missing(message: Message, path: str = "") -> list[str]:
    """Fields of a message, and of ours inside it, that are not set."""
    found = []
    served = FIELDS_NOT_SERVED.get(message.DESCRIPTOR.full_name, set())
    present = {f.name for f, _ in message.ListFields()}
    for field in message.DESCRIPTOR.fields:
        oneof = field.containing_oneof
        chosen = oneof is not None and len(oneof.fields) > 1 and message.WhichOneof(oneof.name)
        if field.name not in present and field.name not in served and not chosen:
            found.append(f"{path}{field.name}")
    for field, value in message.ListFields():
        if field.type != FieldDescriptor.TYPE_MESSAGE or field.message_type.GetOptions().map_entry:
            continue
        if not field.message_type.full_name.startswith("turnwire."):
            continue
        repeated = not isinstance(value, Message)
        for item in value if repeated else [value]:
            found += missing(item, f"{path}{field.name}.")
    return found


# --- events ---


@given(st.sampled_from([TextDelta, ReasoningDelta]), st.text(), SEQUENCES, TIMES, STAMPS)
def test_deltas_written_by_hand_are_what_protobuf_writes(
    kind: type, text: str, sequence: int, time: int, stamp: tuple[int, int, int]
) -> None:
    record = (sequence, time, stamp, kind(text))
    page = turn_service_pb2.RunTurnResponse(events=[event_to_proto(TURN, record)])
    assert encode_event(TURN, record) == page.SerializeToString()


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152])
def test_deltas_of_every_length_of_prefix_are_what_protobuf_writes(size: int) -> None:
    record = (1, 10**18, (1, 1, 1), TextDelta("x" * size))
    page = turn_service_pb2.RunTurnResponse(events=[event_to_proto(TURN, record)])
    assert encode_event(TURN, record) == page.SerializeToString()


@given(st.sampled_from(EVENT_CLASSES).flatmap(values), SEQUENCES, TIMES, STAMPS)
def test_every_event_survives_its_encoding(
    event: Any, sequence: int, time: int, stamp: tuple[int, int, int]
) -> None:
    record = (sequence, time, stamp, event)
    (found,) = turn_service_pb2.RunTurnResponse.FromString(encode_event(TURN, record)).events
    assert found == event_to_proto(TURN, record)
    assert (found.sequence, found.turn) == (sequence, TURN)
    assert found.create_time.ToNanoseconds() == time
    assert (found.turn_attempt, found.step, found.step_attempt) == stamp
    assert found.WhichOneof("event") is not None


@pytest.mark.parametrize("kind", EVENT_CLASSES, ids=lambda k: k.__name__)
def test_no_field_of_an_event_is_forgotten(kind: type) -> None:
    message = event_to_proto(TURN, (1, 10**18 + 1, (1, 1, 1), full(kind)))
    assert missing(message) == []


def test_every_arm_is_filled_by_some_event_or_named_as_not_served() -> None:
    filled = {
        event_to_proto(TURN, (1, 1, (1, 1, 1), full(kind))).WhichOneof("event") for kind in EVENT_CLASSES
    }
    arms = {f.name for f in turn_event_pb2.TurnEvent.DESCRIPTOR.oneofs_by_name["event"].fields}
    assert filled | ARMS_NOT_SERVED == arms
    assert not filled & ARMS_NOT_SERVED


@given(st.lists(values(TextDelta), min_size=1, max_size=8), st.integers(0, 9))
def test_a_trimmed_page_holds_the_bytes_of_the_rest(deltas: list[TextDelta], after: int) -> None:
    fields = [encode_event(TURN, (n, 10**18, (1, 1, 1), d)) for n, d in enumerate(deltas, 1)]
    assert trim_page(b"".join(fields), after) == b"".join(fields[after:])


@given(st.floats(0, 10**9))
def test_a_duration_is_right_to_the_microsecond(seconds: float) -> None:
    found = duration(seconds)
    assert abs(found.seconds + found.nanos / 1e9 - seconds) <= 1e-6
    assert 0 <= found.nanos < 10**9


def test_a_failed_turn_carries_one_error_info_and_others_carry_none() -> None:
    failed = ev.TurnFinished(
        TurnState.FAILED, "error", 0.1, 1, error_reason="INTERNAL", error_text="x" * 9999
    )
    message = event_to_proto(TURN, (1, 1, (1, 1, 1), failed)).turn_finished
    assert len(message.error.details) == 1
    assert len(message.error.message) == 1000
    done = ev.TurnFinished(TurnState.COMPLETED, "completed", 0.1, 1)
    assert not event_to_proto(TURN, (1, 1, (1, 1, 1), done)).turn_finished.HasField("error")


# --- resources ---

ROW = TurnRow(
    TurnKey("team", "thread-1", "turn-1"),
    TurnState.FAILED,
    "agents/helper",
    "digest",
    "request-1",
    "fingerprint",
    10**18,
    3,
    9,
    2,
    "error",
    "INTERNAL",
    "text",
    "message-1",
    full(ev.UsageSummary),
    2,
    30,
    4,
    10**18,
    10**18,
    {"a": "b"},
    {"c": "d"},
    10.0,
)


def test_no_field_of_a_turn_is_forgotten() -> None:
    asked = dataclasses.replace(
        ROW,
        task=TaskSpec(description="do", expected_output="it", parts=(InputPart(kind="text", text="x"),)),
        response_schema_json="{}",
    )
    assert missing(codec.turn_to_proto(asked)) == ["queue_position"]
    waiting = codec.turn_to_proto(dataclasses.replace(ROW, state=TurnState.QUEUED))
    assert waiting.queue_position == 4
    assert not waiting.HasField("error")


@pytest.mark.parametrize("state", TurnState)
def test_every_state_has_its_wire_form(state: TurnState) -> None:
    message = codec.turn_to_proto(dataclasses.replace(ROW, state=state))
    assert turn_pb2.TurnState.Name(message.state) == f"TURN_STATE_{state.name}"


def test_an_etag_changes_with_the_turn() -> None:
    tags = {
        codec.turn_to_proto(row).etag
        for row in (ROW, dataclasses.replace(ROW, epoch=4), dataclasses.replace(ROW, last_sequence=10))
    }
    assert len(tags) == 3


def test_no_field_of_a_thread_is_forgotten() -> None:
    key = ThreadKey("team", "thread-1")
    row = ThreadRow(key, "agents/helper", 3, "title", "turn-1", 2, {"a": "b"}, {"c": "d"}, 10**18, 10**18)
    found = codec.thread_to_proto(row)
    assert missing(found) == []
    assert found.permission_mode == thread_pb2.PERMISSION_MODE_ASK


def test_no_field_of_a_message_is_forgotten() -> None:
    parts = (
        ContentPart(InputPart(kind="text", text="a"), 1),
        ContentPart(InputPart(kind="blob", data=b"x", media_type="image/png", filename="f"), 1),
        ContentPart(InputPart(kind="uri", uri="https://x", media_type="image/png"), 1),
        ReasoningText("hm", 1),
        CallPart(
            "call-1",
            "p",
            "add",
            "{}",
            1,
            1,
            ToolOutcome.FAILED,
            "no",
            True,
            full(ev.Overflow),
            (full(ev.ResultPart),),
        ),
        BegunTools(("add",), 1),
    )
    stored = StoredMessage(
        "m-1", 4, "user", "turn-1", parts, True, "hidden", MessageOrigin.REQUEST, "cancelled", 10**18, 10**18
    )
    found = codec.message_to_proto(stored, "threads/thread-1")
    assert missing(found) == []
    assert [p.WhichOneof("part") for p in found.parts] == ["content"] * 3 + ["reasoning", "tool_call"]


def test_every_arm_of_a_message_part_is_served() -> None:
    (oneof,) = message_pb2.MessagePart.DESCRIPTOR.oneofs
    assert {f.name for f in oneof.fields} == {"content", "reasoning", "tool_call"}


def test_a_time_before_the_turn_began_is_absent() -> None:
    row = dataclasses.replace(ROW, start_time=0, finish_time=0)
    found = codec.turn_to_proto(row)
    assert not found.HasField("start_time")
    assert not found.HasField("finish_time")
    assert timestamp(1_500_000_000).nanos == 500_000_000


# --- requests: each field changes the spec, or is refused by name; none is ignored ---


def base() -> turn_pb2.TurnSpec:
    """A spec to which each field is added in turn."""
    text = content_pb2.Part(text=content_pb2.TextContent(text="hello"))
    return turn_pb2.TurnSpec(thread="threads/thread-1", input=turn_pb2.Input(parts=[text]))


FIELDS: dict[str, dict[str, Any]] = {
    "agent": {"agent": "agents/helper"},
    "input": {"input": {"parts": [{"text": {"text": "other"}}]}},
    "task": {"task": {"description": "do it"}},
    "client_tools": {"client_tools": [{"name": "x"}]},
    "allowed_tools": {"allowed_tools": ["add"]},
    "tool_choice.mode": {"tool_choice": {"mode": turn_pb2.TOOL_CHOICE_MODE_REQUIRED}},
    "tool_choice.tool_name": {"tool_choice": {"mode": turn_pb2.TOOL_CHOICE_MODE_TOOL, "tool_name": "add"}},
    "model_options.model": {"model_options": {"model": "fake:model"}},
    "model_options.temperature": {"model_options": {"temperature": 0.0}},
    "model_options.top_p": {"model_options": {"top_p": 0.5}},
    "model_options.max_output_tokens": {"model_options": {"max_output_tokens": 9}},
    "model_options.stop": {"model_options": {"stop": ["x"]}},
    "model_options.reasoning_effort": {"model_options": {"reasoning_effort": "low"}},
    "limits.steps": {"limits": {"steps": 3}},
    "limits.turn_timeout": {"limits": {"turn_timeout": {"seconds": 3}}},
    "limits.tokens": {"limits": {"tokens": 3}},
    "limits.cost_micro_usd": {"limits": {"cost_micro_usd": 3}},
    "limits.tool_timeout": {"limits": {"tool_timeout": {"seconds": 3}}},
    "response_schema_json": {"response_schema_json": "{}"},
    "busy_policy": {"busy_policy": turn_pb2.BUSY_POLICY_REJECT},
    "on_waiting": {"on_waiting": turn_pb2.WAITING_POLICY_CANCEL},
    "expected_version": {"expected_version": 0},
    "metadata": {"metadata": {"a": "b"}},
    "labels": {"labels": {"a": "b"}},
}
NEW_THREAD: dict[str, dict[str, Any]] = {
    "thread_id": {"thread_id": "mine-1"},
    "title": {"title": "t"},
    "metadata": {"metadata": {"a": "b"}},
    "labels": {"labels": {"a": "b"}},
}
PARTS: dict[str, dict[str, Any]] = {
    "blob": {"blob": {"media_type": "image/png", "data": b"x"}},
    "blob.filename": {"blob": {"media_type": "image/png", "data": b"x", "filename": "f"}},
    "uri": {"uri": {"uri": "https://x"}},
    "uri.media_type": {"uri": {"uri": "https://x", "media_type": "image/png"}},
    "handle": {"handle": {"handle": "h"}},
}
SPECS_NOT_SERVED = {
    "client_tools",
    "handle",
}


def test_every_field_of_a_spec_is_tried_here() -> None:
    nested = {"tool_choice", "model_options", "limits"}
    expected = set()
    for field in turn_pb2.TurnSpec.DESCRIPTOR.fields:
        if field.name in nested:
            expected |= {f"{field.name}.{f.name}" for f in field.message_type.fields}
        elif field.name not in ("thread", "new_thread"):
            expected.add(field.name)
    assert set(FIELDS) == expected
    assert set(NEW_THREAD) == {f.name for f in turn_pb2.NewThread.DESCRIPTOR.fields}
    arms = {f.name for f in content_pb2.Part.DESCRIPTOR.oneofs[0].fields}
    assert {name.partition(".")[0] for name in PARTS} | {"text"} == arms


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_of_a_spec_counts_or_is_refused_by_name(name: str) -> None:
    spec = base()
    if name in ("input", "task"):
        spec.ClearField("input")
    spec.MergeFrom(turn_pb2.TurnSpec(**FIELDS[name]))
    if name in SPECS_NOT_SERVED:
        with pytest.raises(NotServed) as caught:
            request_codec.turn_spec_from_proto(spec)
        assert caught.value.metadata["feature"] == f"spec.{name}"
        return
    before = request_codec.turn_spec_from_proto(base())
    assert request_codec.turn_spec_from_proto(spec).fingerprint() != before.fingerprint()


@pytest.mark.parametrize("name", NEW_THREAD)
def test_a_field_of_a_new_thread_counts(name: str) -> None:
    found = set()
    for fields in ({}, NEW_THREAD[name]):
        spec = base()
        spec.thread = ""
        spec.new_thread.CopyFrom(turn_pb2.NewThread(**fields))
        found.add(request_codec.turn_spec_from_proto(spec).fingerprint())
    assert len(found) == 2


def test_a_part_of_each_kind_counts_or_is_refused_by_name() -> None:
    found = set()
    for name, fields in PARTS.items():
        spec = base()
        spec.input.CopyFrom(turn_pb2.Input(parts=[content_pb2.Part(**fields)]))
        if name in SPECS_NOT_SERVED:
            with pytest.raises(NotServed):
                request_codec.turn_spec_from_proto(spec)
        else:
            found.add(request_codec.turn_spec_from_proto(spec).fingerprint())
    assert len(found) == len(PARTS) - 1


@given(st.dictionaries(st.sampled_from("abcdef"), st.text("xyz", max_size=3)), st.randoms())
def test_a_fingerprint_does_not_depend_on_the_order_of_a_map(labels: dict[str, str], random: Any) -> None:
    shuffled = list(labels.items())
    random.shuffle(shuffled)
    one, two = base(), base()
    one.labels.update(labels)
    two.labels.update(dict(shuffled))
    assert (
        request_codec.turn_spec_from_proto(one).fingerprint()
        == request_codec.turn_spec_from_proto(two).fingerprint()
    )


def test_fields_of_a_later_version_do_not_change_the_fingerprint() -> None:
    spec = base()
    later = turn_pb2.TurnSpec.FromString(spec.SerializeToString() + b"\xfa\x3e\x01x")
    assert (
        request_codec.turn_spec_from_proto(later).fingerprint()
        == request_codec.turn_spec_from_proto(spec).fingerprint()
    )
