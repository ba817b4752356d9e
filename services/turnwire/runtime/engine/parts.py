"""From what a model call gave to the parts that a transcript keeps of it."""

from __future__ import annotations

from collections.abc import Sequence

from turnwire.extend.llm import Finish
from turnwire.runtime.domain.message import BegunTools, CallPart, ContentPart, ReasoningText, StoredPart
from turnwire.runtime.domain.turn import InputPart
from turnwire.runtime.engine.model_step import Answer

__all__ = ["answer_parts", "interrupted_parts"]


def answer_parts(answer: Answer, calls: Sequence[CallPart], step: int, provider: str) -> list[StoredPart]:
    """Return the parts of a whole answer."""
    parts: list[StoredPart] = []
    end = answer.end if isinstance(answer.end, Finish) else None
    replay = end.replay_json if end is not None else ""
    reasoning = "".join(answer.reasoning)
    if reasoning or replay:
        parts.append(ReasoningText(reasoning, step, replay, provider))
    text = answer.whole_text or (end.refusal if end is not None else "")
    if text:
        parts.append(ContentPart(InputPart(kind="text", text=text), step))
    parts.extend(calls)
    return parts


def interrupted_parts(answer: Answer, step: int) -> list[StoredPart]:
    """Return what is kept of an answer that stops short; nothing when nothing was said and no call begun."""
    text = answer.whole_text
    names = tuple(dict.fromkeys([*answer.begun_tools, *(c.tool_name for c in answer.calls)]))
    if not text and not names:
        return []
    parts: list[StoredPart] = []
    if answer.reasoning:
        parts.append(ReasoningText("".join(answer.reasoning), step))
    if text:
        parts.append(ContentPart(InputPart(kind="text", text=text), step))
    if names:
        parts.append(BegunTools(names, step))
    return parts
