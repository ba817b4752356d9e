"""Failures that nobody saw are repeated or passed on; what was seen is never said twice."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from typing import Any

import pytest

from support.model_streams import Said, said
from turnwire.extend.llm import (
    FailureKind,
    Finish,
    FinishReason,
    LlmEvent,
    ModelRequest,
    StreamFailure,
    TextDelta,
    TextPart,
    TokenUsage,
    UsageSnapshot,
    UserMessage,
)
from turnwire.runtime.models.base import BatchedModel
from turnwire.runtime.models.fallback import FallbackModel
from turnwire.runtime.models.retry import RetryModel
from turnwire.runtime.models.scripted import ScriptedModel, read_script
from turnwire.runtime.models.settings import RetrySettings

REQUEST = ModelRequest("m", (UserMessage((TextPart("Hi"),)),))
QUICK = RetrySettings(attempts=3, first_delay_seconds=0.0)
BUSY = {"fail": {"kind": "rate-limit", "status": 429}}
GOOD = [{"text": "alpha beta"}, {"finish": "stop"}]


def attempts(*lists: list[dict[str, Any]], name: str = "scripted:a") -> ScriptedModel:
    return ScriptedModel({"calls": [{"attempts": list(lists)}]}, name)


class Waits:
    """What `on_wait` was told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, float, FailureKind]] = []
        self.usage: list[TokenUsage | None] = []
        self.first = asyncio.Event()

    def __call__(
        self,
        what: str,
        seconds: float,
        failure: StreamFailure | None,
        usage: TokenUsage | None = None,
        following: object = None,
    ) -> None:
        assert failure is not None
        self.told.append((what, seconds, failure.kind))
        self.usage.append(usage)
        self.first.set()


async def run(model: BatchedModel, waits: Waits | None = None) -> Said:
    async with asyncio.timeout(10):
        return said([event async for event in model.stream(REQUEST, on_wait=waits)])


async def test_a_failure_that_nobody_saw_is_repeated_and_reported() -> None:
    inner, waits = attempts([BUSY], [BUSY], GOOD), Waits()
    got = await run(RetryModel(inner, QUICK), waits)
    assert got.text == "alpha beta"
    assert isinstance(got.end, Finish)
    assert waits.told == [("model.retry", 0.0, FailureKind.RATE_LIMIT)] * 2


async def test_after_the_last_attempt_the_failure_is_the_answer() -> None:
    inner = attempts([BUSY])
    got = await run(RetryModel(inner, QUICK))
    assert isinstance(got.end, StreamFailure)
    assert got.end.kind is FailureKind.RATE_LIMIT
    assert len(inner.requests) == 3


async def test_text_that_was_seen_is_never_said_twice() -> None:
    inner = attempts([{"text": "alpha be"}, BUSY], GOOD)
    got = await run(RetryModel(inner, QUICK))
    assert got.text == "alpha be"
    assert isinstance(got.end, StreamFailure)
    assert got.end.partial_content == "alpha be"
    assert len(inner.requests) == 1


async def test_usage_alone_is_not_seen_and_is_told_with_the_repeat() -> None:
    inner, waits = attempts([{"usage": {"input": 9}}, BUSY], GOOD), Waits()
    got = await run(RetryModel(inner, QUICK), waits)
    assert got.text == "alpha beta"
    assert got.usage is None
    assert [usage and usage.input_tokens for usage in waits.usage] == [9]


async def test_usage_of_the_last_attempt_stays_in_the_stream() -> None:
    inner = attempts([{"usage": {"input": 9}}, BUSY])
    got = await run(RetryModel(inner, RetrySettings(attempts=1)))
    assert got.usage is not None
    assert got.usage.usage.input_tokens == 9


@pytest.mark.parametrize("kind", ["auth", "quota", "invalid-request", "context-overflow", "content-filter"])
async def test_a_failure_that_will_not_pass_is_not_repeated(kind: str) -> None:
    inner = attempts([{"fail": {"kind": kind}}], GOOD)
    assert isinstance((await run(RetryModel(inner, QUICK))).end, StreamFailure)
    assert len(inner.requests) == 1


async def test_the_time_that_the_provider_asks_for_is_given() -> None:
    inner, waits = attempts([{"fail": {"kind": "rate-limit", "retry_after": 0.01}}], GOOD), Waits()
    await run(RetryModel(inner, QUICK), waits)
    ((_, seconds, _),) = waits.told
    assert 0.01 <= seconds <= 0.011


async def test_a_provider_that_asks_for_too_long_a_wait_gets_no_repeat() -> None:
    inner = attempts([{"fail": {"kind": "rate-limit", "retry_after": 61}}], GOOD)
    assert isinstance((await run(RetryModel(inner, QUICK))).end, StreamFailure)
    assert len(inner.requests) == 1


async def test_a_wait_ends_at_once_when_the_reader_is_cancelled() -> None:
    inner = attempts([{"fail": {"kind": "rate-limit", "retry_after": 50}}], GOOD)
    waits = Waits()
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        task = group.create_task(run(RetryModel(inner, QUICK), waits))
        await waits.first.wait()
        task.cancel()
    assert task.cancelled()
    assert len(inner.requests) == 1


async def test_closing_the_stream_closes_the_model_below() -> None:
    model = RetryModel(attempts([{"text": "a"}, {"hang": True}]), QUICK)
    stream = model.stream(REQUEST)
    async with asyncio.timeout(5):
        await anext(stream)
        await stream.aclose()


# --- fallbacks ---


async def test_the_next_model_is_asked_when_the_first_fails_unseen() -> None:
    first, second, waits = attempts([BUSY]), attempts(GOOD, name="scripted:b"), Waits()
    model = FallbackModel([first, second])
    assert (await run(model, waits)).text == "alpha beta"
    assert waits.told == [("model.fallback:scripted:b", 0.0, FailureKind.RATE_LIMIT)]
    assert model.name == "scripted:a"


async def test_the_last_models_failure_is_the_answer() -> None:
    model = FallbackModel([attempts([BUSY]), attempts([{"fail": {"kind": "server"}}])])
    end = (await run(model)).end
    assert isinstance(end, StreamFailure)
    assert end.kind is FailureKind.SERVER


@pytest.mark.parametrize("kind", ["context-overflow", "content-filter", "invalid-request"])
async def test_what_another_model_should_not_be_asked_is_the_answer(kind: str) -> None:
    second = attempts(GOOD)
    end = (await run(FallbackModel([attempts([{"fail": {"kind": kind}}]), second]))).end
    assert isinstance(end, StreamFailure)
    assert not second.requests


async def test_an_unknown_model_passes_on() -> None:
    missing = {"fail": {"kind": "invalid-request", "status": 404}}
    assert (await run(FallbackModel([attempts([missing]), attempts(GOOD)]))).text == "alpha beta"


async def test_a_model_that_was_seen_is_not_replaced() -> None:
    second = attempts(GOOD)
    got = await run(FallbackModel([attempts([{"text": "al"}, BUSY]), second]))
    assert got.text == "al"
    assert not second.requests


async def test_a_good_model_with_usage_before_its_text_says_everything_once() -> None:
    script = [{"usage": {"input": 3}}, *GOOD]
    model = FallbackModel([attempts(script), attempts([BUSY])])
    async with asyncio.timeout(5):
        events = [event async for event in model.stream(REQUEST)]
    assert [type(event) for event in events].count(UsageSnapshot) == 1
    assert said(events).text == "alpha beta"


def test_a_list_without_models_is_refused() -> None:
    with pytest.raises(ValueError):
        FallbackModel([])


def test_scripts_of_these_tests_are_scripts() -> None:
    assert read_script(json.dumps([GOOD]))["calls"] == [GOOD]


# --- who closes what ---


class Held(BatchedModel):
    """Keeps hold of its streams, so that nothing but whoever reads them closes them."""

    def __init__(self, *events: LlmEvent) -> None:
        super().__init__("held:model", "held")
        self.events = events
        self.opened: list[Any] = []
        self.closed = 0

    def batches(self, request: ModelRequest, *, on_sent: Any, on_wait: Any) -> Any:
        self.opened.append(self._play())
        return self.opened[-1]

    async def _play(self) -> Any:
        try:
            yield list(self.events)
            await asyncio.Event().wait()
        finally:
            self.closed += 1


STOP = Finish(FinishReason.STOP)


@pytest.mark.parametrize("visible", [True, False])
@pytest.mark.parametrize("events", [(TextDelta("a"), STOP), (TextDelta("a"), TextDelta("b"))])
async def test_whoever_leaves_at_any_event_closes_what_is_below(
    events: tuple[LlmEvent, ...], visible: bool
) -> None:
    settings = RetrySettings(visible=visible)
    for count in range(len(events) + 1):
        held = Held(*events)
        for model in (
            RetryModel(held, settings),
            FallbackModel([RetryModel(held, settings), attempts(GOOD)], visible=visible),
        ):
            async with asyncio.timeout(5), aclosing(model.stream(REQUEST, on_wait=Waits())) as stream:
                for _ in range(count):
                    await anext(stream)
            assert held.closed == len(held.opened)
