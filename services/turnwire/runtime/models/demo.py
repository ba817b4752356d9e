"""`demo:` is no language model: a few rules that use the demo tools, to try a deployment without a key.

It says what it is in every answer of its own. Rules look at the last user message: sums, the time, the slow
report, reading a file, a long story, and `call TOOL {json}` for any tool that is offered.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from turnwire.extend.llm import (
    Finish,
    FinishReason,
    LlmEvent,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
    TokenUsage,
    ToolCallComplete,
    ToolCallFragment,
    ToolDefinition,
    ToolMessage,
    UsageProvenance,
    UsageSnapshot,
)
from turnwire.runtime.models.arguments import check_arguments
from turnwire.runtime.models.base import BatchedModel, Batches, OnSent, OnWait
from turnwire.runtime.models.demo_story import story
from turnwire.runtime.models.openai_request import json_object
from turnwire.runtime.models.scripted import last_user_text

__all__ = ["DemoModel"]

LABEL = "[demo model] "
# About the pace of a real model, so that a long story can be watched and cancelled.
STORY_SECONDS_PER_WORD = 0.025
ANSWER_SECONDS_PER_WORD = 0.004
_CHARACTERS_PER_TOKEN = 4

_NUMBER = r"(-?\d+(?:\.\d+)?)"
_JOIN = r"(?:by|with|and|times|,|x|\*)"
_SUMS = (
    (
        "multiply",
        re.compile(rf"(?:multiply|product of)\D*?{_NUMBER}\s*(?:by|with|and|times|,|x|\*)\s*{_NUMBER}", re.I),
    ),
    ("multiply", re.compile(rf"{_NUMBER}\s*(?:\*|x|×|times|multiplied by)\s*{_NUMBER}", re.I)),
    ("divide", re.compile(rf"divide\D*?{_NUMBER}\s*(?:by|/)\s*{_NUMBER}", re.I)),
    ("divide", re.compile(rf"{_NUMBER}\s*(?:/|÷|divided by)\s*{_NUMBER}", re.I)),
    ("subtract", re.compile(rf"{_NUMBER}\s*(?:minus|-)\s+{_NUMBER}", re.I)),
    ("add", re.compile(rf"(?:add|sum of)\D*?{_NUMBER}\s*(?:and|to|\+|,)\s*{_NUMBER}", re.I)),
    ("add", re.compile(rf"{_NUMBER}\s*(?:\+|plus)\s*{_NUMBER}", re.I)),
)
_TIME = re.compile(r"what(?:'s| is)? (?:the )?time|current time|time is it", re.I)
_REPORT = re.compile(r"slow report", re.I)
_READ = re.compile(r"read (?:the )?file\s+[`'\"]?([^\s`'\"]+)", re.I)
_CALL = re.compile(r"\bcall\s+([\w.-]+)\s*(\{.*\})?", re.I | re.S)
_STORY = re.compile(r"\bstory\b", re.I)


@dataclass(frozen=True, slots=True)
class _Plan:
    tool: str
    arguments_json: str


class DemoModel(BatchedModel):
    """The rules, as a model."""

    def __init__(self, name: str = "demo:") -> None:
        super().__init__(name, "demo")

    async def batches(
        self, request: ModelRequest, *, on_sent: OnSent | None, on_wait: OnWait | None
    ) -> Batches:
        """Answer by the rules."""
        if on_sent is not None:
            on_sent()
        said = 0
        calls: list[LlmEvent] = []
        for pause, event in _answer(request):
            if pause:
                await asyncio.sleep(pause)
            if isinstance(event, ToolCallComplete):
                said += len(event.arguments_json)
                calls.append(event)
            else:
                if isinstance(event, (TextDelta, ReasoningDelta)):
                    said += len(event.text)
                yield [event]
        usage = TokenUsage(
            input_tokens=_tokens(_prompt_characters(request)),
            output_tokens=_tokens(said),
            provenance=UsageProvenance.ESTIMATED,
        )
        reason = FinishReason.TOOL_CALLS if calls else FinishReason.STOP
        yield [UsageSnapshot(usage), *calls, Finish(reason, "demo")]


def _answer(request: ModelRequest) -> Iterator[tuple[float, LlmEvent]]:
    results = _results(request)
    if results:
        yield from _spoken(LABEL + _about(results))
        return
    plans = _plans(request)
    if plans:
        names = " and ".join(f"`{plan.tool}`" for plan in plans)
        yield from _thought(f"A rule matches this message: I will use {names}.")
        for plan in plans:
            arguments, error = check_arguments(plan.arguments_json)
            yield 0.0, ToolCallFragment(plan.tool, len(arguments.encode()))
            yield 0.0, ToolCallComplete("", plan.tool, arguments, error=error)
        return
    text = last_user_text(request)
    if _STORY.search(text):
        yield from _thought("Somebody wants a story, so I tell the only one that I know.")
        yield from _spoken(LABEL + story(), STORY_SECONDS_PER_WORD)
        return
    yield from _thought("No rule matches this message, so I say what I can do.")
    yield from _spoken(LABEL + _help(text, request))


def _results(request: ModelRequest) -> list[ToolMessage]:
    """The tool results that the request ends with, in order."""
    found: list[ToolMessage] = []
    for message in reversed(request.messages):
        if not isinstance(message, ToolMessage):
            break
        found.append(message)
    return found[::-1]


def _plans(request: ModelRequest) -> list[_Plan]:
    """The calls that the rules want, of tools that are offered."""
    if request.tool_choice.mode == "none":
        return []
    text = last_user_text(request)
    wanted: list[_Plan | None] = []
    explicit = _CALL.search(text)
    if explicit and (tool := _offered(request, explicit.group(1))):
        return [_Plan(tool.name, explicit.group(2) or "{}")]
    for name, pattern in _SUMS:
        if found := pattern.search(text):
            wanted.append(_plan(request, name, [json.loads(n) for n in found.groups()]))
            break
    if _TIME.search(text):
        wanted.append(_plan(request, "current_time", []))
    if _REPORT.search(text):
        wanted.append(_plan(request, "slow_report", []))
    if found := _READ.search(text):
        wanted.append(_plan(request, "read_file", [found.group(1)]))
    return [plan for plan in wanted if plan is not None]


def _plan(request: ModelRequest, name: str, values: list[Any]) -> _Plan | None:
    """Call `name` with `values` under the first names of its schema."""
    tool = _offered(request, name)
    if tool is None:
        return None
    try:
        schema = json_object(tool.input_schema_json or "{}")
    except ValueError:
        schema = {}
    properties = schema.get("properties") or {}
    required = list(schema.get("required") or ())
    names = required + [known for known in properties if known not in required]
    arguments = dict(zip(names, values, strict=False))
    for missing in required[len(values) :]:
        arguments[missing] = _filler(properties.get(missing) or {})
    return _Plan(tool.name, json.dumps(arguments))


def _filler(schema: dict[str, Any]) -> Any:
    if "default" in schema:
        return schema["default"]
    if schema.get("enum"):
        return schema["enum"][0]
    return {"integer": 1, "number": 1, "boolean": False, "array": [], "object": {}}.get(
        str(schema.get("type")), "demo"
    )


def _offered(request: ModelRequest, name: str) -> ToolDefinition | None:
    """The tool of that name, with or without the prefix of its executor."""
    for tool in request.tools:
        if tool.name == name or re.split(r"[./:]|__", tool.name)[-1] == name:
            return tool
    return None


def _about(results: list[ToolMessage]) -> str:
    lines = []
    for result in results:
        verb = "failed" if result.is_error else "answered"
        lines.append(f"The tool `{result.tool_name}` {verb}: {result.content[:2000]}")
    return "\n".join(lines)


def _help(text: str, request: ModelRequest) -> str:
    shown = text if len(text) <= 200 else text[:200] + "…"
    tools = ", ".join(f"`{tool.name}`" for tool in request.tools) or "none"
    return (
        f"You said: {shown}\nI am a few rules, not a language model. Try: multiply 12 by 34; what time is "
        "it; run the slow report; read file NAME; tell me a long story; call TOOL {json}. "
        f"Tools here: {tools}."
    )


def _words(text: str) -> list[str]:
    return re.findall(r"\S+\s*", text)


def _thought(text: str) -> Iterator[tuple[float, LlmEvent]]:
    for word in _words(text):
        yield ANSWER_SECONDS_PER_WORD, ReasoningDelta(word)


def _spoken(text: str, pace: float = ANSWER_SECONDS_PER_WORD) -> Iterator[tuple[float, LlmEvent]]:
    for word in _words(text):
        yield pace, TextDelta(word)


def _prompt_characters(request: ModelRequest) -> int:
    return sum(len(str(message)) for message in request.messages)


def _tokens(characters: int) -> int:
    return -(-characters // _CHARACTERS_PER_TOKEN)
