"""Whatever a handler raises, the caller gets one documented status and nothing else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2_grpc

from support.wire_echo import Echo, running, text
from turnwire.core import errors
from turnwire.core.errors import FieldViolation, TurnwireError
from turnwire.wire.rpc_errors import error_from_rpc

CASES: list[tuple[TurnwireError, grpc.StatusCode]] = [
    (
        errors.InvalidRequest("bad", violations=(FieldViolation("spec.limits.steps", "must be positive"),)),
        grpc.StatusCode.INVALID_ARGUMENT,
    ),
    (
        errors.NotFound("none", reason="TURN_NOT_FOUND", turn="threads/aaaa/turns/bbbb"),
        grpc.StatusCode.NOT_FOUND,
    ),
    (errors.AlreadyExists("taken", turn="threads/aaaa/turns/bbbb"), grpc.StatusCode.ALREADY_EXISTS),
    (errors.WrongState("over", turn="t", state="COMPLETED"), grpc.StatusCode.FAILED_PRECONDITION),
    (errors.Conflict("changed", version="7"), grpc.StatusCode.ABORTED),
    (errors.Expired("gone", oldest_sequence="12"), grpc.StatusCode.OUT_OF_RANGE),
    (errors.Exhausted("too many", retry_after=1.5, limit="32"), grpc.StatusCode.RESOURCE_EXHAUSTED),
    (errors.Unavailable("later", reason="DRAINING", retry_after=0.25), grpc.StatusCode.UNAVAILABLE),
    (errors.Unauthenticated("who"), grpc.StatusCode.UNAUTHENTICATED),
    (errors.Forbidden("no", method="/a/B"), grpc.StatusCode.PERMISSION_DENIED),
    (errors.NotServed("not here", feature="graphs"), grpc.StatusCode.UNIMPLEMENTED),
    (errors.DeadlineExceeded("late"), grpc.StatusCode.DEADLINE_EXCEEDED),
    (errors.Cancelled("stopped"), grpc.StatusCode.CANCELLED),
    (errors.TurnwireError("broken on purpose"), grpc.StatusCode.INTERNAL),
]


def test_every_error_class_has_a_case() -> None:
    classes = {
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, TurnwireError)
    }
    assert {type(error) for error, _ in CASES} == classes


async def _unary(stub: Any) -> None:
    await stub.unary(text("x"), timeout=10)


async def _stream(stub: Any) -> None:
    async for _ in stub.stream(text("x"), timeout=10):
        pass


async def _connect(stub: Any) -> None:
    async for _ in stub.connect(iter([text("x")]), timeout=10):
        pass


async def _collect(stub: Any) -> None:
    await stub.collect(iter([text("x")]), timeout=10)


SHAPES = {"unary": _unary, "stream": _stream, "connect": _connect, "collect": _collect}


def _echo_raising(error: BaseException, shape: str) -> Echo:
    async def fail(request: Any, context: Any) -> Any:
        raise error

    async def fail_stream(request: Any, context: Any) -> AsyncIterator[Any]:
        yield request
        raise error

    return Echo(**{shape: fail_stream if shape == "stream" else fail})


async def _error_of(error: BaseException, shape: str) -> grpc.aio.AioRpcError:
    async with running(_echo_raising(error, shape)) as rig:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await SHAPES[shape](rig.stub)
    return caught.value


@pytest.mark.parametrize(("error", "code"), CASES, ids=[type(error).__name__ for error, _ in CASES])
async def test_an_error_of_ours_arrives_as_the_same_class_with_all_it_carries(
    error: TurnwireError, code: grpc.StatusCode
) -> None:
    caught = await _error_of(error, "unary")
    assert caught.code() is code
    assert caught.details() == error.message
    back = error_from_rpc(caught)
    assert type(back) is type(error)
    assert (back.message, back.reason, back.metadata) == (error.message, error.reason, error.metadata)
    assert back.retry_after == error.retry_after
    assert getattr(back, "violations", ()) == getattr(error, "violations", ())


@pytest.mark.parametrize("shape", SHAPES)
async def test_all_four_shapes_answer_errors(shape: str) -> None:
    back = error_from_rpc(await _error_of(errors.NotFound("none", reason="TURN_NOT_FOUND", turn="t"), shape))
    assert isinstance(back, errors.NotFound)
    assert back.reason == "TURN_NOT_FOUND"


@pytest.mark.parametrize("shape", SHAPES)
async def test_the_text_of_an_unknown_exception_never_leaves(
    shape: str, caplog: pytest.LogCaptureFixture
) -> None:
    caught = await _error_of(RuntimeError("secret-token-123"), shape)
    assert caught.code() is grpc.StatusCode.INTERNAL
    assert "secret" not in f"{caught.details()} {caught.trailing_metadata()}"
    back = error_from_rpc(caught)
    assert back.reason == "INTERNAL"
    failed = [record for record in caplog.records if record.getMessage() == "rpc.failed"]
    assert [vars(record)["error_id"] for record in failed] == [back.metadata["error_id"]]
    assert failed[0].levelno == logging.ERROR


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_stray_cancelled_error_is_answered_instead_of_leaving_the_caller_hanging(shape: str) -> None:
    caught = await _error_of(asyncio.CancelledError(), shape)
    assert caught.code() is grpc.StatusCode.INTERNAL
    assert error_from_rpc(caught).reason == "INTERNAL"


@pytest.mark.parametrize("shape", SHAPES)
async def test_an_exception_group_is_unwrapped_to_the_error_of_ours(shape: str) -> None:
    inner = ExceptionGroup("inner", [errors.Conflict("changed", version="7")])
    back = error_from_rpc(await _error_of(ExceptionGroup("outer", [KeyError("x"), inner]), shape))
    assert isinstance(back, errors.Conflict)
    assert back.metadata == {"version": "7"}


async def test_an_upstream_rpc_error_does_not_leak_its_text() -> None:
    def upstream(code: grpc.StatusCode) -> grpc.aio.AioRpcError:
        return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), "dsn=secret")

    away = await _error_of(upstream(grpc.StatusCode.UNAVAILABLE), "unary")
    assert (away.code(), error_from_rpc(away).reason) == (grpc.StatusCode.UNAVAILABLE, "UNREACHABLE")
    wrong = await _error_of(upstream(grpc.StatusCode.NOT_FOUND), "unary")
    assert wrong.code() is grpc.StatusCode.INTERNAL
    assert "secret" not in f"{away.details()} {wrong.details()} {wrong.trailing_metadata()}"


async def test_unicode_and_lone_surrogates_in_messages_and_metadata_arrive_repaired() -> None:
    back = error_from_rpc(await _error_of(errors.NotFound("нет \ud800 \0", thread="чат\ud800"), "unary"))
    assert back.message == "нет \ufffd \ufffd"
    assert back.metadata == {"thread": "чат\ufffd"}


async def test_huge_errors_are_cut_instead_of_replacing_the_status() -> None:
    violations = tuple(FieldViolation(f"field{n}", "ж" * 5000) for n in range(100))
    metadata = {f"key{n}": "ж" * 20_000 for n in range(100)}
    caught = await _error_of(errors.InvalidRequest("ж" * 20_000, violations=violations, **metadata), "unary")
    assert caught.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error_from_rpc(caught).reason == "INVALID_REQUEST"
    assert sum(len(key) + len(value) for key, value in caught.trailing_metadata()) < 8192


async def test_bytes_that_are_no_message_are_an_invalid_request() -> None:
    async with running() as rig:
        for call in (
            rig.stub.raw(b"\xff\xff\xff", timeout=10),
            rig.stub.raw_stream(b"\xff\xff\xff", timeout=10).read(),
            rig.stub.raw_connect(iter([b"\xff\xff\xff"]), timeout=10).read(),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert error_from_rpc(caught.value).reason == "INVALID_REQUEST"


async def test_an_unknown_method_reads_as_method_unknown() -> None:
    async with running() as rig:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await rig.stub.missing(text("x"), timeout=10)
    back = error_from_rpc(caught.value)
    assert isinstance(back, errors.NotServed)
    assert back.reason == "METHOD_UNKNOWN"


async def test_a_request_or_an_answer_above_the_limit_reads_as_message_too_large() -> None:
    async def large(request: Any, context: Any) -> Any:
        return text("x" * (4 * 1024 * 1024 + 1))

    async with running(Echo(unary=large)) as rig:
        for size in (4 * 1024 * 1024 + 1, 1):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await rig.stub.unary(text("x" * size), timeout=10)
            back = error_from_rpc(caught.value)
            assert isinstance(back, errors.Exhausted)
            assert (back.reason, back.retry_after) == ("MESSAGE_TOO_LARGE", None)


async def test_a_dead_server_reads_as_unreachable_and_a_deadline_as_such() -> None:
    async def hang(request: Any, context: Any) -> Any:
        await asyncio.Event().wait()

    async with running(Echo(unary=hang)) as rig:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await rig.stub.unary(text("x"), timeout=0.05)
        assert error_from_rpc(caught.value).reason == "DEADLINE_EXCEEDED"
        await rig.server.stop(0.0)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await rig.stub.unary(text("x"), timeout=10)
        assert error_from_rpc(caught.value).reason == "UNREACHABLE"


async def test_a_method_that_the_servicer_does_not_define_is_a_feature_not_served() -> None:
    undefined = health_pb2_grpc.HealthServicer()
    async with running(Echo(unary=undefined.Check, stream=undefined.Watch)) as rig:
        for call in (rig.stub.unary(text("x"), timeout=10), rig.stub.stream(text("x"), timeout=10).read()):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call
            assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
            assert error_from_rpc(caught.value).reason == "FEATURE_NOT_SERVED"


async def test_a_handler_that_aborts_by_itself_is_left_alone() -> None:
    async def abort(request: Any, context: Any) -> None:
        await context.abort(grpc.StatusCode.DATA_LOSS, "mine")

    async with running(Echo(unary=abort)) as rig:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await rig.stub.unary(text("x"), timeout=10)
    assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.DATA_LOSS, "mine")
    assert error_from_rpc(caught.value).reason == "INTERNAL"
