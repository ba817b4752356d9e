"""Controlled ends of a turn: raise one from anywhere in the turn and the engine renders it uniformly.

They are control flow, not failures: no layer swallows or wraps them. `asyncio.CancelledError`,
`KeyboardInterrupt` and `SystemExit` are never turned into one.
"""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "AgentCancelledError",
    "AgentControlError",
    "AgentTimeoutError",
    "LoopDetectedError",
    "PolicyViolationError",
]


class AgentControlError(Exception):
    """Ends the turn with `stop_reason`; `user_content`, when not empty, becomes the final message.

    Args:
        text: one sentence for the log and the turn's error.
        user_content: text for the person who reads the thread; empty = none.
    """

    stop_reason: ClassVar[str] = "error"

    def __init__(self, text: str = "", *, user_content: str = "") -> None:
        super().__init__(text)
        self.user_content = user_content


class AgentCancelledError(AgentControlError):
    """The turn was cancelled: stop reason `cancelled`."""

    stop_reason = "cancelled"


class AgentTimeoutError(AgentControlError):
    """The turn used up its wall clock: stop reason `timeout`."""

    stop_reason = "timeout"


class PolicyViolationError(AgentControlError):
    """A policy forbids the turn to go on: stop reason `policy`."""

    stop_reason = "policy"


class LoopDetectedError(AgentControlError):
    """The turn repeats itself without progress: stop reason `loop-detected`."""

    stop_reason = "loop-detected"
