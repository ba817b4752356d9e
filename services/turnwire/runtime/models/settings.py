"""What a deployment says about its models: keys, addresses, limits, dialects. No environment is read here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr, field_validator

from turnwire.core.settings import SettingsGroup
from turnwire.runtime.domain.call_terms import CallTerms

__all__ = [
    "CUSTOM_PREFIX",
    "BreakerSettings",
    "LimitSettings",
    "ModelSettings",
    "ProviderProfile",
    "RetrySettings",
    "WireFormat",
    "limits_of",
    "retries_of",
]

WireFormat = Literal["openai-chat", "openai-responses", "anthropic", "gemini"]
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


class ProviderProfile(SettingsGroup):
    """One provider: where it is, what it speaks, and how it differs from the letter of that format."""

    format: WireFormat = Field(default="openai-chat", description="Wire format that the provider speaks.")
    base_url: str = Field(default="", description="Address before the path of the format, without a slash.")
    api_key: SecretStr | None = Field(default=None, description="Key; a server may need none.")
    needs_key: bool = Field(default=False, description="Whether a call without key is refused by us.")
    key_variable: str = Field(default="", description="Name of the variable that errors tell people to set.")
    headers: dict[str, SecretStr] = Field(default_factory=dict, description="More headers for each request.")
    streaming: bool = Field(
        default=True, description="Off: one plain request per call, for servers that cannot stream."
    )
    stream_usage: bool = Field(default=True, description="Asks for usage in the stream (stream_options).")
    think_tags: Literal["auto", "on", "off", "inside"] = Field(
        default="auto",
        description="Think tags in text become reasoning. auto: on for openai-chat; inside: the answer "
        "begins in a block that the server's prompt has opened.",
    )
    null_finish_ok: bool = Field(
        default=False, description="An answer that ends without finish reason and end marker counts as whole."
    )
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = Field(
        default="max_tokens", description="Name that carries the output limit."
    )
    reasoning_field: str = Field(
        default="", description="Field of assistant messages that earlier reasoning goes back in, if any."
    )
    system_role: Literal["system", "developer"] = Field(
        default="system", description="Role that instructions have."
    )
    default_max_output_tokens: int = Field(
        default=8192, ge=1, description="Output limit where the format needs one and the request has none."
    )
    response_schema: Literal["auto", "field", "prompt"] = Field(
        default="auto",
        description="Where the schema of an answer goes: the format's own field, or the instructions. "
        "auto: the field where the schema is sure to be taken; never for anthropic.",
    )
    prompt_cache: bool = Field(default=True, description="Marks the prompt for the provider's cache.")
    extra_body: dict[str, object] = Field(
        default_factory=dict, description="More fields for each request; ours win over them."
    )

    @field_validator("base_url")
    @classmethod
    def _without_slash(cls, value: str) -> str:
        if value and not value.startswith(("http://", "https://")):
            raise ValueError("base_url begins with http:// or https://")
        return value.rstrip("/")


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
    proxy: str = Field(
        default="", description="HTTP proxy for all providers; empty follows HTTPS_PROXY and so on."
    )
    tls_ca: str = Field(default="", description="PEM file of more certificate authorities to trust.")
    tls_verify: bool = Field(default=True, description="Off accepts any certificate: tests only.")
    development_models: bool = Field(
        default=True, description="Offers `demo:`, `scripted:`, `record:` and `replay:`."
    )
