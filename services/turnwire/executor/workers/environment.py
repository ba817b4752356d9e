"""What the processes of tools may see: an allow-list of variables, what the call tells, and a marker."""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from turnwire.executor.domain import Call, ExecutionKey
from turnwire.executor.workers.tree import MARKER_VARIABLE

__all__ = ["ProcessEnvironment"]

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class ProcessEnvironment:
    """Builds environments.

    `inherited` is the service's own environment, of which only `allowed` names are handed on. `mark` names
    this executor's store, so that a later process of it finds what an earlier one left running.
    """

    inherited: Mapping[str, str]
    allowed: tuple[str, ...]
    mark: str

    def for_call(self, call: Call, workspace: Path, extra_names: Iterable[str]) -> dict[str, str]:
        """Give the environment of a command: allow-listed names, extensions' variables, then our own."""
        context = call.context
        env = self._allowed((*self.allowed, *extra_names))
        env.update({name: value for name, value in context.variables.items() if _VARIABLE.fullmatch(name)})
        ours = {
            "TURNWIRE_THREAD": context.thread,
            "TURNWIRE_TURN": context.turn,
            "TURNWIRE_CALL_ID": context.call_id,
            "TURNWIRE_AGENT": context.agent,
            "TURNWIRE_WORKSPACE": str(workspace),
            "TURNWIRE_TIMEOUT_SECONDS": f"{call.timeout:g}",
            MARKER_VARIABLE: self.mark_of(call.key),
        }
        if context.traceparent:
            ours["TRACEPARENT"] = context.traceparent
        env.update(ours)
        return {name: value for name, value in env.items() if "\0" not in value}

    def for_worker(self, extra_names: Iterable[str]) -> dict[str, str]:
        """Give the environment of a Python worker, which serves many calls."""
        root = str(Path(__file__).resolve().parents[3])
        return {
            **self._allowed((*self.allowed, *extra_names)),
            "PYTHONPATH": root,
            "PYTHONUTF8": "1",
            MARKER_VARIABLE: f"{self.mark}.worker.{uuid.uuid4().hex[:12]}",
        }

    def mark_of(self, key: ExecutionKey) -> str:
        """Give the marker of one execution; it starts with the marker of the store."""
        text = "\0".join((key.scope, key.execution_id, str(key.attempt)))
        return f"{self.mark}.{hashlib.sha256(text.encode()).hexdigest()[:24]}"

    def _allowed(self, names: Iterable[str]) -> dict[str, str]:
        return {name: self.inherited[name] for name in names if name in self.inherited}
