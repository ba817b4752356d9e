"""`scripted:` plays a script of events with pauses, failures and tool calls, so that all runs without a key.

A script is a JSON or YAML object `{"calls": [call, ...], "by": "step"}`; a call is a list of events (their
forms stand in `script_events`), or `{"attempts": [list, ...]}` where repeats of the same call play the next
list. `by` says which call is played: `step` (default) counts the model's messages since the last user
message, `thread` counts them in the whole request, `order` counts the calls of this process. `"cases":
[{"contains": "...", "calls": [...]}]` go before `calls` when the last user message contains the text. In
texts `$user` is the last user message and `$result` the last tool result. A list without an end finishes by
itself.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import aclosing
from pathlib import Path
from string import Template
from typing import Any

from turnwire.core.text import repair
from turnwire.extend.llm import (
    AssistantMessage,
    FailureKind,
    Finish,
    FinishReason,
    LlmEvent,
    ModelRequest,
    ReasoningDelta,
    StreamFailure,
    TextDelta,
    TextPart,
    ToolCallComplete,
    ToolCallFragment,
    ToolMessage,
    UserMessage,
)
from turnwire.runtime.models.base import BatchedModel, Batches, OnSent, OnWait
from turnwire.runtime.models.failures import failure_of
from turnwire.runtime.models.script_events import ScriptError, event_of
from turnwire.runtime.models.text import split_delta

__all__ = ["ScriptedModel", "last_result", "last_user_text", "read_script"]

_ORDERS = ("step", "thread", "order")


def read_script(source: str) -> dict[str, Any]:
    """Read a script from inline JSON, or from the JSON or YAML file of that path.

    Raises:
        ScriptError: there is no such file, or it is no script.
    """
    inline = source.lstrip()[:1] in ("{", "[")
    try:
        text = source if inline else Path(source).read_text(encoding="utf-8")
        if not inline and source.endswith((".yaml", ".yml")):
            import yaml

            found = yaml.safe_load(text)
        else:
            found = json.loads(text)
    except OSError as error:
        raise ScriptError(f"the script cannot be read: {error.strerror}") from error
    except Exception as error:
        raise ScriptError(f"the script is neither JSON nor YAML: {error}") from error
    if isinstance(found, list):
        found = {"calls": [found] if found and isinstance(found[0], dict) else found}
    if not isinstance(found, dict):
        raise ScriptError("a script is an object with `calls`, or a list of events")
    return found


class ScriptedModel(BatchedModel):
    """Plays a script.

    Args:
        script: what `read_script` gives.
        name: full name, for events and logs.

    Raises:
        ScriptError: the script is no script.
    """

    def __init__(self, script: Mapping[str, Any], name: str = "scripted:") -> None:
        super().__init__(name, "scripted")
        self._by = script.get("by", "step")
        if self._by not in _ORDERS:
            raise ScriptError(f"by is one of {', '.join(_ORDERS)}, not {self._by!r}")
        self._calls = _checked_calls(script.get("calls", []))
        self._cases = [_checked_case(case) for case in script.get("cases", [])]
        self._asked = 0
        self._attempts: dict[int, int] = {}
        self.requests: deque[ModelRequest] = deque(maxlen=100)

    async def batches(
        self, request: ModelRequest, *, on_sent: OnSent | None, on_wait: OnWait | None
    ) -> Batches:
        """Play the call that is due."""
        self.requests.append(request)
        if on_sent is not None:
            on_sent()
        call = self._due(request)
        if call is None:
            what = "the script has no such call"
            yield [failure_of(FailureKind.INVALID_REQUEST, what, provider="scripted")]
            return
        async with aclosing(_play(call, request)) as batches:
            async for batch in batches:
                yield batch

    def _due(self, request: ModelRequest) -> list[dict[str, Any]] | None:
        text = last_user_text(request)
        calls = next((calls for part, calls in self._cases if part in text), self._calls)
        index = self._index(request)
        if index >= len(calls):
            return None
        call = calls[index]
        if isinstance(call, list):
            return call
        attempts: list[list[dict[str, Any]]] = call["attempts"]
        done = self._attempts.get(id(call), 0)
        self._attempts[id(call)] = done + 1
        return attempts[min(done, len(attempts) - 1)]

    def _index(self, request: ModelRequest) -> int:
        if self._by == "order":
            self._asked += 1
            return self._asked - 1
        count = 0
        for message in reversed(request.messages):
            if isinstance(message, UserMessage) and self._by == "step":
                break
            count += isinstance(message, AssistantMessage)
        return count


async def _play(call: list[dict[str, Any]], request: ModelRequest) -> Batches:
    """Whole calls come right before the end, as from every other model."""
    shown: list[str] = []
    calls: list[LlmEvent] = []
    for item in call:
        for event in _expand(item, request):
            match event:
                case float():
                    await asyncio.sleep(event)
                    continue
                case ToolCallComplete():
                    calls.append(event)
                    yield [ToolCallFragment(event.tool_name, len(event.arguments_json.encode()))]
                case Finish():
                    yield [*calls, event]
                    return
                case StreamFailure():
                    yield [_with_partial(event, shown)]
                    return
                case _:
                    shown += [event.text] if isinstance(event, TextDelta) else []
                    yield [event]
            await asyncio.sleep(0)
        if item.get("hang"):
            await asyncio.Event().wait()
    yield [*calls, Finish(FinishReason.TOOL_CALLS if calls else FinishReason.STOP, "scripted")]


def last_user_text(request: ModelRequest) -> str:
    """The text of the last user message."""
    for message in reversed(request.messages):
        if isinstance(message, UserMessage):
            return "\n".join(part.text for part in message.parts if isinstance(part, TextPart))
    return ""


def last_result(request: ModelRequest) -> str:
    """The content of the last tool result, if the request ends with one."""
    last = request.messages[-1] if request.messages else None
    return last.content if isinstance(last, ToolMessage) else ""


def _checked_calls(calls: Any) -> list[Any]:
    if not isinstance(calls, list):
        raise ScriptError("calls is a list of lists of events")
    for call in calls:
        lists = call.get("attempts") if isinstance(call, dict) else [call]
        if not isinstance(lists, list) or not lists:
            raise ScriptError('a call is a list of events or {"attempts": [list, ...]}')
        for events in lists:
            for item in events if isinstance(events, list) else [events]:
                _check_item(item)
    return calls


def _checked_case(case: Any) -> tuple[str, list[Any]]:
    if not isinstance(case, dict):
        raise ScriptError('a case is {"contains": "...", "calls": [...]}')
    return str(case.get("contains", "")), _checked_calls(case.get("calls"))


def _check_item(item: Any) -> None:
    if not isinstance(item, dict):
        raise ScriptError(f"an event is an object, not {type(item).__name__}")
    if "delay" in item:
        if not isinstance(item["delay"], (int, float)) or item["delay"] < 0:
            raise ScriptError("delay is a number of seconds")
    elif not item.get("hang"):
        event_of(item, "scripted")


def _expand(item: dict[str, Any], request: ModelRequest) -> Iterator[LlmEvent | float]:
    """What one item gives: events, and pauses in seconds."""
    if "delay" in item:
        yield float(item["delay"])
        return
    if item.get("hang"):
        return
    event = event_of(item, "scripted")
    if isinstance(event, (TextDelta, ReasoningDelta)):
        kind = type(event)
        text = repair(event.text)
        if "$" in text:
            words = {"user": last_user_text(request), "result": last_result(request)}
            text = Template(text).safe_substitute(words)
        size, every = int(item.get("size") or 0), float(item.get("every") or 0.0)
        pieces = [text[i : i + size] for i in range(0, len(text), size)] if size else list(split_delta(text))
        for position, piece in enumerate(pieces):
            if every and position:
                yield every
            if piece:
                yield kind(piece)
    else:
        yield event


def _with_partial(event: StreamFailure, shown: list[str]) -> StreamFailure:
    return failure_of(
        event.kind,
        event.message,
        provider=event.provider,
        status_code=event.status_code,
        retry_after=event.retry_after_seconds,
        retryable=event.retryable,
        partial="".join(shown),
    )
