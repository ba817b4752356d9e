"""A control service inside the test's process, on a real port, with everything behind it in reach."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from turnwire.api.control.v1.control_service_pb2_grpc import (
    ControlServiceStub,
    add_ControlServiceServicer_to_server,
)
from turnwire.control.alarm import Alarm
from turnwire.control.dispatch import Timing
from turnwire.control.hub import Hub, Limits
from turnwire.control.ledger import SqliteLedger
from turnwire.control.servicer.service import ROLES, ControlServicer
from turnwire.control.servicer.stream import StreamLimits
from turnwire.control.supervisor import Supervisor
from turnwire.core.clock import SystemClock
from turnwire.core.settings import ListenSettings
from turnwire.storage.database import Database, database_at
from turnwire.wire.channel import WireChannel, open_channel
from turnwire.wire.server import build_server
from turnwire.wire.services import Service

__all__ = ["ControlRig", "control_service", "token_of", "write_tokens"]


@dataclass
class ControlRig:
    """What runs."""

    target: str
    channel: WireChannel
    stub: ControlServiceStub
    hub: Hub
    ledger: SqliteLedger
    database: Database
    servicer: ControlServicer


def token_of(subject: str) -> str:
    return f"secret-token-of-{subject}"


def write_tokens(folder: Path, callers: Mapping[str, tuple[str, Iterable[str]]]) -> Path:
    """Write a tokens file: subject to scope and roles."""
    entries = [
        {
            "token": token_of(subject),
            "subject": subject,
            "scopes": [scope] if scope else [],
            "roles": [*roles],
        }
        for subject, (scope, roles) in callers.items()
    ]
    path = folder / "tokens.json"
    path.write_text(json.dumps(entries), encoding="utf-8")
    return path


@asynccontextmanager
async def control_service(
    folder: Path,
    *,
    tokens: Path | None = None,
    token: str | None = None,
    clients: StreamLimits | None = None,
    runtimes: StreamLimits | None = None,
    timing: Timing | None = None,
    limits: Limits | None = None,
) -> AsyncIterator[ControlRig]:
    """Serve until the block ends; anything that fails in the background fails the test."""
    failures: list[BaseException] = []
    database = database_at(folder / "control.db", "turnwire.control", on_fatal=failures.append)
    await database.open()
    supervisor = Supervisor(failures.append)
    alarm = Alarm(SystemClock())
    ledger = SqliteLedger(database, supervisor)
    hub = Hub(ledger, SystemClock(), arm=alarm.arm, timing=timing, limits=limits)
    alarm.connect(hub.tick)
    found = await ledger.recover()
    hub.recover(found.open, found.last, found.finished)
    servicer = ControlServicer(hub, ledger, clients=clients, runtimes=runtimes)
    server = build_server(
        ListenSettings(tokens_file=tokens),
        [Service(add_ControlServiceServicer_to_server, servicer)],
        roles=ROLES,
    )
    await server.start()
    try:
        async with open_channel(server.address, token=token) as channel:
            yield ControlRig(
                server.address, channel, ControlServiceStub(channel), hub, ledger, database, servicer
            )
    finally:
        await server.stop(0)
        alarm.stop()
        await supervisor.close()
        await database.close()
    assert not failures
