"""Where a turn stands when an owner takes it up again: everything that the store knows, of one moment."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from turnwire.extend.actions import Action
from turnwire.extend.events import EpisodeKind, UsageSummary
from turnwire.runtime.domain.message import CallPart

__all__ = ["CallState", "OpenAttempt", "Progress", "Resumption", "ResumedCall"]


class CallState(Enum):
    """How far a stored call has come. STARTED may have happened, READY may have too when its owner died."""

    READY = "ready"
    WAITING = "waiting"
    STARTED = "started"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class ResumedCall:
    """A call of the last committed step; `action` is the latest question about it, answered or not."""

    part: CallPart
    state: CallState
    attempt: int = 1
    action: Action | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """What the engine keeps of a turn between two commits, stored as JSON with every step.

    Args:
        usage: all that was spent, voided attempts too.
        finish_reason: value of the last committed step's FinishReason, empty when none is committed.
        refusal: what a model that refused said instead of an answer.
        step_attempt: the attempt at that step that was committed.
        answer_retries: how often an answer that misses its schema has gone back to the model.
        taken_in: the last step after which a message was added to the turn, 0 when none was: the turn goes on
            after that step, whatever the model said in it.
    """

    usage: UsageSummary = field(default_factory=UsageSummary)
    finish_reason: str = ""
    refusal: str = ""
    step_attempt: int = 1
    answer_retries: int = 0
    taken_in: int = 0


@dataclass(frozen=True, slots=True)
class OpenAttempt:
    """What a turn's log holds after its last committed step or result.

    Args:
        step, step_attempt: of the latest StepStarted among it, 0 when there is none.
        first_llm, last_llm: first and last sequence of model output that belongs to no committed step and
            that no StepReset has voided yet, 0 when there is none.
        settled: whether StepSettled of the last committed step is among it.
    """

    step: int = 0
    step_attempt: int = 0
    first_llm: int = 0
    last_llm: int = 0
    settled: bool = False


@dataclass(frozen=True, slots=True)
class Resumption:
    """A turn that goes on.

    Args:
        episode: ordinal of the episode that begins, from 2.
        kind: RECOVERY after a dead owner or a hand-over, RESUME after an answer.
        step: the last committed step, 0 when there is none.
        next_attempt: the attempt at step + 1 that comes next, 1 when it was not begun.
        settled: whether the end of `step` is in the log already.
        message_id: the turn's open message, empty when there is none; `part_index`: its next free place.
        answer_id: the message that holds its latest answer, open or not; empty when there is none.
        calls: the calls of `step` in the model's order, those with a result too.
        last_text: the text of the last committed step that had some.
        progress: as stored.
        elapsed: seconds since the first episode began.
    """

    episode: int
    kind: EpisodeKind
    step: int = 0
    next_attempt: int = 1
    settled: bool = False
    message_id: str = ""
    part_index: int = 0
    answer_id: str = ""
    calls: tuple[ResumedCall, ...] = ()
    last_text: str = ""
    progress: Progress = field(default_factory=Progress)
    elapsed: float = 0.0
