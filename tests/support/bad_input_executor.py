"""Cases of ToolExecutorService, called as a runtime."""

from __future__ import annotations

import json
from typing import Any

from support.bad_input_registry import case, request_of
from support.bad_input_rig import RUNTIME, Bad, Rig
from support.descriptors import Method

__all__ = ["execute", "finished"]

TOOLS, EXECUTE = "ToolExecutorService.ListTools", "ToolExecutorService.Execute"
CANCEL, LOOKUP = "ToolExecutorService.CancelExecution", "ToolExecutorService.LookupExecution"
READ, PURGE = "ToolExecutorService.ReadResult", "ToolExecutorService.PurgeThread"
TURN = "threads/bad-input/turns/turn-1"


def execute(
    call: str, tool: str = "add", arguments: Any = None, *, epoch: int = 5, scope: str = "acme"
) -> Any:
    """An Execute request that would be taken."""
    return request_of(
        EXECUTE,
        scope=scope,
        execution_id=f"{TURN}/{call}",
        attempt=1,
        epoch=epoch,
        tool_name=tool,
        arguments_json=json.dumps({"a": 1, "b": 2} if arguments is None else arguments),
    )


async def finished(rig: Rig, call: str, **given: Any) -> Any:
    """Run a call to its end and return its result."""
    answers = await rig.ask(EXECUTE, execute(call, **given), caller=RUNTIME)
    return answers[-1].result


def _bad(request: Any) -> Bad:
    return Bad.of(request, caller=RUNTIME)


@case("INVALID_REQUEST", TOOLS)
async def negative_page(rig: Rig, method: Method) -> Bad:
    return _bad(request_of(TOOLS, page_size=-1))


@case("PAGE_TOKEN_MISMATCH", TOOLS)
async def invented_token(rig: Rig, method: Method) -> Bad:
    return _bad(request_of(TOOLS, page_token="bm90IG91cnM="))


@case("INVALID_REQUEST", EXECUTE)
async def attempt_zero(rig: Rig, method: Method) -> Bad:
    request = execute("call-zero")
    request.attempt = 0
    return _bad(request)


@case("TOOL_NOT_FOUND", EXECUTE)
async def no_such_tool(rig: Rig, method: Method) -> Bad:
    return _bad(execute("call-none", "no_such_tool"))


@case("EXECUTION_EXISTS", EXECUTE)
async def other_arguments(rig: Rig, method: Method) -> Bad:
    await finished(rig, "call-known")
    return _bad(execute("call-known", arguments={"a": 3, "b": 4}))


@case("EPOCH_STALE", EXECUTE)
async def replaced_owner(rig: Rig, method: Method) -> Bad:
    await finished(rig, "call-of-owner")
    return _bad(execute("call-of-former-owner", epoch=4))


@case("INVALID_REQUEST", CANCEL, LOOKUP)
async def no_execution_id(rig: Rig, method: Method) -> Bad:
    request = method.new_request()
    request.scope, request.execution_id = "acme", "threads/bad-input"
    return _bad(request)


@case("EXECUTION_NOT_FOUND", CANCEL)
async def execution_of_another_scope(rig: Rig, method: Method) -> Bad:
    await finished(rig, "call-elsewhere", scope="globex")
    return _bad(request_of(CANCEL, scope="acme", execution_id=f"{TURN}/call-elsewhere", epoch=5))


@case("EPOCH_STALE", CANCEL)
async def cancel_of_a_former_owner(rig: Rig, method: Method) -> Bad:
    await finished(rig, "call-kept")
    return _bad(request_of(CANCEL, scope="acme", execution_id=f"{TURN}/call-kept", epoch=4))


@case("INVALID_REQUEST", READ)
async def no_handle(rig: Rig, method: Method) -> Bad:
    return _bad(request_of(READ, scope="acme", handle="sha256:short"))


@case("RESULT_NOT_FOUND", READ)
async def no_such_result(rig: Rig, method: Method) -> Bad:
    return _bad(request_of(READ, scope="acme", handle="sha256:" + "0" * 64))


@case("RANGE_INVALID", READ)
async def behind_the_end(rig: Rig, method: Method) -> Bad:
    result = await finished(rig, "call-long", tool="read_file", arguments={"path": "long.txt"})
    request = request_of(READ, scope="acme", handle=result.overflow.handle)
    request.range.offset = 1_000_000
    return _bad(request)


@case("INVALID_REQUEST", PURGE)
async def no_thread(rig: Rig, method: Method) -> Bad:
    return _bad(request_of(PURGE, scope="acme", thread="bad-input"))
