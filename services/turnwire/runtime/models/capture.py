"""What of prompts and answers may stand in logs and spans: nothing, unless the operator says otherwise.

| policy | a log line has | the span of the call has |
|---|---|---|
| off | nothing | nothing |
| hash | sizes, roles and SHA-256 | the same |
| summary | also the first 200 characters of the last user message and the answer, names of tools | the same |
| full | the same as summary | also all messages and the answer as JSON, at most 64 KiB each |
"""

from __future__ import annotations

import hashlib
import json
import logging
from contextlib import aclosing
from dataclasses import asdict
from typing import Any, Literal

from opentelemetry import trace

from turnwire.core.text import cut
from turnwire.extend.llm import (
    AssistantMessage,
    Finish,
    LlmEvent,
    MediaPart,
    ModelMessage,
    ModelRequest,
    StreamFailure,
    SystemMessage,
    TextDelta,
    TokenUsage,
    ToolCallComplete,
    UserMessage,
)
from turnwire.runtime.models.base import BatchedModel, Batches, OnSent, OnWait
from turnwire.runtime.ports import Model, RequestRefusal

__all__ = ["MAX_CAPTURED_BYTES", "CapturePolicy", "CapturedModel"]

CapturePolicy = Literal["off", "hash", "summary", "full"]
MAX_CAPTURED_BYTES = 64 * 1024
HEAD_CHARS = 200

logger = logging.getLogger(__name__)

_ROLES = {SystemMessage: "system", UserMessage: "user", AssistantMessage: "assistant"}


class CapturedModel(BatchedModel):
    """A model whose calls are told to logs and spans, as far as `policy` allows."""

    def __init__(self, inner: BatchedModel, policy: CapturePolicy) -> None:
        super().__init__(inner.name, inner.provider)
        self._inner = inner
        self._policy = policy

    def refusal(self, request: ModelRequest) -> RequestRefusal | None:
        """Return why this request cannot be put to the model."""
        return self._inner.refusal(request)

    async def batches(
        self, request: ModelRequest, *, on_sent: OnSent | None, on_wait: OnWait | None
    ) -> Batches:
        """Yield what the model gives, and tell of it."""
        plain = [_plain(message) for message in request.messages]
        self._tell("model.request", "gen_ai.input.messages", _asked(request, plain, self._policy), plain)
        text: list[str] = []
        calls: list[ToolCallComplete] = []

        def waits(
            what: str,
            seconds: float,
            failure: StreamFailure | None,
            usage: TokenUsage | None = None,
            following: Model | None = None,
        ) -> None:
            if failure is not None:
                # What was said before is void.
                text.clear()
                calls.clear()
            if on_wait is not None:
                on_wait(what, seconds, failure, usage, following)

        begun, rest = await self._inner.start(request, on_sent=on_sent, on_wait=waits)
        async with aclosing(rest):
            for batch in begun:
                self._gather(batch, text, calls)
                yield batch
            async for batch in rest:
                self._gather(batch, text, calls)
                yield batch

    def _gather(self, batch: list[LlmEvent], text: list[str], calls: list[ToolCallComplete]) -> None:
        for event in batch:
            if isinstance(event, TextDelta):
                text.append(event.text)
            elif isinstance(event, ToolCallComplete):
                calls.append(event)
            elif isinstance(event, (Finish, StreamFailure)):
                self._answered("".join(text), calls, event)

    def _answered(self, text: str, calls: list[ToolCallComplete], end: Finish | StreamFailure) -> None:
        whole = [asdict(call) for call in calls]
        told: dict[str, Any] = {
            "answer_chars": len(text),
            "answer_calls": len(calls),
            "answer_sha256": _hash([text, whole]),
            "end": end.reason.value if isinstance(end, Finish) else end.kind.value,
        }
        if self._policy != "hash":
            told["answer_head"] = text[:HEAD_CHARS]
            told["answer_tools"] = [call.tool_name for call in calls]
        self._tell("model.answer", "gen_ai.output.messages", told, {"text": text, "calls": whole})

    def _tell(self, event: str, attribute: str, told: dict[str, Any], whole: Any) -> None:
        logger.info(event, extra={"model": self.name, **told})
        span = trace.get_current_span()
        if span.is_recording():
            span.set_attributes({f"turnwire.{name}": value for name, value in told.items()})
            if self._policy == "full":
                text = cut(json.dumps(whole, ensure_ascii=False), MAX_CAPTURED_BYTES)
                span.set_attribute(attribute, text)


def _asked(request: ModelRequest, plain: list[dict[str, Any]], policy: CapturePolicy) -> dict[str, Any]:
    told: dict[str, Any] = {
        "prompt_roles": [str(message["role"]) for message in plain],
        "prompt_bytes": len(json.dumps(plain, ensure_ascii=False).encode("utf-8", "replace")),
        "prompt_sha256": _hash(plain),
        "prompt_tools": len(request.tools),
    }
    if policy != "hash":
        said = [m for m in request.messages if isinstance(m, UserMessage)]
        texts = [part.text for part in said[-1].parts if not isinstance(part, MediaPart)] if said else []
        told["prompt_head"] = "\n".join(texts)[:HEAD_CHARS]
    return told


def _plain(message: ModelMessage) -> dict[str, Any]:
    """The message as JSON, media as what they are and not what they hold."""
    found = asdict(message)
    for name in ("parts", "media"):
        found[name] = [_without_bytes(part) for part in found.get(name) or ()]
    return {"role": _ROLES.get(type(message), "tool"), **{k: v for k, v in found.items() if v}}


def _without_bytes(part: dict[str, Any]) -> dict[str, Any]:
    if not part.get("data"):
        return part
    return part | {"data": f"{len(part['data'])} bytes, sha256 {hashlib.sha256(part['data']).hexdigest()}"}


def _hash(found: Any) -> str:
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()
