"""Who may call what: static tokens, the table of roles, scopes, and the loopback rule."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import grpc
import pytest

from support.wire_echo import Echo, Rig, running, text
from turnwire.core.errors import WrongState
from turnwire.core.settings import ListenSettings
from turnwire.wire.auth import (
    DEFAULT_SCOPE,
    ROLES,
    SCOPE_KEY,
    check_exposure,
    current_principal,
    load_tokens,
)
from turnwire.wire.rpc_errors import error_from_rpc

CALLER, OPERATOR, RUNTIME = "caller-token-0123", "operator-token-01", "runtime-token-012"
ENTRIES: list[dict[str, Any]] = [
    {"token": CALLER, "subject": "alice", "scopes": ["acme"], "roles": ["caller"]},
    {
        "token_sha256": hashlib.sha256(OPERATOR.encode()).hexdigest(),
        "subject": "root",
        "scopes": ["acme", "globex"],
        "roles": ["operator", "caller"],
    },
    {"token": RUNTIME, "subject": "runtime-1", "roles": ["runtime"]},
]
ROLES_TABLE = {
    "/test.Echo/Unary": frozenset({"caller"}),
    "/test.Echo/Stream": frozenset({"operator"}),
    "/test.Echo/Connect": frozenset({"runtime", "control"}),
}


@pytest.fixture
def tokens_file(tmp_path: Path) -> Path:
    path = tmp_path / "tokens.json"
    path.write_text(json.dumps(ENTRIES))
    return path


@pytest.fixture
def listen(tokens_file: Path) -> ListenSettings:
    return ListenSettings(tokens_file=tokens_file)


async def _who(request: Any, context: Any) -> Any:
    principal = current_principal()
    return text(f"{principal.subject}@{principal.scope}")


async def _refusal(rig: Rig, method: str, metadata: tuple[tuple[str, str], ...]) -> tuple[str, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        if method == "Unary":
            await rig.stub.unary(text("x"), metadata=metadata)
        elif method == "Collect":
            await rig.stub.collect(iter([text("x")]), metadata=metadata)
        else:
            call = rig.stub.stream if method == "Stream" else rig.stub.connect
            request = text("x") if method == "Stream" else iter([text("x")])
            await call(request, metadata=metadata).read()
    return caught.value.code().name, error_from_rpc(caught.value).reason


def bearer(token: str, scope: str | None = None) -> tuple[tuple[str, str], ...]:
    pairs = (("authorization", f"Bearer {token}"),)
    return pairs if scope is None else (*pairs, (SCOPE_KEY, scope))


async def test_without_credentials_loopback_callers_are_the_default_scope_with_every_role() -> None:
    async def who(request: Any, context: Any) -> Any:
        assert current_principal().roles == ROLES
        return await _who(request, context)

    async with running(Echo(unary=who)) as rig:
        assert (await rig.stub.unary(text("x"))).value == f"local@{DEFAULT_SCOPE}"


async def test_a_known_token_gives_subject_scope_and_roles_to_the_handler(listen: ListenSettings) -> None:
    async with running(Echo(unary=_who), listen=listen, roles=ROLES_TABLE, token=CALLER) as rig:
        assert (await rig.stub.unary(text("x"))).value == "alice@acme"


@pytest.mark.parametrize(
    ("method", "metadata", "expected"),
    [
        ("Unary", (), ("UNAUTHENTICATED", "CREDENTIALS_MISSING")),
        ("Stream", (), ("UNAUTHENTICATED", "CREDENTIALS_MISSING")),
        ("Unary", bearer("wrong-token-01234"), ("UNAUTHENTICATED", "CREDENTIALS_INVALID")),
        ("Unary", (("authorization", f"Basic {CALLER}"),), ("UNAUTHENTICATED", "CREDENTIALS_INVALID")),
        ("Stream", bearer(CALLER), ("PERMISSION_DENIED", "ROLE_MISSING")),
        ("Connect", bearer(CALLER), ("PERMISSION_DENIED", "ROLE_MISSING")),
        ("Collect", bearer(OPERATOR, "acme"), ("PERMISSION_DENIED", "ROLE_MISSING")),
        ("Connect", bearer(OPERATOR), ("PERMISSION_DENIED", "ROLE_MISSING")),
        ("Unary", bearer(OPERATOR), ("INVALID_ARGUMENT", "SCOPE_REQUIRED")),
        ("Unary", bearer(OPERATOR, "other"), ("PERMISSION_DENIED", "SCOPE_FORBIDDEN")),
        ("Unary", bearer(CALLER, "globex"), ("PERMISSION_DENIED", "SCOPE_FORBIDDEN")),
    ],
)
async def test_every_refusal_has_its_code_and_reason(
    listen: ListenSettings, method: str, metadata: tuple[tuple[str, str], ...], expected: tuple[str, str]
) -> None:
    async with running(listen=listen, roles=ROLES_TABLE) as rig:
        assert await _refusal(rig, method, metadata) == expected


async def test_callers_of_several_scopes_choose_one_and_processes_need_none(listen: ListenSettings) -> None:
    table = {"/test.Echo/Unary": frozenset({"caller", "runtime"})}
    async with running(Echo(unary=_who), listen=listen, roles=table) as rig:
        assert (await rig.stub.unary(text("x"), metadata=bearer(OPERATOR, "globex"))).value == "root@globex"
        assert (await rig.stub.unary(text("x"), metadata=bearer(RUNTIME))).value == "runtime-1@"


async def test_two_callers_at_once_never_see_each_others_principal(listen: ListenSettings) -> None:
    async with running(Echo(unary=_who), listen=listen, roles=ROLES_TABLE) as rig:
        calls = [
            rig.stub.unary(text("x"), metadata=bearer(OPERATOR, "globex") if n % 2 else bearer(CALLER))
            for n in range(40)
        ]
        answers = [(await call).value for call in calls]
    assert answers == ["root@globex" if n % 2 else "alice@acme" for n in range(40)]


async def test_a_table_with_a_method_that_nobody_serves_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="Typo"):
        async with running(roles={"/test.Echo/Typo": frozenset({"caller"})}):
            pass


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "runtime.example"])
def test_listening_beyond_loopback_without_tls_and_tokens_is_refused(host: str, tokens_file: Path) -> None:
    with pytest.raises(WrongState) as caught:
        check_exposure(ListenSettings(host=host))
    assert caught.value.reason == "INSECURE_LISTEN"
    for word in ("listen.tls_cert", "listen.tls_key", "listen.tokens_file", "--insecure", host):
        assert word in caught.value.message
    with pytest.raises(WrongState):
        check_exposure(ListenSettings(host=host, tokens_file=tokens_file))
    with pytest.raises(WrongState):
        check_exposure(ListenSettings(host=host, tls_cert=Path("c"), tls_key=Path("k")))
    check_exposure(ListenSettings(host=host, insecure=True))
    check_exposure(ListenSettings(host=host, tls_cert=Path("c"), tls_key=Path("k"), tokens_file=tokens_file))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "[::1]", "localhost"])
def test_loopback_needs_nothing(host: str) -> None:
    check_exposure(ListenSettings(host=host))


def test_tokens_may_be_yaml(tmp_path: Path) -> None:
    path = tmp_path / "tokens.yaml"
    path.write_text(f"- token: {CALLER}\n  subject: alice\n  scopes: [acme]\n  roles: [caller, approver]\n")
    principal = load_tokens(path).authenticate({"authorization": f"bearer {CALLER}"}).principal(None)
    assert (principal.subject, principal.scope) == ("alice", "acme")
    assert principal.has("approver")
    assert not principal.has("operator")


@pytest.mark.parametrize(
    "content",
    [
        "[",
        "{}",
        '[{"token": "short-secret", "subject": "a", "scopes": ["acme"], "roles": ["caller"]}]',
        '[{"token": "long-enough-secret", "subject": "a", "scopes": ["acme"], "roles": ["king"]}]',
        '[{"token": "long-enough-secret", "subject": "a", "scopes": [], "roles": ["caller"]}]',
        '[{"subject": "a-secret", "scopes": ["acme"], "roles": ["caller"]}]',
    ],
)
def test_a_wrong_tokens_file_is_named_without_showing_its_secrets(tmp_path: Path, content: str) -> None:
    path = tmp_path / "tokens.json"
    path.write_text(content)
    with pytest.raises(WrongState) as caught:
        load_tokens(path)
    assert caught.value.reason == "TOKENS_UNREADABLE"
    assert str(path) in caught.value.message
    assert "secret" not in caught.value.message


def test_no_token_is_shown_by_what_is_kept(tokens_file: Path) -> None:
    assert CALLER not in repr(vars(load_tokens(tokens_file)))
