"""One measurement of `bench.flat` in a process of its own: a store opened anew, turns on it, and the CPU.

Prints JSON: CPU seconds a turn, or a step.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from bench.settings import synchronous
from bench.store_files import AGENT, SCOPE, thread_id
from turnwire.extend.events import (
    StepCommitted,
    ToolCallFinished,
    ToolCallStarted,
    ToolOutcome,
    TurnFinished,
    TurnState,
)
from turnwire.extend.llm import TextDelta
from turnwire.runtime.domain.message import CallPart, ContentPart
from turnwire.runtime.domain.turn import InputPart, StartCommand, ThreadKey, TurnSpec
from turnwire.runtime.event_codec import encode_event, open_attempt, trim_page
from turnwire.runtime.ports import TurnJournal
from turnwire.runtime.store.leases import enter
from turnwire.runtime.store.turn_store import TurnStore
from turnwire.storage.database import database_at
from turnwire.storage.sqlite import Synchronous

DONE = TurnFinished(TurnState.COMPLETED, "completed", 0.1, 1)
DELTAS = 40
WARM_UP = 10


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[TurnStore]:
    """The store as a runtime opens it."""

    def fatal(error: BaseException) -> None:
        raise error

    mode: Synchronous = "FULL" if synchronous() == "FULL" else "NORMAL"
    database = database_at(path, "turnwire.runtime", on_fatal=fatal, synchronous=mode)
    await database.open()
    owner = f"bench/{uuid.uuid4().hex}"
    try:
        named = await database.claim_name("bench")
        await database.writer.run(lambda db: enter(db, owner, alone=True, named=named))
        yield TurnStore(database, encode_event, trim_page, owner, read_tail=open_attempt)
    finally:
        await database.close()


async def begin(store: TurnStore, thread: str) -> TurnJournal:
    """Admit a turn of a thread and claim it."""
    spec = TurnSpec(thread=f"threads/{thread}", parts=(InputPart(kind="text", text="hello"),))
    admitted = await store.admit(StartCommand(SCOPE, str(uuid.uuid4()), spec), AGENT, "digest", 30)
    assert admitted.journal is not None
    return admitted.journal


def answer(step: int) -> ContentPart:
    """What the model said in a step."""
    return ContentPart(InputPart(kind="text", text="an answer of a few words " * 8), step)


async def turn(store: TurnStore, thread: str) -> None:
    """One turn with all that the engine asks of the store: admission, history, tokens, step, end, replay."""
    journal = await begin(store, thread)
    key = journal.key
    await store.transcript(ThreadKey(SCOPE, thread))
    journal.begin_answer(uuid.uuid4().hex)
    journal.at(step=1)
    for _ in range(DELTAS):
        journal.emit(TextDelta("token "))
    journal.commit_step([answer(1)], [StepCommitted("message")])
    await journal.finish(DONE, interrupted_reason="", applied=())
    row, log = await store.follow(key)
    reader = store.reader(key, log, 0, row.last_sequence)
    async for _ in reader:
        pass
    reader.close()


async def step(journal: TurnJournal, number: int) -> None:
    """One step with a call: tokens, the answer, the call's start and its result."""
    call = CallPart(uuid.uuid4().hex[:20], f"call_{number}", "add", '{"a": 1, "b": 2}', number, 0)
    journal.at(step=number)
    for _ in range(DELTAS):
        journal.emit(TextDelta("token "))
    journal.commit_step([answer(number), call], [StepCommitted("message", (call.call_id,))])
    await journal.flush()
    journal.record_start(call, ToolCallStarted(call.call_id, "add", 1, 60.0))
    end = ToolCallFinished(call.call_id, "add", ToolOutcome.SUCCEEDED, "3", False, 0.1, 1, 0)
    journal.record_outcome(replace(call, outcome=ToolOutcome.SUCCEEDED, content="3"), end)
    await journal.flush()


async def measure_turns(path: Path, threads: int, count: int) -> float:
    """CPU seconds a turn, on threads at random."""
    choice = random.Random(count)
    async with opened(path) as store:
        for _ in range(WARM_UP):
            await turn(store, thread_id(choice.randrange(threads)))
        begun = time.process_time()
        for _ in range(count):
            await turn(store, thread_id(choice.randrange(threads)))
        return (time.process_time() - begun) / count


async def measure_steps(path: Path, count: int) -> float:
    """CPU seconds a step of one turn of the first thread."""
    async with opened(path) as store:
        journal = await begin(store, thread_id(0))
        journal.begin_answer(uuid.uuid4().hex)
        for number in range(1, WARM_UP + 1):
            await step(journal, number)
        begun = time.process_time()
        for number in range(WARM_UP + 1, WARM_UP + count + 1):
            await step(journal, number)
        used = (time.process_time() - begun) / count
        await journal.finish(DONE, interrupted_reason="", applied=())
        return used


def forget_pages(path: Path) -> None:
    """Have the file read from the disk, as after a restart of the machine."""
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--turns", type=int, default=0)
    parser.add_argument("--steps", type=int, default=0)
    options = parser.parse_args()
    forget_pages(options.path)
    if options.turns:
        work = measure_turns(options.path, options.threads, options.turns)
    else:
        work = measure_steps(options.path, options.steps)
    import uvloop

    print(json.dumps({"cpu": uvloop.run(work)}))


if __name__ == "__main__":
    main()
