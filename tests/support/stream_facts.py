"""What a stream must give in a turn, by either index, and what a turn has told of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from support.model_streams import Stream, sha256
from support.stream_changes import Change
from support.turn_rig import arms
from turnwire.api.common.v1.tool_pb2 import ToolOutcome
from turnwire.api.llm.v1 import llm_event_pb2 as llm
from turnwire.api.runtime.v1 import turn_event_pb2 as event_pb
from turnwire.api.runtime.v1.turn_pb2 import TurnState

__all__ = ["Facts", "Told", "check"]

# By the words of both indexes.
_REASONS = {
    "stop": llm.FINISH_REASON_STOP,
    "tool_calls": llm.FINISH_REASON_TOOL_CALLS,
    "tool-calls": llm.FINISH_REASON_TOOL_CALLS,
    "length": llm.FINISH_REASON_LENGTH,
    "content_filter": llm.FINISH_REASON_CONTENT_FILTER,
    "content-filter": llm.FINISH_REASON_CONTENT_FILTER,
    "refusal": llm.FINISH_REASON_REFUSAL,
    "pause": llm.FINISH_REASON_PAUSE,
    "other": llm.FINISH_REASON_OTHER,
    None: llm.FINISH_REASON_OTHER,
}


@dataclass(frozen=True)
class Facts:
    """What a stream must give.

    `text` is None where the index has only its hash; `calls` are (id, name, arguments), `broken` the ids of
    calls that must not run; `usage` is (all of the prompt, cached, output, reasoning); `reason` is None where
    the answer fails.
    """

    text: str | None
    text_hash: str
    reasoning_hash: str
    calls: list[tuple[str, str, Any]]
    broken: list[str]
    usage: tuple[int, int, int, int] | None
    reason: llm.FinishReason | None
    refusal: str

    @classmethod
    def of(cls, stream: Stream) -> Facts:
        """Read the index that the stream came with."""
        return _recorded(stream) if "terminal" in stream.expected else _own(stream)


def _recorded(stream: Stream) -> Facts:
    expected = stream.expected
    refused = bool(expected["refusal"]) or expected["finish_reason"] == "refusal"
    reason = _REASONS["refusal" if refused else expected["finish_normalised"]]
    calls = [
        # The input of a custom tool is text; ours is always an object.
        (c.get("id") or "", c["name"], {"input": c["arguments"]} if c.get("custom") else c["arguments"])
        for c in expected["tool_calls"]
    ]
    return Facts(
        expected["text"] if expected["text_len"] else "",
        expected["text_sha256"] or sha256(""),
        expected["reasoning_sha256"] or sha256(""),
        calls,
        [call["id"] for call in expected.get("incomplete_tool_calls") or []],
        _recorded_usage(stream),
        reason if expected["terminal"] == "Finish" else None,
        expected["refusal"] or "",
    )


def _recorded_usage(stream: Stream) -> tuple[int, int, int, int] | None:
    counted = stream.expected["usage"]
    if counted is None:
        return None
    cached, output, reasoning = (counted[name] or 0 for name in ("cached_input", "output", "reasoning"))
    prompt = counted["input"]
    if stream.format == "gemini":
        # There the output excludes thoughts.
        output += reasoning
    return prompt, cached, output, min(reasoning, output)


def _own(stream: Stream) -> Facts:
    expected = stream.expected
    usage = None
    if "usage" in expected:
        new, read, written, output, reasoning = expected["usage"]
        usage = (new if stream.format == "anthropic" else new + read + written, read, output, reasoning)
    return Facts(
        expected["text"],
        sha256(expected["text"]),
        sha256(expected.get("reasoning", "")),
        [(call_id, name, json.loads(arguments)) for call_id, name, arguments in expected.get("calls", [])],
        [call_id for call_id, _, _ in expected.get("broken", [])],
        usage,
        _REASONS[expected["finish"]] if "finish" in expected else None,
        expected.get("refusal", ""),
    )


@dataclass(frozen=True)
class Told:
    """What the first step of a turn told its readers."""

    text: str
    reasoning: str
    calls: list[llm.ToolCallComplete]
    usage: llm.TokenUsage | None
    finish: llm.Finish | None
    failure: llm.StreamFailure | None

    @classmethod
    def of(cls, events: Sequence[event_pb.TurnEvent]) -> Told:
        """Sum up, and check that the stream ends once, right after its calls."""
        first = [event.llm for event in events if event.step == 1 and event.HasField("llm")]
        kinds = [event.WhichOneof("event") for event in first]
        assert [k for k in kinds if k in ("finish", "stream_failure")] == kinds[-1:]
        calls = [event.tool_call_complete for event in first if event.HasField("tool_call_complete")]
        usages = [event.usage_snapshot.usage for event in first if event.HasField("usage_snapshot")]
        last = first[-1]
        return cls(
            "".join(event.text_delta.text for event in first),
            "".join(event.reasoning_delta.text for event in first),
            calls,
            usages[-1] if usages else None,
            last.finish if last.HasField("finish") else None,
            last.stream_failure if last.HasField("stream_failure") else None,
        )


def check(stream: Stream, events: Sequence[event_pb.TurnEvent], change: Change | None = None) -> None:
    """Hold the events of a turn against the index; `change` is what was done to the stream."""
    told, facts = Told.of(events), Facts.of(stream)
    _check_texts(stream, facts, told, change)
    assert (told.finish.reason if told.finish is not None else None) == facts.reason
    if told.finish is not None and facts.refusal:
        assert told.finish.refusal == facts.refusal
    _check_calls(facts, told, change)
    _check_usage(stream, facts, told)
    _check_end(told, events)


def _check_texts(stream: Stream, facts: Facts, told: Told, change: Change | None) -> None:
    if change is None:
        assert sha256(told.text) == facts.text_hash or told.text == facts.text
    elif facts.text is not None:
        assert told.text == change.text(facts.text) or b'"content":[' in stream.body.replace(b" ", b"")
    else:
        assert len(told.text) == stream.expected["text_len"]
    assert sha256(told.reasoning) == facts.reasoning_hash


def _check_calls(facts: Facts, told: Told, change: Change | None) -> None:
    def renamed(call_id: str) -> str:
        return change.id(call_id) if change is not None else call_id

    broken = [renamed(call_id) for call_id in facts.broken]
    found = [
        (call.provider_call_id, call.tool_name, json.loads(call.arguments_json))
        for call in told.calls
        if call.provider_call_id not in broken
    ]
    wanted = facts.calls if told.finish is not None else []
    assert found == [(renamed(call_id), name, arguments) for call_id, name, arguments in wanted]
    ids = [call.provider_call_id for call in told.calls]
    assert [i for i in ids if i in broken] == (broken if told.finish is not None else [])
    assert len({call.call_id for call in told.calls}) == len(told.calls)


def _check_usage(stream: Stream, facts: Facts, told: Told) -> None:
    assert (told.usage is None) == (facts.usage is None)
    if told.usage is None:
        return
    usage, prompt = told.usage, told.usage.input_tokens
    if stream.format != "anthropic":
        # There the cached part is counted in; ours are disjoint.
        prompt += usage.cache_read_tokens + usage.cache_creation_tokens
    counted = (prompt, usage.cache_read_tokens, usage.output_tokens, usage.reasoning_tokens)
    assert counted == facts.usage
    assert usage.provenance == llm.USAGE_PROVENANCE_REPORTED


def _check_end(told: Told, events: Sequence[event_pb.TurnEvent]) -> None:
    """The turn ends as its model calls do: calls and pauses lead to the fixed answer, trouble is told."""
    end = events[-1].turn_finished
    kinds = arms(list(events))
    assert kinds.count("turn_finished") == 1
    if told.failure is not None or told.finish is None:
        assert (end.state, end.stop_reason) == (TurnState.TURN_STATE_FAILED, "model-error")
        assert end.text == told.text
    elif told.calls or told.finish.reason == llm.FINISH_REASON_PAUSE:
        assert (end.state, end.text, end.steps) == (TurnState.TURN_STATE_COMPLETED, "done", 2)
    elif told.finish.reason == llm.FINISH_REASON_CONTENT_FILTER:
        assert (end.state, end.stop_reason) == (TurnState.TURN_STATE_FAILED, "model-error")
    else:
        assert (end.state, end.steps) == (TurnState.TURN_STATE_COMPLETED, 1)
        assert end.text == (told.text or told.finish.refusal)
    ends = [event.tool_call_finished for event in events if event.HasField("tool_call_finished")]
    assert [call.call_id for call in ends] == [call.call_id for call in told.calls]
    assert all(call.outcome == ToolOutcome.TOOL_OUTCOME_FAILED and call.is_error for call in ends)
