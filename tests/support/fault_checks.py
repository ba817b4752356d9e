"""What must hold of a turn after a fault run: nothing that was told is lost, and what is told is true."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from support.fault_load import NOT_REPEATABLE
from support.fault_turns import FollowedTurn
from support.turn_rig import serialised
from turnwire.api.common.v1.tool_pb2 import ToolOutcome
from turnwire.api.control.v1.command_pb2 import CommandRecord, OutcomeKind
from turnwire.api.runtime.v1 import turn_event_pb2 as event_pb
from turnwire.api.runtime.v1.message_pb2 import Message
from turnwire.api.runtime.v1.turn_pb2 import Turn, TurnState

__all__ = ["Evidence", "Outside", "outside_of", "turn_findings", "worker_at_work"]

_O = ToolOutcome
_NO_START = (_O.TOOL_OUTCOME_NOT_STARTED, _O.TOOL_OUTCOME_REJECTED, _O.TOOL_OUTCOME_SKIPPED)


@dataclass
class Outside:
    """The traces of the tools: starts and ends by execution and by the tag of the call in the script."""

    starts: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    tags: Counter[str] = field(default_factory=Counter)


def outside_of(path: Path) -> Outside:
    """Read the file of traces."""
    outside = Outside()
    for line in path.read_text().splitlines() if path.exists() else ():
        execution, tag, what, _ = line.split()
        (outside.starts if what == "start" else outside.ends)[execution] += 1
        if what == "start":
            outside.tags[tag] += 1
    return outside


def worker_at_work(path: Path) -> int:
    """Return the process of a Python tool that has begun and not ended, 0 when there is none."""
    begun: dict[str, int] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        execution, tag, what, pid = line.split()
        if what == "end":
            begun.pop(execution, None)
        elif not tag.endswith("once_command"):
            begun[execution] = int(pid)
    return next(iter(begun.values()), 0)


@dataclass
class Evidence:
    """What is known of one turn at the end of a run.

    Args:
        unknown_allowed: whether something died that alone knew how a call ended.
        survives: whether a turn outlives the runtime that ran it.
    """

    turn: FollowedTurn
    whole: list[event_pb.TurnEvent]
    row: Turn
    messages: Sequence[Message]
    command: CommandRecord | None
    outside: Outside
    unknown_allowed: bool
    survives: bool


def turn_findings(evidence: Evidence) -> list[str]:
    """Return what is wrong with a turn, in words."""
    checks: tuple[Callable[[Evidence], list[str]], ...] = (
        _log,
        _transcript,
        _calls,
        _starts,
        _end,
        _command,
    )
    label = evidence.turn.label
    return [f"{label}: {text}" for check in checks for text in check(evidence)]


def _log(e: Evidence) -> list[str]:
    found = []
    if [event.sequence for event in e.whole] != list(range(1, len(e.whole) + 1)):
        found.append(f"sequences {[event.sequence for event in e.whole]}")
    bodies = serialised(e.whole)
    for sequence, body in e.turn.seen.items():
        if sequence > len(bodies) or bodies[sequence - 1] != body:
            found.append(f"event {sequence} was seen and is not in the log as it was")
    ends = [event.sequence for event in e.whole if event.HasField("turn_finished")]
    if ends != [len(e.whole)]:
        found.append(f"ends at {ends} of {len(e.whole)} events")
    return found


def _transcript(e: Evidence) -> list[str]:
    """Steps that were told as committed are in the transcript, with the text that was streamed."""
    found = []
    mine = {m.name: m for m in e.messages if m.turn == e.turn.name}
    texts = _streamed(e.whole)
    for event in e.whole:
        if not event.HasField("step_committed"):
            continue
        committed = event.step_committed
        message = mine.get(committed.message)
        if message is None:
            if texts.get(event.step) or committed.call_ids:
                found.append(f"the message of step {event.step} is lost")
            continue
        parts = [part for part in message.parts if part.step == event.step]
        text = "".join(part.content.text.text for part in parts if part.HasField("content"))
        if text != texts.get(event.step, ""):
            found.append(f"step {event.step}: streamed {texts.get(event.step)!r}, kept {text!r}")
        calls = [part.tool_call.call_id for part in parts if part.HasField("tool_call")]
        if calls != list(committed.call_ids):
            found.append(f"step {event.step}: calls {calls}, committed {list(committed.call_ids)}")
    return found


def _streamed(events: Sequence[event_pb.TurnEvent]) -> dict[int, str]:
    """Return the text of each step, without what a reset has voided."""
    voided = [
        (e.step_reset.from_sequence, e.step_reset.to_sequence) for e in events if e.HasField("step_reset")
    ]
    texts: dict[int, str] = {}
    for event in events:
        if any(first <= event.sequence <= last for first, last in voided):
            continue
        if event.HasField("llm") and event.llm.HasField("text_delta"):
            texts[event.step] = texts.get(event.step, "") + event.llm.text_delta.text
    return texts


def _calls(e: Evidence) -> list[str]:
    """Every committed call has one result, the same in the log and in the transcript."""
    found = []
    parts = {
        part.tool_call.call_id: part.tool_call
        for m in e.messages
        for part in m.parts
        if part.HasField("tool_call") and m.turn == e.turn.name
    }
    committed = [c for event in e.whole for c in event.step_committed.call_ids]
    ends = [event.tool_call_finished for event in e.whole if event.HasField("tool_call_finished")]
    if sorted(end.call_id for end in ends) != sorted(committed):
        found.append(f"calls {sorted(committed)} have results {sorted(end.call_id for end in ends)}")
    for end in ends:
        part = parts.get(end.call_id)
        if part is None or (part.outcome, part.content) != (end.outcome, end.content):
            found.append(f"the result of {end.call_id} ({end.tool_name}) is not in the transcript as told")
    return found


def _starts(e: Evidence) -> list[str]:
    """Work outside was begun as often as allowed, and what is told of it is true."""
    found = []
    for call in e.turn.script.calls:
        if call.tool in NOT_REPEATABLE and e.outside.tags[call.tag] > 1:
            found.append(f"{call.tag} was started {e.outside.tags[call.tag]} times")
    for event in e.whole:
        if not event.HasField("tool_call_finished"):
            continue
        end = event.tool_call_finished
        execution = f"{e.turn.name}/{end.call_id}"
        starts, ends = e.outside.starts[execution], e.outside.ends[execution]
        if end.tool_name in NOT_REPEATABLE and starts > 1:
            found.append(f"{execution} ({end.tool_name}) was started {starts} times")
        if end.outcome == _O.TOOL_OUTCOME_SUCCEEDED and not ends:
            found.append(f"{execution} is told as succeeded and has no end outside")
        if end.outcome in _NO_START and starts:
            found.append(f"{execution} is told as {_O.Name(end.outcome)} and was started")
        if end.outcome == _O.TOOL_OUTCOME_OUTCOME_UNKNOWN and not e.unknown_allowed:
            found.append(f"{execution} is told as unknown, and nothing died that knew")
        if end.outcome in (_O.TOOL_OUTCOME_FAILED, _O.TOOL_OUTCOME_TIMED_OUT):
            found.append(f"{execution} is told as {_O.Name(end.outcome)}: {end.content[:200]}")
    return found


def _end(e: Evidence) -> list[str]:
    """The end is the same everywhere, and is a good one unless somebody cancelled."""
    found = []
    end = e.whole[-1].turn_finished
    if e.row.state != end.state or e.row.last_sequence != len(e.whole):
        found.append(f"GetTurn says {TurnState.Name(e.row.state)} at {e.row.last_sequence}")
    if end.state == TurnState.TURN_STATE_COMPLETED:
        if end.text != e.turn.script.text:
            found.append(f"its answer is {end.text!r}")
        told = sum(event.HasField("tool_call_finished") for event in e.whole)
        if told != len(e.turn.script.calls):
            found.append(f"it completed with {told} of {len(e.turn.script.calls)} results")
    elif end.state == TurnState.TURN_STATE_CANCELLED:
        if e.turn.cancel is None:
            found.append("it is cancelled, and nobody asked for it")
    elif end.stop_reason == "recovery-exhausted":
        if _deaths(e) < 3:
            found.append(f"it was given up after {_deaths(e)} deaths of its owner")
    elif e.survives or "RUNTIME_RESTARTED" not in str(end.error):
        reason = json.dumps(str(end.error)[:400])
        found.append(f"it ended {TurnState.Name(end.state)} / {end.stop_reason}: {reason}")
    return found


def _deaths(e: Evidence) -> int:
    """Owners that died over the turn since its last committed step, the last one without a successor."""
    deaths = 1
    for event in e.whole:
        if event.HasField("step_committed"):
            deaths = 1
        elif event.turn_resumed.kind == event_pb.EpisodeKind.EPISODE_KIND_RECOVERY:
            deaths += 1
    return deaths


def _command(e: Evidence) -> list[str]:
    """One outcome for one command, and a true one."""
    cancel = e.turn.cancel
    if cancel is None:
        return []
    assert e.command is not None
    found = []
    outcomes = [*cancel.outcomes, e.command.outcome]
    if len({outcome.SerializeToString(deterministic=True) for outcome in outcomes}) != 1:
        found.append(f"its cancel has several outcomes: {outcomes}")
    outcome = outcomes[-1]
    cancelled = e.row.state == TurnState.TURN_STATE_CANCELLED
    applied = outcome.kind == OutcomeKind.OUTCOME_KIND_APPLIED
    if applied and not (cancelled and outcome.applied_sequence == len(e.whole)):
        found.append(f"its cancel was applied at {outcome.applied_sequence}, and it is {e.row.state}")
    if not applied and (cancelled or outcome.kind != OutcomeKind.OUTCOME_KIND_ALREADY_FINISHED):
        found.append(f"its cancel is {OutcomeKind.Name(outcome.kind)}, and it is {e.row.state}")
    return found
