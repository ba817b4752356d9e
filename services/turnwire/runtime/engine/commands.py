"""Commands from the control service: one outcome each, decided here in the store of the turn."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, cast

from turnwire.core.errors import NotFound
from turnwire.extend.events import TurnState
from turnwire.runtime.domain.admission import StopNote
from turnwire.runtime.domain.control import ControlDelivery, ControlOutcome, OutcomeKind
from turnwire.runtime.domain.turn import ThreadKey, TurnKey, TurnRow

if TYPE_CHECKING:
    from turnwire.runtime.engine.supervisor import LiveTurn, Supervisor

__all__ = ["CommandDesk", "CommandStore"]

# How often a turn may change between two looks at it; a claim changes it once.
_LOOKS = 10


class CommandStore(Protocol):
    """What the desk reads and writes."""

    @property
    def owner(self) -> str:
        """Who this process is in the rows of threads."""
        ...

    async def holder(self, thread: ThreadKey) -> str:
        """Return the owner in a thread's row, empty when it is free."""
        ...

    async def request_stop(self, key: TurnKey, note: StopNote) -> bool:
        """Have the owner of a live turn end it; False when it is not live, or was told before."""
        ...

    async def get_turn(self, key: TurnKey) -> TurnRow:
        """Read a turn. Raises NotFound."""
        ...

    async def live_turn(self, thread: ThreadKey) -> str:
        """Return the bare id of the live turn, empty when there is none. Raises NotFound."""
        ...

    async def queued_turns(self, thread: ThreadKey) -> Sequence[TurnKey]:
        """Return the turns that wait in a thread, in their order."""
        ...

    async def cancelled_by(self, key: TurnKey) -> str:
        """Return the id of the command that cancelled a turn, empty when none did."""
        ...

    async def applied_command(self, scope: str, command_id: str) -> tuple[str, str, str, int] | None:
        """Return turn, kind, duplicated command and sequence of a command that took effect."""
        ...


class CommandDesk:
    """Applies deliveries. A command that has its outcome gets the same one again."""

    supervisor: Supervisor

    def __init__(self, store: CommandStore) -> None:
        self._store = store

    async def deliver(self, delivery: ControlDelivery) -> ControlOutcome:
        """Apply a delivery and return its outcome, durable by then."""
        outcome = await self._decide(delivery)
        if outcome.kind == "applied":
            return outcome
        # The same command may have come twice, and the other delivery have taken effect since the first look.
        return await self._known(delivery) or outcome

    async def _decide(self, delivery: ControlDelivery) -> ControlOutcome:
        live = self._named_live(delivery)
        if live is not None:
            # What a command did to a turn is stored with the turn's end: there is nothing to look up yet.
            outcome = await self._cancel_live(live, delivery)
            if outcome is not None:
                return outcome
        known = await self._known(delivery)
        if known is not None:
            return known
        if delivery.mode == "query-only":
            return ControlOutcome("not-applied", message="the command was not applied here")
        try:
            key = await self._target(delivery)
        except NotFound as error:
            return ControlOutcome("no-active-turn", message=error.message)
        if key is None:
            return ControlOutcome("no-active-turn", message="no turn of the thread is live")
        if delivery.remaining_seconds <= 0:
            return ControlOutcome("expired", turn=key.name, message="the command's time had passed")
        return await self._cancel(key, delivery)

    def _named_live(self, delivery: ControlDelivery) -> LiveTurn | None:
        """Return the turn that the delivery names, when it runs here and may simply be cancelled."""
        name = delivery.turn or delivery.bound_turn
        if not name or delivery.clear_queue or delivery.mode != "owned" or delivery.remaining_seconds <= 0:
            return None
        _, thread_id, _, turn_id = name.split("/")
        return self.supervisor.live.get(TurnKey(delivery.scope, thread_id, turn_id))

    async def _known(self, delivery: ControlDelivery) -> ControlOutcome | None:
        row = await self._store.applied_command(delivery.scope, delivery.command_id)
        if row is None:
            return None
        turn, kind, duplicate_of, sequence = row
        return ControlOutcome(
            cast(OutcomeKind, kind),
            turn=turn,
            applied_sequence=sequence if kind == "applied" else 0,
            duplicate_of=duplicate_of,
        )

    async def _target(self, delivery: ControlDelivery) -> TurnKey | None:
        """Return the turn that is meant; a thread-wide command is bound to its live turn once."""
        name = delivery.turn or delivery.bound_turn
        if name:
            _, thread_id, _, turn_id = name.split("/")
            return TurnKey(delivery.scope, thread_id, turn_id)
        thread_id = delivery.thread.rpartition("/")[2]
        live = await self._store.live_turn(ThreadKey(delivery.scope, thread_id))
        return TurnKey(delivery.scope, thread_id, live) if live else None

    async def _cancel(self, key: TurnKey, delivery: ControlDelivery) -> ControlOutcome:
        for _ in range(_LOOKS):
            live = self.supervisor.live.get(key)
            if live is not None:
                if delivery.clear_queue:
                    await self._clear_queue(key, delivery)
                outcome = await self._cancel_live(live, delivery)
            else:
                outcome = await self._cancel_at_rest(key, delivery)
            if outcome is not None:
                return outcome
        raise _owned_by_nobody(key)

    async def _cancel_live(self, live: LiveTurn, delivery: ControlDelivery) -> ControlOutcome | None:
        """Cancel a turn that runs here; None when it left without an end, so that it may be elsewhere."""
        first = live.token.cancel(delivery.cause, delivery.command_id)
        await asyncio.wait({live.finished})
        known = await self._known(delivery)
        if known is not None:
            return known
        if not (await self._store.get_turn(live.key)).state.terminal:
            return None
        return await self._too_late(
            live.key, "the turn ended before the command took effect" if first else ""
        )

    async def _too_late(self, key: TurnKey, text: str) -> ControlOutcome:
        """Return the outcome of a cancel that found its turn ended: by an earlier cancel, or otherwise."""
        earlier = await self._store.cancelled_by(key)
        if earlier:
            return ControlOutcome("duplicate", turn=key.name, duplicate_of=earlier)
        return ControlOutcome("already-finished", turn=key.name, message=text)

    async def _cancel_at_rest(self, key: TurnKey, delivery: ControlDelivery) -> ControlOutcome | None:
        """Cancel a turn that does not run here; None when it has to be looked at again.

        One that waits in the queue ends at once. One that waits for somebody, or whose owner is dead or has
        handed it over, is taken up to be ended; one that runs elsewhere is not ours to cancel.
        """
        try:
            row = await self._store.get_turn(key)
        except NotFound as error:
            return ControlOutcome("no-active-turn", turn=key.name, message=error.message)
        if row.state.terminal and delivery.thread:
            return ControlOutcome("stale", turn=key.name, message="the turn it was bound to has ended")
        if row.state.terminal:
            return await self._too_late(key, f"the turn is {row.state.value}")
        if delivery.clear_queue:
            await self._clear_queue(key, delivery)
        sequence = await self.supervisor.cancel_queued(key, delivery.cause, delivery.command_id)
        if sequence is not None:
            return ControlOutcome("applied", key.name, sequence)
        if row.state is TurnState.QUEUED or await self._taken_to_end(
            key, delivery.cause, delivery.command_id
        ):
            return None
        if await self._runs_elsewhere(key):
            return ControlOutcome("not-applied", turn=key.name, message="another runtime runs the turn")
        return None

    async def _taken_to_end(self, key: TurnKey, cause: str, command_id: str) -> bool:
        note = StopNote("cancelled", cause, command_id)
        return await self.supervisor.claim(key.thread, (key, note))

    async def _runs_elsewhere(self, key: TurnKey) -> bool:
        return await self._store.holder(key.thread) not in ("", self._store.owner)

    async def _clear_queue(self, key: TurnKey, delivery: ControlDelivery) -> None:
        """Cancel what waits behind a turn, before the turn ends: else its end would begin the next one."""
        for waiting in await self._store.queued_turns(key.thread):
            if waiting != key:
                await self.cancel(waiting, delivery.cause)

    async def cancel(self, key: TurnKey, cause: str) -> None:
        """Cancel a turn on the runtime's own account, unless it has ended.

        Raises:
            NotFound: TURN_NOT_FOUND.
        """
        # A turn that another process runs is ended by that one, as its row says from now on.
        for _ in range(_LOOKS):
            live = self.supervisor.live.get(key)
            if live is not None:
                live.token.cancel(cause)
                return
            if await self.supervisor.cancel_queued(key, cause, "") is not None:
                return
            if (await self._store.get_turn(key)).state.terminal or await self._taken_to_end(key, cause, ""):
                return
            if await self._runs_elsewhere(key):
                await self._store.request_stop(key, StopNote("cancelled", cause))
                return
        raise _owned_by_nobody(key)


def _owned_by_nobody(key: TurnKey) -> RuntimeError:
    return RuntimeError(f"{key.name} is not at rest, and does not run here")
