"""How a turn ends: from an error, or from what the model said of its last answer."""

from __future__ import annotations

from dataclasses import dataclass

from turnwire.extend.errors import AgentControlError
from turnwire.extend.events import TurnState
from turnwire.extend.llm import FinishReason
from turnwire.runtime.domain.resumption import Progress
from turnwire.runtime.domain.stop import state_of

__all__ = ["End", "after_step", "refused", "stopped"]


@dataclass(frozen=True, slots=True)
class End:
    """How the turn is to end; `notice` is said before it."""

    stop_reason: str
    text: str = ""
    error_reason: str = ""
    error_text: str = ""
    interrupted_reason: str = ""
    notice: str = ""


def stopped(error: AgentControlError, last_text: str) -> End:
    """Return the end of a turn that somebody or something stopped."""
    failed = state_of(error.stop_reason) is TurnState.FAILED
    word = error.stop_reason.upper().replace("-", "_")
    text = error.user_content or last_text
    return End(error.stop_reason, text, word if failed else "", str(error), error.stop_reason)


def refused(progress: Progress) -> bool:
    """Whether the model refused to answer in a committed step."""
    return bool(progress.refusal) or progress.finish_reason == FinishReason.REFUSAL.value


def after_step(progress: Progress, has_calls: bool, over_budget: str, last_text: str) -> End | None:
    """Return how a turn ends after a committed step; None when it goes on.

    Args:
        progress: as it was committed with the step.
        over_budget: the budget that is used up, in a sentence; empty while none is.
    """
    reason = FinishReason(progress.finish_reason) if progress.finish_reason else FinishReason.PAUSE
    if has_calls or reason is FinishReason.PAUSE:
        if over_budget:
            return End("budget", last_text, "BUDGET_EXHAUSTED", over_budget)
        return None
    if reason is FinishReason.CONTENT_FILTER:
        return End("model-error", last_text, "MODEL_FAILED", "the provider's filter cut the answer")
    cut = "The model's output limit cut the answer." if reason is FinishReason.LENGTH else ""
    return End("completed", last_text or progress.refusal, notice=cut)
