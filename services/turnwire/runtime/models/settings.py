"""What a deployment says about its models: keys, addresses, limits, dialects. No environment is read here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr, field_validator

from turnwire.core.settings import SettingsGroup
from turnwire.runtime.domain.call_terms import CallTerms
from turnwire.runtime.models.profiles import ProviderProfile, TlsSettings, WireFormat, proxy_address

__all__ = [
    "CUSTOM_PREFIX",
    "BreakerSettings",
    "LimitSettings",
    "ModelSettings",
    "ProviderProfile",
    "RetrySettings",
    "TlsSettings",
    "WireFormat",
    "limits_of",
    "retries_of",
]

CUSTOM_PREFIX = r"^[a-z][a-z0-9-]{0,30}$"

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class LimitSettings(SettingsGroup):
    """Time limits of one model call in seconds, counted from when the request is really sent."""

    first_chunk_seconds: Positive = Field(default=120.0, description="Until the first bytes of the answer.")
    between_chunks_seconds: Positive = Field(default=60.0, description="Between two pieces of the answer.")
    whole_call_seconds: Positive = Field(default=300.0, description="For the whole answer.")
    connect_seconds: Positive = Field(default=30.0, description="To look up the host and connect to it.")

    @property
    def request_seconds(self) -> float:
        """The outermost limit: the longest of the three and 15 s, from the start of the call."""
        return max(self.first_chunk_seconds, self.between_chunks_seconds, self.whole_call_seconds) + 15.0


class RetrySettings(SettingsGroup):
    """Repeats of a model call that failed in passing."""

    attempts: int = Field(default=3, ge=1, le=10, description="Tries in all; 1 never repeats.")
    first_delay_seconds: float = Field(default=0.5, ge=0, le=60, description="Wait before the second try.")
    longest_delay_seconds: float = Field(default=30.0, ge=0, le=600, description="Longest wait of our own.")
    longest_retry_after_seconds: float = Field(
        default=60.0, ge=0, le=3600, description="A provider that asks for a longer wait gets no repeat."
    )
    visible: bool = Field(
        default=True,
        description="Also repeats a call of which readers have seen something: a step_reset voids that.",
    )


class BreakerSettings(SettingsGroup):
    """When a provider that fails is left alone for a while; counted for each address and key."""

    failures: int = Field(
        default=10,
        ge=0,
        le=1000,
        description="Failures in a row (no connection, server error, time limit) that open the circuit; "
        "0 never opens it.",
    )
    window_seconds: Positive = Field(default=60.0, description="Time within which they have to come.")
    open_seconds: Positive = Field(
        default=15.0, description="How long calls are refused before one finds out how things are."
    )


def limits_of(limits: LimitSettings, terms: CallTerms) -> LimitSettings:
    """Return the limits that hold for an agent."""
    own = terms.model_dump(exclude_none=True, include=set(LimitSettings.model_fields))
    return limits.model_copy(update=own) if own else limits


def retries_of(retries: RetrySettings, terms: CallTerms) -> RetrySettings:
    """Return the repeats that hold for an agent."""
    own = {"attempts": terms.attempts, "visible": terms.retry_visible}
    known = {name: value for name, value in own.items() if value is not None}
    return retries.model_copy(update=known) if known else retries


class ModelSettings(SettingsGroup):
    """All models of this deployment."""

    openai_api_key: SecretStr | None = Field(default=None, description="Key for `openai:` models.")
    openai_base_url: str = Field(
        default="https://api.openai.com/v1",
        description="Address of `openai:` models; any server that speaks chat completions will do.",
    )
    anthropic_api_key: SecretStr | None = Field(default=None, description="Key for `anthropic:` models.")
    anthropic_base_url: str = Field(
        default="https://api.anthropic.com", description="Address of `anthropic:` models."
    )
    gemini_api_key: SecretStr | None = Field(default=None, description="Key for `gemini:` models.")
    gemini_base_url: str = Field(
        default="https://generativelanguage.googleapis.com/v1beta", description="Address of `gemini:` models."
    )
    providers: dict[Annotated[str, Field(pattern=CUSTOM_PREFIX)], ProviderProfile] = Field(
        default_factory=dict,
        description="More providers by prefix; a built-in prefix here replaces the built-in profile.",
    )
    limits: LimitSettings = Field(default_factory=LimitSettings, description="Time limits of a call.")
    breaker: BreakerSettings = Field(
        default_factory=BreakerSettings, description="The circuit of each provider."
    )
    max_concurrent_calls: int = Field(
        default=0,
        ge=0,
        le=100_000,
        description="Calls to one provider, by address and key, that run at once; more wait in their order. "
        "0: no limit.",
    )
    prices_file: Path | None = Field(
        default=None,
        description="YAML file with what models cost, see docs/models.md; without it no cost is told.",
    )
    bytes_per_token: float = Field(
        default=4.0,
        ge=0,
        le=100,
        allow_inf_nan=False,
        description="By how many bytes of text a token is estimated where no usage was reported; 0: not at "
        "all, the usage is unknown then.",
    )
    retries: RetrySettings = Field(default_factory=RetrySettings, description="Repeats of a call.")
    proxy: SecretStr = Field(
        default=SecretStr(""),
        description="HTTP proxy for all providers; empty follows HTTPS_PROXY and so on, `none` uses none.",
    )
    tls_ca: str = Field(default="", description="PEM file of more certificate authorities to trust.")
    tls_cert: str = Field(default="", description="PEM file of the certificate that we show.")
    tls_key: str = Field(default="", description="PEM file of its key; empty when it is in the same file.")
    tls_verify: bool = Field(default=True, description="Off accepts any certificate: tests only.")
    capture: Literal["off", "hash", "summary", "full"] = Field(
        default="off",
        description="What of prompts and answers may stand in logs and spans: nothing, sizes and hashes, "
        "their beginnings too, or in spans all of it.",
    )
    development_models: bool = Field(
        default=True, description="Offers `demo:`, `scripted:`, `record:` and `replay:`."
    )

    @field_validator("proxy")
    @classmethod
    def _proxy_address(cls, value: SecretStr) -> SecretStr:
        return proxy_address(value)

    @property
    def tls(self) -> TlsSettings:
        """TLS towards providers whose profile says nothing of it."""
        return TlsSettings(ca=self.tls_ca, cert=self.tls_cert, key=self.tls_key, verify=self.tls_verify)
