"""The server's options, health, reflection and TLS, seen from outside."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from support.wire_echo import SERVICE, Echo, Stub, running, service, text
from turnwire.core.errors import InvalidRequest, WrongState
from turnwire.core.settings import LinkSettings, ListenSettings
from turnwire.wire.channel import open_channel, open_link
from turnwire.wire.health import LIVENESS
from turnwire.wire.rpc_errors import error_from_rpc
from turnwire.wire.server import build_server
from turnwire.wire.services import collect

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


def _name(service_name: str) -> Any:
    return health_pb2.HealthCheckRequest(service=service_name)


async def test_two_servers_cannot_share_a_port_without_a_word() -> None:
    async with running() as rig:
        second = build_server(ListenSettings(port=rig.server.port), [service()], roles={})
        with pytest.raises(WrongState) as caught:
            await second.start()
        await second.stop(0.0)
    assert caught.value.reason == "ADDRESS_UNAVAILABLE"
    assert str(rig.server.port) in caught.value.message


async def test_health_knows_full_service_names_liveness_and_links() -> None:
    async with running() as rig:
        stub = health_pb2_grpc.HealthStub(rig.channel)
        rig.server.health.set("link.control", False)
        expected = {SERVICE: SERVING, "": SERVING, LIVENESS: SERVING, "link.control": NOT_SERVING}
        for name, status in expected.items():
            assert (await stub.Check(_name(name))).status == status
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Check(_name("nobody"))
        assert error_from_rpc(caught.value).reason == "SERVICE_UNKNOWN"
        rig.server.health.drain()
        rig.server.health.set("link.control", True)
        expected = {SERVICE: NOT_SERVING, "": NOT_SERVING, LIVENESS: SERVING, "link.control": NOT_SERVING}
        for name, status in expected.items():
            assert (await stub.Check(_name(name))).status == status


async def test_watchers_hear_of_each_change_and_a_stalled_one_delays_nobody() -> None:
    async with running() as rig, asyncio.timeout(10):
        stub = health_pb2_grpc.HealthStub(rig.channel)
        stalled = stub.Watch(_name(SERVICE))
        watch = stub.Watch(_name("link.control"))
        assert (await watch.read()).status == UNKNOWN
        rig.server.health.set("link.control", True)
        assert (await watch.read()).status == SERVING
        rig.server.health.drain()
        assert (await watch.read()).status == NOT_SERVING
        stalled.cancel()
        watch.cancel()


async def test_probes_need_no_credentials(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.json"
    tokens.write_text(
        '[{"token": "0123456789abcdef", "subject": "a", "scopes": ["acme"], "roles": ["caller"]}]'
    )
    async with running(listen=ListenSettings(tokens_file=tokens)) as rig:
        stub = health_pb2_grpc.HealthStub(rig.channel)
        assert (await stub.Check(_name(LIVENESS))).status == SERVING


async def test_reflection_lists_the_services() -> None:
    from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

    request = reflection_pb2.ServerReflectionRequest(list_services="")
    async with running() as rig:
        stub = reflection_pb2_grpc.ServerReflectionStub(rig.channel)
        answers = [answer async for answer in stub.ServerReflectionInfo(iter([request]))]
    listed = {item.name for item in answers[0].list_services_response.service}
    assert listed == {SERVICE, "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"}


async def test_reflection_can_be_off() -> None:
    async with running(listen=ListenSettings(reflection=False)) as rig:
        method = rig.channel.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await method(iter([b""])).read()
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_passthrough_name_that_is_no_method_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="Typo"):
        collect([service(None, "Typo")])
    with pytest.raises(ValueError, match="twice"):
        collect([service(), service()])


def test_the_full_methods_of_a_service_are_known() -> None:
    (registered,) = collect([service()])
    assert registered.methods == {f"/{SERVICE}/{name}" for name in ("Unary", "Stream", "Connect", "Collect")}


async def test_what_is_open_when_the_server_stops_ends_unavailable_outside_and_cancelled_inside() -> None:
    cancelled = asyncio.Event()

    async def hang(request: Any, context: Any) -> Any:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with running(Echo(unary=hang)) as rig, asyncio.timeout(10):
        call = asyncio.ensure_future(rig.stub.unary(text("x")))
        await rig.channel.channel_ready()
        # The first answer proves that the call before it on the same connection has arrived.
        await health_pb2_grpc.HealthStub(rig.channel).Check(_name(""))
        await rig.server.stop(0.05)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        await cancelled.wait()
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_metadata_that_is_not_ascii_is_refused_before_the_call() -> None:
    async with running() as rig:
        with pytest.raises(InvalidRequest) as caught:
            rig.stub.unary(text("x"), metadata=(("tenant", "чат"),))
        assert caught.value.violations[0].field == "tenant"
        assert (await rig.stub.unary(text("чат"), metadata=(("tenant-bin", "чат".encode()),))).value == "чат"
    with pytest.raises(InvalidRequest):
        open_channel("127.0.0.1:1", token="пароль")


def _make_certificate(folder: Path) -> tuple[Path, Path]:
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        [
            *(
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "rsa:2048",
                "-nodes",
                "-days",
                "2",
                "-subj",
                "/CN=localhost",
            ),
            *("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
            *("-keyout", str(key), "-out", str(cert)),
        ],
        check=True,
        capture_output=True,
        timeout=60,
    )
    return cert, key


async def test_tls_and_client_certificates(tmp_path: Path) -> None:
    cert, key = await asyncio.to_thread(_make_certificate, tmp_path)
    listen = ListenSettings(tls_cert=cert, tls_key=key, tls_client_ca=cert)
    async with running(listen=listen) as rig, asyncio.timeout(20):
        target = f"localhost:{rig.server.port}"
        async with open_link(LinkSettings(target=target, tls_ca=cert, tls_cert=cert, tls_key=key)) as channel:
            assert (await Stub(channel).unary(text("safe"))).value == "safe"
        for refused in (LinkSettings(target=target, tls_ca=cert), LinkSettings(target=target, insecure=True)):
            async with open_link(refused) as channel:
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await Stub(channel).unary(text("x"), timeout=5)
                assert caught.value.code() in (
                    grpc.StatusCode.UNAVAILABLE,
                    grpc.StatusCode.DEADLINE_EXCEEDED,
                )


@pytest.mark.slow
async def test_a_silent_stream_survives_pings_every_ten_seconds() -> None:
    asked = asyncio.Event()

    async def silent(requests: Any, context: Any) -> None:
        async for request in requests:
            await asked.wait()
            await context.write(request)

    options = [
        ("grpc.keepalive_time_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
    ]
    async with running(Echo(connect=silent)) as rig, asyncio.timeout(100):
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{rig.server.port}", options=options)
        call = Stub(channel).connect()
        await call.write(text("still here"))
        asyncio.get_running_loop().call_later(65, asked.set)
        assert (await call.read()).value == "still here"
        await channel.close()
