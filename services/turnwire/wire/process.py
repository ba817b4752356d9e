"""From the command line to the exit code: what the `main` of each service calls, and nothing before it.

Exit codes: 0 after a clean drain, 1 after a failure or a drain cut short, 2 when the settings are wrong.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pydantic import ValidationError

from turnwire.core.errors import TurnwireError
from turnwire.core.logs import configure_logging
from turnwire.core.settings import ProcessSettings, explain, unknown_names
from turnwire.core.version import version
from turnwire.wire.auth import check_exposure
from turnwire.wire.command import parse_command
from turnwire.wire.drain import DrainHook, StopSignals, drain
from turnwire.wire.health import Health
from turnwire.wire.loop_lag import measured_loop
from turnwire.wire.server import WireServer, build_server
from turnwire.wire.services import Service
from turnwire.wire.telemetry import current_trace_id, make_provider, shutdown_provider
from turnwire.wire.tracing import LONG_STREAMS

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

__all__ = ["Application", "Host", "serve"]

logger = logging.getLogger(__name__)
_SHUTDOWN_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Application:
    """What a service hands over to be served.

    Args:
        roles: full method to the roles of which a caller needs one.
        hooks: what has to happen before the process leaves.
        untraced: short names of methods that get no span.
    """

    services: Sequence[Service]
    roles: Mapping[str, frozenset[str]]
    hooks: Sequence[DrainHook] = ()
    untraced: frozenset[str] = field(default=LONG_STREAMS)


class Host:
    """What the process offers to the application that it runs."""

    def __init__(self, name: str, health: Health, signals: StopSignals) -> None:
        self.name, self.health = name, health
        self._signals = signals
        self.failed = False

    def fail(self, error: BaseException) -> None:
        """Leave, drain included, with exit code 1: for a background task that must not be missing."""
        logger.error("process.failed", exc_info=error)
        if not self.failed:
            self.failed = True
            self._signals.first.set()


S = TypeVar("S", bound=ProcessSettings)
Builder = Callable[[S, Host], AbstractAsyncContextManager[Application]]


def serve(
    name: str,
    settings_class: type[S],
    application: Builder[S],
    *,
    argv: Sequence[str],
    environment: Mapping[str, str],
) -> int:
    """Run one service until it is told to stop, and return the exit code.

    Args:
        name: as in `turnwire-runtime`.
        settings_class: built here once, from the environment and the arguments.
        application: async context manager that opens everything the services need and closes it at the end.
        environment: only to point out misspelt names.
    """
    command = parse_command(name, argv)
    try:
        settings = settings_class(**command.overrides)
        check_exposure(settings.listen)
    except ValidationError as error:
        return _refuse(name, explain(error, settings_class))
    except TurnwireError as error:
        return _refuse(name, f"{error.reason}: {error.message}")
    if command.check_config:
        sys.stdout.write(settings.model_dump_json(indent=2) + "\n")
        return 0
    configure_logging(settings.log, trace_id=current_trace_id)
    for variable in unknown_names(settings_class, environment):
        logger.warning("settings.unknown", extra={"variable": variable})
    try:
        return _run(name, settings, application, command.ready_file)
    except TurnwireError as error:
        return _refuse(name, f"{error.reason}: {error.message}")


def _refuse(name: str, text: str) -> int:
    sys.stderr.write(f"{name} cannot start:\n{text}\n")
    return 2


def _run(name: str, settings: S, application: Builder[S], ready_file: Path | None) -> int:
    provider = make_provider(settings.telemetry, name)
    if provider is not None:
        from opentelemetry import trace

        trace.set_tracer_provider(provider)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(_serve(name, settings, application, ready_file, provider))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # not made for this platform: the standard loop serves as well, only slower
        return None
    return uvloop.new_event_loop


async def _serve(
    name: str, settings: S, application: Builder[S], ready_file: Path | None, provider: TracerProvider | None
) -> int:
    signals, health = StopSignals(), Health()
    signals.install()
    host = Host(name, health, signals)
    try:
        async with measured_loop(settings.log.loop_lag_seconds), application(settings, host) as app:
            server = build_server(
                settings.listen,
                app.services,
                roles=app.roles,
                provider=provider,
                untraced=app.untraced,
                health=health,
            )
            await server.start()
            # What was made at start lives as long as the process: no collection need look at it again, and
            # what a call makes is mostly freed by its counts.
            gc.collect()
            gc.freeze()
            gc.set_threshold(10_000, 20, 50)
            try:
                _announce(name, server, ready_file)
                await signals.first.wait()
                finished = await drain(
                    server,
                    health,
                    settings.drain,
                    app.hooks,
                    loopback=settings.listen.loopback,
                    at_once=signals.second,
                )
            except BaseException:
                await server.stop(0.0)
                raise
    finally:
        await _flush(provider)
    return 0 if finished and not host.failed else 1


def _announce(name: str, server: WireServer, ready_file: Path | None) -> None:
    if ready_file is not None:
        text = json.dumps({"port": server.port, "pid": os.getpid()})
        partial = ready_file.with_name(f"{ready_file.name}.{os.getpid()}")
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, ready_file)
    logger.info(
        "server.listening",
        extra={
            "service": name,
            "address": server.address,
            "version": version(),
            "text": f"{name} listening on {server.address}",
        },
    )


async def _flush(provider: TracerProvider | None) -> None:
    if provider is None:
        return
    try:
        async with asyncio.timeout(_SHUTDOWN_SECONDS):
            await asyncio.to_thread(shutdown_provider, provider)
    except TimeoutError:
        logger.warning("telemetry.flush_timeout")
