"""Reasons that need a process in trouble: leaving, full, without its store or its peers, or with a defect."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc
import pytest
import pytest_asyncio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from support import runtime_server
from support.action_rows import waiting
from support.bad_input_control import attach_hello, connect_hello, send
from support.bad_input_executor import execute
from support.bad_input_registry import FAULTS, UNSERVED_METHODS, caller_of, request_of
from support.bad_input_rig import ALICE, RUNTIME, Bad, Refusal, Rig, new_id, refusal_of, running
from support.bad_input_turns import MISSING_THREAD, MISSING_TURN, fill, turn_with_result
from support.cluster import Process
from support.cut_proxy import Trouble, cut_proxy
from support.descriptors import contract
from support.postgres import PostgresServer
from turnwire.runtime.domain.turn import ThreadKey
from turnwire.wire.auth import load_tokens

pytestmark = pytest.mark.asyncio(loop_scope="module")

METHODS = contract().methods
APPROVER = "ann-token-0123456789"
OWNED = "threads/owned-thread/turns/owned-turn"
SHELL = {"SHELL_ENABLED": "true", "POOL__MAX_COMMANDS": "1", "POOL__MAX_QUEUED": "1"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def rig(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Rig]:
    """A cluster that each test leaves as it was."""
    async with running(tmp_path_factory.mktemp("bad-faults")) as rig:
        yield rig


async def _answer(rig: Rig, short: str, request: Any = None) -> Refusal:
    """Make a call that must fail as its method documents; without a request nothing is said on it."""
    method = METHODS[short]
    refusal = await rig.answer(short, Bad(() if request is None else (request,), caller_of(method)))
    refusal.check_shape(method)
    return refusal


async def _expect(rig: Rig, fault: str, **requests: Any) -> None:
    """Hold each key of the table against what its method answers; `requests` are by name of the method."""
    answers = {key: await _answer(rig, key[0], requests[key[0].partition(".")[2]]) for key in FAULTS[fault]}
    assert {key: answer.reason for key, answer in answers.items()} == {key: key[1] for key in FAULTS[fault]}


async def _ending(call: Any) -> Refusal:
    """Read a stream to its end, which must be a refusal."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        while await call.read() is not grpc.aio.EOF:
            pass
    return refusal_of(caught.value)


async def _owe_an_answer(rig: Rig) -> Any:
    """Attach as a runtime that takes a command of alice's and never tells its end; returns the stream."""
    attach = rig.open("ControlService.Attach", caller=RUNTIME, seconds=60)
    hello = attach_hello("slow-runtime")
    hello.hello.turns.add(scope="acme", turn=OWNED, epoch=1)
    hello.hello.snapshot_complete = True
    await attach.write(hello)
    assert (await attach.read()).HasField("welcome")
    await rig.ask("ControlService.SendCommand", send(new_id(), OWNED))
    assert (await attach.read()).HasField("delivery")
    return attach


async def _hold_room(rig: Rig, call: str) -> Any:
    """Run a command that lasts; returns its stream once it has started."""
    sleep = execute(call, "shell", {"command": "sleep 60"})
    stream = rig.open("ToolExecutorService.Execute", sleep, caller=RUNTIME, seconds=60)
    while not (await stream.read()).HasField("started"):
        pass
    return stream


async def _hang(rig: Rig) -> Any:
    """Run a turn that does not end; returns its stream once the model has spoken."""
    stream = rig.open("TurnService.RunTurn", fill(request_of("TurnService.RunTurn"), agent="hang"))
    while not any(event.HasField("llm") for event in (await stream.read()).events):
        pass
    return stream


def _turns() -> dict[str, Any]:
    names = ("RunTurn", "StartTurn")
    return {name: fill(request_of(f"TurnService.{name}")) for name in names}


@asynccontextmanager
async def _leaving(rig: Rig, process: Process) -> AsyncIterator[None]:
    """Have a process begin to leave, and wait until it says so."""
    watch = health_pb2_grpc.HealthStub(rig.channel(process)).Watch(health_pb2.HealthCheckRequest())
    assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
    process.signal_to_leave()
    assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
    yield
    watch.cancel()


async def test_a_process_that_is_full_and_one_that_leaves_refuse_new_work_and_say_so(tmp_path: Path) -> None:
    full = {"COMMANDS__MAX_PENDING_PER_SCOPE": "1"}
    # Streams that are refused before they are read: a write would only race with the answer.
    streams = {"Connect": None, "Attach": None}
    streams["WatchCommands"] = request_of("ControlService.WatchCommands")
    async with running(tmp_path, runtime={"TURNS__MAX_LIVE": "1"}, control=full, executor=SHELL) as rig:
        held = [await _hang(rig), await _hold_room(rig, "call-1"), await _owe_an_answer(rig)]
        queued = execute("call-2", "shell", {"command": "true"})
        held.append(rig.open("ToolExecutorService.Execute", queued, caller=RUNTIME, seconds=60))
        assert (await held[-1].read()).HasField("accepted")
        late = {"Execute": execute("call-3", "shell", {"command": "true"}), "SendCommand": send(new_id())}
        await _expect(rig, "overloaded", **_turns(), **late)
        async with (
            _leaving(rig, rig.cluster.runtime),
            _leaving(rig, rig.cluster.executor),
            _leaving(rig, rig.cluster.control),
        ):
            await _expect(rig, "draining", **_turns(), **late, **streams)
        for call in held:
            call.cancel()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hasty(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Rig]:
    """A control service alone, which waits for nobody for long."""
    seconds = {
        "STREAMS__CLIENT_HEARTBEAT_SECONDS": "0.5",
        "STREAMS__RUNTIME_HEARTBEAT_SECONDS": "0.3",
        "STREAMS__STALL_SECONDS": "0.5",
    }
    async with running(tmp_path_factory.mktemp("hasty"), only=("control",), control=seconds) as rig:
        yield rig


def _hello(short: str) -> Any:
    return connect_hello() if short.endswith(".Connect") else attach_hello()


@pytest.mark.parametrize(("short", "reason"), FAULTS["silent"])
async def test_a_silent_peer_is_cut_off(hasty: Rig, short: str, reason: str) -> None:
    assert (await _answer(hasty, short, _hello(short))).reason == reason


def _provoking(short: str) -> Any:
    """A message whose answer is long."""
    request = request_of(short)
    if short.endswith(".Connect"):
        request.command.command_id = "x" * 5000
    else:
        request.delivery_outcome.scope = "x" * 60_000
        request.delivery_outcome.outcome.command_id = "some-command"
        request.delivery_outcome.outcome.kind = 1
    return request


def _ping(short: str) -> Any:
    request = request_of(short)
    request.ping.SetInParent()
    return request


# A client that takes 64 KiB ahead of its reader, and no more as it goes.
NARROW = [
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 65_535),
    ("grpc.use_local_subchannel_pool", 1),
]


@pytest.mark.parametrize(("short", "reason"), FAULTS["stalled"])
async def test_a_peer_that_takes_nothing_is_cut_off(hasty: Rig, short: str, reason: str) -> None:
    async with grpc.aio.insecure_channel(hasty.cluster.control.target, options=NARROW) as channel:
        call = hasty.open(short, caller=caller_of(METHODS[short]), channel=channel)
        await call.write(_hello(short))
        # As much as the server still reads, and more than it can write to somebody who does not.
        for _ in range(900 if short.endswith(".Connect") else 20):
            await call.write(_provoking(short))
        # The end stands behind what we have not read: only time tells that it has been decided.
        ended = asyncio.ensure_future(call.code())
        for _ in range(20):
            await call.write(_ping(short))  # it is not silent
            await asyncio.wait({ended}, timeout=0.1)
        refusal = await _ending(call)
    refusal.check_shape(METHODS[short])
    assert refusal.reason == reason


def _serving(folder: Path, short: str) -> AbstractAsyncContextManager[runtime_server.Runtime]:
    """Serve agents, with a heartbeat that comes soon; actions made by hand are of a scope with a token."""
    agents = {"long": [[{"text": "$user"}] * 20], "plain": [[{"text": "hi"}]]}
    authenticator = None
    if short.endswith(".WatchActions"):
        entry = {"token": APPROVER, "subject": "ann", "scopes": ["team"], "roles": ["approver"]}
        (folder / "tokens.json").write_text(json.dumps([entry]))
        authenticator = load_tokens(folder / "tokens.json")
    return runtime_server.running(folder, agents, heartbeat=0.2, authenticator=authenticator)


def _inbox(runtime: runtime_server.Runtime) -> Any:
    request = request_of("TurnService.WatchActions", parent="threads/-")
    return runtime.turns.WatchActions(request, metadata=(("authorization", f"Bearer {APPROVER}"),))


async def _reading(runtime: runtime_server.Runtime, short: str) -> Any:
    """Begin a stream of a method that has more to tell than the transport takes unread."""
    if short.endswith(".WatchActions"):
        for number in range(20):
            await waiting(runtime.store, f"call-{number}")
        arguments = json.dumps({"text": "x" * 1_500_000})
        await runtime.store.change(
            ThreadKey("team", "any"), lambda db: db.execute("UPDATE actions SET arguments = ?", (arguments,))
        )
        return _inbox(runtime)
    asked = runtime_server.request("long", text="x" * 700_000)
    header = (await runtime.run(asked))[0].header
    if short.endswith(".RunTurn"):
        return runtime.turns.RunTurn(asked)
    if short.endswith(".WatchTurn"):
        return runtime.turns.WatchTurn(request_of(short, turn=header.turn))
    for _ in range(8):
        await runtime.run(runtime_server.request("long", thread=header.thread, text="x" * 700_000))
    return runtime.threads.WatchThread(request_of(short, thread=header.thread))


@pytest.mark.parametrize(("short", "reason"), FAULTS["leaving"])
async def test_watches_end_with_a_process_that_leaves(tmp_path: Path, short: str, reason: str) -> None:
    async with _serving(tmp_path, short) as runtime:
        if short.endswith(".WatchActions"):
            await waiting(runtime.store)
            call = _inbox(runtime)
        else:
            thread = (await runtime.run(runtime_server.request("plain")))[0].header.thread
            call = runtime.threads.WatchThread(request_of(short, thread=thread))
        await call.read()
        runtime.store.send_away()
        refusal = await _ending(call)
    refusal.check_shape(METHODS[short])
    assert refusal.reason == reason


@pytest.mark.parametrize(("short", "reason"), FAULTS["unread"])
async def test_a_reader_that_takes_nothing_is_cut_off(tmp_path: Path, short: str, reason: str) -> None:
    async with _serving(tmp_path, short) as runtime:
        runtime.store.ticker.stall = 0.4
        call = await _reading(runtime, short)
        await call.read()
        await runtime.until_no_reader()
        refusal = await _ending(call)
    refusal.check_shape(METHODS[short])
    assert refusal.reason == reason


async def test_readers_of_a_turn_that_another_runtime_took_are_told_to_come_back(rig: Rig) -> None:
    request = fill(request_of("TurnService.RunTurn"), agent="slow")
    (started, *_) = await rig.until("TurnService.RunTurn", request, lambda answer: answer.HasField("header"))
    turn = started.header.turn
    watch = rig.open("TurnService.WatchTurn", request_of("TurnService.WatchTurn", turn=turn))
    assert (await watch.read()).HasField("header")
    taken = "UPDATE turn_heads SET epoch = epoch + 1 WHERE turn_id = ?"
    assert rig.change("runtime", taken, turn.rpartition("/")[2]) == 1
    refusal = await _ending(watch)
    refusal.check_shape(METHODS["TurnService.WatchTurn"])
    assert (("TurnService.WatchTurn", refusal.reason),) == FAULTS["owner_lost"]


async def test_a_result_cannot_be_read_while_the_executor_is_gone(rig: Rig) -> None:
    made = await turn_with_result(rig)
    request = request_of("TurnService.ReadToolResult", turn=made.turn, call_id=made.result)
    await rig.cluster.executor.kill()
    try:
        await _expect(rig, "executor_gone", ReadToolResult=request)
    finally:
        await rig.cluster.executor.start()


def _reads() -> dict[str, Any]:
    """Requests that cannot be answered without the store."""
    call = {"scope": "acme", "execution_id": f"{MISSING_TURN}/call-1"}
    return {
        "TurnService.WatchTurn": {"turn": MISSING_TURN},
        "TurnService.GetTurn": {"name": MISSING_TURN},
        "TurnService.ListTurns": {"parent": "threads/-"},
        "TurnService.ReadToolResult": {"turn": MISSING_TURN, "call_id": "call-1"},
        "ThreadService.GetThread": {"name": MISSING_THREAD},
        "ThreadService.ListThreads": {},
        "ThreadService.ListMessages": {"parent": MISSING_THREAD},
        "ThreadService.ListQueuedTurns": {"parent": MISSING_THREAD},
        "ThreadService.WatchThread": {"thread": MISSING_THREAD},
        "AdminService.PruneEvents": {"dry_run": True},
        "ToolExecutorService.CancelExecution": call,
        "ToolExecutorService.LookupExecution": call,
    }


async def _check_reads(rig: Rig, *services: str) -> None:
    """Each read of these services is refused for want of the store."""
    for short, fields in _reads().items():
        if short.partition(".")[0] in services:
            refusal = await _answer(rig, short, request_of(short, **fields))
            assert refusal.answer == ("UNAVAILABLE", "STORE_UNAVAILABLE"), short


async def test_reads_of_a_database_that_cannot_be_reached_are_refused_until_it_is_back(
    rig: Rig, postgres: PostgresServer
) -> None:
    url = urlsplit(postgres.tcp_url(urlsplit(postgres.fresh()).path.strip("/")))
    assert url.port is not None
    runtime = rig.cluster.runtime
    async with cut_proxy("127.0.0.1", url.port) as proxy:
        through = url.netloc.rpartition("@")[0] + f"@127.0.0.1:{proxy.port}"
        runtime.environment["TURNWIRE_RUNTIME_STORE__URL"] = url._replace(netloc=through).geturl()
        try:
            await runtime.restart()
            proxy.open = False
            proxy.trouble(Trouble.CUT)
            await _check_reads(rig, "TurnService", "ThreadService", "AdminService")
            proxy.open = True
            health = health_pb2_grpc.HealthStub(rig.channel(runtime))
            watch = health.Watch(health_pb2.HealthCheckRequest(service="turnwire.api.runtime.v1.TurnService"))
            while (await watch.read()).status != health_pb2.HealthCheckResponse.SERVING:
                pass
            watch.cancel()
            known = request_of("TurnService.GetTurn", name=MISSING_TURN)
            assert (await _answer(rig, "TurnService.GetTurn", known)).reason == "TURN_NOT_FOUND"
        finally:
            del runtime.environment["TURNWIRE_RUNTIME_STORE__URL"]
            await runtime.restart()


async def test_reads_of_a_ledger_that_has_gone_are_refused_until_it_is_back(rig: Rig) -> None:
    # Connections are opened at the first read, so the executor starts anew; without the control service,
    # which would deliver what earlier tests left behind and so have the ledger read before it has gone.
    moved = rig.data / "executor.db"
    await rig.cluster.control.kill()
    await rig.cluster.executor.restart()
    moved.rename(moved.with_suffix(".gone"))
    try:
        await _check_reads(rig, "ToolExecutorService")
        refusal = await _answer(rig, "ToolExecutorService.Execute", execute("call-lost"))
        assert refusal.reason == "STORE_UNAVAILABLE"
    finally:
        moved.with_suffix(".gone").rename(moved)
        await rig.cluster.control.start()


async def test_every_service_has_reads_that_want_the_store() -> None:
    services = {(short.partition(".")[0], "STORE_UNAVAILABLE") for short in _reads()}
    assert services | {("ControlService", "STORE_UNAVAILABLE")} == set(FAULTS["store_gone"])


async def test_commands_are_refused_while_the_ledger_cannot_be_written(rig: Rig) -> None:
    health = health_pb2_grpc.HealthStub(rig.channel(rig.cluster.control))
    watch = health.Watch(health_pb2.HealthCheckRequest(service="turnwire.api.control.v1.ControlService"))
    assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
    other = sqlite3.connect(rig.data / "control.db", timeout=10, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        waiting = rig.open("ControlService.SendCommand", send(new_id()), caller=ALICE)
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        refusal = await _answer(rig, "ControlService.SendCommand", send(new_id()))
        assert refusal.answer == ("UNAVAILABLE", "STORE_UNAVAILABLE")
    finally:
        other.execute("ROLLBACK")
        other.close()
    assert (await waiting).command.command.command_id
    watch.cancel()


DEFECTS = {
    "runtime": ("turn_heads", "threads", "turns"),
    "executor": ("execution",),
    "control": ("commands",),
}


async def test_a_defect_is_told_as_an_id_that_stands_in_the_log_and_nothing_more(rig: Rig) -> None:
    requests = _reads() | {
        "ThreadService.CreateThread": {},
        "ControlService.GetCommand": {"command_id": new_id()},
    }
    requests |= {"ControlService.ListCommands": {}, "ThreadService.ListThreads": {}}
    found: dict[str, Refusal] = {}
    tables = [(store, table) for store, names in DEFECTS.items() for table in names]
    for store, table in tables:
        rig.change(store, f"ALTER TABLE {table} RENAME TO {table}_lost")
    try:
        for short, fields in requests.items():
            found[short] = await _answer(rig, short, request_of(short, **fields))
    finally:
        for store, table in tables:
            rig.change(store, f"ALTER TABLE {table}_lost RENAME TO {table}")
    assert {refusal.answer for refusal in found.values()} == {("INTERNAL", "INTERNAL")}
    assert len({refusal.message for refusal in found.values()}) == 1
    assert {(short.partition(".")[0], "INTERNAL") for short in found} == set(FAULTS["defect"])
    for short, refusal in found.items():
        (line,) = _log(rig.process(METHODS[short]), refusal.metadata["error_id"])
        assert "Traceback" in json.dumps(line)


def _log(process: Process, text: str) -> list[Any]:
    lines = process.log.read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines if text in line]


async def test_every_fault_of_the_table_is_provoked_here() -> None:
    provoked = {
        "draining",
        "overloaded",
        "silent",
        "stalled",
        "unread",
        "leaving",
        "owner_lost",
        "executor_gone",
        "store_gone",
        "defect",
    }
    assert set(FAULTS) == provoked
    assert not {short for keys in FAULTS.values() for short, _ in keys} & UNSERVED_METHODS
