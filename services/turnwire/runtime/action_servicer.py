"""Actions over the wire: what turns wait for, read, followed and answered by whoever may."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from turnwire.api.runtime.v1 import turn_service_pb2 as pb
from turnwire.extend.actions import Action
from turnwire.runtime.action_codec import action_key, action_place, action_to_proto, answer_from_proto
from turnwire.runtime.engine.supervisor import Supervisor
from turnwire.runtime.paging import FilterField, fitting, page_size, parse_filter, read_token, write_token
from turnwire.runtime.store.action_queries import list_actions
from turnwire.runtime.store.action_watch import SNAPSHOT
from turnwire.runtime.store.actions import get_action
from turnwire.runtime.store.queries import Filter
from turnwire.runtime.store.turn_store import TurnStore
from turnwire.wire.auth import current_principal

__all__ = ["ActionMethods"]

logger = logging.getLogger(__name__)

_FILTER: dict[str, FilterField] = {
    "state": ("state", "word"),
    "kind": ("kind", "kebab"),
    "agent": ("agent", "text"),
    "tool": ("tool_name", "text"),
}


class ActionMethods:
    """The methods of TurnService that are about actions; mixed into its servicer."""

    _store: TurnStore
    _supervisor: Supervisor

    async def ResolveAction(self, request: pb.ResolveActionRequest, context: Any) -> pb.ResolveActionResponse:
        """Take an answer in; the first one wins."""
        given = answer_from_proto(request, current_principal())
        resolution = await self._store.resolve_action(given)
        if resolution.changed:
            action = resolution.action
            # The audit line; arguments and comments stand in the store.
            logger.info(
                "action.resolved",
                extra={"action": action.name, "state": action.state.value, "subject": action.resolver},
            )
            self._supervisor.wake(given.key.turn.thread)
        if resolution.error is not None:
            raise resolution.error
        return pb.ResolveActionResponse(action=action_to_proto(resolution.action))

    async def GetAction(self, request: pb.GetActionRequest, context: Any) -> pb.GetActionResponse:
        """Read an action."""
        key = action_key(request.name, "name", current_principal().scope)
        action = await self._store.read(partial(get_action, key=key))
        return pb.GetActionResponse(action=action_to_proto(action))

    async def ListActions(self, request: pb.ListActionsRequest, context: Any) -> pb.ListActionsResponse:
        """List actions, oldest first."""
        scope = current_principal().scope
        place = action_place(request.parent, scope)
        size = page_size(request.page_size)
        where = parse_filter(request.filter, _FILTER)
        bound = (scope, request.parent, request.filter)
        after = read_token(request.page_token, *bound)
        query = partial(list_actions, place=place, where=where, after=after, count=size + 1)
        found = await self._store.read(query)
        actions = fitting(action_to_proto(action) for action in found[:size])
        token = ""
        if len(actions) < len(found):
            last = found[len(actions) - 1]
            token = write_token((last.create_time, last.name.rpartition("/")[2]), *bound)
        return pb.ListActionsResponse(actions=actions, next_page_token=token)

    async def WatchActions(
        self, request: pb.WatchActionsRequest, context: Any
    ) -> AsyncIterator[pb.WatchActionsResponse]:
        """Give what is open, then each change."""
        place = action_place(request.parent, current_principal().scope)
        states, where = _split(parse_filter(request.filter, _FILTER))
        reader = self._store.actions.reader(place, where, states)
        complete = False
        try:
            async for news in reader:
                if news is SNAPSHOT:
                    complete = True
                shown = action_to_proto(news) if isinstance(news, Action) else None
                yield pb.WatchActionsResponse(action=shown, snapshot_complete=complete)
        except (GeneratorExit, asyncio.CancelledError):
            reader.raise_if_stalled()
            raise
        finally:
            reader.close()


def _split(where: Filter) -> tuple[tuple[str, ...], Filter]:
    """Take the states out of a filter: an action that was shown is followed into every other one."""
    states = tuple(str(value) for condition, value in where.conditions if condition == "state = ?")
    rest = tuple(item for item in where.conditions if item[0] != "state = ?")
    return states, Filter(rest)
