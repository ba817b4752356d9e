"""A thread as it is stored."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from turnwire.runtime.domain.turn import ThreadKey

__all__ = ["NewThreadCommand", "ThreadPatch", "ThreadRow"]


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
    permission_mode: str = "ask"
    # The message (or, of an empty thread, the thread) that this one was copied from.
    forked_from: str = ""


@dataclass(frozen=True, slots=True)
class ThreadPatch:
    """What of a thread is to have another value; None leaves it as it is."""

    title: str | None = None
    metadata: dict[str, str] | None = None
    labels: dict[str, str] | None = None
    permission_mode: str | None = None

    def applied_to(self, row: ThreadRow) -> ThreadRow:
        """Return the thread with the values of this patch."""
        return replace(
            row,
            title=row.title if self.title is None else self.title,
            metadata=row.metadata if self.metadata is None else self.metadata,
            labels=row.labels if self.labels is None else self.labels,
            permission_mode=self.permission_mode or row.permission_mode,
        )


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
    permission_mode: str = "ask"
