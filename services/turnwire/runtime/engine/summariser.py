"""Asks a model for a summary: what it says goes to no reader and no transcript, what it uses is counted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from turnwire.core.errors import TurnwireError
from turnwire.core.text import repair
from turnwire.extend.errors import AgentControlError
from turnwire.extend.events import TurnEvent, Waiting
from turnwire.extend.llm import (
    Finish,
    FinishReason,
    ModelOptions,
    ModelRequest,
    StreamFailure,
    SystemMessage,
    TextDelta,
    TextPart,
    UserMessage,
)
from turnwire.runtime.domain.compaction import SHORTEST_INPUT, CompactionRules
from turnwire.runtime.engine.cancel import CancelToken, HandOver
from turnwire.runtime.engine.compaction_input import chunks, summary_request
from turnwire.runtime.engine.history import Exchange
from turnwire.runtime.engine.model_step import Answer, ModelCall
from turnwire.runtime.engine.usage import UsageMeter
from turnwire.runtime.ports import Model, OwnerLost, TurnJournal

__all__ = ["SummariserPorts", "SummaryFailed", "summarise"]

logger = logging.getLogger(__name__)

# A summary so many times longer than it may be is not read to its end.
_TOO_LONG = 2
_CUT = " […]"
# A model that reasons first needs room for that as well.
_LEAST_OUTPUT_TOKENS = 4096


class SummaryFailed(Exception):
    """No summary can be had; the text says why."""


@dataclass(frozen=True, slots=True)
class SummariserPorts:
    """What a summary is made with; `model` is asked for only when one is needed."""

    model: Callable[[], Model]
    journal: TurnJournal
    token: CancelToken
    meter: UsageMeter
    first_feedback: float
    bytes_per_token: float


async def summarise(
    found: Sequence[Exchange], earlier: str, rules: CompactionRules, limit: int, ports: SummariserPorts
) -> str:
    """Return a summary of exchanges and of the summary before them.

    Args:
        earlier: that summary, empty when there is none.
        limit: characters of the new one.

    Raises:
        SummaryFailed: the model failed, was too slow, or gave what is no summary.
        AgentControlError, HandOver: the turn is to stop.
    """
    work = _Work(rules, limit, ports)
    pieces = chunks(found, rules.input_characters)
    try:
        summary = await ports.token.race(work.run(pieces, earlier), name="turn.summary")
    except (AgentControlError, HandOver, OwnerLost, SummaryFailed):
        raise
    except TimeoutError as error:
        raise SummaryFailed(f"there was no summary within {rules.timeout:g} s") from error
    except TurnwireError as error:
        raise SummaryFailed(error.message) from error
    except Exception as error:
        # A defect below must not cost the turn: it goes on without a summary.
        logger.exception("summary.failed")
        raise SummaryFailed("internal error") from error
    if len(summary) > max(sum(map(len, pieces)) + len(earlier), SHORTEST_INPUT):
        raise SummaryFailed("the summary is longer than what it is of")
    return summary


class _Work:
    """One summary, piece by piece, each call given the summary of the pieces before."""

    def __init__(self, rules: CompactionRules, limit: int, ports: SummariserPorts) -> None:
        self._rules = rules
        self._limit = limit
        self._ports = ports

    async def run(self, pieces: Sequence[str], summary: str) -> str:
        """Return the summary of all. Raises SummaryFailed, TimeoutError and what finding a model raises."""
        if not pieces:
            raise SummaryFailed("there is no text in what is left out")
        model = self._ports.model()
        async with asyncio.timeout(self._rules.timeout):
            for piece in pieces:
                summary = self._checked(await self._ask(model, piece, summary))
        return summary

    async def _ask(self, model: Model, piece: str, summary: str) -> Answer:
        ports = self._ports
        text = summary_request(piece, summary, self._limit)
        request = ModelRequest(
            model=model.name.partition(":")[2],
            messages=(SystemMessage(self._rules.prompt), UserMessage((TextPart(text),))),
            options=ModelOptions(max_output_tokens=max(_LEAST_OUTPUT_TOKENS, self._limit)),
        )
        listener = _Listener(ports.journal, self._limit * _TOO_LONG)
        call = ModelCall(
            model, request, listener, ports.first_feedback, bytes_per_token=ports.bytes_per_token
        )
        try:
            await call.run()
        finally:
            for spent in call.spent():
                ports.meter.add_model_call(spent.usage, spent.model)
        return call.answer

    def _checked(self, answer: Answer) -> str:
        if answer.calls or answer.begun_tools:
            raise SummaryFailed("the model called tools instead of giving a summary")
        if isinstance(answer.end, StreamFailure):
            raise SummaryFailed(f"{answer.end.kind.value}: {answer.end.message}")
        assert isinstance(answer.end, Finish)
        if answer.end.reason not in (FinishReason.STOP, FinishReason.LENGTH):
            raise SummaryFailed(f"the model gave no summary ({answer.end.reason.value})")
        text = repair(answer.whole_text).strip()
        if not text:
            raise SummaryFailed("the summary is empty")
        if len(text) > self._limit:
            return text[: self._limit] + _CUT
        return text + _CUT if answer.end.reason is FinishReason.LENGTH else text


class _Listener:
    """Takes the place of the journal: it lets only waits through, and reads no more than it may."""

    crowded = False
    next_sequence = 0

    def __init__(self, journal: TurnJournal, most: int) -> None:
        self._journal = journal
        self._left = most

    def at(self, *, step: int, step_attempt: int = 1, turn_attempt: int = 1) -> None:
        """Ignore where the call is made."""

    def emit(self, event: TurnEvent) -> int:
        """Let a wait through. Raises SummaryFailed when there is too much text."""
        if isinstance(event, TextDelta):
            self._left -= len(event.text)
            if self._left < 0:
                raise SummaryFailed("the summary is far too long")
        elif isinstance(event, Waiting):
            self._journal.emit(event)
        return 0

    def emit_soon(self, event: TurnEvent) -> int:
        """Take an event as `emit`."""
        return self.emit(event)

    def weigh(self, size: int) -> None:
        """Ignore a size."""

    async def room(self) -> None:
        """Wait for nothing."""
