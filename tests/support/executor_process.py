"""A real executor process, its client side, and a look at what it left running."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turnwire.api.common.v1 import tool_pb2
from turnwire.api.executor.v1 import execution_pb2 as ex
from turnwire.api.executor.v1 import tool_executor_service_pb2 as pb
from turnwire.api.executor.v1 import tool_executor_service_pb2_grpc as stubs
from turnwire.wire.channel import open_channel

__all__ = ["ExecutorClient", "ExecutorProcess", "Told", "client", "executor", "processes_with"]

ROOT = Path(__file__).parents[2]
SCOPE = "default-org"
_threads = itertools.count()


@dataclass
class ExecutorProcess:
    """A started executor; `log` grows while it runs."""

    process: subprocess.Popen[bytes]
    port: int
    data: Path
    log: list[dict[str, Any]] = field(default_factory=list)

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(20)

    def leave(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(20)


@contextmanager
def executor(data: Path, *, tools: Path | None = None, **variables: str) -> Iterator[ExecutorProcess]:
    """Start an executor on a free port and end it afterwards."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TURNWIRE_")}
    environment |= {"PYTHONPATH": str(ROOT / "services"), "GRPC_VERBOSITY": "NONE"}
    environment |= {f"TURNWIRE_EXECUTOR_{key}": value for key, value in variables.items()}
    if tools is not None:
        environment["TURNWIRE_EXECUTOR_TOOLS"] = str(tools)
    process = subprocess.Popen(
        [sys.executable, "-m", "turnwire.executor.main", "--port", "0", "--data", str(data)],
        stdout=subprocess.PIPE,
        env=environment,
    )
    try:
        yield _listening(process, data)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _listening(process: subprocess.Popen[bytes], data: Path) -> ExecutorProcess:
    assert process.stdout is not None
    stdout = process.stdout
    for raw in stdout:
        line = json.loads(raw)
        if line["event"] == "server.listening":
            started = ExecutorProcess(process, int(line["address"].rpartition(":")[2]), data)
            threading.Thread(target=_drain, args=(stdout, started.log), daemon=True).start()
            return started
    raise AssertionError(f"the executor ended with {process.wait()} before it listened")


def _drain(stdout: Any, log: list[dict[str, Any]]) -> None:
    try:
        for raw in stdout:
            log.append(json.loads(raw))
    except ValueError:
        return  # The pipe was closed under us: the test is over.


@dataclass
class Told:
    """What one Execute stream told."""

    kinds: list[str] = field(default_factory=list)
    progress: list[str] = field(default_factory=list)
    result: ex.ExecutionResult | None = None
    suspended: ex.ExecutionSuspended | None = None
    seconds: float = 0.0

    @property
    def outcome(self) -> str:
        assert self.result is not None
        return tool_pb2.ToolOutcome.Name(self.result.outcome).removeprefix("TOOL_OUTCOME_")

    @property
    def content(self) -> str:
        assert self.result is not None
        return self.result.content


class ExecutorClient:
    """Calls of one thread and turn."""

    def __init__(self, channel: Any, *, thread: str, scope: str = SCOPE) -> None:
        self.channel = channel
        self.stub = stubs.ToolExecutorServiceStub(channel)
        self.thread = thread
        self.scope = scope

    def execution_id(self, call: str) -> str:
        return f"threads/{self.thread}/turns/turn-1/{call}"

    def request(self, call: str, tool: str, arguments: Any = None, **fields: Any) -> pb.ExecuteRequest:
        fields = {"attempt": 1, "epoch": 1, **fields}
        text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
        timeout = fields.pop("timeout", None)
        request = pb.ExecuteRequest(
            scope=self.scope,
            execution_id=self.execution_id(call),
            tool_name=tool,
            arguments_json=text,
            **fields,
        )
        if timeout is not None:
            request.execution_timeout.FromMilliseconds(round(timeout * 1000))
        return request

    def stream(self, call: str, tool: str, arguments: Any = None, **fields: Any) -> Any:
        return self.stub.Execute(self.request(call, tool, arguments, **fields))

    async def execute(self, call: str, tool: str, arguments: Any = None, **fields: Any) -> Told:
        return await self.follow(self.stream(call, tool, arguments, **fields))

    async def follow(self, stream: Any) -> Told:
        told = Told()
        began = time.monotonic()
        async for response in stream:
            kind = response.WhichOneof("event")
            told.kinds.append(kind)
            if kind == "progress":
                told.progress.append(response.progress.text)
            elif kind == "result":
                assert told.result is None, "a second result"
                told.result = response.result
            elif kind == "suspended":
                told.suspended = response.suspended
        told.seconds = time.monotonic() - began
        return told

    async def until(self, stream: Any, kind: str) -> pb.ExecuteResponse:
        """Read a stream up to the first event of a kind."""
        async for response in stream:
            if response.WhichOneof("event") == kind:
                return response
        raise AssertionError(f"the stream ended without {kind}")

    async def cancel(self, call: str, epoch: int = 1) -> int:
        answer = await self.stub.CancelExecution(
            pb.CancelExecutionRequest(
                scope=self.scope, execution_id=self.execution_id(call), epoch=epoch, cause="test"
            )
        )
        return int(answer.state)

    async def lookup(self, call: str, attempt: int = 0) -> pb.LookupExecutionResponse:
        return await self.stub.LookupExecution(
            pb.LookupExecutionRequest(scope=self.scope, execution_id=self.execution_id(call), attempt=attempt)
        )

    async def read(self, handle: str, **bounds: int) -> bytes:
        request = pb.ReadResultRequest(scope=self.scope, handle=handle)
        for name, value in bounds.items():
            setattr(request.range, name, value)
        return b"".join([chunk.data async for chunk in self.stub.ReadResult(request)])


@asynccontextmanager
async def client(process: ExecutorProcess, **options: Any) -> AsyncIterator[ExecutorClient]:
    """Open a client with a thread of its own, so that no test meets the fences of another."""
    options.setdefault("thread", f"thread-{next(_threads)}")
    async with open_channel(f"127.0.0.1:{process.port}") as channel:
        yield ExecutorClient(channel, **options)


def processes_with(text: str) -> list[int]:
    """List living processes whose environment holds `text`."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            environ = Path(f"/proc/{name}/environ").read_bytes()
            state = Path(f"/proc/{name}/stat").read_bytes().rpartition(b") ")[2][:1]
        except OSError:
            continue
        if text.encode() in environ and state not in b"ZX":
            found.append(int(name))
    return found
