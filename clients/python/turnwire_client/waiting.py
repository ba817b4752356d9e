"""Long polls cut into what one call may last."""

from __future__ import annotations

import time

from turnwire.api.runtime.v1.turn_pb2 import Turn, TurnState
from turnwire_client.operations import MAX_WAIT

__all__ = ["is_settled", "next_wait"]

_GOING_ON = (TurnState.TURN_STATE_QUEUED, TurnState.TURN_STATE_RUNNING)


def is_settled(turn: Turn) -> bool:
    """Tell whether a turn has ended or waits for somebody."""
    return turn.state not in _GOING_ON


def next_wait(ends: float) -> float:
    """Give the seconds that the next call should wait, for a wait that ends at this monotonic time."""
    return min(max(0.0, ends - time.monotonic()), MAX_WAIT)
