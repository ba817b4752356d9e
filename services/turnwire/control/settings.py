"""Settings of the control service: frozen, from the environment, read once by `main`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from turnwire.core.settings import ListenSettings, ProcessSettings, SettingsGroup

__all__ = ["CommandSettings", "ControlSettings", "StoreSettings", "StreamSettings"]

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class StoreSettings(SettingsGroup):
    """The command ledger."""

    synchronous: Literal["FULL", "NORMAL"] = Field(
        default="FULL", description="FULL survives a power cut; NORMAL the end of the process only."
    )
    retry_seconds: Seconds = Field(
        default=30.0, description="A ledger that cannot be written for so long ends the process."
    )
    retention_days: float = Field(
        default=30.0, gt=0, description="Commands are kept so long after their outcome."
    )


class CommandSettings(SettingsGroup):
    """How commands find a runtime."""

    unowned_delay_seconds: Seconds = Field(
        default=0.2,
        description="A command whose turn no runtime claims goes to any runtime after so long.",
    )
    recovery_delay_seconds: Seconds = Field(
        default=3.0, description="The same after a start, when the runtimes have to come back first."
    )
    max_pending: int = Field(default=20_000, ge=1, description="Commands without an outcome at once.")
    max_pending_per_scope: int = Field(
        default=5_000, ge=1, description="Commands of one scope without an outcome at once."
    )


class StreamSettings(SettingsGroup):
    """Streams of clients and runtimes."""

    client_heartbeat_seconds: Seconds = Field(
        default=20.0, description="How often a client says something; after three it is cut off."
    )
    runtime_heartbeat_seconds: Seconds = Field(
        default=5.0, description="How often a runtime says something; after three it is cut off."
    )
    stall_seconds: Seconds = Field(
        default=300.0, description="A client that takes nothing for so long is cut off."
    )


class ControlSettings(ProcessSettings):
    """Everything that `turnwire-control` can be told."""

    model_config = SettingsConfigDict(env_prefix="TURNWIRE_CONTROL_")

    listen: ListenSettings = Field(default=ListenSettings(port=50052), description="The server.")
    data: Path = Field(default=Path(".turnwire"), description="Folder of the ledger's file, control.db.")
    store: StoreSettings = Field(default=StoreSettings(), description="The ledger.")
    commands: CommandSettings = Field(default=CommandSettings(), description="Commands.")
    streams: StreamSettings = Field(default=StreamSettings(), description="Streams.")
