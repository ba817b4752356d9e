"""What this runtime understands beside the methods of v1; clients look here before they use it."""

from __future__ import annotations

__all__ = ["CAPABILITIES"]

CAPABILITIES: tuple[str, ...] = (
    *("turn-log", "replay", "queue", "cancel-on-disconnect", "tool-results"),
    *("tasks", "structured-answers"),
)
