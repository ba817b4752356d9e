"""Turns over fakes that go on from what an earlier owner has left."""

from __future__ import annotations

from dataclasses import replace

from support.runtime_fakes import KEY, FakeModel, Turn, tool, user
from turnwire.extend.actions import Action, ActionKind, ActionState
from turnwire.extend.events import EpisodeKind, ToolOutcome, UsageSummary
from turnwire.extend.llm import Finish, FinishReason, TextDelta
from turnwire.runtime.domain.execution import RiskTier, ToolInfo
from turnwire.runtime.domain.message import CallPart, ContentPart, StoredMessage
from turnwire.runtime.domain.resumption import Progress, ResumedCall, Resumption
from turnwire.runtime.domain.turn import InputPart
from turnwire.runtime.engine.approvals import digest_of

__all__ = ["ANSWER", "SEND", "going_on", "left", "outcomes", "part", "question", "stored"]

ANSWER = [TextDelta("done"), Finish(FinishReason.STOP)]
SEND = replace(tool("send"), risk_tier=RiskTier.SENSITIVE, digest="v1")


def part(name: str, index: int = 0, outcome: ToolOutcome | None = None) -> CallPart:
    return CallPart(
        f"c-{name}-{index}", f"p{index}", name, "{}", 1, index, outcome, "known" if outcome else ""
    )


def left(*calls: ResumedCall, **fields: object) -> Resumption:
    """A turn whose step 1 is committed with these calls."""
    reason = FinishReason.TOOL_CALLS if calls else FinishReason.STOP
    known = {"progress": Progress(UsageSummary(model_calls=1, tool_calls=len(calls)), reason.value), **fields}
    resumption = Resumption(2, EpisodeKind.RECOVERY, step=1, message_id="answer-1", part_index=9, calls=calls)
    return replace(resumption, **known)  # type: ignore[arg-type]


def stored(*calls: CallPart) -> tuple[StoredMessage, ...]:
    text = ContentPart(InputPart(kind="text", text="let me see"), 1)
    return user(), StoredMessage("answer-1", 2, "assistant", "turn-1", (text, *calls), open=True)


def going_on(
    *calls: ResumedCall, model: FakeModel | None = None, offered: tuple[ToolInfo, ...] = (), **fields: object
) -> Turn:
    names = {c.part.tool_name for c in calls}
    found = offered or tuple(tool(name, parallel=True) for name in sorted(names))
    resumption = fields.pop("resumption", None) or left(*calls)
    known = stored(*(c.part for c in calls))
    return Turn(model or FakeModel(ANSWER), *found, transcript=known, resumption=resumption, **fields)  # type: ignore[arg-type]


def outcomes(made: Turn) -> list[tuple[str, ToolOutcome]]:
    return made.journal.finished_calls()


def question(state: ActionState = ActionState.OPEN, *, answer: str = "", digest: str = "") -> Action:
    return Action(
        f"{KEY.name}/actions/action-1",
        ActionKind.APPROVAL,
        state,
        "c-send-0",
        "send",
        digest=digest or digest_of(KEY.scope, SEND, "{}"),
        answer=answer,
    )
