"""The whole contract against a real process: lists, runs, repeats, refusals, ranges, removal."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from google.protobuf.json_format import MessageToDict

from support.executor_process import ExecutorClient, ExecutorProcess, client, executor
from turnwire.api.executor.v1 import execution_pb2 as ex
from turnwire.api.executor.v1 import tool_executor_service_pb2 as pb
from turnwire.core.errors import TurnwireError
from turnwire.wire.rpc_errors import error_from_rpc

TOOLS = Path(__file__).parents[1] / "support" / "executor_tools.py"

pytestmark = [pytest.mark.e2e]
_numbers = itertools.count()


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExecutorProcess]:
    variables = {"EXECUTOR_SECRET": "hush", "SHELL_ENABLED": "true", "DISABLED_TOOLS": "multiply"}
    with executor(tmp_path_factory.mktemp("executor"), tools=TOOLS, **variables) as started:
        yield started


def new_call() -> str:
    return f"call-{next(_numbers)}"


async def refusal(call: object) -> TurnwireError:
    """Read a call to its error."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        if hasattr(call, "__aiter__"):
            async for _ in call:  # type: ignore[attr-defined]
                pass
        else:
            await call  # type: ignore[misc]
    return error_from_rpc(caught.value)


async def test_tools_are_listed_by_name_a_page_at_a_time(process: ExecutorProcess) -> None:
    async with asyncio.timeout(30), client(process) as calls:
        whole = await calls.stub.ListTools(pb.ListToolsRequest())
        names = [tool.name for tool in whole.tools]
        assert names == sorted(names)
        assert {"add", "calculate", "read_file", "recall_result", "greet", "slow_report", "shell"} <= {*names}
        assert "multiply" not in names
        paged, token = [], ""
        while True:
            page = await calls.stub.ListTools(pb.ListToolsRequest(page_size=5, page_token=token))
            paged += [tool.name for tool in page.tools]
            token = page.next_page_token
            if not token:
                break
        assert paged == names
        error = await refusal(calls.stub.ListTools(pb.ListToolsRequest(page_token="bm9uZQ==")))
        assert error.reason == "PAGE_TOKEN_MISMATCH"


async def test_a_listed_tool_says_all_that_a_caller_needs(process: ExecutorProcess) -> None:
    async with asyncio.timeout(30), client(process) as calls:
        tools = {tool.name: tool for tool in (await calls.stub.ListTools(pb.ListToolsRequest())).tools}
    greet = MessageToDict(tools["greet"])
    assert json.loads(greet.pop("inputSchemaJson"))["properties"]["name"] == {
        "type": "string",
        "description": "Who is greeted.",
    }
    assert len(greet.pop("digest")) == 64
    assert greet == {
        "name": "greet",
        "description": "Greet somebody.",
        "executionMode": "EXECUTION_MODE_PARALLEL",
        "executionTimeout": "540s",
        "repeatable": True,
        "riskTier": "RISK_TIER_NORMAL",
    }
    assert MessageToDict(tools["shell"])["riskTier"] == "RISK_TIER_DANGEROUS"
    assert MessageToDict(tools["ask"])["suspendSteps"][0]["resumeTimeout"] == "86400s"


async def test_a_call_is_accepted_started_and_ended(process: ExecutorProcess) -> None:
    async with asyncio.timeout(30), client(process) as calls:
        told = await calls.execute(new_call(), "add", {"a": 2, "b": 3})
        assert (told.kinds, told.outcome, told.content) == (
            ["accepted", "started", "result"],
            "SUCCEEDED",
            "5",
        )
        told = await calls.execute(new_call(), "count", {"to": 3})
        assert told.content == "counted to 3"
        assert told.progress[0].startswith("at 0\n")
        told = await calls.execute(new_call(), "slow_report", {"topic": '\'; rm -rf "x" $(id)'})
        assert told.content.splitlines()[0] == 'part 1 of \'; rm -rf "x" $(id)'
        assert told.result is not None
        assert told.result.exit_code == 0


async def test_a_failing_tool_is_a_result(process: ExecutorProcess) -> None:
    async with asyncio.timeout(30), client(process) as calls:
        told = await calls.execute(new_call(), "bash", {"script": "echo no; exit 3"})
        assert (told.outcome, told.content) == ("FAILED", "no\n[exit status 3]")
        told = await calls.execute(new_call(), "boom")
        assert (told.outcome, told.content) == ("FAILED", "ValueError: no such \ufffd thing\ufffd")
        told = await calls.execute(new_call(), "missing")
        assert told.outcome == "NOT_STARTED"
        assert "no-such-program" in told.content
        told = await calls.execute(new_call(), "greet", '{"name": 3, "name": 4}')
        assert told.outcome == "FAILED"
        assert "stands twice" in told.content
        told = await calls.execute(new_call(), "crash")
        assert told.outcome == "OUTCOME_UNKNOWN"


async def test_a_repeat_joins_or_gets_the_stored_end(process: ExecutorProcess) -> None:
    async with asyncio.timeout(30), client(process) as calls:
        call = new_call()
        first = calls.stream(call, "sleeper", {"seconds": 0.5})
        await calls.until(first, "progress")
        joined = await calls.execute(call, "sleeper", {"seconds": 0.5}, epoch=9)
        assert joined.progress == []
        assert joined.content == "awake"
        assert (await calls.follow(first)).content == "awake"
        stored = await calls.execute(call, "sleeper", {"seconds": 0.5}, epoch=3)
        assert stored.kinds == ["accepted", "started", "result"]
        assert stored.content == "awake"
        other = await refusal(calls.stream(call, "sleeper", {"seconds": 0.6}))
        assert other.reason == "EXECUTION_EXISTS"


async def test_losing_the_stream_stops_nothing(process: ExecutorProcess) -> None:
    async with asyncio.timeout(30), client(process) as calls:
        call = new_call()
        first = calls.stream(call, "sleeper", {"seconds": 0.5})
        await calls.until(first, "started")
        first.cancel()
        assert (await calls.execute(call, "sleeper", {"seconds": 0.5})).content == "awake"


async def test_fences_and_further_attempts(process: ExecutorProcess) -> None:
    async with asyncio.timeout(30), client(process, thread="fences") as calls:
        await calls.execute("call-1", "greet", {"name": "a"}, epoch=7)
        stale = await refusal(calls.stream("call-2", "greet", {"name": "b"}, epoch=6))
        assert stale.reason == "EPOCH_STALE"
        again = await refusal(calls.stream("call-1", "greet", {"name": "a"}, attempt=2, epoch=7))
        assert again.reason == "EXECUTION_EXISTS"
        ahead = await refusal(calls.stream("call-3", "greet", {"name": "a"}, attempt=2, epoch=7))
        assert ahead.reason == "EXECUTION_EXISTS"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await calls.cancel("call-1", epoch=6)
        assert error_from_rpc(caught.value).reason == "EPOCH_STALE"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await calls.cancel("call-9", epoch=7)
        assert error_from_rpc(caught.value).reason == "EXECUTION_NOT_FOUND"


async def test_a_suspended_tool_goes_on_with_the_answer(process: ExecutorProcess) -> None:
    async with asyncio.timeout(30), client(process) as calls:
        call = new_call()
        asked = await calls.execute(call, "ask", {"path": "x"})
        assert asked.kinds[-1] == "suspended"
        assert asked.suspended is not None
        assert json.loads(asked.suspended.payload_json) == {"path": "x"}
        assert (await calls.lookup(call)).state == ex.EXECUTION_STATE_SUSPENDED
        early = await refusal(calls.stream(call, "ask", {"path": "x"}, attempt=2))
        assert early.reason == "EXECUTION_EXISTS"
        resume = ex.ResumeInput(step="confirm", payload_json="true", state_json=asked.suspended.state_json)
        told = await calls.execute(call, "ask", {"path": "x"}, attempt=2, resume=resume)
        assert told.content == "True x"


async def test_lookup_knows_every_state(process: ExecutorProcess) -> None:
    async with asyncio.timeout(30), client(process) as calls:
        assert (await calls.lookup(new_call())).state == ex.EXECUTION_STATE_NOT_FOUND
        call = new_call()
        stream = calls.stream(call, "sleeper", {"seconds": 0.5})
        await calls.until(stream, "started")
        assert (await calls.lookup(call)).state == ex.EXECUTION_STATE_STARTED
        await calls.follow(stream)
        known = await calls.lookup(call)
        assert known.state == ex.EXECUTION_STATE_FINISHED
        assert known.result.content == "awake"
        assert len(known.arguments_sha256) == 64


async def test_a_long_result_is_cut_and_read_by_ranges(process: ExecutorProcess) -> None:
    async with asyncio.timeout(30), client(process) as calls:
        told = await calls.execute(
            new_call(), "bash", {"script": "for i in $(seq 20000); do echo line $i; done"}
        )
        whole = "".join(f"line {i}\n" for i in range(1, 20_001)).encode()
        assert told.result is not None
        handle = told.result.overflow.handle
        assert told.result.total_chars == len(whole)
        assert told.content.startswith("line 1\n")
        assert told.content.endswith("line 20000\n")
        assert handle in told.content
        assert await calls.read(handle) == whole
        assert await calls.read(handle, offset=7, length=6) == b"line 2"
        assert await calls.read(handle, unit=2, offset=9_999, length=2) == b"line 10000\nline 10001\n"
        assert await calls.read(handle, unit=2, offset=20_000) == b""
        too_far = pb.ReadResultRequest(scope=calls.scope, handle=handle)
        too_far.range.offset = len(whole) + 1
        assert (await refusal(calls.stub.ReadResult(too_far))).reason == "RANGE_INVALID"
        recalled = await calls.execute(
            new_call(), "recall_result", {"handle": handle, "offset": 499, "length": 1}
        )
        assert recalled.content.endswith("\nline 500\n")
        found = await calls.execute(new_call(), "recall_result", {"handle": handle, "search": "LINE 1999"})
        assert found.content.splitlines()[0] == "1998: line 1999"


async def test_long_parts_and_long_texts_of_python_tools_get_handles(process: ExecutorProcess) -> None:
    async with asyncio.timeout(30), client(process) as calls:
        told = await calls.execute(new_call(), "long_text", {"chars": 60_000}, max_result_chars=1_000)
        assert told.result is not None
        assert len(told.content) <= 1_000
        assert await calls.read(told.result.overflow.handle) == b"x" * 60_000
        small = await calls.execute(new_call(), "picture", {"size": 100})
        assert small.result is not None
        assert small.result.parts[0].data == b"p" * 100
        large = await calls.execute(new_call(), "picture", {"size": 100_000})
        assert large.result is not None
        assert await calls.read(large.result.parts[0].handle.handle) == b"p" * 100_000


async def test_other_scopes_see_nothing(process: ExecutorProcess) -> None:
    async with asyncio.timeout(30), client(process, thread="shared") as ours:
        theirs = ExecutorClient(ours.channel, thread="shared", scope="other-org")
        call = new_call()
        told = await ours.execute(call, "long_text", {"chars": 60_000})
        assert told.result is not None
        assert (await theirs.lookup(call)).state == ex.EXECUTION_STATE_NOT_FOUND
        reading = theirs.stub.ReadResult(
            pb.ReadResultRequest(scope="other-org", handle=told.result.overflow.handle)
        )
        assert (await refusal(reading)).reason == "RESULT_NOT_FOUND"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await theirs.cancel(call)
        assert error_from_rpc(caught.value).reason == "EXECUTION_NOT_FOUND"
        recalled = await theirs.execute(new_call(), "recall_result", {"handle": told.result.overflow.handle})
        assert recalled.outcome == "FAILED"


async def test_commands_see_their_call_and_only_allowed_variables(process: ExecutorProcess) -> None:
    context = ex.ExecutionContext(
        thread="threads/t", turn="threads/t/turns/u", call_id="c", agent="agents/a", traceparent="00-ab"
    )
    context.variables["EXTRA"] = "more"
    async with asyncio.timeout(30), client(process) as calls:
        told = await calls.execute(new_call(), "show_env", {}, context=context)
        seen = dict(line.split("=", 1) for line in told.content.splitlines())
        assert seen["TURNWIRE_TURN"] == "threads/t/turns/u"
        assert seen["TURNWIRE_CALL_ID"] == "c"
        assert seen["TURNWIRE_AGENT"] == "agents/a"
        assert seen["TRACEPARENT"] == "00-ab"
        assert seen["EXTRA"] == "more"
        assert seen["TURNWIRE_ARGUMENTS"] == "{}"
        assert not any(name.startswith("TURNWIRE_EXECUTOR_S") for name in seen)
        told = await calls.execute(new_call(), "who", {}, context=context)
        assert json.loads(told.content) == {"turn": "threads/t/turns/u", "call": "c", "agent": "agents/a"}


async def test_words_are_never_parsed_by_a_shell(process: ExecutorProcess) -> None:
    async with asyncio.timeout(30), client(process) as calls:
        told = await calls.execute(new_call(), "words", {"one": "a b; $(id)", "many": ["x", "y z"]})
        assert told.content == "['a b; $(id)', '--all', 'x', 'y z']\n"
        told = await calls.execute(new_call(), "stdin_echo", {"text": "hello"})
        assert json.loads(told.content) == {"text": "hello"}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("scope", "X"),
        ("execution_id", "threads/t/turns"),
        ("attempt", 0),
        ("tool_name", "no name"),
        ("arguments_json", '{"a": "' + "x" * (256 << 10) + '"}'),
        ("context", {"workspace": "../up"}),
        ("context", {"variables": {str(n): "" for n in range(65)}}),
        ("resume", {"payload_json": "{"}),
    ],
)
async def test_wrong_requests_are_refused_by_field(
    process: ExecutorProcess, field: str, value: object
) -> None:
    async with asyncio.timeout(30), client(process) as calls:
        request = calls.request(new_call(), "add", {"a": 1, "b": 2})
        if isinstance(value, dict):
            getattr(request, field).MergeFrom(type(getattr(request, field))(**value))
        else:
            setattr(request, field, value)
        error = await refusal(calls.stub.Execute(request))
        assert error.reason == "INVALID_REQUEST"
        assert error.metadata["field"].startswith(field)


async def test_an_unknown_tool_is_not_found(process: ExecutorProcess) -> None:
    async with asyncio.timeout(30), client(process) as calls:
        assert (await refusal(calls.stream(new_call(), "multiply"))).reason == "TOOL_NOT_FOUND"


async def test_a_removed_thread_leaves_nothing(process: ExecutorProcess) -> None:
    async with asyncio.timeout(30), client(process, thread="purged") as calls:
        told = await calls.execute("call-1", "long_text", {"chars": 61_234}, epoch=5)
        running = calls.stream("call-2", "sleeper", epoch=5)
        await calls.until(running, "progress")
        request = pb.PurgeThreadRequest(scope=calls.scope, thread="threads/purged")
        purged = await calls.stub.PurgeThread(request)
        assert (purged.purged_executions, purged.purged_results) == (2, 1)
        assert (await calls.follow(running)).outcome == "STOPPED"
        purged = await calls.stub.PurgeThread(request)
        assert (purged.purged_executions, purged.purged_results) == (0, 0)
        assert (await calls.lookup("call-1")).state == ex.EXECUTION_STATE_NOT_FOUND
        assert told.result is not None
        reading = calls.stub.ReadResult(
            pb.ReadResultRequest(scope=calls.scope, handle=told.result.overflow.handle)
        )
        assert (await refusal(reading)).reason == "RESULT_NOT_FOUND"
        # The fence went with the thread: its name may be used anew.
        assert (await calls.execute("call-3", "greet", {"name": "x"}, epoch=1)).outcome == "SUCCEEDED"


async def test_many_commands_at_once_all_end_while_others_are_served(process: ExecutorProcess) -> None:
    async with asyncio.timeout(60), client(process) as calls, asyncio.TaskGroup() as group:
        commands = [
            group.create_task(calls.execute(f"many-{n}", "bash", {"script": f"echo {n}"})) for n in range(40)
        ]
        sums = [group.create_task(calls.execute(f"sum-{n}", "add", {"a": n, "b": 1})) for n in range(40)]
        assert [(await task).content for task in commands] == [f"{n}\n" for n in range(40)]
        assert [(await task).content for task in sums] == [str(n + 1) for n in range(40)]


async def test_a_blocking_tool_delays_nobody(process: ExecutorProcess) -> None:
    async with asyncio.timeout(30), client(process) as calls:
        blocking = calls.stream("block", "sync_sleep", {"seconds": 60})
        await calls.until(blocking, "progress")
        told = await calls.execute("sum", "add", {"a": 1, "b": 1})
        assert told.seconds < 2
        await calls.cancel("block")
        assert (await calls.follow(blocking)).outcome == "STOPPED"
