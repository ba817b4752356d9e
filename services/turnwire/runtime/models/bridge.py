"""Whatever our own adapters do not speak, through the model classes of pydantic-ai.

It is off the hot path and imported with the first call, off the loop. Usage that a stream repeats replaces
what it said before; repeats are ours alone.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import json
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from turnwire.extend.llm import (
    FailureKind,
    FinishReason,
    LlmEvent,
    ModelRequest,
    TokenUsage,
    ToolCallFragment,
    UsageProvenance,
)
from turnwire.runtime.models.assembler import Assembler
from turnwire.runtime.models.base import BatchedModel, Batches, OnSent, OnWait
from turnwire.runtime.models.bridge_failures import bridge_failure
from turnwire.runtime.models.calls import ToolCalls
from turnwire.runtime.models.capabilities import prepared, refusal_of
from turnwire.runtime.models.settings import LimitSettings, ProviderProfile
from turnwire.runtime.models.text import utf8_length
from turnwire.runtime.ports import RequestRefusal

if TYPE_CHECKING:
    from pydantic_ai.models import Model, StreamedResponse

__all__ = ["BridgedModel", "bridge_installed"]

logger = logging.getLogger(__name__)

_MESSAGES = "turnwire.runtime.models.bridge_messages"
_REASONS = {
    "stop": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "content_filter": FinishReason.CONTENT_FILTER,
    "tool_call": FinishReason.TOOL_CALLS,
}


_COUNTS = (
    "input_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "output_tokens",
    "output_reasoning_tokens",
)


def bridge_installed() -> bool:
    """Whether the extra is there; nothing is imported."""
    return importlib.util.find_spec("pydantic_ai") is not None


class BridgedModel(BatchedModel):
    """One model of pydantic-ai.

    Args:
        prefix: ours, before the colon.
        model: its name there, `provider:model`.
        build: makes the model; by default by that name, with key and address of the profile if it has any.
    """

    def __init__(
        self,
        prefix: str,
        model: str,
        profile: ProviderProfile,
        limits: LimitSettings,
        *,
        build: Callable[[], Model] | None = None,
    ) -> None:
        super().__init__(f"{prefix}:{model}", f"{prefix}:{model.partition(':')[0]}")
        self._profile = profile
        self._limits = limits
        self._build = build or (lambda: _infer(model, profile))
        self._model: Model | None = None
        self._building = asyncio.Lock()

    async def batches(
        self, request: ModelRequest, *, on_sent: OnSent | None, on_wait: OnWait | None
    ) -> Batches:
        """Ask once, and give what comes in our words; leaving closes the stream below."""
        answer = _BridgedAnswer(self.provider, null_finish_ok=self._profile.null_finish_ok)
        loop, limits = asyncio.get_running_loop(), self._limits
        try:
            async with AsyncExitStack() as stack:
                asked = self._asked(await self._ready(), request)
                end = loop.time() + limits.whole_call_seconds
                if on_sent is not None:
                    on_sent()
                async with asyncio.timeout_at(min(end, loop.time() + limits.first_chunk_seconds)):
                    response = await stack.enter_async_context(asked())
                _latest_usage_wins(response)
                wait = limits.first_chunk_seconds
                events = aiter(response)
                while not answer.ended:
                    async with asyncio.timeout_at(min(end, loop.time() + wait)):
                        event = await anext(events, None)
                    batch = answer.event(event) if event is not None else answer.finish(response)
                    wait = limits.between_chunks_seconds
                    if batch:
                        yield batch
        except Exception as error:
            # Some twenty libraries may stand below, each with trouble of its own.
            logger.info("model.bridge_failed", extra={"model": self.name, "error": type(error).__name__})
            if not answer.ended:
                key = self._profile.api_key
                yield answer.fail(bridge_failure(error, (key.get_secret_value(),) if key else ()))

    def refusal(self, request: ModelRequest) -> RequestRefusal | None:
        """Return why this request cannot be put to the model."""
        return refusal_of(request, self._profile.format, self._profile.capabilities)

    async def close(self) -> None:
        """Close the connections of the library."""
        model, self._model = self._model, None
        if model is not None:
            await model.__aexit__(None, None, None)

    async def _ready(self) -> Model:
        """Return the model, made with the first call and off the loop, as that imports the library."""
        async with self._building:
            if self._model is None:
                await asyncio.to_thread(importlib.import_module, _MESSAGES)
                model = await asyncio.to_thread(self._build)
                self._model = await model.__aenter__()
            return self._model

    def _asked(self, model: Model, request: ModelRequest) -> Callable[[], Any]:
        request = prepared(request, self._profile.format, self._profile.capabilities)
        words = importlib.import_module(_MESSAGES)
        messages = words.bridge_messages(request)
        settings = words.bridge_settings(request, self._profile.extra_body)
        parameters = words.bridge_parameters(request)
        return lambda: model.request_stream(messages, settings, parameters)


def _infer(name: str, profile: ProviderProfile) -> Model:
    models = importlib.import_module("pydantic_ai.models")
    given = {"api_key": profile.api_key.get_secret_value()} if profile.api_key else {}
    if profile.base_url:
        given["base_url"] = profile.base_url
    providers = importlib.import_module("pydantic_ai.providers")

    def provider(kind: str) -> Any:
        return providers.infer_provider_class(kind)(**given)

    found: Model = models.infer_model(name, provider) if given else models.infer_model(name)
    return found


def _latest_usage_wins(response: StreamedResponse) -> None:
    """A stream may repeat its usage in every chunk; the library adds these up unless it is told otherwise."""
    add: Callable[..., None] = response._add_usage

    def take(usage: Any, *, reported: bool, cumulative: bool = False) -> None:
        add(usage, reported=reported, cumulative=cumulative or reported)

    response._add_usage = take  # type: ignore[method-assign]


class _BridgedAnswer(Assembler):
    """Puts events of pydantic-ai together. Calls that a provider runs itself never surface as ours."""

    def __init__(self, provider: str, *, null_finish_ok: bool) -> None:
        super().__init__(provider, null_finish_ok=null_finish_ok)
        self._arriving: dict[int, ToolCallFragment] = {}
        self._kept: list[Any] = []
        self._finished: FinishReason | None = FinishReason.OTHER

    def event(self, event: Any) -> list[LlmEvent]:
        """Take one event; return what it tells."""
        out: list[LlmEvent] = []
        if event.event_kind == "part_start":
            self._piece(event.index, event.part, event.part.part_kind, out)
        elif event.event_kind == "part_delta":
            self._piece(event.index, event.delta, event.delta.part_delta_kind, out)
        return out

    def _piece(self, index: int, piece: Any, kind: str, out: list[LlmEvent]) -> None:
        text = getattr(piece, "content", None) or getattr(piece, "content_delta", None)
        if kind == "text" and isinstance(text, str):
            self._text(text, out)
        elif kind == "thinking" and isinstance(text, str):
            self._reasoning(text, out)
        elif kind in ("tool-call", "tool_call"):
            before = self._arriving.get(index, ToolCallFragment("", 0))
            name = getattr(piece, "tool_name", None) or getattr(piece, "tool_name_delta", None) or ""
            arguments = getattr(piece, "args", None) or getattr(piece, "args_delta", None) or ""
            size = utf8_length(arguments if isinstance(arguments, str) else json.dumps(arguments))
            self._arriving[index] = ToolCallFragment(before.tool_name + name, before.argument_bytes + size)
            out.append(self._arriving[index])

    def finish(self, response: StreamedResponse) -> list[LlmEvent]:
        """The stream is over: usage, whole calls, and the terminal event."""
        out: list[LlmEvent] = []
        whole = response.get()
        self._calls = ToolCalls()
        for part in whole.parts:
            if part.part_kind == "tool-call":
                call = self._calls.open(len(self._calls), part.tool_call_id, part.tool_name)
                call.append(part.args if isinstance(part.args, str) else json.dumps(part.args or {}))
        details = whole.provider_details or {}
        if isinstance(details.get("refusal"), str):
            self._refusal.append(details["refusal"])
        self._take_usage({name: getattr(whole.usage, name, 0) for name in _COUNTS}, out)
        suspended = whole.state == "suspended"
        self._reason = str(details.get("finish_reason") or whole.finish_reason or whole.state * suspended)
        if whole.state == "incomplete":
            self._fail(FailureKind.INCOMPLETE, "the stream ended before the answer was whole", out)
            return out
        if suspended:
            self._finished = FinishReason.PAUSE
        elif whole.finish_reason == "error":
            self._finished = None
        else:
            self._finished = _REASONS.get(str(whole.finish_reason), FinishReason.OTHER)
        words = importlib.import_module(_MESSAGES)
        self._kept = [words.dumped(whole)] if words.needs_replay(whole.parts) else []
        self._end(out, marked=False)
        return out

    def _replay(self) -> list[Any]:
        return self._kept

    def _finish_reason(self) -> FinishReason | None:
        return self._finished

    def _token_usage(self, fields: dict[str, Any]) -> TokenUsage:
        read, written = fields["cache_read_tokens"], fields["cache_write_tokens"]
        fresh = max(0, fields["input_tokens"] - read - written)
        output = fields["output_tokens"]
        reasoning = min(fields["output_reasoning_tokens"], output)
        return TokenUsage(fresh, read, written, output, reasoning, UsageProvenance.REPORTED)
