"""A cluster with callers of two scopes, and one way to make any call of the contract go wrong."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import message_factory
from google.rpc import error_details_pb2, status_pb2

from support.cluster import Cluster, Process
from support.descriptors import Answer, Method, contract

__all__ = [
    "ALICE",
    "ANN",
    "BOB",
    "EXECUTOR",
    "NOBODY",
    "OPERATOR",
    "RUNTIME",
    "Bad",
    "Caller",
    "Refusal",
    "Rig",
    "environments",
    "new_id",
    "refusal_of",
    "running",
]

DOMAIN = "turnwire.dev"
SECONDS = 30.0
LONG = "a line that is long enough\n" * 200
STORES = ("control", "executor", "runtime")
_LEAKS = ("Traceback", 'File "', ".py", "sqlite", "Exception", "Error(", "<class", "/site-packages/")


@dataclass(frozen=True, slots=True)
class Caller:
    """Credentials: an empty token sends none; `scope` goes out as metadata when set."""

    token: str
    scope: str = ""

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What the call carries."""
        pairs = (("authorization", f"Bearer {self.token}"),) if self.token else ()
        return (*pairs, ("turnwire-scope", self.scope)) if self.scope else pairs

    def within(self, scope: str) -> Caller:
        """The same caller, asking for a scope."""
        return Caller(self.token, scope)


NOBODY = Caller("")
ALICE, BOB = Caller("alice-token-0123456"), Caller("bob-token-012345678")
ANN = Caller("ann-token-012345678")
OPERATOR = Caller("operator-token-01234")
RUNTIME, CONTROL = Caller("runtime-token-012345"), Caller("control-token-012345")
EXECUTOR = Caller("executor-token-01234")

_TOKENS: list[dict[str, Any]] = [
    {"token": ALICE.token, "subject": "alice", "scopes": ["acme"], "roles": ["caller"]},
    {"token": BOB.token, "subject": "bob", "scopes": ["globex"], "roles": ["caller"]},
    {"token": ANN.token, "subject": "ann", "scopes": ["acme"], "roles": ["approver"]},
    {"token": OPERATOR.token, "subject": "root", "scopes": ["acme", "globex"], "roles": ["operator"]},
    {"token": RUNTIME.token, "subject": "runtime", "roles": ["runtime"]},
    {"token": CONTROL.token, "subject": "control", "roles": ["control"]},
    {"token": EXECUTOR.token, "subject": "executor", "roles": ["executor"]},
]


def _agent(model: str, more: str = "", scope: str = "*") -> str:
    return f"model: '{model}'\norganization_id: '{scope}'\n{more}"


def _script(*calls: list[dict[str, Any]]) -> str:
    return _agent("scripted:" + json.dumps({"calls": list(calls)}), "tools: ['*']\n")


AGENTS = {
    "plain": _script([{"text": "hello"}]),
    "hang": _script([{"text": "begun"}, {"hang": True}]),
    # Reads a file that lies in the workspace of each scope: more than is shown of a result.
    "reader": _script(
        [{"tool_call": {"name": "read_file", "arguments": {"path": "long.txt"}}}], [{"text": "read"}]
    ),
    "unkeyed": _agent("openai:gpt-none"),
    "strange": _agent("nosuch:model"),
    "slow": _script([{"text": "word " * 2000, "size": 5, "every": 0.05}]),
    "theirs": _agent("demo:", scope="globex"),
}


@dataclass(frozen=True, slots=True)
class Bad:
    """A call that must be refused: messages, or bytes that are none, and who sends them."""

    requests: tuple[Any, ...]
    caller: Caller = ALICE

    @classmethod
    def of(cls, *requests: Any, caller: Caller = ALICE) -> Bad:
        """Write the usual case shortly."""
        return cls(requests, caller)


@dataclass(frozen=True, slots=True)
class Refusal:
    """How a call ended."""

    code: str
    message: str
    reason: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    fields: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()

    @property
    def answer(self) -> Answer:
        """Code and reason."""
        return (self.code, self.reason)

    def check_shape(self, method: Method) -> None:
        """Hold it against what every refusal promises: documented, whole, and free of our insides."""
        for text in self.texts:
            assert not any(leak in text for leak in _LEAKS), text
        assert self.answer in method.allowed, f"{method.short} does not list {self.answer}: {self.message}"
        reason = contract().reasons[self.reason]
        assert reason.code == self.code, f"{self.reason} is documented as {reason.code}, came as {self.code}"
        assert reason.keys <= set(self.metadata), f"{self.reason} lacks metadata: {self.metadata}"


def refusal_of(error: grpc.aio.AioRpcError) -> Refusal:
    """Read a status; raises AssertionError when it holds more than one ErrorInfo or a foreign one."""
    texts = [error.details() or "", *(str(value) for _, value in error.trailing_metadata() or ())]
    packed = dict(error.trailing_metadata() or ()).get("grpc-status-details-bin")
    code = error.code().name
    if packed is None:
        return Refusal(code, error.details() or "", texts=tuple(texts))
    status = status_pb2.Status.FromString(packed)
    infos: list[error_details_pb2.ErrorInfo] = []
    fields: list[str] = []
    for item in status.details:
        info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
        if item.Unpack(info):
            infos.append(info)
        elif item.Unpack(bad):
            fields += [violation.field for violation in bad.field_violations]
            texts += [violation.description for violation in bad.field_violations]
    assert [info.domain for info in infos] == [DOMAIN], infos
    assert status.message == error.details()
    texts += list(infos[0].metadata.values())
    return Refusal(
        code, status.message, infos[0].reason, dict(infos[0].metadata), tuple(fields), tuple(texts)
    )


def new_id() -> str:
    """A request id that nobody has used."""
    return str(uuid.uuid4())


def _encode(message: Any) -> bytes:
    return message if isinstance(message, bytes) else bytes(message.SerializeToString())


async def _write(call: Any, requests: Iterable[Any]) -> None:
    """Write what the server still takes: how it ended the call is read afterwards."""
    try:
        for request in requests:
            await call.write(request)
    except asyncio.InvalidStateError:
        return


class Rig:
    """Calls any method by its short name, as anybody."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.data = cluster.data
        self.made: dict[str, Any] = {}
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._stores: dict[str, tuple[sqlite3.Connection, list[str]]] = {}

    def process(self, method: Method) -> Process:
        """The process that serves a method."""
        area = method.service.split(".")[2]
        process: Process = getattr(self.cluster, area)
        return process

    def channel(self, process: Process) -> grpc.aio.Channel:
        """One channel to each process, which sends messages of any size."""
        if process.name not in self._channels:
            self._channels[process.name] = self.cluster.channel(process)
        return self._channels[process.name]

    def open(
        self,
        short: str,
        *requests: Any,
        caller: Caller = ALICE,
        seconds: float = SECONDS,
        channel: grpc.aio.Channel | None = None,
    ) -> Any:
        """Begin a call and return it; `requests` may be encoded already."""
        method = contract().methods[short]
        channel = channel or self.channel(self.process(method))
        shape = ("stream" if method.request_streaming else "unary") + (
            "_stream" if method.response_streaming else "_unary"
        )
        answer = message_factory.GetMessageClass(method.response)
        call = getattr(channel, shape)(
            method.path, request_serializer=_encode, response_deserializer=answer.FromString
        )
        given = () if method.request_streaming else requests
        return call(*given, metadata=caller.metadata or None, timeout=seconds)

    async def ask(self, short: str, *requests: Any, caller: Caller = ALICE) -> list[Any]:
        """Make a call and return every answer; raises AioRpcError."""
        method = contract().methods[short]
        call = self.open(short, *requests, caller=caller)
        try:
            if method.request_streaming:
                await _write(call, requests)
            if not method.response_streaming:
                return [await call]
            return [answer async for answer in call]
        finally:
            call.cancel()

    async def until(
        self, short: str, request: Any, wanted: Callable[[Any], bool], caller: Caller = ALICE
    ) -> list[Any]:
        """Read a stream until an answer is the wanted one, then leave; returns all that came."""
        call = self.open(short, request, caller=caller)
        seen = []
        async for answer in call:
            seen.append(answer)
            if wanted(answer):
                call.cancel()
                return seen
        raise AssertionError(f"{short} ended without what was wanted: {seen}")

    async def refusal(self, short: str, bad: Bad) -> Refusal:
        """Make a call that must fail; checks the shape of the answer and that no store has a new row."""
        before = self.rows()
        refusal = await self.answer(short, bad)
        refusal.check_shape(contract().methods[short])
        assert self.rows() == before, f"{short} left rows behind"
        return refusal

    async def answer(self, short: str, bad: Bad) -> Refusal:
        """Make a call that must fail and say how it did."""
        try:
            answers = await self.ask(short, *bad.requests, caller=bad.caller)
        except grpc.aio.AioRpcError as error:
            return refusal_of(error)
        raise AssertionError(f"{short} was not refused: {answers}")

    def rows(self) -> dict[str, int]:
        """Number of rows of each table of each store."""
        return {f"{store}.{table}": n for store in STORES for table, n in self._counted(store).items()}

    def _counted(self, store: str) -> dict[str, int]:
        if store not in self._stores:
            uri = f"file:{self.data / store}.db?mode=ro"
            db = sqlite3.connect(uri, uri=True, timeout=10)
            names = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            self._stores[store] = (db, names)
        db, names = self._stores[store]
        counts = ", ".join(f'(SELECT count(*) FROM "{name}")' for name in names)
        return dict(zip(names, db.execute(f"SELECT {counts}").fetchone(), strict=True))

    def close(self) -> None:
        """Let go of the stores."""
        for db, _ in self._stores.values():
            db.close()

    def change(self, store: str, sql: str, *values: Any) -> int:
        """Change a store behind its owner's back; returns the number of rows."""
        with closing(sqlite3.connect(self.data / f"{store}.db", timeout=10)) as db, db:
            return db.execute(sql, values).rowcount


def environments(
    folder: Path,
    *,
    runtime: Mapping[str, str] | None = None,
    control: Mapping[str, str] | None = None,
    executor: Mapping[str, str] | None = None,
) -> dict[str, dict[str, str]]:
    """The environment of each process: tokens, small limits, and what a test adds, named without prefix."""
    tokens = folder / "tokens.json"
    tokens.write_text(json.dumps(_TOKENS), encoding="utf-8")
    common = {"LISTEN__TOKENS_FILE": str(tokens), "LOG__LEVEL": "INFO"}
    own: dict[str, Iterable[tuple[str, str]]] = {
        "runtime": {
            "TURNS__QUEUE_LIMIT": "2",
            "TURNS__FIRST_FEEDBACK_SECONDS": "1000",
            "EXECUTOR__TOKEN": RUNTIME.token,
            "CONTROL__TOKEN": RUNTIME.token,
            **(runtime or {}),
        }.items(),
        "control": (control or {}).items(),
        "executor": {
            "RESULT__MAX_CHARS": "1000",
            "POOL__ENTRY_POINTS": "false",
            **(executor or {}),
        }.items(),
    }
    made = {
        name: {f"TURNWIRE_{name.upper()}_{key}": value for key, value in (*common.items(), *pairs)}
        for name, pairs in own.items()
    }
    # No key of whoever runs the tests may make a model of ours work.
    made["runtime"] |= {"OPENAI_API_KEY": "", "ANTHROPIC_API_KEY": "", "GEMINI_API_KEY": ""}
    return made


@asynccontextmanager
async def running(folder: Path, *, only: Sequence[str] = (), **more: Mapping[str, str]) -> AsyncIterator[Rig]:
    """Start the three processes, or `only` some, over a new folder; `more` is as for `environments`."""
    for workspace in ("", "acme", "globex"):
        path = folder / "data" / "workspace" / workspace
        path.mkdir(parents=True)
        (path / "long.txt").write_text(LONG, encoding="utf-8")
    cluster = Cluster(folder, AGENTS, **environments(folder, **more))
    try:
        async with asyncio.TaskGroup() as tasks:
            for process in cluster.processes:
                if not only or process.name in only:
                    tasks.create_task(process.start())
        rig = Rig(cluster)
        yield rig
        rig.close()
    finally:
        await cluster.close()
