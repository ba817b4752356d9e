"""The control process: opens the ledger, takes up what a crash left, serves, and drains."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from turnwire.api.control.v1.control_service_pb2_grpc import add_ControlServiceServicer_to_server
from turnwire.control.alarm import Alarm
from turnwire.control.dispatch import Timing
from turnwire.control.hub import Hub, Limits
from turnwire.control.ledger import SqliteLedger
from turnwire.control.servicer.service import ROLES, ControlServicer
from turnwire.control.servicer.stream import StreamLimits
from turnwire.control.settings import ControlSettings
from turnwire.control.supervisor import Supervisor
from turnwire.core.clock import SystemClock
from turnwire.core.errors import TurnwireError
from turnwire.storage.database import database_at
from turnwire.wire.drain import DrainHook
from turnwire.wire.process import Application, Host, serve
from turnwire.wire.services import Service

__all__ = ["main"]

logger = logging.getLogger(__name__)

_CONTROL_SERVICE = "turnwire.api.control.v1.ControlService"
_PRUNE_SECONDS = 3600.0
_DAY = 24 * 3600 * 1_000_000_000
# After `go_away`: how long clients may stay, and how long outcomes that are on their way are waited for.
_GRACE_SECONDS = 1.0
_LINGER_SECONDS = 5.0
# What the process ends with when its ledger can no longer be written.
STORE_FAILED_EXIT = 70


def main() -> int:
    """Run the control service; returns the exit code."""
    return serve("turnwire-control", ControlSettings, _application, argv=sys.argv[1:], environment=os.environ)


@asynccontextmanager
async def _application(settings: ControlSettings, host: Host) -> AsyncIterator[Application]:
    database = database_at(
        settings.data / "control.db",
        "turnwire.control",
        on_fatal=_leave_at_once,
        on_health=lambda healthy: host.health.set(_CONTROL_SERVICE, healthy),
        synchronous=settings.store.synchronous,
        retry_for=settings.store.retry_seconds,
    )
    await database.open()
    supervisor = Supervisor(host.fail)
    clock = SystemClock()
    alarm = Alarm(clock)
    try:
        ledger = SqliteLedger(database, supervisor)
        hub = _hub(settings, ledger, clock, alarm)
        alarm.connect(hub.tick)
        found = await ledger.recover()
        hub.recover(found.open, found.last, found.finished)
        if found.open:
            logger.info("ledger.recovered", extra={"commands": len(found.open)})
        supervisor.start(_prune(settings, ledger, clock), "control.prune")
        yield _serve(settings, hub, ledger)
    finally:
        alarm.stop()
        await supervisor.close()
        await database.close()


def _leave_at_once(error: BaseException) -> None:
    logger.critical("store.failed", exc_info=error)
    logging.shutdown()
    os._exit(STORE_FAILED_EXIT)


def _hub(settings: ControlSettings, ledger: SqliteLedger, clock: SystemClock, alarm: Alarm) -> Hub:
    commands = settings.commands
    return Hub(
        ledger,
        clock,
        arm=alarm.arm,
        timing=Timing(unowned=commands.unowned_delay_seconds, recovery=commands.recovery_delay_seconds),
        limits=Limits(commands.max_pending, commands.max_pending_per_scope),
    )


def _serve(settings: ControlSettings, hub: Hub, ledger: SqliteLedger) -> Application:
    streams = settings.streams
    servicer = ControlServicer(
        hub,
        ledger,
        clients=StreamLimits(heartbeat=streams.client_heartbeat_seconds, stall=streams.stall_seconds),
        runtimes=StreamLimits(
            heartbeat=streams.runtime_heartbeat_seconds,
            stall=streams.runtime_heartbeat_seconds * 3,
            queue=4096,
        ),
    )

    async def refuse() -> None:
        servicer.go_away(_GRACE_SECONDS)

    async def finish() -> None:
        try:
            async with asyncio.timeout(_LINGER_SECONDS):
                await hub.idle()
        except TimeoutError:
            logger.info("drain.commands_left", extra={"commands": hub.pending})
        await servicer.leave(_GRACE_SECONDS)

    return Application(
        services=[Service(add_ControlServiceServicer_to_server, servicer)],
        roles=ROLES,
        hooks=[DrainHook("commands", refuse, finish)],
    )


async def _prune(settings: ControlSettings, ledger: SqliteLedger, clock: SystemClock) -> None:
    """Delete what is older than the retention, now and every hour."""
    while True:
        try:
            await ledger.prune(clock.now() - round(settings.store.retention_days * _DAY))
        except TurnwireError as error:
            logger.warning("ledger.prune_failed", extra={"reason": error.reason})
        await asyncio.sleep(_PRUNE_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
