"""Edits of a thread's history: what is asked, what it is of, and what became of it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from turnwire.extend.lifecycle import RewriteKind
from turnwire.runtime.domain.turn import OptionsSpec, ThreadKey, TurnKey, TurnSpec

__all__ = ["ForkCommand", "NewTurn", "RewriteBase", "RewriteCommand", "Rewritten"]


@dataclass(frozen=True, slots=True)
class RewriteCommand:
    """An edit as it comes from the wire. Ids are bare.

    Args:
        request_id: of REGENERATE and RETRY, in one key space with those of turns.
        subject: who asks.
        message: for REGENERATE, empty = the latest answer.
        options: for REGENERATE, None = as before.
        turn: for RETRY.
        messages, visibility: for VISIBILITY; `visible` or `hidden`.
    """

    thread: ThreadKey
    kind: RewriteKind
    expected_version: int
    subject: str = ""
    request_id: str = ""
    message: str = ""
    options: OptionsSpec | None = None
    turn: str = ""
    messages: tuple[str, ...] = ()
    visibility: str = ""

    def fingerprint(self) -> str:
        """Return what is compared when the request id comes again: all but the version and the subject."""
        options = "" if self.options is None else self.options.model_dump_json(exclude_defaults=True)
        told = (self.kind.value, self.thread.thread_id, self.message, self.turn, options)
        return hashlib.sha256("\n".join(("rewrite:1", *told)).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class RewriteBase:
    """What an edit is of, at the version that it expects.

    Args:
        messages: ids of the messages that it takes out of the view, or changes, oldest first.
        waiting: a turn that waits for somebody and is ended by the edit.
        input_message: the user message that is answered again; empty for one that no turn has begun with.
        spec, agent: for the new turn; the agent as `agents/{agent}`, empty when nobody knows.
        retry_of: the turn that is tried again.
        public, private: the thread's metadata.
    """

    version: int
    messages: tuple[str, ...]
    waiting: TurnKey | None = None
    input_message: str = ""
    spec: TurnSpec | None = None
    agent: str = ""
    retry_of: str = ""
    public: Mapping[str, str] = field(default_factory=dict)
    private: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewTurn:
    """The turn that an edit begins; `timeout` in seconds, 0 without a limit."""

    key: TurnKey
    spec: TurnSpec
    agent: str
    agent_digest: str
    max_steps: int
    timeout: float


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A committed edit: the thread's new version; `turn` is one that was begun."""

    version: int
    turn: TurnKey | None = None


@dataclass(frozen=True, slots=True)
class ForkCommand:
    """A copy of a thread as it comes from the wire; `message` is the last one to copy, empty = all."""

    thread: ThreadKey
    request_id: str
    message: str = ""
    thread_id: str = ""
