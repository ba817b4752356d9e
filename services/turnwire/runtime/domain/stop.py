"""Stop reasons and the state each one ends a turn in; the list grows, the states do not."""

from __future__ import annotations

from turnwire.extend.events import TurnState

__all__ = ["STATE_OF", "state_of"]

STATE_OF: dict[str, TurnState] = {
    "completed": TurnState.COMPLETED,
    "responded": TurnState.COMPLETED,
    "blocked": TurnState.COMPLETED,
    "max-steps": TurnState.FAILED,
    "budget": TurnState.FAILED,
    "length": TurnState.FAILED,
    "answer-invalid": TurnState.FAILED,
    "loop-detected": TurnState.FAILED,
    "policy": TurnState.FAILED,
    "timeout": TurnState.FAILED,
    "hook-failed": TurnState.FAILED,
    "context-invalid": TurnState.FAILED,
    "model-error": TurnState.FAILED,
    "recovery-exhausted": TurnState.FAILED,
    "error": TurnState.FAILED,
    "cancelled": TurnState.CANCELLED,
    "superseded": TurnState.CANCELLED,
    "deleted": TurnState.CANCELLED,
}


def state_of(stop_reason: str) -> TurnState:
    """Return the terminal state that belongs to a stop reason; an unknown one is a failure."""
    return STATE_OF.get(stop_reason, TurnState.FAILED)
