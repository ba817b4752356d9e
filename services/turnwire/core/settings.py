"""Groups of settings that the three processes share: frozen, complete, and checked before anything starts.

A process nests the groups in one pydantic-settings class, so that `listen.port` of the runtime is
`TURNWIRE_RUNTIME_LISTEN__PORT`. Secrets are `SecretStr`, also readable from a file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

__all__ = [
    "DrainSettings",
    "LinkSettings",
    "ListenSettings",
    "LogSettings",
    "ProcessSettings",
    "SettingsGroup",
    "TelemetrySettings",
    "explain",
    "is_loopback",
    "unknown_names",
]

Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_MIB = 1024 * 1024


@lru_cache(maxsize=256)
def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach `host`: a name or an address without port."""
    bare = host.strip("[]")
    if bare == "localhost":
        return True
    try:
        return ip_address(bare).is_loopback
    except ValueError:
        return False


class SettingsGroup(BaseModel):
    """Base of a group: frozen, and a misspelt name is an error rather than a silence."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ListenSettings(SettingsGroup):
    """Where the server listens and who may talk to it."""

    host: str = Field(
        default="127.0.0.1", description="Address to bind; anything but loopback needs TLS and tokens."
    )
    port: int = Field(default=0, ge=0, le=65535, description="TCP port; 0 lets the system choose.")
    insecure: bool = Field(
        default=False,
        description="Allows a bind beyond loopback without TLS and tokens; the same as --insecure.",
    )
    tls_cert: Path | None = Field(default=None, description="PEM file with the server's certificate chain.")
    tls_key: Path | None = Field(default=None, description="PEM file with the server's private key.")
    tls_client_ca: Path | None = Field(
        default=None,
        description="PEM file of the authority that client certificates must come from; turns on mTLS.",
    )
    tokens_file: Path | None = Field(
        default=None,
        description="YAML or JSON list of callers: token or token_sha256, subject, scopes, roles.",
    )
    reflection: bool = Field(
        default=True, description="Serves gRPC reflection, so that grpcurl needs no protos."
    )
    max_message_bytes: int = Field(
        default=4 * _MIB,
        ge=64 * 1024,
        le=64 * _MIB,
        description="Largest message accepted or sent, in bytes.",
    )
    max_concurrent_streams: int = Field(
        default=1000, ge=1, description="Calls open at once per connection; more wait in the client."
    )
    max_connection_age_seconds: Seconds | None = Field(
        default=None, description="Age after which a client is asked to reconnect; running streams live on."
    )

    @model_validator(mode="after")
    def _check_tls(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key come together: set both or neither")
        if self.tls_client_ca is not None and self.tls_cert is None:
            raise ValueError("tls_client_ca needs tls_cert and tls_key")
        return self

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        return is_loopback(self.host)

    @property
    def tls(self) -> bool:
        """Whether the server speaks TLS."""
        return self.tls_cert is not None


class LogSettings(SettingsGroup):
    """How the process logs."""

    level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        default="INFO", description="Least level written."
    )
    format: Literal["auto", "json", "text"] = Field(
        default="auto", description="JSON lines, text for people, or text on a terminal and JSON elsewhere."
    )
    stream: Literal["stdout", "stderr"] = Field(default="stdout", description="Where the lines go.")
    loop_lag_seconds: Seconds = Field(
        default=0.0,
        description="How often a line tells how late the event loop was, `process.loop_lag`; 0 is never.",
    )


class TelemetrySettings(SettingsGroup):
    """Where spans go; without an endpoint and a file none are made."""

    otlp_endpoint: str | None = Field(
        default=None, description="OTLP over gRPC, such as http://collector:4317; https:// speaks TLS."
    )
    file: Path | None = Field(default=None, description="JSON lines file that receives every finished span.")
    file_max_bytes: int = Field(
        default=64 * _MIB,
        ge=4096,
        description="Size at which the file moves to `<file>.1`; older spans are dropped.",
    )
    service_name: str | None = Field(
        default=None, description="service.name of the spans; the process's name if unset."
    )
    sample_ratio: float = Field(
        default=1.0,
        ge=0,
        le=1,
        description="Share of the traces begun here that is recorded; callers' choices win.",
    )

    @property
    def enabled(self) -> bool:
        """Whether spans go anywhere."""
        return self.otlp_endpoint is not None or self.file is not None


class DrainSettings(SettingsGroup):
    """How the process leaves after SIGTERM; all values in seconds."""

    drain_delay_seconds: Seconds | None = Field(
        default=None,
        description="Wait between NOT_SERVING and refusing work, so that endpoints go first; 5 if unset, "
        "0 on loopback.",
    )
    stop_grace_seconds: Seconds = Field(
        default=40.0, description="Time for running work to finish or checkpoint."
    )
    termination_grace_seconds: Seconds = Field(
        default=60.0, description="When the platform kills the process; at least delay + grace + 5."
    )

    DEFAULT_DELAY: ClassVar[float] = 5.0
    MARGIN: ClassVar[float] = 5.0
    LAST_STOP: ClassVar[float] = 10.0

    @model_validator(mode="after")
    def _check_sum(self) -> Self:
        needed = self.delay(loopback=False) + self.stop_grace_seconds + self.MARGIN
        if needed > self.termination_grace_seconds:
            raise ValueError(
                f"drain_delay_seconds + stop_grace_seconds + {self.MARGIN:g} is {needed:g}, more than "
                f"termination_grace_seconds ({self.termination_grace_seconds:g}): lower the first two "
                "or raise the third"
            )
        return self

    def delay(self, *, loopback: bool) -> float:
        """Return the seconds between NOT_SERVING and the refusal of new work."""
        if self.drain_delay_seconds is not None:
            return self.drain_delay_seconds
        return 0.0 if loopback else self.DEFAULT_DELAY

    def last_stop(self, *, loopback: bool) -> float:
        """Return the seconds that calls still open get at the very end: 10, or what the platform leaves."""
        left = self.termination_grace_seconds - self.delay(loopback=loopback) - self.stop_grace_seconds - 1
        return min(self.LAST_STOP, left)


class LinkSettings(SettingsGroup):
    """How this process reaches another one."""

    target: str = Field(
        description="Address such as 127.0.0.1:50052 or dns:///turnwire-control-headless:50052."
    )
    token: SecretStr | None = Field(default=None, description="Bearer token that this process presents.")
    token_file: Path | None = Field(
        default=None, description="File that holds the token, instead of `token`."
    )
    tls_ca: Path | None = Field(default=None, description="PEM file of the authority; system roots if unset.")
    tls_cert: Path | None = Field(
        default=None, description="PEM file with this process's certificate, for mTLS."
    )
    tls_key: Path | None = Field(default=None, description="PEM file with this process's key, for mTLS.")
    insecure: bool = Field(
        default=False, description="Speaks plaintext beyond loopback; to loopback plaintext is the default."
    )

    @model_validator(mode="before")
    @classmethod
    def _read_token(cls, data: Any) -> Any:
        if not isinstance(data, dict) or data.get("token_file") is None:
            return data
        if data.get("token") is not None:
            raise ValueError("token and token_file exclude each other: set one")
        try:
            secret = Path(data["token_file"]).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise ValueError(f"token_file cannot be read: {error.strerror}") from None
        if not secret:
            raise ValueError("token_file is empty")
        return {**data, "token": secret}

    @model_validator(mode="after")
    def _check_tls(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key come together: set both or neither")
        if self.insecure and (self.tls_ca or self.tls_cert):
            raise ValueError("insecure means plaintext: remove it or the tls_ settings")
        return self

    @property
    def plaintext(self) -> bool:
        """Whether the link goes without TLS."""
        if self.insecure:
            return True
        host = self.target.rpartition("/")[2].rpartition(":")[0] or self.target
        return self.tls_ca is None and self.tls_cert is None and is_loopback(host)


class ProcessSettings(BaseSettings):
    """Base of one process's settings; the subclass sets `env_prefix` and adds its own groups."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        env_nested_delimiter="__",
        env_ignore_empty=True,
        # A process's own defaults of a group hold also when the environment sets only its other fields.
        nested_model_default_partial_update=True,
    )

    listen: ListenSettings = Field(default=ListenSettings(), description="The server.")
    log: LogSettings = Field(default=LogSettings(), description="Logs.")
    telemetry: TelemetrySettings = Field(default=TelemetrySettings(), description="Traces.")
    drain: DrainSettings = Field(default=DrainSettings(), description="Leaving.")


# A cluster that injects service links sets names such as TURNWIRE_RUNTIME_PORT_50051_TCP_ADDR: not ours.
_SERVICE_LINK = re.compile(r"(HEADLESS_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_TCP(_\w+)?)?)")


def unknown_names(settings: type[BaseSettings], names: Iterable[str]) -> list[str]:
    """Return the names with the prefix of `settings` that start no field of it: most likely misspelt."""
    prefix = str(settings.model_config.get("env_prefix", "")).upper()
    delimiter = str(settings.model_config.get("env_nested_delimiter") or "__")
    fields = {name.upper() for name in settings.model_fields}
    return sorted(
        name
        for name in names
        if (upper := name.upper()).startswith(prefix)
        and upper.removeprefix(prefix).split(delimiter)[0] not in fields
        and not _SERVICE_LINK.fullmatch(upper.removeprefix(prefix))
    )


def explain(error: ValidationError, settings: type[BaseSettings]) -> str:
    """Return one line per wrong setting, under its environment name and without its value."""
    prefix = str(settings.model_config.get("env_prefix", "")).upper()
    lines = []
    for item in error.errors(include_input=False, include_url=False, include_context=False):
        name = prefix + "__".join(str(part).upper() for part in item["loc"])
        lines.append(f"{name}: {item['msg'].removeprefix('Value error, ')}")
    return "\n".join(lines)
