"""How a provider is reached: proxies and TLS, for all providers or for one."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from support.model_replay import Answer, ReplayServer, replay_server
from support.model_streams import Said, said
from turnwire.extend.llm import FailureKind, ModelRequest, StreamFailure, TextPart, UserMessage
from turnwire.runtime.models.registry import ModelRegistry
from turnwire.runtime.models.settings import ModelSettings, ProviderProfile, RetrySettings, TlsSettings

REQUEST = ModelRequest("m", (UserMessage((TextPart("Hi"),)),))
HELLO = b'data: {"choices":[{"delta":{"content":"Hello"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
FAR = "http://models.invalid/v1"


async def ask(settings: dict[str, Any], **profile: Any) -> Said:
    provider = ProviderProfile(**profile)
    registry = ModelRegistry(
        ModelSettings(providers={"far": provider}, retries=RetrySettings(attempts=1), **settings)
    )
    try:
        async with asyncio.timeout(20):
            return said([event async for event in registry.resolve("far:m").stream(REQUEST)])
    finally:
        await registry.close()


def failed(got: Said) -> FailureKind:
    assert isinstance(got.end, StreamFailure)
    return got.end.kind


@pytest.fixture(autouse=True)
def no_proxies_here(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


# --- proxies ---


async def test_a_proxy_for_all_providers_gets_the_whole_address() -> None:
    async with replay_server(Answer(HELLO)) as proxy:
        got = await ask({"proxy": SecretStr(proxy.url)}, base_url=FAR)
    assert got.text == "Hello"
    assert proxy.seen[0].path == f"{FAR}/chat/completions"


async def test_a_proxy_of_a_profile_wins_and_holds_for_this_machine_too() -> None:
    async with replay_server(Answer(HELLO)) as ours, replay_server(Answer(HELLO)) as theirs:
        both = {"proxy": SecretStr(theirs.url)}
        assert (await ask(both, base_url=FAR, proxy=SecretStr(ours.url))).text == "Hello"
        assert (await ask(both, base_url="http://127.0.0.1:9", proxy=SecretStr(ours.url))).text == "Hello"
        assert not theirs.seen
    assert [seen.path for seen in ours.seen] == [
        f"{FAR}/chat/completions",
        "http://127.0.0.1:9/chat/completions",
    ]


async def test_the_environment_is_followed_unless_a_setting_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with replay_server(Answer(HELLO)) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        assert (await ask({}, base_url=FAR)).text == "Hello"
        assert failed(await ask({"proxy": SecretStr("none")}, base_url=FAR)) is FailureKind.CONNECTION
        assert failed(await ask({}, base_url=FAR, proxy=SecretStr("none"))) is FailureKind.CONNECTION
    assert len(proxy.seen) == 1


async def test_what_stays_on_this_machine_goes_through_no_common_proxy() -> None:
    async with replay_server(Answer(HELLO)) as server:
        assert (await ask({"proxy": SecretStr("http://127.0.0.1:9")}, base_url=server.url)).text == "Hello"


@pytest.mark.parametrize("address", ["socks5://x:1", "proxy:3128"])
def test_an_address_that_is_no_proxy_is_refused(address: str) -> None:
    for settings in (ProviderProfile, ModelSettings):
        with pytest.raises(ValidationError):
            settings(proxy=SecretStr(address))


def test_a_proxys_password_does_not_show() -> None:
    settings = ModelSettings(
        proxy=SecretStr("http://u:hunter2@p:1"),
        providers={"a": ProviderProfile(proxy=SecretStr("http://u:hunter2@p:1"))},
    )
    assert "hunter2" not in repr(settings) + settings.model_dump_json()


# --- TLS ---


def certificate(folder: Path, name: str) -> tuple[str, str]:
    key, cert = folder / f"{name}.key", folder / f"{name}.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj"]
    command += ["/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run([*command, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    return str(cert), str(key)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, str]]:
    folder = tmp_path_factory.mktemp("tls")
    return {name: certificate(folder, name) for name in ("server", "client")}


@asynccontextmanager
async def https_server(
    certificates: dict[str, tuple[str, str]], *, ask_back: bool = False
) -> AsyncIterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificates["server"])
    if ask_back:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(certificates["client"][0])
    replay = ReplayServer([Answer(HELLO)])
    server = await asyncio.start_server(replay.handle, "127.0.0.1", 0, ssl=context)
    try:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await replay.close()


async def test_an_authority_is_trusted_only_where_it_is_named(certificates: Any) -> None:
    ca = certificates["server"][0]
    async with https_server(certificates) as url:
        assert failed(await ask({}, base_url=url)) is FailureKind.CONNECTION
        assert (await ask({"tls_ca": ca}, base_url=url)).text == "Hello"
        assert (await ask({}, base_url=url, tls=TlsSettings(ca=ca))).text == "Hello"
        # The profile says all of it: nothing is mixed in from what holds for all.
        assert failed(await ask({"tls_ca": ca}, base_url=url, tls=TlsSettings())) is FailureKind.CONNECTION


async def test_a_certificate_is_shown_where_the_server_asks_for_one(certificates: Any) -> None:
    ca = certificates["server"][0]
    cert, key = certificates["client"]
    async with https_server(certificates, ask_back=True) as url:
        assert failed(await ask({"tls_ca": ca}, base_url=url)) is FailureKind.CONNECTION
        shown = TlsSettings(ca=ca, cert=cert, key=key)
        assert (await ask({}, base_url=url, tls=shown)).text == "Hello"
        assert (await ask({"tls_ca": ca, "tls_cert": cert, "tls_key": key}, base_url=url)).text == "Hello"


async def test_any_certificate_is_taken_only_where_verification_is_off_by_name(certificates: Any) -> None:
    async with https_server(certificates) as url:
        assert failed(await ask({}, base_url=url)) is FailureKind.CONNECTION
        assert (await ask({}, base_url=url, tls=TlsSettings(verify=False))).text == "Hello"
        assert (await ask({"tls_verify": False}, base_url=url)).text == "Hello"


async def test_a_file_that_cannot_be_read_is_a_typed_failure() -> None:
    async with replay_server(Answer(HELLO)) as server:
        got = await ask({}, base_url=server.url, tls=TlsSettings(ca="/nowhere.pem"))
        assert failed(got) is FailureKind.CONNECTION
        assert not server.seen
