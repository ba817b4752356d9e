"""Settings of the runtime process. `TURNWIRE_RUNTIME_` is the prefix; provider keys keep their own names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from turnwire.core.settings import LinkSettings, ListenSettings, ProcessSettings, SettingsGroup
from turnwire.runtime.domain.compaction import DEFAULT_PROMPT, CompactionRules
from turnwire.runtime.models.settings import ModelSettings

__all__ = [
    "PROVIDER_NAMES",
    "ContextSettings",
    "LeaseSettings",
    "RetentionSettings",
    "RuntimeSettings",
    "StoreSettings",
    "TurnSettings",
]


# Names that provider tools already use, and the field of `models` that each one fills.
PROVIDER_NAMES = {
    "OPENAI_API_KEY": "openai_api_key",
    "OPENAI_BASE_URL": "openai_base_url",
    "ANTHROPIC_API_KEY": "anthropic_api_key",
    "ANTHROPIC_BASE_URL": "anthropic_base_url",
    "GEMINI_API_KEY": "gemini_api_key",
}

# Models for development give no summaries, and have no window.
_UNBOUNDED = dict.fromkeys(("demo:*", "scripted:*", "replay:*"), 100_000_000)


class StoreSettings(SettingsGroup):
    """The store of threads, turns and logs."""

    url: SecretStr = Field(
        default=SecretStr(""),
        description="Database on a PostgreSQL server, postgresql://user:password@host/name, which several "
        "runtimes may share; empty for the file in `data`.",
    )
    url_file: Path | None = Field(default=None, description="File that holds the URL, instead of `url`.")
    synchronous: Literal["FULL", "NORMAL"] = Field(
        default="FULL", description="FULL survives a power cut; NORMAL survives kill -9, not a power cut."
    )
    commit_spacing_seconds: float = Field(
        default=0.005, ge=0, le=1, description="Least distance between two commits of token events."
    )
    retry_seconds: float = Field(
        default=30.0, ge=1, description="How long a failing store is tried before the process leaves."
    )

    @model_validator(mode="before")
    @classmethod
    def _read_url(cls, data: Any) -> Any:
        if not isinstance(data, dict) or data.get("url_file") is None:
            return data
        if data.get("url"):
            raise ValueError("url and url_file exclude each other: set one")
        try:
            text = Path(data["url_file"]).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise ValueError(f"url_file cannot be read: {error.strerror}") from None
        return {**data, "url": text}

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: SecretStr) -> SecretStr:
        text = url.get_secret_value()
        if text and not text.startswith(("postgresql://", "postgres://")):
            raise ValueError("must be postgresql://user:password@host:5432/name, or empty for a file")
        return url

    def location(self, file: Path) -> Path | str:
        """Return where the store is: the database that is set, else the file."""
        return self.url.get_secret_value() or file


class RetentionSettings(SettingsGroup):
    """What the store forgets, and when. Turns, messages and results are not among it."""

    events_days: float = Field(
        default=7.0, gt=0, le=36500, description="How long the events of a turn are kept after its end."
    )
    interval_seconds: float = Field(
        default=3600.0, gt=0, description="Time between two looks for what has outlived its retention."
    )


class TurnSettings(SettingsGroup):
    """Turns."""

    max_steps: int = Field(
        default=30, description="Most steps of a turn unless its agent says otherwise; clamped to 10 to 120."
    )
    queue_limit: int = Field(default=50, ge=1, description="Most turns that wait in one thread.")
    max_live: int = Field(default=2000, ge=1, description="Most turns that run at once in this process.")
    first_feedback_seconds: float = Field(
        default=8.0, gt=0, description="A model that has said nothing for so long is told as `waiting`."
    )
    heartbeat_seconds: float = Field(
        default=20.0, gt=0, description="A silent reader is sent a heartbeat after so long."
    )
    approval_timeout_seconds: float = Field(
        default=86400.0,
        gt=0,
        le=366 * 86400,
        description="A call that nobody has allowed or rejected for so long is rejected.",
    )


class ContextSettings(SettingsGroup):
    """What models are told of long conversations. Agent files may say otherwise under `compaction`."""

    enabled: bool = Field(default=True, description="Off: every request holds the whole conversation.")
    windows: dict[str, Annotated[int, Field(ge=1000, le=100_000_000)]] = Field(
        default_factory=dict,
        description="JSON object: what models take in tokens, by `provider:model` or a beginning of it that "
        "ends in `*`.",
    )
    threshold: float = Field(
        default=0.8, ge=0.1, le=0.95, description="Share of a known window above which is compacted."
    )
    output_reserve: int = Field(
        default=4096,
        ge=0,
        le=1_000_000,
        description="Tokens of a known window left for the answer where the request does not say "
        "max_output_tokens; at most a quarter of it.",
    )
    messages: int | None = Field(
        default=None,
        ge=8,
        le=100_000,
        description="Messages above which is compacted; 20 where no window is known, else no such limit.",
    )
    characters: int | None = Field(
        default=None,
        ge=4000,
        le=100_000_000,
        description="Characters above which is compacted; 48000 where no window is known, else no limit.",
    )
    keep_messages: int = Field(
        default=8, ge=4, le=1000, description="Messages at the end that stay as they are."
    )
    growth: float = Field(
        default=0.25,
        ge=0.05,
        le=10,
        description="Share by which what was left has to grow after a compaction before the next one.",
    )
    model: str = Field(
        default="", description="`provider:model` that writes summaries; empty for the turn's own model."
    )
    prompt: str = Field(
        default="",
        max_length=10_000,
        description="What that model is told; empty for the text in docs/context.md.",
    )
    timeout_seconds: float = Field(
        default=60.0, gt=0, le=3600, allow_inf_nan=False, description="Time limit of a whole summary."
    )
    summary_characters: int = Field(default=4000, ge=400, le=8000, description="Longest summary.")
    input_characters: int = Field(
        default=48_000,
        ge=4000,
        le=1_000_000,
        description="Most characters that one call is given to summarise; a summary takes up to 4 calls.",
    )
    tokenizer_file: Path | None = Field(
        default=None,
        description="cl100k_base.tiktoken or o200k_base.tiktoken, to count tokens exactly (extra "
        "`tokenizers`); without it they are estimated.",
    )
    tokenizer_models: tuple[str, ...] = Field(
        default=("openai:*", "openai-responses:*"), description="JSON list: models that it counts for."
    )

    def rules(self) -> CompactionRules:
        """Return the rules of this deployment."""
        own = self.model_dump(exclude={"windows", "timeout_seconds", "tokenizer_file", "tokenizer_models"})
        own["prompt"] = self.prompt or DEFAULT_PROMPT
        return CompactionRules(windows={**_UNBOUNDED, **self.windows}, timeout=self.timeout_seconds, **own)


class LeaseSettings(SettingsGroup):
    """How several runtimes on one store know of each other's death. Lower values find it sooner."""

    ttl_seconds: float = Field(
        default=30.0, ge=1, description="How long a runtime owns its turns after it was last heard of."
    )
    renew_seconds: float = Field(default=10.0, gt=0, description="How often it says that it lives.")
    sweep_seconds: float = Field(
        default=2.0, gt=0, description="Longest time between two looks for turns that nobody runs."
    )
    hung_loop_seconds: float = Field(
        default=15.0, gt=0, description="A process that stood still for so long stops to renew its leases."
    )

    @model_validator(mode="after")
    def _in_time(self) -> LeaseSettings:
        if self.renew_seconds * 2 > self.ttl_seconds:
            raise ValueError("renew_seconds must be at most half of ttl_seconds")
        return self


class RuntimeSettings(ProcessSettings):
    """Everything that `turnwire-runtime` can be told."""

    model_config = SettingsConfigDict(env_prefix="TURNWIRE_RUNTIME_")

    listen: ListenSettings = Field(default=ListenSettings(port=50051), description="The server.")
    data: Path = Field(default=Path(".turnwire"), description="Folder of the store's file, runtime.db.")
    agents: Path | None = Field(
        default=None, description="Folder of agent files (*.yaml); without one there are built-in agents."
    )
    runtime_id: str = Field(default="runtime", description="Name of this runtime, the same after a restart.")
    executor: LinkSettings = Field(
        default=LinkSettings(target="127.0.0.1:50053"), description="The tool executor."
    )
    control: LinkSettings = Field(
        default=LinkSettings(target="127.0.0.1:50052"), description="The control service."
    )
    control_public_target: str = Field(
        default="", description="Address of the control service for clients; control.target if empty."
    )
    store: StoreSettings = Field(default=StoreSettings(), description="The store.")
    retention: RetentionSettings = Field(default=RetentionSettings(), description="What the store forgets.")
    turns: TurnSettings = Field(default=TurnSettings(), description="Turns.")
    context: ContextSettings = Field(
        default=ContextSettings(), description="What models are told of long conversations."
    )
    leases: LeaseSettings = Field(default=LeaseSettings(), description="Leases.")
    models: ModelSettings = Field(default=ModelSettings(), description="Models.")

    # The process's environment, for the names that providers themselves gave; set by `main`.
    environment: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments win over TURNWIRE_RUNTIME_ names, and those over the providers' own names."""
        own = {field: value for name, field in PROVIDER_NAMES.items() if (value := cls.environment.get(name))}
        providers = InitSettingsSource(settings_cls, {"models": own} if own else {})
        return init_settings, env_settings, providers
