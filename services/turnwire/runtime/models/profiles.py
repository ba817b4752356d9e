"""What a deployment says about one provider: where it is, what it speaks, and how it differs."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, SecretStr, field_validator

from turnwire.core.settings import SettingsGroup
from turnwire.runtime.models.capabilities import CAPABILITIES, WireFormat

__all__ = ["DIRECT", "ProviderProfile", "TlsSettings", "WireFormat", "proxy_address"]

# The word in place of a proxy's address that means none, whatever the environment says.
DIRECT = "none"

_CLIENT = re.compile(r"^Async[A-Za-z]+$")
_REFERENCE = re.compile(r"^[\w.]+:\w+$")


def proxy_address(value: SecretStr) -> SecretStr:
    """Return an address of a proxy, or the word for none. Raises ValueError."""
    text = value.get_secret_value()
    if text and text != DIRECT and not text.startswith(("http://", "https://")):
        raise ValueError("proxy begins with http:// or https://, or is the word none")
    return value


class TlsSettings(SettingsGroup):
    """TLS towards providers."""

    ca: str = Field(default="", description="PEM file of more certificate authorities to trust.")
    cert: str = Field(default="", description="PEM file of the certificate that we show.")
    key: str = Field(default="", description="PEM file of its key; empty when it is in the same file.")
    verify: bool = Field(default=True, description="Off accepts any certificate: tests only.")


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
    thinking: Literal["budget", "adaptive"] = Field(
        default="budget",
        description="How reasoning_effort is told to anthropic: as a budget of tokens, or as the effort "
        "itself, which newer models want.",
    )
    prompt_cache: bool = Field(default=True, description="Marks the prompt for the provider's cache.")
    extra_body: dict[str, object] = Field(
        default_factory=dict, description="More fields for each request; ours win over them."
    )

    cache_key: bool = Field(
        default=False, description="Sends a key per thread (prompt_cache_key), for servers that know it."
    )
    inline_tool_calls: list[str] = Field(
        default_factory=list,
        description="Patterns of model names, such as `qwen3-*`, whose tool calls are taken from markup in "
        "their text; of no model unless named here.",
    )
    capabilities: dict[str, Literal["yes", "no"]] = Field(
        default_factory=dict,
        description="Where this server differs from what its format can do, by the names of the table in "
        "docs/providers.md.",
    )
    max_concurrent_calls: int | None = Field(
        default=None,
        ge=0,
        le=100_000,
        description="Calls that run at once, 0 for no limit; absent: as for all providers.",
    )
    proxy: SecretStr | None = Field(
        default=None,
        description="HTTP proxy for this provider, `none` for no proxy; absent: as for all providers.",
    )
    tls: TlsSettings | None = Field(
        default=None, description="TLS towards this provider; absent: as for all providers."
    )
    transport: Literal["http", "openai", "anthropic"] = Field(
        default="http",
        description="What sends requests: our own client, or the SDK of that vendor with its credentials.",
    )
    client: str = Field(
        default="", description="Class of that SDK, such as AsyncAzureOpenAI; empty: its plain client."
    )
    client_options: dict[str, SecretStr] = Field(
        default_factory=dict, description="Arguments of that class, such as api_version or region."
    )
    token_provider: str = Field(
        default="",
        description="`module:function` that gives a token for each call, for clients of Azure and OpenAI.",
    )

    @field_validator("capabilities")
    @classmethod
    def _checked(cls, value: dict[str, str]) -> dict[str, str]:
        known = [row.name for row in CAPABILITIES if row.checked]
        if unknown := sorted(set(value) - set(known)):
            raise ValueError(f"there is no {unknown[0]!r}: there are {', '.join(known)}")
        return value

    @field_validator("client")
    @classmethod
    def _asynchronous(cls, value: str) -> str:
        if value and not _CLIENT.match(value):
            raise ValueError(
                "client is the name of an asynchronous class of the SDK, such as AsyncAzureOpenAI"
            )
        return value

    @field_validator("token_provider")
    @classmethod
    def _reference(cls, value: str) -> str:
        if value and not _REFERENCE.match(value):
            raise ValueError("token_provider has the form module:function")
        return value

    @field_validator("proxy")
    @classmethod
    def _proxy_address(cls, value: SecretStr | None) -> SecretStr | None:
        return None if value is None else proxy_address(value)

    @field_validator("base_url")
    @classmethod
    def _without_slash(cls, value: str) -> str:
        if value and not value.startswith(("http://", "https://")):
            raise ValueError("base_url begins with http:// or https://")
        return value.rstrip("/")
