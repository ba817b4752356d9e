"""A whole process round the echo service, run as a script: `python wire_process.py <arguments>`."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from pydantic import SecretStr
from pydantic_settings import SettingsConfigDict

from support.wire_echo import Echo, service
from turnwire.core.settings import ProcessSettings
from turnwire.wire.drain import DrainHook
from turnwire.wire.process import Application, Host, serve

logger = logging.getLogger("echo")


class EchoSettings(ProcessSettings):
    """Settings of the echo process."""

    model_config = SettingsConfigDict(env_prefix="TURNWIRE_ECHO_")

    secret: SecretStr = SecretStr("hush")
    mode: str = "plain"


@asynccontextmanager
async def application(settings: EchoSettings, host: Host) -> AsyncIterator[Application]:
    async def refuse() -> None:
        logger.info("echo.refuse")

    async def finish() -> None:
        logger.info("echo.finish")
        if settings.mode == "slow":
            await asyncio.Event().wait()

    async def crash(request: Any, context: Any) -> Any:
        host.fail(RuntimeError("a part is missing"))
        return request

    echo = Echo(unary=crash if settings.mode == "crash" else None)
    logger.info("echo.opened")
    yield Application([service(echo)], roles={}, hooks=[DrainHook("echo", refuse, finish)])
    logger.info("echo.closed")


def main() -> int:
    return serve("turnwire-echo", EchoSettings, application, argv=sys.argv[1:], environment=os.environ)


if __name__ == "__main__":
    sys.exit(main())
