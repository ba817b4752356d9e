"""The runtime process: opens store and links, takes up what nobody runs, serves, and drains."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import grpc

from turnwire.api.runtime.v1 import (
    admin_service_pb2_grpc,
    agent_service_pb2_grpc,
    graph_service_pb2_grpc,
    thread_service_pb2_grpc,
    turn_service_pb2_grpc,
)
from turnwire.runtime.admin_servicer import AdminServicer
from turnwire.runtime.agent_files import built_in_agents, load_agents
from turnwire.runtime.agent_servicer import AgentServicer, ServerFacts
from turnwire.runtime.control_link import ControlLink
from turnwire.runtime.disconnect import DisconnectWatch
from turnwire.runtime.domain.agent import AgentDefinition
from turnwire.runtime.domain.prices import PriceTable
from turnwire.runtime.domain.turn import TurnKey
from turnwire.runtime.engine.agents import AgentCatalog
from turnwire.runtime.engine.commands import CommandDesk
from turnwire.runtime.engine.context import TurnContext
from turnwire.runtime.engine.dispatcher import Dispatcher
from turnwire.runtime.engine.supervisor import Supervisor
from turnwire.runtime.event_codec import encode_event, open_attempt, trim_page
from turnwire.runtime.executor_link import ExecutorLink
from turnwire.runtime.graph_servicer import GraphServicer
from turnwire.runtime.history_servicer import History
from turnwire.runtime.models.prices import load_prices
from turnwire.runtime.models.registry import ModelRegistry
from turnwire.runtime.models.tokenizer import Tokenizers
from turnwire.runtime.roles import ROLES
from turnwire.runtime.settings import RuntimeSettings, TurnSettings
from turnwire.runtime.store.leases import Leases, LeaseTerms
from turnwire.runtime.store.pruning import Pruner
from turnwire.runtime.store.turn_store import TurnStore
from turnwire.runtime.thread_servicer import ThreadServicer
from turnwire.runtime.turn_servicer import TurnServicer
from turnwire.storage.database import Database, database_at
from turnwire.wire.channel import open_link
from turnwire.wire.drain import DrainHook
from turnwire.wire.process import Application, Host, serve
from turnwire.wire.services import Service

__all__ = ["main"]

logger = logging.getLogger(__name__)

_TURN_SERVICE = "turnwire.api.runtime.v1.TurnService"
_LINK = "link.control"
_DAY_SECONDS = 86400.0


class _Settings(RuntimeSettings):
    """The settings of this process, with the names of the providers."""

    environment = os.environ


def main() -> int:
    """Run the runtime; returns the exit code."""
    return serve("turnwire-runtime", _Settings, _application, argv=sys.argv[1:], environment=os.environ)


@asynccontextmanager
async def _application(settings: RuntimeSettings, host: Host) -> AsyncIterator[Application]:
    health = _Health(host)
    boot = uuid.uuid4().hex
    terms = LeaseTerms(
        settings.leases.ttl_seconds, settings.leases.renew_seconds, settings.leases.hung_loop_seconds
    )
    leases = Leases(f"{settings.runtime_id}/{boot}", terms, on_hung=health.set_hung)
    database = database_at(
        settings.store.location(settings.data / "runtime.db"),
        "turnwire.runtime",
        on_fatal=_leave_at_once,
        on_health=health.set_stored,
        synchronous=settings.store.synchronous,
        spacing=settings.store.commit_spacing_seconds,
        retry_for=settings.store.retry_seconds,
    )
    database.writer.every(terms.renew, leases.renew, "leases.renew")
    await database.open()
    models = ModelRegistry(settings.models)
    executor_channel, control_channel = open_link(settings.executor), open_link(settings.control)
    try:
        runtime = _Runtime(settings, host, database, leases, models, executor_channel, control_channel)
        async with runtime:
            yield runtime.application()
    finally:
        await models.close()
        await executor_channel.close()
        await control_channel.close()
        await database.close()


# What the process ends with when its store can no longer be written: recovery begins at the next start.
STORE_FAILED_EXIT = 70


def _leave_at_once(error: BaseException) -> None:
    logger.critical("store.failed", exc_info=error)
    logging.shutdown()
    os._exit(STORE_FAILED_EXIT)


class _Health:
    """The turn service serves while its store can be written and its event loop keeps its leases."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._stored = True
        self._hung = False

    def set_stored(self, healthy: bool) -> None:
        """Take in whether the store can be written."""
        self._stored = healthy
        self._host.health.set(_TURN_SERVICE, self._stored and not self._hung)

    def set_hung(self, hung: bool) -> None:
        """Take in whether the event loop stood still for too long."""
        self._hung = hung
        self._host.health.set(_TURN_SERVICE, self._stored and not self._hung)


class _Runtime:
    """Everything of one process, wired."""

    def __init__(
        self,
        settings: RuntimeSettings,
        host: Host,
        database: Database,
        leases: Leases,
        models: ModelRegistry,
        executor_channel: grpc.aio.Channel,
        control_channel: grpc.aio.Channel,
    ) -> None:
        turns = settings.turns
        self._settings = settings
        self._database = database
        self._leases = leases
        self.store = _store(database, leases.owner, turns)
        self.pruner = Pruner(database.writer, database.reader, settings.retention.events_days * _DAY_SECONDS)
        # Callers with credentials are of several scopes, and none may read the files of another.
        by_scope = settings.listen.tokens_file is not None
        self.executor = ExecutorLink(executor_channel, workspace_by_scope=by_scope)
        prices = load_prices(settings.models.prices_file)
        self.agents = AgentCatalog(_agents(settings, prices), self.store.thread_agent, prices)
        self.desk = CommandDesk(self.store)
        self.link = ControlLink(
            control_channel,
            runtime_id=settings.runtime_id,
            boot_id=leases.owner.rpartition("/")[2],
            handler=self.desk,
            on_change=lambda up: host.health.set(_LINK, up),
        )
        context = _turn_context(settings, self.store, models, self.executor, prices)
        self.supervisor = Supervisor(context, self.agents, self.link, max_live=turns.max_live)
        self.desk.supervisor = self.supervisor
        self.dispatcher = Dispatcher(self.store, self.supervisor, sweep=settings.leases.sweep_seconds)
        self.history = History.of(self.store, self.supervisor, self.agents, models, self.executor)
        self.disconnects = DisconnectWatch(self._cancel_unread)
        host.health.set(_LINK, False)

    async def __aenter__(self) -> _Runtime:
        named = await self._database.claim_name(self._settings.runtime_id)
        if not named:
            logger.warning("runtime.name_taken", extra={"runtime_id": self._settings.runtime_id})
        await self._leases.start(
            self._database.writer, self.dispatcher.check_ownership, alone=not self.store.shared, named=named
        )
        self.store.listen(self.dispatcher)
        self.dispatcher.start()
        self.link.start()
        pruning = self.pruner.run(self._settings.retention.interval_seconds)
        self._cleaning = {
            self.supervisor.spawn(pruning, "store.prune"),
            self.supervisor.spawn(self.history.deleter.run(), "threads.purge"),
        }
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._cleaning:
            task.cancel()
        await asyncio.wait(self._cleaning)
        await self.dispatcher.stop()
        await self.link.stop()
        await self._leases.stop(self._database.writer)

    def _cancel_unread(self, key: TurnKey) -> None:
        self.supervisor.spawn(self.desk.cancel(key, "nobody reads the turn any more"), "turn.cancel_unread")

    def application(self) -> Application:
        settings = self._settings
        facts = ServerFacts(
            log_id=self.store.log_id,
            runtime_id=settings.runtime_id,
            control_target=settings.control_public_target or settings.control.target,
            queue_limit=settings.turns.queue_limit,
            max_message_bytes=settings.listen.max_message_bytes,
            heartbeat=settings.turns.heartbeat_seconds,
            event_retention=self.pruner.retention,
        )
        turns = TurnServicer(self.supervisor, self.store, self.executor, self.disconnects)
        return Application(
            services=[
                Service(
                    turn_service_pb2_grpc.add_TurnServiceServicer_to_server,
                    turns,
                    frozenset({"RunTurn", "WatchTurn"}),
                ),
                Service(
                    thread_service_pb2_grpc.add_ThreadServiceServicer_to_server,
                    ThreadServicer(self.store, self.agents, self.history),
                ),
                Service(
                    agent_service_pb2_grpc.add_AgentServiceServicer_to_server,
                    AgentServicer(self.agents, self.executor, facts),
                ),
                Service(graph_service_pb2_grpc.add_GraphServiceServicer_to_server, GraphServicer()),
                Service(
                    admin_service_pb2_grpc.add_AdminServiceServicer_to_server, AdminServicer(self.pruner)
                ),
            ],
            roles=ROLES,
            hooks=[DrainHook("turns", self._refuse, self._finish)],
        )

    async def _refuse(self) -> None:
        self.disconnects.leave()
        self.supervisor.refuse_new()

    async def _finish(self) -> None:
        # A little less than the grace, so that turns that do not end by themselves can still be handed over.
        await self.supervisor.drain(max(0.0, self._settings.drain.stop_grace_seconds - 12.0))
        # Readers of turns that wait in a queue would hold the process until it cuts them off without a word.
        self.store.send_away()


def _turn_context(
    settings: RuntimeSettings,
    store: TurnStore,
    models: ModelRegistry,
    executor: ExecutorLink,
    prices: PriceTable,
) -> TurnContext:
    turns, told = settings.turns, settings.context
    return TurnContext(
        store,
        models,
        executor,
        turns.first_feedback_seconds,
        turns.approval_timeout_seconds,
        prices,
        settings.models.bytes_per_token,
        told.rules(),
        Tokenizers(told.tokenizer_file, told.tokenizer_models).of,
    )


def _store(database: Database, owner: str, turns: TurnSettings) -> TurnStore:
    return TurnStore(
        database,
        encode_event,
        trim_page,
        owner,
        read_tail=open_attempt,
        queue_limit=turns.queue_limit,
        heartbeat=turns.heartbeat_seconds,
    )


def _agents(settings: RuntimeSettings, prices: PriceTable) -> Sequence[AgentDefinition]:
    steps = settings.turns.max_steps
    clamped = min(max(steps, 10), 120)
    if clamped != steps:
        logger.warning(
            "settings.clamped", extra={"variable": "TURNS__MAX_STEPS", "value": steps, "used": clamped}
        )
    if settings.agents is not None:
        return load_agents(settings.agents, clamped, prices)
    models = settings.models
    return built_in_agents(
        clamped,
        openai=models.openai_api_key is not None,
        anthropic=models.anthropic_api_key is not None,
    )


if __name__ == "__main__":
    sys.exit(main())
