"""What a person sees of a turn while it runs: thought, calls with their ends, text, and why it stopped."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from turnwire.cli.exit_codes import ExitCode
from turnwire.cli.screen import Screen
from turnwire.cli.words import word
from turnwire_client import TurnView
from turnwire_client.messages import (
    ActionState,
    LlmEvent,
    NoticeSeverity,
    ToolCallFinished,
    ToolOutcome,
    TurnEvent,
    TurnState,
)

__all__ = ["EventPrinter", "arguments_text", "end_code"]

_LINE = 100
_RESULT_LINES = 6

_OUTCOMES = {
    ToolOutcome.TOOL_OUTCOME_SUCCEEDED: ("✓", "green"),
    ToolOutcome.TOOL_OUTCOME_FAILED: ("✗ failed", "red"),
    ToolOutcome.TOOL_OUTCOME_TIMED_OUT: ("✗ timed out", "yellow"),
    ToolOutcome.TOOL_OUTCOME_STOPPED: ("✗ stopped", "yellow"),
    ToolOutcome.TOOL_OUTCOME_NOT_STARTED: ("✗ not started", "yellow"),
    ToolOutcome.TOOL_OUTCOME_REJECTED: ("✗ rejected", "yellow"),
    ToolOutcome.TOOL_OUTCOME_SKIPPED: ("✓ skipped", "dim"),
    ToolOutcome.TOOL_OUTCOME_OUTCOME_UNKNOWN: ("? end unknown", "yellow"),
}

_SEVERITIES = {
    NoticeSeverity.NOTICE_SEVERITY_WARNING: "yellow",
    NoticeSeverity.NOTICE_SEVERITY_ERROR: "red",
}

_END_CODES = {
    TurnState.TURN_STATE_COMPLETED: ExitCode.OK,
    TurnState.TURN_STATE_FAILED: ExitCode.TURN_FAILED,
    TurnState.TURN_STATE_CANCELLED: ExitCode.CANCELLED,
    TurnState.TURN_STATE_WAITING: ExitCode.WAITING,
}


def end_code(state: TurnState) -> ExitCode:
    """Give the exit code for the state that a turn was left in."""
    return _END_CODES.get(state, ExitCode.OK)


def arguments_text(arguments_json: str) -> str:
    """Give a call's arguments as `a=6, b=7`, on one line that fits."""
    try:
        arguments = json.loads(arguments_json or "{}")
    except ValueError:
        return shortened(arguments_json)
    if not isinstance(arguments, dict):
        return shortened(arguments_json)
    return shortened(", ".join(f"{k}={json.dumps(v, ensure_ascii=False)}" for k, v in arguments.items()))


def shortened(text: str, width: int = _LINE) -> str:
    """Cut a text to one line of at most `width` characters."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"


class EventPrinter:
    """Prints events as they come and keeps the view they add up to.

    Args:
        show_reasoning: whether the model's thought is shown, dimmed.
        answer_alone: whether only the answer that a turn completes with goes to stdout; all that is said
            before it is a note.
    """

    def __init__(self, screen: Screen, *, show_reasoning: bool = True, answer_alone: bool = False) -> None:
        self.view = TurnView()
        self._screen = screen
        self._show_reasoning = show_reasoning
        self._answer_alone = answer_alone
        self._streamed = False

    def show(self, event: TurnEvent) -> None:
        """Print one event; kinds that are not known here print nothing."""
        self.view.apply(event)
        kind = event.WhichOneof("event")
        printer = _PRINTERS.get(kind or "")
        if printer is not None:
            printer(self, event)

    def _llm(self, event: TurnEvent) -> None:
        piece: LlmEvent = event.llm
        match piece.WhichOneof("event"):
            case "text_delta" if self._answer_alone:
                self._screen.aside(piece.text_delta.text, "dim")
                self._streamed = True
            case "text_delta":
                self._screen.text(piece.text_delta.text)
                self._streamed = True
            case "reasoning_delta" if self._show_reasoning:
                self._screen.aside(piece.reasoning_delta.text, "dim italic")
            case "stream_failure":
                self._screen.note(f"! the model's stream failed: {piece.stream_failure.message}", "yellow")
            case _:
                pass

    def _step_started(self, event: TurnEvent) -> None:
        self._streamed = False
        self._screen.wait("thinking")

    def _step_reset(self, event: TurnEvent) -> None:
        if self._streamed:
            self._screen.note(
                f"↺ the answer above is void and begins again ({event.step_reset.cause})", "yellow"
            )
        self._streamed = False
        self._screen.wait("thinking")

    def _preparing(self, event: TurnEvent) -> None:
        preparing = event.tool_call_preparing
        self._screen.wait(f"preparing {preparing.tool_name} ({preparing.argument_bytes} bytes)")

    def _tool_started(self, event: TurnEvent) -> None:
        started = event.tool_call_started
        call = self.view.calls[started.call_id]
        self._screen.note(f"● {started.tool_name}({arguments_text(call.arguments_json)})", "bold")
        self._screen.wait(f"running {started.tool_name}")

    def _tool_progress(self, event: TurnEvent) -> None:
        self._screen.note(f"  … {shortened(event.tool_call_progress.text)}", "dim")
        self._screen.wait("running")

    def _tool_finished(self, event: TurnEvent) -> None:
        result = event.tool_call_finished
        call = self.view.calls[result.call_id]
        if not call.started:
            self._screen.note(f"● {result.tool_name}({arguments_text(call.arguments_json)})", "bold")
        mark, style = _OUTCOMES.get(result.outcome, ("?", "yellow"))
        self._screen.note(f"  {mark} {elapsed_text(result)}".rstrip(), style)
        for line in result_lines(result):
            self._screen.note(f"    {line}", "dim")
        self._screen.wait("thinking")

    def _action_required(self, event: TurnEvent) -> None:
        action = event.action_required.action
        asked = action.question or f"may {action.tool_name} run?"
        self._screen.note(f"? {asked}  ({action.tool_name} {arguments_text(action.arguments_json)})", "cyan")

    def _action_resolved(self, event: TurnEvent) -> None:
        resolved = event.action_resolved
        by = f" by {resolved.resolver}" if resolved.resolver else ""
        self._screen.note(f"  {word(ActionState, resolved.state, 'ACTION_STATE_')}{by}", "cyan")

    def _notice(self, event: TurnEvent) -> None:
        self._screen.note(f"! {event.notice.text}", _SEVERITIES.get(event.notice.severity, "dim"))

    def _waiting(self, event: TurnEvent) -> None:
        seconds = event.waiting.wait_duration.ToTimedelta().total_seconds()
        self._screen.wait(f"waiting for {event.waiting.what} ({seconds:.0f} s)")

    def _steer(self, event: TurnEvent) -> None:
        self._screen.note("→ a message was added to the turn", "dim")

    def _compacted(self, event: TurnEvent) -> None:
        made = event.compacted
        became = "are left out of this request" if made.fallback else "became a summary"
        self._screen.note(f"↯ {made.compacted_count} older messages {became}", "dim")

    def _accepted(self, event: TurnEvent) -> None:
        if event.turn_accepted.queue_position:
            self._screen.wait(f"waiting in the thread's queue, place {event.turn_accepted.queue_position}")

    def _finished(self, event: TurnEvent) -> None:
        finished = event.turn_finished
        said = any(step.text for step in self.view.steps.values())
        if self._answer_alone:
            said = finished.state != TurnState.TURN_STATE_COMPLETED
        if finished.text and not said:
            self._screen.text(finished.display_text or finished.text)
        self._screen.end()
        if finished.state == TurnState.TURN_STATE_FAILED:
            text = finished.error.message or finished.stop_reason
            self._screen.note(f"the turn failed ({finished.stop_reason}): {text}", "red")
        elif finished.state == TurnState.TURN_STATE_CANCELLED:
            self._screen.note(f"the turn was cancelled ({finished.stop_reason})", "yellow")


def elapsed_text(result: ToolCallFinished) -> str:
    """Give how long a tool ran, for people."""
    if not result.HasField("elapsed_duration"):
        return ""
    seconds = result.elapsed_duration.ToNanoseconds() / 1e9
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds:.1f} s"


def result_lines(result: ToolCallFinished) -> list[str]:
    """Give the first lines of a result, and how much more there is."""
    lines = result.content.strip().splitlines()
    shown = [shortened(line) for line in lines[:_RESULT_LINES]]
    if len(lines) > _RESULT_LINES:
        shown.append(f"… {len(lines) - _RESULT_LINES} more lines")
    if result.overflow.handle:
        shown.append(f"… {result.overflow.size_bytes} bytes in all are kept")
    return shown


_PRINTERS: dict[str, Callable[[Any, TurnEvent], None]] = {
    "llm": EventPrinter._llm,
    "turn_accepted": EventPrinter._accepted,
    "step_started": EventPrinter._step_started,
    "step_reset": EventPrinter._step_reset,
    "tool_call_preparing": EventPrinter._preparing,
    "tool_call_started": EventPrinter._tool_started,
    "tool_call_progress": EventPrinter._tool_progress,
    "tool_call_finished": EventPrinter._tool_finished,
    "action_required": EventPrinter._action_required,
    "action_resolved": EventPrinter._action_resolved,
    "notice": EventPrinter._notice,
    "waiting": EventPrinter._waiting,
    "steer_applied": EventPrinter._steer,
    "compacted": EventPrinter._compacted,
    "turn_finished": EventPrinter._finished,
}
