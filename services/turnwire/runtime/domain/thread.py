"""A thread as it is stored."""

from __future__ import annotations

from dataclasses import dataclass, field

from turnwire.runtime.domain.turn import ThreadKey

__all__ = ["NewThreadCommand", "ThreadRow"]


@dataclass(frozen=True, slots=True)
class ThreadRow:
    """A thread. Times are nanoseconds since the epoch; `live_turn` is a bare id, empty when none is live."""

    key: ThreadKey
    agent: str
    version: int
    title: str = ""
    live_turn: str = ""
    queue_length: int = 0
    metadata: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    create_time: int = 0
    update_time: int = 0


@dataclass(frozen=True, slots=True)
class NewThreadCommand:
    """A thread that is to be created; `agent` is a bare name or empty.

    Without `request_id` a repeat creates another thread.
    """

    scope: str
    request_id: str = ""
    thread_id: str = ""
    title: str = ""
    agent: str = ""
    metadata: dict[str, str] = field(default_factory=dict)
    private_metadata: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
