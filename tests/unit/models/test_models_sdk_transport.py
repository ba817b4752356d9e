"""The vendors' SDKs as senders: their addresses and credentials, our bodies, their bytes in our reader."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from support.model_replay import Answer, ReplayServer, replay_server
from support.model_streams import Said, Stream, own_streams, read, said
from turnwire.core.errors import WrongState
from turnwire.extend.llm import (
    FailureKind,
    Finish,
    ModelRequest,
    StreamFailure,
    TextDelta,
    TextPart,
    UserMessage,
)
from turnwire.runtime.models.base import BatchedModel
from turnwire.runtime.models.registry import ModelRegistry
from turnwire.runtime.models.settings import LimitSettings, ModelSettings, ProviderProfile, RetrySettings

pytest.importorskip("openai")
pytest.importorskip("anthropic")

ROOT = Path(__file__).resolve().parents[3]
REQUEST = ModelRequest("ignored", (UserMessage((TextPart("Hi"),)),))
HELLO = (
    b'data: {"choices":[{"delta":{"content":"Hel"}}]}\n\n'
    b'data: {"choices":[{"delta":{"content":"lo"},"finish_reason":"stop"}]}\n\n'
    b"data: [DONE]\n\n"
)
MESSAGE = next(stream.body for stream in own_streams() if stream.name == "anthropic-text.sse")
SDKS = {"openai-chat": "openai", "openai-responses": "openai", "anthropic": "anthropic"}
KEY = SecretStr("key-secret-1")


async def token() -> str:
    """What a profile names as its giver of tokens."""
    return "token-of-the-day"


@asynccontextmanager
async def model_at(
    server: ReplayServer, limits: LimitSettings | None = None, **profile: Any
) -> AsyncIterator[BatchedModel]:
    profile = {"transport": "openai", "base_url": server.url, **profile}
    options = {name: SecretStr(value) for name, value in profile.pop("options", {}).items()}
    settings = ModelSettings(
        providers={"cloud": ProviderProfile(client_options=options, **profile)},
        limits=limits or LimitSettings(),
        retries=RetrySettings(attempts=1),
    )
    registry = ModelRegistry(settings)
    try:
        yield registry.resolve("cloud:m")
    finally:
        await registry.close()


async def everything(model: BatchedModel) -> Said:
    async with asyncio.timeout(20):
        return said([event async for event in model.stream(REQUEST)])


@pytest.mark.parametrize(
    "stream", [s for s in own_streams() if s.format in SDKS], ids=lambda stream: stream.name
)
async def test_a_stream_through_the_sdk_is_the_stream(stream: Stream) -> None:
    wanted = said(read(stream.normaliser(), [stream.body]))
    async with (
        replay_server(Answer(stream.body, piece=7)) as server,
        model_at(server, format=stream.format, transport=SDKS[stream.format], api_key=KEY) as model,
    ):
        got = await everything(model)
    assert (got.text, got.reasoning, got.calls, got.usage) == (
        wanted.text,
        wanted.reasoning,
        wanted.calls,
        wanted.usage,
    )
    assert type(got.end) is type(wanted.end)


async def test_the_sdk_sends_our_body_with_its_key_and_the_headers_of_the_profile() -> None:
    async with (
        replay_server(Answer(HELLO)) as server,
        model_at(server, api_key=KEY, headers={"X-Team": SecretStr("a")}) as model,
    ):
        assert (await everything(model)).text == "Hello"
        (seen,) = server.seen
    assert seen.path == "/chat/completions"
    assert (seen.headers["authorization"], seen.headers["x-team"]) == ("Bearer key-secret-1", "a")
    assert seen.json()["messages"] == [{"role": "user", "content": "Hi"}]


async def test_azure_gets_a_token_for_each_call_and_the_deployment_in_its_address() -> None:
    async with (
        replay_server(Answer(HELLO)) as server,
        model_at(
            server,
            client="AsyncAzureOpenAI",
            base_url="",
            options={"azure_endpoint": server.url, "api_version": "2024-10-21"},
            token_provider=f"{__name__}:token",
        ) as model,
    ):
        assert (await everything(model)).text == "Hello"
        (seen,) = server.seen
    assert seen.path == "/openai/deployments/m/chat/completions?api-version=2024-10-21"
    assert seen.headers["authorization"] == "Bearer token-of-the-day"


@pytest.mark.parametrize(
    ("profile", "path", "header"),
    [
        (
            {
                "client": "AsyncAnthropicVertex",
                "options": {"region": "us-east5", "project_id": "p", "access_token": "t"},
            },
            "/projects/p/locations/us-east5/publishers/anthropic/models/m:streamRawPredict",
            ("authorization", "Bearer t"),
        ),
        (
            {"client": "AsyncAnthropicBedrockMantle", "api_key": KEY, "options": {"aws_region": "us-east-1"}},
            "/v1/messages",
            ("authorization", "Bearer key-secret-1"),
        ),
        (
            {"client": "AsyncAnthropicFoundry", "token_provider": f"{__name__}:token"},
            "/v1/messages",
            ("authorization", "Bearer token-of-the-day"),
        ),
    ],
    ids=["vertex", "bedrock-mantle", "foundry"],
)
async def test_anthropic_on_each_cloud_has_its_own_address_and_credentials(
    profile: dict[str, Any], path: str, header: tuple[str, str]
) -> None:
    async with (
        replay_server(Answer(MESSAGE)) as server,
        model_at(server, format="anthropic", transport="anthropic", **profile) as model,
    ):
        got = await everything(model)
        assert got.text == "Hello wörld", got.end
        (seen,) = server.seen
    assert seen.path.partition("?")[0] == path
    assert seen.headers[header[0]] == header[1]


async def test_an_error_is_typed_told_without_the_key_and_asked_for_once() -> None:
    answer = Answer(
        b'{"error":{"message":"Slow down, key-secret-1","type":"rate_limit_error"}}',
        status=429,
        content_type="application/json",
        headers={"Retry-After": "3"},
    )
    async with replay_server(answer) as server, model_at(server, api_key=KEY) as model:
        end = (await everything(model)).end
        assert len(server.seen) == 1
    assert isinstance(end, StreamFailure)
    assert (end.kind, end.status_code) == (FailureKind.RATE_LIMIT, 429)
    assert end.retry_after_seconds == 3.0
    assert end.message == "HTTP 429: Slow down, ***"


async def test_redirects_are_not_followed_with_the_key() -> None:
    answer = Answer(status=307, headers={"location": "http://127.0.0.1:9/"})
    async with replay_server(answer) as server, model_at(server, api_key=KEY) as model:
        end = (await everything(model)).end
    assert isinstance(end, StreamFailure)
    assert end.status_code == 307


async def test_nobody_listens_and_a_connection_that_breaks() -> None:
    async with replay_server(Answer(HELLO)) as server:
        pass
    async with model_at(server, api_key=KEY) as model:
        end = (await everything(model)).end
    assert isinstance(end, StreamFailure)
    assert (end.kind, end.retryable) == (FailureKind.CONNECTION, True)
    broken = Answer(HELLO[:60], reset=True, keep_alive=False)
    async with replay_server(broken) as server, model_at(server, api_key=KEY) as model:
        end = (await everything(model)).end
    assert isinstance(end, StreamFailure)
    assert (end.kind, end.partial_content) == (FailureKind.CONNECTION, "Hel")


@pytest.mark.parametrize(
    ("answer", "limits", "text"),
    [
        (Answer(silent=True), {"first_chunk_seconds": 0.5}, ""),
        (Answer(HELLO[:60], hang=True), {"between_chunks_seconds": 0.1}, "Hel"),
    ],
)
async def test_a_limit_that_passes_ends_the_call(answer: Answer, limits: dict[str, float], text: str) -> None:
    async with (
        replay_server(answer) as server,
        model_at(server, LimitSettings(**limits), api_key=KEY) as model,
    ):
        end = (await everything(model)).end
        async with asyncio.timeout(5):
            await server.closed.wait()
    assert isinstance(end, StreamFailure)
    assert (end.kind, end.partial_content) == (FailureKind.TIMEOUT, text)


async def test_closing_the_stream_closes_the_connection() -> None:
    async with replay_server(Answer(HELLO[:60], hang=True)) as server, model_at(server, api_key=KEY) as model:
        async with asyncio.timeout(10):
            async with aclosing(model.stream(REQUEST)) as events:
                assert await anext(events) == TextDelta("Hel")
            await server.closed.wait()


async def test_an_answer_that_is_not_streamed_reads_the_same() -> None:
    plain = b'{"choices":[{"message":{"content":"Hello"},"finish_reason":"stop"}]}'
    answer = Answer(plain, content_type="application/json")
    async with replay_server(answer) as server, model_at(server, api_key=KEY, streaming=False) as model:
        got = await everything(model)
        assert server.seen[0].json()["stream"] is False
    assert got.text == "Hello"
    assert isinstance(got.end, Finish)


async def test_a_client_that_cannot_be_made_is_a_typed_failure() -> None:
    async with replay_server(Answer(HELLO)) as server:
        for profile in ({"client": "AsyncNobody"}, {"options": {"no_such_option": "1"}}):
            async with model_at(server, api_key=KEY, **profile) as model:
                end = (await everything(model)).end
            assert isinstance(end, StreamFailure)
            assert end.kind is FailureKind.AUTH
        assert not server.seen


def test_a_client_with_a_framing_of_its_own_is_refused_with_the_way_out() -> None:
    profile = ProviderProfile(format="anthropic", transport="anthropic", client="AsyncAnthropicBedrock")
    with pytest.raises(WrongState, match="AsyncAnthropicBedrockMantle"):
        ModelRegistry(ModelSettings(providers={"aws": profile})).resolve("aws:m")


@pytest.mark.parametrize("name", ["os.system", "OpenAI", "Async Client"])
def test_a_client_is_the_name_of_an_asynchronous_class(name: str) -> None:
    with pytest.raises(ValidationError):
        ProviderProfile(client=name)
    with pytest.raises(ValidationError):
        ProviderProfile(token_provider=name)


@pytest.mark.parametrize("sdk", ["openai", "anthropic"])
def test_a_missing_extra_is_told_with_what_to_install(sdk: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    registry = ModelRegistry(ModelSettings(providers={"cloud": ProviderProfile(transport=sdk)}))
    with pytest.raises(WrongState, match=rf"turnwire\[{sdk}\]") as caught:
        registry.resolve("cloud:m")
    assert caught.value.reason == "MODEL_NOT_CONFIGURED"


def test_the_sdks_are_imported_with_the_first_call_only() -> None:
    code = (
        "import sys; from turnwire.runtime.models.registry import ModelRegistry as R;"
        "from turnwire.runtime.models.settings import ModelSettings as S, ProviderProfile as P;"
        "r = R(S(providers={'o': P(transport='openai'), 'a': P(transport='anthropic')}));"
        "r.resolve_all(['o:m', 'a:m']);"
        "sys.exit('openai' in sys.modules or 'anthropic' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": str(ROOT / "services")})
