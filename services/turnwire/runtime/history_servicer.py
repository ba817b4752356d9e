"""Edits of a thread's history over the wire, and its end: regenerate, retry, hide, fork, delete."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from turnwire.api.runtime.v1 import thread_service_pb2 as pb
from turnwire.api.runtime.v1 import turn_pb2
from turnwire.extend.lifecycle import Lifecycle
from turnwire.runtime import codec, request_codec, rewrite_codec
from turnwire.runtime.domain.rewrites import RewriteCommand
from turnwire.runtime.engine.agents import AgentCatalog
from turnwire.runtime.engine.deletion import ResultPurge, ThreadDeleter
from turnwire.runtime.engine.rewrites import HistoryEditor
from turnwire.runtime.engine.supervisor import Supervisor
from turnwire.runtime.ports import ModelSource
from turnwire.runtime.store import queries
from turnwire.runtime.store.thread_edits import ThreadEdits
from turnwire.runtime.store.turn_store import TurnStore
from turnwire.wire.auth import current_principal

__all__ = ["History", "HistoryMethods"]


@dataclass(frozen=True, slots=True)
class History:
    """What edits, copies and deletes threads."""

    edits: ThreadEdits
    editor: HistoryEditor
    deleter: ThreadDeleter

    @classmethod
    def of(
        cls,
        store: TurnStore,
        supervisor: Supervisor,
        agents: AgentCatalog,
        models: ModelSource,
        results: ResultPurge,
        lifecycles: Sequence[Lifecycle] = (),
    ) -> History:
        """Put together what edits the threads of a store; `deleter.run` is the caller's to run.

        Args:
            results: removes what the executor keeps of deleted threads.
            lifecycles: take part in each edit, in their order.
        """
        edits = ThreadEdits(store)
        editor = HistoryEditor(edits, agents, supervisor, models=models, lifecycles=lifecycles)
        return cls(edits, editor, ThreadDeleter(edits, supervisor, results))


class HistoryMethods:
    """The methods of ThreadService that edit what has been said; mixed into its servicer."""

    _store: TurnStore
    _history: History

    async def DeleteThread(self, request: pb.DeleteThreadRequest, context: Any) -> pb.DeleteThreadResponse:
        """Delete a thread; what it held is removed soon after."""
        key = request_codec.thread_key(request.name, "name", current_principal().scope)
        expected = request.expected_version if request.HasField("expected_version") else None
        version = await self._history.deleter.delete(key, expected)
        return pb.DeleteThreadResponse(version=version)

    async def RegenerateTurn(
        self, request: pb.RegenerateTurnRequest, context: Any
    ) -> pb.RegenerateTurnResponse:
        """Have an answer made anew."""
        caller = current_principal()
        command = rewrite_codec.regenerate_from_proto(request, caller.scope, caller.subject)
        return pb.RegenerateTurnResponse(turn=await self._begun(command))

    async def RetryTurn(self, request: pb.RetryTurnRequest, context: Any) -> pb.RetryTurnResponse:
        """Try a failed or cancelled turn again."""
        caller = current_principal()
        command = rewrite_codec.retry_from_proto(request, caller.scope, caller.subject)
        return pb.RetryTurnResponse(turn=await self._begun(command))

    async def _begun(self, command: RewriteCommand) -> turn_pb2.Turn:
        done = await self._history.editor.edit(command)
        assert done.turn is not None
        return codec.turn_to_proto(await self._store.get_turn(done.turn))

    async def SetMessageVisibility(
        self, request: pb.SetMessageVisibilityRequest, context: Any
    ) -> pb.SetMessageVisibilityResponse:
        """Hide messages, or show them again."""
        caller = current_principal()
        command = rewrite_codec.visibility_from_proto(request, caller.scope, caller.subject)
        await self._history.editor.edit(command)
        row = await self._store.read(lambda db: queries.get_thread(db, command.thread))
        return pb.SetMessageVisibilityResponse(thread=codec.thread_to_proto(row))

    async def ForkThread(self, request: pb.ForkThreadRequest, context: Any) -> pb.ForkThreadResponse:
        """Copy a thread up to a message."""
        command = rewrite_codec.fork_from_proto(request, current_principal().scope)
        row = await self._history.edits.fork(command)
        return pb.ForkThreadResponse(thread=codec.thread_to_proto(row))
