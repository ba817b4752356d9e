"""What every way to a model shares: pieces of an answer in, the closed union out, one terminal event.

Nothing follows the terminal event. Tool calls come whole, right before `Finish`, and only if the answer ended
well, so that no call of a broken answer is ever executed.
"""

from __future__ import annotations

import json
import logging
from abc import ABC, abstractmethod
from typing import Any

from turnwire.core.text import cut, repair
from turnwire.extend.llm import (
    FailureKind,
    Finish,
    FinishReason,
    LlmEvent,
    ReasoningDelta,
    StreamFailure,
    TextDelta,
    TokenUsage,
    UsageSnapshot,
)
from turnwire.runtime.models.calls import ToolCalls
from turnwire.runtime.models.failures import MAX_PARTIAL_BYTES, error_failure, failure_of
from turnwire.runtime.models.inline_calls import InlineCalls
from turnwire.runtime.models.text import DeltaJoiner, split_delta
from turnwire.runtime.models.think import ThinkSplitter

__all__ = ["MAX_REPLAY_BYTES", "Assembler"]

MAX_REPLAY_BYTES = 512 * 1024

logger = logging.getLogger(__name__)


class Assembler(ABC):
    """Puts one answer of one provider together.

    Args:
        provider: the name that failures carry.
        think: splits think tags out of the text, or None to leave them.
        inline: takes tool calls out of the text, or None to leave them.
        null_finish_ok: whether an answer that ends without finish reason and end marker is whole.
    """

    def __init__(
        self,
        provider: str,
        *,
        think: ThinkSplitter | None = None,
        inline: InlineCalls | None = None,
        null_finish_ok: bool = False,
    ) -> None:
        self.provider = provider
        self._null_finish_ok = null_finish_ok
        self._think = think
        self._inline = inline
        self._texts: list[str] = []
        self._split_at = 0
        self._text_joiner = DeltaJoiner()
        self._reasoning_joiner = DeltaJoiner()
        # True while a text delta can only pass unchanged, which is what the fast paths ask.
        self._plain = inline is None and (think is None or think.idle)
        self._calls = ToolCalls()
        self._usage_fields: dict[str, Any] = {}
        self._usage = TokenUsage()
        self._reason = ""
        self._refusal: list[str] = []
        self.ended = False

    def fail(self, failure: StreamFailure) -> list[LlmEvent]:
        """The transport failed: return the held text and `failure` with the text so far."""
        out: list[LlmEvent] = []
        if not self.ended:
            self._flush_text(out)
            if self._inline is not None:
                self._give_text(self._inline.give_up(), out)
            self.ended = True
            out.append(
                failure_of(
                    failure.kind,
                    failure.message,
                    provider=failure.provider or self.provider,
                    status_code=failure.status_code,
                    retry_after=failure.retry_after_seconds,
                    retryable=failure.retryable,
                    partial=self.partial(),
                )
            )
        return out

    @property
    def reasoned(self) -> bool:
        """Whether the provider has said why it stopped, so that nothing but the end mark can be missing."""
        return bool(self._reason)

    def partial(self) -> str:
        """The text so far, at most 256 KiB of it."""
        return cut("".join(self._texts), MAX_PARTIAL_BYTES)

    # --- what a provider defines -------------------------------------------------------------------------

    @abstractmethod
    def _finish_reason(self) -> FinishReason | None:
        """The provider's reason in our words; None where it says itself that the answer broke off."""

    @abstractmethod
    def _token_usage(self, fields: dict[str, Any]) -> TokenUsage:
        """The provider's counts as disjoint ones."""

    def _replay(self) -> list[Any]:
        """Blocks to send back with this answer."""
        return []

    # --- text --------------------------------------------------------------------------------------------

    def _text(self, text: str, out: list[LlmEvent]) -> None:
        """Emit text by all the rules."""
        self._split(self._text_joiner.feed(text), out)
        if self._inline is None:
            self._plain = not self._text_joiner.pending and (self._think is None or self._think.idle)

    def _split(self, text: str, out: list[LlmEvent]) -> None:
        if self._think is None:
            self._emit_text(text, out)
            return
        before = self._texts[-1][-1] if len(self._texts) > self._split_at else ""
        for reasoning, piece in self._think.feed(text, before):
            (self._emit_reasoning if reasoning else self._emit_text)(piece, out)
        self._split_at = len(self._texts)

    def _emit_text(self, text: str, out: list[LlmEvent]) -> None:
        self._give_text(text if self._inline is None else self._inline.feed(text), out)

    def _give_text(self, text: str, out: list[LlmEvent]) -> None:
        if text:
            self._texts.append(text)
            out.extend(TextDelta(piece) for piece in split_delta(text))

    def _reasoning(self, text: str, out: list[LlmEvent]) -> None:
        self._emit_reasoning(self._reasoning_joiner.feed(text), out)

    @staticmethod
    def _emit_reasoning(text: str, out: list[LlmEvent]) -> None:
        if text:
            out.extend(ReasoningDelta(piece) for piece in split_delta(text))

    def _flush_text(self, out: list[LlmEvent]) -> None:
        self._emit_reasoning(self._reasoning_joiner.flush(), out)
        self._split(self._text_joiner.flush(), out)
        if self._think is not None:
            for reasoning, piece in self._think.flush():
                (self._emit_reasoning if reasoning else self._emit_text)(piece, out)

    # --- usage -------------------------------------------------------------------------------------------

    def _take_usage(self, fields: Any, out: list[LlmEvent]) -> None:
        """The last report wins, field by field; a report of nothing at all is no report."""
        if not isinstance(fields, dict):
            return
        self._usage_fields.update((name, value) for name, value in fields.items() if value is not None)
        usage = self._token_usage(self._usage_fields)
        whole = usage.input_tokens + usage.cache_read_tokens + usage.cache_creation_tokens
        if usage != self._usage and whole + usage.output_tokens > 0:
            self._usage = usage
            out.append(UsageSnapshot(usage))

    # --- the end -----------------------------------------------------------------------------------------

    def _fail(self, kind: FailureKind, message: str, out: list[LlmEvent]) -> None:
        out.extend(self.fail(failure_of(kind, message, provider=self.provider)))

    def _fail_with(self, error: Any, out: list[LlmEvent]) -> None:
        out.extend(self.fail(error_failure(error, provider=self.provider)))

    def _end(self, out: list[LlmEvent], *, marked: bool) -> None:
        reason = self._finish_reason()
        if reason is None:
            self._fail(FailureKind.SERVER, f"the provider broke off the answer ({self._reason})", out)
            return
        if not self._reason and not marked and not self._null_finish_ok_here():
            self._fail(FailureKind.INCOMPLETE, "the stream ended without a finish reason or end marker", out)
            return
        self._flush_text(out)
        if self._inline is not None:
            self._take_inline(self._inline, out)
        self.ended = True
        calls = self._calls.complete()
        out.extend(calls)
        refusal = repair("".join(self._refusal))
        if refusal and reason in (FinishReason.STOP, FinishReason.OTHER, FinishReason.CONTENT_FILTER):
            reason = FinishReason.REFUSAL
        if calls and reason is FinishReason.STOP:
            reason = FinishReason.TOOL_CALLS
        if not calls and reason is FinishReason.TOOL_CALLS:
            reason = FinishReason.STOP if self._texts else FinishReason.OTHER
        out.append(Finish(reason, repair(self._reason)[:200], self._replay_json(), refusal))

    def _take_inline(self, inline: InlineCalls, out: list[LlmEvent]) -> None:
        """The calls that the text ended with, unless the answer has calls of its own."""
        text, calls = (inline.give_up(), []) if len(self._calls) else inline.finish()
        self._give_text(text, out)
        for name, arguments in calls:
            self._calls.open(len(self._calls), "", name).append(arguments)

    def _null_finish_ok_here(self) -> bool:
        return self._null_finish_ok and bool(self._texts or len(self._calls))

    def _replay_json(self) -> str:
        blocks = self._replay()
        if not blocks:
            return ""
        try:
            text = json.dumps(blocks, ensure_ascii=True, separators=(",", ":"))
        except RecursionError:
            text = " " * (MAX_REPLAY_BYTES + 1)
        if len(text) <= MAX_REPLAY_BYTES:
            return text
        logger.warning("model.replay_dropped", extra={"provider": self.provider, "bytes": len(text)})
        return ""
