"""Who calls, and may they: a principal per call, one table from method to roles, no anonymous reach beyond
loopback.

Order of checks: credentials, role of the method, scope. The scope of a caller comes from its credentials;
what belongs to another scope is NOT_FOUND to it, which the stores see to.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, Self, get_args

import grpc
from pydantic import BaseModel, ConfigDict, Field, SecretStr, TypeAdapter, ValidationError, model_validator

from turnwire.core.errors import Forbidden, InvalidRequest, TurnwireError, Unauthenticated, WrongState
from turnwire.core.settings import ListenSettings
from turnwire.wire.handlers import raising_handler

__all__ = [
    "DEFAULT_SCOPE",
    "LOCAL_PRINCIPAL",
    "OPEN_METHODS",
    "ROLES",
    "SCOPE_KEY",
    "AuthInterceptor",
    "Authenticator",
    "Credentials",
    "Principal",
    "Role",
    "StaticTokens",
    "check_exposure",
    "current_principal",
    "load_tokens",
]

Role = Literal["caller", "approver", "operator", "executor", "runtime", "control"]
ROLES: frozenset[str] = frozenset(get_args(Role))
DEFAULT_SCOPE = "default-org"
SCOPE_KEY = "turnwire-scope"

# Probes carry no credentials, and what reflection tells is public.
OPEN_METHODS = frozenset(
    {
        "/grpc.health.v1.Health/Check",
        "/grpc.health.v1.Health/Watch",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    }
)
# Processes act for every scope and name it in each message; only people and their programs have one.
_PROCESS_ROLES = frozenset({"executor", "runtime", "control"})


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller: its scope is empty for processes, whose messages name the scope themselves."""

    subject: str
    scope: str
    roles: frozenset[str]

    def has(self, role: Role) -> bool:
        """Tell whether the caller has the role."""
        return role in self.roles


LOCAL_PRINCIPAL = Principal("local", DEFAULT_SCOPE, ROLES)
_principal: ContextVar[Principal] = ContextVar("turnwire_principal")


def current_principal() -> Principal:
    """Return the caller of the RPC that this task serves.

    Raises:
        LookupError: outside of an RPC, or in one of the open methods (health, reflection).
    """
    return _principal.get()


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a caller has proved to be, before the call has chosen one of its scopes."""

    subject: str
    scopes: tuple[str, ...]
    roles: frozenset[Role]

    def principal(self, wanted: str | bytes | None) -> Principal:
        """Return the caller within one scope: the wanted one, or the only one there is.

        Raises:
            InvalidRequest: several scopes and none chosen (SCOPE_REQUIRED).
            Forbidden: the chosen scope is not one of the caller's (SCOPE_FORBIDDEN).
        """
        return Principal(self.subject, self._choose(wanted), self.roles)

    def _choose(self, wanted: str | bytes | None) -> str:
        if wanted is not None:
            if wanted not in self.scopes:
                raise Forbidden("the credentials do not hold that scope", reason="SCOPE_FORBIDDEN")
            return str(wanted)
        if len(self.scopes) == 1:
            return self.scopes[0]
        if self.roles & _PROCESS_ROLES:
            return ""
        raise InvalidRequest(
            f"the credentials hold several scopes: name one in the metadata {SCOPE_KEY}",
            reason="SCOPE_REQUIRED",
        )


class Authenticator(Protocol):
    """Turns the metadata of a call into the credentials of its caller."""

    def authenticate(self, metadata: Mapping[str, str | bytes]) -> Credentials:
        """Return who calls. Raises: Unauthenticated, for no or unknown credentials."""
        ...


class _TokenEntry(BaseModel):
    """One caller of a tokens file; exactly one of `token` and `token_sha256`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    token: SecretStr | None = Field(default=None, min_length=16)
    token_sha256: str | None = Field(default=None, pattern="^[0-9a-f]{64}$")
    subject: str = Field(min_length=1, max_length=128)
    scopes: tuple[Annotated[str, Field(pattern="^[a-z0-9-]{4,63}$")], ...] = ()
    roles: frozenset[Role] = Field(min_length=1)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.token is None) == (self.token_sha256 is None):
            raise ValueError("set exactly one of token and token_sha256")
        if not self.scopes and not self.roles <= _PROCESS_ROLES:
            raise ValueError("scopes may be empty only for the roles executor, runtime and control")
        return self

    def digest(self) -> str:
        return self.token_sha256 or _digest(self.token.get_secret_value() if self.token else "")


class StaticTokens:
    """Bearer tokens from a file, kept as digests."""

    def __init__(self, entries: Iterable[_TokenEntry]) -> None:
        self._entries = {entry.digest(): entry for entry in entries}

    def authenticate(self, metadata: Mapping[str, str | bytes]) -> Credentials:
        """Return the caller whose token the call carries; see `Authenticator`."""
        value = metadata.get("authorization")
        if not isinstance(value, str) or not value:
            raise Unauthenticated("send the metadata authorization: Bearer <token>")
        kind, _, token = value.partition(" ")
        # Looked up by digest: what an attacker can time says nothing about the token.
        entry = self._entries.get(_digest(token.strip())) if kind.lower() == "bearer" else None
        if entry is None:
            raise Unauthenticated("the token is not known here", reason="CREDENTIALS_INVALID")
        return Credentials(entry.subject, entry.scopes, entry.roles)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def load_tokens(path: Path) -> StaticTokens:
    """Read a tokens file, JSON or YAML by its suffix.

    Raises:
        WrongState: it cannot be read or is not a list of callers (TOKENS_UNREADABLE); tokens are not shown.
    """
    try:
        text = path.read_text(encoding="utf-8")
        entries = TypeAdapter(list[_TokenEntry]).validate_python(_parse(path, text), strict=False)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors(include_input=False)
        )
        raise WrongState(f"tokens file {path}: {problems}", reason="TOKENS_UNREADABLE") from None
    except (OSError, ValueError) as error:
        raise WrongState(
            f"tokens file {path} cannot be read: {type(error).__name__}", reason="TOKENS_UNREADABLE"
        ) from None
    return StaticTokens(entries)


def _parse(path: Path, text: str) -> Any:
    if path.suffix == ".json":
        return json.loads(text)
    import yaml  # costs 10 ms: only servers with a YAML tokens file pay

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        raise ValueError("not YAML") from None  # its own text quotes the file


def check_exposure(listen: ListenSettings) -> None:
    """Refuse to serve strangers by accident.

    Raises:
        WrongState: the address is not loopback, and TLS or tokens are missing (INSECURE_LISTEN).
    """
    missing = [
        name
        for name, given in (
            ("listen.tls_cert and listen.tls_key", listen.tls),
            ("listen.tokens_file", listen.tokens_file is not None),
        )
        if not given
    ]
    if missing and not listen.loopback and not listen.insecure:
        raise WrongState(
            f"refusing to listen on {listen.host}: others can reach it, and {' and '.join(missing)} "
            "are not set. Listening beyond loopback needs TLS (listen.tls_cert, listen.tls_key) and tokens "
            "(listen.tokens_file); start with --insecure to do without.",
            reason="INSECURE_LISTEN",
            host=listen.host,
        )


class AuthInterceptor(grpc.aio.ServerInterceptor):
    """Finds the principal of each call and holds the method's roles against it, before the request is read.

    The principal lives in a context variable: gRPC runs every call, interceptors included, in a task of its
    own, so that nothing has to be reset.

    Args:
        authenticator: None serves everybody as `LOCAL_PRINCIPAL`.
        roles: full method such as `/turnwire.api.runtime.v1.TurnService/RunTurn` to the roles of which the
            caller needs one; with an authenticator, a method that is neither here nor open is denied.
    """

    def __init__(self, authenticator: Authenticator | None, roles: Mapping[str, frozenset[str]]) -> None:
        self._authenticator = authenticator
        self._roles = dict(roles)

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        """Return the handler, or one of the same shape that raises what is wrong with the caller."""
        handler = await continuation(handler_call_details)
        if self._authenticator is None:
            _principal.set(LOCAL_PRINCIPAL)
            return handler
        method = handler_call_details.method
        if handler is None or method in OPEN_METHODS:
            return handler
        try:
            metadata = dict(handler_call_details.invocation_metadata)
            credentials = self._authenticator.authenticate(metadata)
            self._check_role(method, credentials.roles)
            principal = credentials.principal(metadata.get(SCOPE_KEY))
        except TurnwireError as error:
            return raising_handler(handler, error)
        _principal.set(principal)
        return handler

    def _check_role(self, method: str, roles: frozenset[str]) -> None:
        allowed = self._roles.get(method, frozenset())
        if not allowed & roles:
            needed = " or ".join(sorted(allowed)) or "that nobody holds"
            raise Forbidden(f"{method} needs the role {needed}", method=method)
