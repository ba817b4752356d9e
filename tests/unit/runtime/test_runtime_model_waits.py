"""Whatever a model call waits for, a cancel ends it at once, and everything it held is given back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from support.model_replay import Answer, ReplayServer, replay_server
from support.runtime_fakes import FakeJournal, Turn
from turnwire.extend.errors import AgentCancelledError
from turnwire.extend.events import StepStarted, TurnState, Waiting
from turnwire.extend.llm import TextDelta, UsageProvenance
from turnwire.runtime.models.registry import ModelRegistry
from turnwire.runtime.models.settings import BreakerSettings, ModelSettings, ProviderProfile, RetrySettings

HELLO = (
    b'data: {"choices":[{"delta":{"content":"Hel"}}]}\n\n'
    b'data: {"choices":[{"delta":{"content":"lo"},"finish_reason":"stop"}]}\n\n'
    b"data: [DONE]\n\n"
)
FIRST = HELLO[: HELLO.index(b"\n\n") + 2]
BUSY = Answer(b"{}", status=429, headers={"retry-after": "50"})
DOWN = Answer(b"{}", status=503)
BROKEN = RetrySettings(attempts=3, first_delay_seconds=0.0)

Reached = Callable[[ReplayServer, FakeJournal], Awaitable[None]]


@asynccontextmanager
async def registry_at(url: str, **settings: Any) -> AsyncIterator[ModelRegistry]:
    profile = ProviderProfile(base_url=url)
    registry = ModelRegistry(ModelSettings(providers={"local": profile}, retries=BROKEN, **settings))
    try:
        yield registry
    finally:
        await registry.close()


def turn(registry: ModelRegistry) -> Turn:
    return Turn(registry.resolve("local:m"))  # type: ignore[arg-type]


async def cancelled(made: Turn, reached: Callable[[], Awaitable[None]]) -> None:
    async def act() -> None:
        async with asyncio.timeout(5):
            await reached()
        made.token.fire(AgentCancelledError("enough"))

    assert await made.run_while(act) is TurnState.CANCELLED
    assert made.end.stop_reason == "cancelled"


async def connected(server: ReplayServer, journal: FakeJournal) -> None:
    while not server.connections:
        await asyncio.sleep(0)


async def asked(server: ReplayServer, journal: FakeJournal) -> None:
    while not server.seen:
        await asyncio.sleep(0)


async def waits(server: ReplayServer, journal: FakeJournal) -> None:
    await journal.saw(Waiting)


async def speaks(server: ReplayServer, journal: FakeJournal) -> None:
    await journal.saw(TextDelta)


@pytest.mark.parametrize(
    ("answer", "reached", "text"),
    [
        pytest.param(Answer(silent=True), asked, "", id="first byte"),
        pytest.param(Answer(FIRST, hang=True), speaks, "Hel", id="between chunks"),
        pytest.param(BUSY, waits, "", id="sleep before a repeat"),
    ],
)
async def test_a_cancel_ends_the_wait(answer: Answer, reached: Reached, text: str) -> None:
    async with replay_server(answer) as server, registry_at(server.url) as registry:
        made = turn(registry)
        await cancelled(made, lambda: reached(server, made.journal))
        if answer is not BUSY:
            # What was being read is hung up on; what was answered is kept for the next request.
            async with asyncio.timeout(5):
                await server.closed.wait()
        assert made.end.text == text
    assert made.end.usage.tokens.provenance in (UsageProvenance.ESTIMATED, UsageProvenance.REPORTED)


async def test_a_cancel_ends_the_wait_for_a_connection() -> None:
    async with (
        replay_server(Answer(silent=True)) as server,
        # The server never answers the handshake.
        registry_at(server.url.replace("http:", "https:")) as registry,
    ):
        made = turn(registry)
        await cancelled(made, lambda: connected(server, made.journal))
        async with asyncio.timeout(5):
            await server.closed.wait()
    assert server.seen == []
    assert made.end.usage.model_calls == 0


async def test_a_cancel_ends_the_wait_for_a_circuit_to_close() -> None:
    breaker = BreakerSettings(failures=1, open_seconds=50)
    async with replay_server(DOWN) as server, registry_at(server.url, breaker=breaker) as registry:
        made = turn(registry)
        await cancelled(made, lambda: waits(server, made.journal))
        (told,) = made.journal.of(Waiting)
        assert (told.what, told.next_attempt) == ("circuit-breaker", 2)
        assert 49 < told.seconds <= 55
        assert len(server.seen) == 1


async def test_a_cancel_ends_the_wait_for_a_slot_and_the_next_in_the_queue_goes_on() -> None:
    gate = asyncio.Semaphore(0)
    answers = [Answer(HELLO, piece=len(FIRST), gate=gate), Answer(HELLO)]
    async with (
        replay_server(*answers) as server,
        registry_at(server.url, max_concurrent_calls=1) as registry,
    ):
        first, second, third = (turn(registry) for _ in range(3))
        async with asyncio.timeout(10), asyncio.TaskGroup() as group:
            running = [group.create_task(first.run())]
            await first.journal.saw(TextDelta)
            for made in (second, third):
                running.append(group.create_task(made.run()))
                await made.journal.saw(Waiting)
            assert len(server.seen) == 1
            second.token.fire(AgentCancelledError("enough"))
            assert await running[1] is TurnState.CANCELLED
            gate.release()
            gate.release()
        assert [t.result() for t in running] == [
            TurnState.COMPLETED,
            TurnState.CANCELLED,
            TurnState.COMPLETED,
        ]
        for made in (second, third):
            assert made.journal.of(Waiting) == [Waiting("model-slot", 0.0)]
        found = registry.gate_of("local:m")
        assert found is not None
        assert (found.slots.taken, found.slots.waiting) == (0, 0)
    assert second.end.usage.model_calls == 0


async def test_a_cancelled_call_gives_its_slot_to_the_next() -> None:
    answers = [Answer(FIRST, hang=True), Answer(HELLO)]
    async with (
        replay_server(*answers) as server,
        registry_at(server.url, max_concurrent_calls=1) as registry,
    ):
        first, second = turn(registry), turn(registry)
        async with asyncio.timeout(10), asyncio.TaskGroup() as group:
            group.create_task(first.run())
            await first.journal.saw(TextDelta)
            next_one = group.create_task(second.run())
            await second.journal.saw(Waiting)
            first.token.fire(AgentCancelledError("enough"))
        assert next_one.result() is TurnState.COMPLETED


async def test_a_cancel_before_the_call_asks_nobody() -> None:
    async with replay_server(Answer(HELLO)) as server, registry_at(server.url) as registry:
        made = turn(registry)
        made.token.fire(AgentCancelledError("enough"))
        assert await made.run() is TurnState.CANCELLED
        assert server.seen == []
    assert made.journal.of(StepStarted) == []
