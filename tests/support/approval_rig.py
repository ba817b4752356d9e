"""Turns that wait for an approval on a real cluster, and whoever answers."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

from support.strict_provider import says
from support.turn_rig import Stream, TurnRig, turn_rig
from turnwire.api.runtime.v1 import action_pb2, turn_pb2
from turnwire.api.runtime.v1 import turn_service_pb2 as pb
from turnwire.api.runtime.v1.turn_service_pb2_grpc import TurnServiceStub

TOOLS = Path(__file__).parent / "approval_tools.py"
WAITING = turn_pb2.TURN_STATE_WAITING


class Waiting:
    """A turn that waits: its name, what it has told so far, and the file that its tools write to."""

    def __init__(self, rig: TurnRig, stream: Stream, file: Path, model: str) -> None:
        self.rig = rig
        self.turn = stream.header.turn
        self.thread = stream.header.thread
        self.events = stream.events
        self.file = file
        self.model = model

    @property
    def actions(self) -> list[action_pb2.Action]:
        """What was asked, in the model's order."""
        return [e.action_required.action for e in self.events if e.HasField("action_required")]

    @property
    def last(self) -> int:
        """The last sequence that was told."""
        return self.events[-1].sequence

    @property
    def lines(self) -> list[str]:
        """What the tools have written: a line for each run."""
        return self.file.read_text(encoding="utf-8").splitlines() if self.file.exists() else []

    async def get(self) -> turn_pb2.Turn:
        """Read the turn."""
        return (await self.rig.turns.GetTurn(pb.GetTurnRequest(name=self.turn), wait_for_ready=True)).turn

    def follow(self, after: int | None = None) -> Stream:
        """Read on, also while the turn waits."""
        request = pb.WatchTurnRequest(
            turn=self.turn, after_sequence=self.last if after is None else after, follow_while_waiting=True
        )
        return Stream(self.rig.turns.WatchTurn(request, wait_for_ready=True))

    def owner(self) -> tuple[str, str]:
        """Who holds the thread, and by which lease."""
        sql = "SELECT owner, lease FROM threads WHERE thread_id = ?"
        ((owner, lease),) = read(self.rig, sql, self.thread.rpartition("/")[2])
        return owner, lease


async def waiting(rig: TurnRig, folder: Path, *calls: str, thread: str = "") -> Waiting:
    """Run a turn that calls these tools until it waits; the reader of RunTurn ends there by itself."""
    model, file = f"m-{uuid.uuid4()}", folder / f"{uuid.uuid4()}.txt"
    tools = [(name, {"file": str(file), "line": f"{name}-{i}"}) for i, name in enumerate(calls or ("erase",))]
    rig.provider.queue(model, says("I shall.", calls=tools))
    stream = rig.run(rig.request(f"openai:{model}", thread=thread))
    await stream.rest()
    return Waiting(rig, stream, file, model)


def answer(action: action_pb2.Action, approve: bool = True, comment: str = "", **fields: Any) -> Any:
    """The answer to an action as it was shown."""
    request = pb.ResolveActionRequest(
        **{"action": action.name, "request_id": str(uuid.uuid4()), "digest": action.digest, **fields}
    )
    if approve:
        request.approve.comment = comment
    else:
        request.reject.comment = comment
    return request


def approver(rig: TurnRig) -> TurnServiceStub:
    """Another client than the one that asked for the turn."""
    return TurnServiceStub(rig.cluster.channel())


def read(rig: TurnRig, sql: str, *values: Any) -> list[tuple[Any, ...]]:
    """Read the runtime's store beside it."""
    with closing(sqlite3.connect(f"file:{rig.cluster.data}/runtime.db?mode=ro", uri=True)) as db:
        return db.execute(sql, values).fetchall()


@asynccontextmanager
async def approval_rig(folder: Path, **more: Mapping[str, str]) -> AsyncIterator[TurnRig]:
    """Three services whose executor has the tools of `approval_tools`."""
    executor = {"TURNWIRE_EXECUTOR_TOOLS": str(TOOLS)}
    async with turn_rig(folder, executor=executor, **more) as rig:
        yield rig
