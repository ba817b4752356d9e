"""The table of codes and its edges that no handler reaches."""

from __future__ import annotations

import json
from pathlib import Path

import grpc
import pytest

from turnwire.core import errors
from turnwire.core.errors import TurnwireError
from turnwire.core.settings import ListenSettings, TelemetrySettings
from turnwire.wire.rpc_errors import error_from_rpc
from turnwire.wire.server import server_options
from turnwire.wire.status import CODES, DETAILS_KEY, code_of, status_details
from turnwire.wire.telemetry import SpanFile, make_provider, shutdown_provider, trace_metadata


class _Mine(errors.NotFound):
    default_reason = "MINE_NOT_FOUND"


def rpc_error(code: grpc.StatusCode, *trailing: tuple[str, bytes]) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(*trailing), "text of a stranger")


def test_every_error_class_is_in_the_table_under_its_own_code() -> None:
    classes = {v for v in vars(errors).values() if isinstance(v, type) and issubclass(v, TurnwireError)}
    assert set(CODES) == classes
    assert len(set(CODES.values())) == len(classes)


def test_a_subclass_takes_the_code_of_its_family_and_its_own_reason() -> None:
    assert code_of(_Mine) is grpc.StatusCode.NOT_FOUND
    assert code_of(KeyError) is grpc.StatusCode.INTERNAL
    assert status_details(_Mine("none")).reason == "MINE_NOT_FOUND"


@pytest.mark.parametrize(
    ("code", "family", "reason"),
    [
        (grpc.StatusCode.RESOURCE_EXHAUSTED, errors.Exhausted, "MESSAGE_TOO_LARGE"),
        (grpc.StatusCode.UNIMPLEMENTED, errors.NotServed, "METHOD_UNKNOWN"),
        (grpc.StatusCode.UNAVAILABLE, errors.Unavailable, "UNREACHABLE"),
        (grpc.StatusCode.DEADLINE_EXCEEDED, errors.DeadlineExceeded, "DEADLINE_EXCEEDED"),
        (grpc.StatusCode.CANCELLED, errors.Cancelled, "CALL_CANCELLED"),
        (grpc.StatusCode.UNKNOWN, TurnwireError, "INTERNAL"),
        (grpc.StatusCode.DATA_LOSS, TurnwireError, "INTERNAL"),
        (grpc.StatusCode.NOT_FOUND, errors.NotFound, "NOT_FOUND"),
    ],
)
def test_a_bare_status_gets_the_documented_reason_and_none_of_its_text(
    code: grpc.StatusCode, family: type[TurnwireError], reason: str
) -> None:
    back = error_from_rpc(rpc_error(code))
    assert type(back) is family
    assert (back.reason, back.metadata) == (reason, {"code": code.name})
    assert "stranger" not in back.message


def test_details_of_strangers_and_garbage_are_no_details() -> None:
    assert error_from_rpc(rpc_error(grpc.StatusCode.ABORTED, (DETAILS_KEY, b"\xff"))).reason == "ABORTED"
    assert error_from_rpc(rpc_error(grpc.StatusCode.ABORTED, (DETAILS_KEY, b""))).reason == "ABORTED"


def test_metadata_named_like_a_parameter_comes_back_as_metadata() -> None:
    sent = TurnwireError("x")
    sent.metadata = {"reason": "a", "retry_after": "b", "self": "c", "violations": "d"}
    status = status_details(sent)
    assert error_from_rpc(rpc_error(status.code, *status.trailing)).metadata == sent.metadata


def test_the_servers_options_hold_what_clients_rely_on() -> None:
    options = dict(server_options(ListenSettings()))
    assert options["grpc.so_reuseport"] == 0
    assert options["grpc.max_receive_message_length"] == 4 * 1024 * 1024
    assert options["grpc.http2.min_ping_interval_without_data_ms"] < 10_000
    assert options["grpc.keepalive_permit_without_calls"] == 1
    assert not any("age" in name for name in options if "message" not in name)
    aged = dict(server_options(ListenSettings(max_connection_age_seconds=300)))
    assert aged["grpc.max_connection_age_ms"] == 300_000
    assert "grpc.max_connection_age_grace_ms" not in aged


def test_without_an_exporter_there_is_no_provider_and_no_trace_metadata() -> None:
    assert make_provider(TelemetrySettings(), "turnwire-test") is None
    assert trace_metadata() == ()


def test_spans_reach_the_file_and_carry_the_service(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "spans.jsonl"
    provider = make_provider(TelemetrySettings(file=file), "turnwire-test")
    assert provider is not None
    with provider.get_tracer("t").start_as_current_span("one"):
        assert trace_metadata()[0][0] == "traceparent"
    shutdown_provider(provider)
    (span,) = [json.loads(line) for line in file.read_text().splitlines()]
    assert (span["name"], span["resource"]["attributes"]["service.name"]) == ("one", "turnwire-test")


def test_the_span_file_is_bounded_and_drops_the_oldest(tmp_path: Path) -> None:
    path = tmp_path / "spans.jsonl"
    file = SpanFile(path, 100)
    for number in range(50):
        assert file.write([f"{number:09d}"])
    files = [path, path.with_name("spans.jsonl.1")]
    assert all(item.stat().st_size <= 100 for item in files)
    assert path.read_text().splitlines()[-1] == "000000049"


def test_a_file_that_cannot_be_written_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("no folder")
    file = SpanFile(tmp_path / "file" / "spans.jsonl", 100)
    assert not file.write(["x"])
    assert not file.write(["x"])
    assert [record.getMessage() for record in caplog.records] == ["telemetry.file_unwritable"]
