"""Names become models: `prefix:model`, one shared session behind all of them.

Prefixes: `openai`, `openai-responses`, `anthropic`, `gemini`, `pydantic-ai`, whatever
`ModelSettings.providers` adds, and for development `demo:`, `scripted:FILE-OR-JSON`, `record:FILE:MODEL` and
`replay:FILE`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import SecretStr

from turnwire.core.errors import InvalidRequest, WrongState
from turnwire.core.settings import is_loopback
from turnwire.runtime.domain.call_terms import CallTerms
from turnwire.runtime.models.base import BatchedModel
from turnwire.runtime.models.breaker import Breaker
from turnwire.runtime.models.bridge import BridgedModel, bridge_installed
from turnwire.runtime.models.capture import CapturedModel
from turnwire.runtime.models.connector import Connector, HttpTransport, Route
from turnwire.runtime.models.demo import DemoModel
from turnwire.runtime.models.fallback import FallbackModel
from turnwire.runtime.models.guard import Gate, GuardedModel
from turnwire.runtime.models.http_model import HttpModel
from turnwire.runtime.models.profiles import DIRECT, ProviderProfile
from turnwire.runtime.models.recording import FileTap, RecordedModel, ReplayModel, read_recordings
from turnwire.runtime.models.retry import RetryModel
from turnwire.runtime.models.scripted import ScriptedModel, read_script
from turnwire.runtime.models.sdk_transport import EVENT_STREAM_CLIENTS, SdkTransport, sdk_installed
from turnwire.runtime.models.settings import LimitSettings, ModelSettings, limits_of, retries_of
from turnwire.runtime.models.slots import Slots
from turnwire.runtime.models.transport import Transport

__all__ = ["ModelRegistry"]

DEVELOPMENT = ("demo", "scripted", "record", "replay")
_OPENAI_HOST = "api.openai.com"


class ModelRegistry:
    """Resolves names for one process.

    Args:
        settings: keys, addresses, limits and more providers.
    """

    def __init__(self, settings: ModelSettings) -> None:
        self._settings = settings
        self._connector = Connector()
        self._profiles = _profiles(settings)
        self._sdks: dict[str, SdkTransport] = {}
        self._bridged: dict[str, BridgedModel] = {}
        self._scripted: dict[tuple[str, float], ScriptedModel] = {}
        self._gates: dict[tuple[str, str], Gate] = {}

    @property
    def prefixes(self) -> list[str]:
        """The prefixes there are, sorted."""
        names = set(self._profiles)
        return sorted(names | set(DEVELOPMENT) if self._settings.development_models else names)

    def resolve(
        self, name: str, *, from_caller: bool = False, terms: CallTerms | None = None
    ) -> BatchedModel:
        """Return the model of that name, with its repeats.

        Args:
            name: `prefix:model`.
            from_caller: whether the name comes from a request: such names never reach files of this machine.
            terms: what an agent says of its calls, in place of the settings.

        Raises:
            InvalidRequest: MODEL_UNKNOWN, no such prefix, or the rest of the name is no model.
            WrongState: MODEL_NOT_CONFIGURED, the key is missing.
        """
        return self._told(self._repeated(name, terms or CallTerms(), from_caller=from_caller))

    def resolve_all(
        self, names: Sequence[str], *, from_caller: bool = False, terms: CallTerms | None = None
    ) -> BatchedModel:
        """Return the first model with the others as its fallbacks. Raises as `resolve`."""
        terms = terms or CallTerms()
        last = len(names) - 1
        models = [
            self._repeated(name, terms, from_caller=from_caller, has_next=index < last)
            for index, name in enumerate(names)
        ]
        if len(models) == 1:
            return self._told(models[0])
        return self._told(FallbackModel(models, visible=retries_of(self._settings.retries, terms).visible))

    def _told(self, model: BatchedModel) -> BatchedModel:
        """The model itself, or with what may be written of its calls."""
        policy = self._settings.capture
        return model if policy == "off" else CapturedModel(model, policy)

    def _repeated(
        self, name: str, terms: CallTerms, *, from_caller: bool, has_next: bool = False
    ) -> BatchedModel:
        limits = limits_of(self._settings.limits, terms)
        model = self._bare(name, limits, from_caller=from_caller)
        breaker = model.gate.breaker if isinstance(model, GuardedModel) else None
        return RetryModel(model, retries_of(self._settings.retries, terms), breaker, has_next=has_next)

    def gate_of(self, name: str) -> Gate | None:
        """Return the gate that calls of a model go through, None for models without a provider."""
        model = self._bare(name, self._settings.limits, from_caller=False)
        return model.gate if isinstance(model, GuardedModel) else None

    async def warm_up(self) -> None:
        """Do now what the first call would wait for."""
        await self._connector.warm_up()

    async def close(self) -> None:
        """Close all connections."""
        sdks, self._sdks = list(self._sdks.values()), {}
        bridged, self._bridged = list(self._bridged.values()), {}
        for sdk in sdks:
            await sdk.close()
        for model in bridged:
            await model.close()
        await self._connector.close()

    def _bare(self, name: str, limits: LimitSettings, *, from_caller: bool) -> BatchedModel:
        prefix, colon, rest = name.partition(":")
        if prefix in DEVELOPMENT and self._settings.development_models and prefix not in self._profiles:
            if from_caller and prefix != "demo":
                raise self._unknown(name, f"{prefix}: models are for agents' files, not for requests")
            return self._development(prefix, rest, name, limits)
        if not colon or prefix not in self._profiles:
            raise self._unknown(name, "no provider has that prefix")
        if from_caller and self._profiles[prefix].format == "pydantic-ai":
            # Each of these makes clients of its own, of whatever is installed.
            raise self._unknown(name, f"{prefix}: models are for agents' files, not for requests")
        return self._provided(prefix, rest, name, limits)

    def _development(self, prefix: str, rest: str, name: str, limits: LimitSettings) -> BatchedModel:
        if prefix == "demo":
            return DemoModel(name)
        try:
            if prefix == "scripted":
                return self._script(rest, name)
            if prefix == "replay":
                return ReplayModel(read_recordings(Path(rest).read_bytes()), name)
        except OSError as error:
            raise self._unknown(name, f"the file cannot be read: {error.strerror}") from error
        except (ValueError, IndexError) as error:
            raise self._unknown(name, str(error) or "the file is empty") from error
        return self._recorded(rest, name, limits)

    def _script(self, source: str, name: str) -> ScriptedModel:
        # One model per script, as its attempts are counted; a changed file is a new script.
        inline = source.lstrip()[:1] in ("{", "[")
        key = (source, 0.0 if inline or not Path(source).is_file() else Path(source).stat().st_mtime)
        if key not in self._scripted:
            self._scripted[key] = ScriptedModel(read_script(source), name)
        return self._scripted[key]

    def _recorded(self, rest: str, name: str, limits: LimitSettings) -> BatchedModel:
        file, colon, inner = rest.partition(":")
        if not colon or not file:
            raise self._unknown(name, "record: is followed by a file, a colon and the name of a model")
        tap = partial(FileTap, Path(file))
        prefix, _, model = inner.partition(":")
        if prefix in self._profiles:
            return self._provided(prefix, model, inner, limits, tap)
        return RecordedModel(self._bare(inner, limits, from_caller=False), tap)

    def _provided(
        self,
        prefix: str,
        model: str,
        name: str,
        limits: LimitSettings,
        tap: partial[FileTap] | None = None,
    ) -> BatchedModel:
        profile = self._profiles[prefix]
        if not model:
            raise self._unknown(name, "the name of the model is missing after the colon")
        if profile.format == "pydantic-ai":
            found: BatchedModel = self._bridge(prefix, model, name, profile, limits)
            found = RecordedModel(found, tap) if tap is not None else found
            return GuardedModel(found, self._gate(f"{prefix}:{model.partition(':')[0]}", profile))
        transport = self._transport(prefix, name, profile)
        found = HttpModel(prefix, model, profile, transport, limits, tap=tap)
        return GuardedModel(found, self._gate(profile.base_url or prefix, profile))

    def _gate(self, where: str, profile: ProviderProfile) -> Gate:
        """Return the gate that all calls to this address with this key go through."""
        key = profile.api_key.get_secret_value() if profile.api_key is not None else ""
        if (where, key) not in self._gates:
            own, general = profile.max_concurrent_calls, self._settings.max_concurrent_calls
            breaker = Breaker(where, self._settings.breaker)
            self._gates[where, key] = Gate(breaker, Slots(general if own is None else own))
        return self._gates[where, key]

    def _bridge(
        self, prefix: str, model: str, name: str, profile: ProviderProfile, limits: LimitSettings
    ) -> BridgedModel:
        if not bridge_installed():
            raise _not_installed(name, "pydantic-ai")
        if ":" not in model and model != "test":
            raise self._unknown(name, f"{prefix}: is followed by provider:model")
        # One object a name and limits, as each makes a client of its own below.
        key = f"{name} {limits.model_dump_json()}"
        if key not in self._bridged:
            self._bridged[key] = BridgedModel(prefix, model, profile, limits)
        return self._bridged[key]

    def _transport(self, prefix: str, name: str, profile: ProviderProfile) -> Transport:
        if profile.transport != "http":
            return self._sdk(prefix, name, profile)
        if not profile.base_url:
            raise WrongState(
                f"the provider {prefix} has no address: set base_url of its profile",
                reason="MODEL_NOT_CONFIGURED",
                model=name,
                variable="base_url",
            )
        if profile.needs_key and profile.api_key is None:
            variable = profile.key_variable or f"the api_key of the provider {prefix}"
            raise WrongState(
                f"{prefix} models need a key: set {variable}",
                reason="MODEL_NOT_CONFIGURED",
                model=name,
                variable=variable,
            )
        return HttpTransport(self._connector, profile.base_url, self._route(profile))

    def _sdk(self, prefix: str, name: str, profile: ProviderProfile) -> SdkTransport:
        if profile.client in EVENT_STREAM_CLIENTS:
            raise WrongState(
                f"{profile.client} answers in a framing of AWS: take AsyncAnthropicBedrockMantle, or "
                "pydantic-ai:bedrock:MODEL",
                reason="MODEL_NOT_CONFIGURED",
                model=name,
                variable="client",
            )
        if not sdk_installed(profile.transport):
            raise _not_installed(name, profile.transport)
        if prefix not in self._sdks:
            route, supervisor = self._route(profile), self._connector.supervisor
            self._sdks[prefix] = SdkTransport(profile, route, supervisor)
        return self._sdks[prefix]

    def _route(self, profile: ProviderProfile) -> Route:
        tls = profile.tls or self._settings.tls
        if profile.proxy is not None:
            return Route(profile.proxy.get_secret_value(), tls)
        # What stays on this machine never goes through a proxy that is there for all.
        if is_loopback(urlsplit(profile.base_url).hostname or ""):
            return Route(DIRECT, tls)
        return Route(self._settings.proxy.get_secret_value(), tls)

    def _unknown(self, name: str, why: str) -> InvalidRequest:
        shown = name if len(name) <= 200 else name[:200] + "…"
        there = ", ".join(f"{prefix}:" for prefix in self.prefixes)
        return InvalidRequest(
            f"there is no model {shown!r}: {why}; there are {there}", reason="MODEL_UNKNOWN", model=shown
        )


def _profiles(settings: ModelSettings) -> dict[str, ProviderProfile]:
    openai_key = _key(settings.openai_api_key)
    openai_host = urlsplit(settings.openai_base_url).hostname or ""
    ours = openai_host == _OPENAI_HOST
    found = {
        "openai": ProviderProfile(
            base_url=settings.openai_base_url,
            api_key=openai_key,
            needs_key=ours,
            key_variable="OPENAI_API_KEY",
            # Other servers that speak the format mostly know the older name only.
            max_tokens_field="max_completion_tokens" if ours else "max_tokens",
            cache_key=ours,
        ),
        "openai-responses": ProviderProfile(
            format="openai-responses",
            base_url=settings.openai_base_url,
            cache_key=ours,
            api_key=openai_key,
            needs_key=ours,
            key_variable="OPENAI_API_KEY",
        ),
        "anthropic": ProviderProfile(
            format="anthropic",
            base_url=settings.anthropic_base_url,
            api_key=_key(settings.anthropic_api_key),
            needs_key=not is_loopback(urlsplit(settings.anthropic_base_url).hostname or ""),
            key_variable="ANTHROPIC_API_KEY",
        ),
    }
    found["gemini"] = ProviderProfile(
        format="gemini",
        base_url=settings.gemini_base_url,
        api_key=_key(settings.gemini_api_key),
        needs_key=not is_loopback(urlsplit(settings.gemini_base_url).hostname or ""),
        key_variable="GEMINI_API_KEY",
    )
    found["pydantic-ai"] = ProviderProfile(format="pydantic-ai")
    return found | dict(settings.providers)


def _not_installed(name: str, extra: str) -> WrongState:
    return WrongState(
        f"{name} needs a package that is not installed: pip install 'turnwire[{extra}]'",
        reason="MODEL_NOT_CONFIGURED",
        model=name,
        variable=f"turnwire[{extra}]",
    )


def _key(key: SecretStr | None) -> SecretStr | None:
    return key if key is not None and key.get_secret_value().strip() else None
