"""A provider that fails again and again is left alone for a while, then asked by one call first."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwire.extend.llm import (
    FailureKind,
    Finish,
    FinishReason,
    ModelRequest,
    StreamFailure,
    TextDelta,
    TextPart,
    UserMessage,
)
from turnwire.runtime.models.base import BatchedModel
from turnwire.runtime.models.breaker import PROBE_SECONDS, Breaker, CircuitState
from turnwire.runtime.models.fallback import FallbackModel
from turnwire.runtime.models.guard import Gate, GuardedModel
from turnwire.runtime.models.retry import RetryModel
from turnwire.runtime.models.scripted import ScriptedModel
from turnwire.runtime.models.settings import BreakerSettings, RetrySettings
from turnwire.runtime.models.slots import Slots

REQUEST = ModelRequest("m", (UserMessage((TextPart("Hi"),)),))
GOOD = [{"text": "hello"}, {"finish": "stop"}]
DOWN = [{"fail": {"kind": "server", "status": 503}}]
STOP = Finish(FinishReason.STOP)
KINDS = st.sampled_from([None, STOP, *(StreamFailure(kind, "x") for kind in FailureKind)])


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def failure(kind: FailureKind = FailureKind.SERVER) -> StreamFailure:
    return StreamFailure(kind, "it broke", retryable=True)


def breaker(clock: Callable[[], float] | None = None, **settings: float) -> Breaker:
    known = {"failures": 3, "window_seconds": 60, "open_seconds": 15, **settings}
    return Breaker("http://models", BreakerSettings(**known), clock or Clock())  # type: ignore[arg-type]


def ends(circuit: Breaker, *found: object) -> None:
    for end in found:
        passage = circuit.enter()
        assert passage is not None
        circuit.leave(passage, end)


def opened(clock: Clock) -> Breaker:
    circuit = breaker(clock)
    ends(circuit, failure(), failure(), failure())
    assert circuit.state is CircuitState.OPEN
    return circuit


def guarded(inner: BatchedModel, circuit: Breaker) -> GuardedModel:
    return GuardedModel(inner, Gate(circuit, Slots(0)))


def scripted(*attempts: list[dict[str, Any]], name: str = "scripted:a") -> ScriptedModel:
    return ScriptedModel({"calls": [{"attempts": list(attempts)}]}, name)


async def last(model: BatchedModel) -> Any:
    return [event async for event in model.stream(REQUEST)][-1]


@pytest.mark.parametrize("kind", [FailureKind.CONNECTION, FailureKind.SERVER, FailureKind.TIMEOUT])
def test_so_many_failures_in_a_row_open_the_circuit(kind: FailureKind) -> None:
    circuit = breaker()
    ends(circuit, failure(kind), failure(kind))
    assert circuit.state is CircuitState.CLOSED
    ends(circuit, failure(kind))
    assert (circuit.state, circuit.refusing_for) == (CircuitState.OPEN, 15)
    assert circuit.enter() is None


@pytest.mark.parametrize("kind", [FailureKind.RATE_LIMIT, FailureKind.AUTH, FailureKind.INVALID_REQUEST])
def test_a_provider_that_answers_at_all_is_not_broken(kind: FailureKind) -> None:
    circuit = breaker()
    ends(circuit, *[failure(), failure(), failure(kind)] * 3)
    assert circuit.state is CircuitState.CLOSED


@pytest.mark.parametrize("end", [None, failure(FailureKind.INCOMPLETE)])
def test_a_call_of_which_nobody_knows_the_end_changes_nothing(end: object) -> None:
    circuit = breaker()
    ends(circuit, failure(), end, failure(), end, failure())
    assert circuit.state is CircuitState.OPEN


def test_failures_far_apart_are_no_outage() -> None:
    clock = Clock()
    circuit = breaker(clock)
    for _ in range(10):
        ends(circuit, failure())
        clock.now += 31
    assert circuit.state is CircuitState.CLOSED


def test_after_its_time_one_call_finds_out_and_the_others_are_refused() -> None:
    clock = Clock()
    circuit = opened(clock)
    clock.now += 14.9
    assert circuit.enter() is None
    clock.now += 0.1
    probe = circuit.enter()
    assert probe is not None
    assert circuit.enter() is None
    assert circuit.refusing_for == PROBE_SECONDS
    circuit.leave(probe, STOP)
    assert circuit.state is CircuitState.CLOSED
    assert circuit.enter() is not None


def test_the_first_sign_of_an_answer_closes_the_circuit() -> None:
    clock = Clock()
    circuit = opened(clock)
    clock.now += 15
    probe = circuit.enter()
    assert probe is not None
    circuit.answers(probe)
    assert circuit.enter() is not None


def test_a_call_that_finds_the_provider_broken_opens_the_circuit_anew() -> None:
    clock = Clock()
    circuit = opened(clock)
    clock.now += 20
    ends(circuit, failure())
    assert (circuit.state, circuit.refusing_for) == (CircuitState.OPEN, 15)


def test_a_call_that_found_nothing_out_leaves_it_to_the_next_one() -> None:
    clock = Clock()
    circuit = opened(clock)
    clock.now += 15
    ends(circuit, None)
    assert circuit.refusing_for == 0
    ends(circuit, STOP)
    assert circuit.state is CircuitState.CLOSED


def test_calls_from_before_the_circuit_opened_do_not_open_it_longer() -> None:
    clock = Clock()
    circuit = breaker(clock)
    late = circuit.enter()
    ends(circuit, failure(), failure(), failure())
    clock.now += 10
    assert late is not None
    circuit.leave(late, failure())
    assert circuit.refusing_for == 5


def test_without_a_number_of_failures_a_circuit_never_opens() -> None:
    circuit = breaker(failures=0)
    ends(circuit, *[failure()] * 50)
    assert circuit.state is CircuitState.CLOSED


@given(st.lists(st.tuples(KINDS, st.floats(0, 30)), max_size=40))
def test_at_most_one_call_is_let_through_while_the_circuit_is_not_closed(
    story: list[tuple[object, float]],
) -> None:
    clock = Clock()
    circuit = breaker(clock)
    inside: list[tuple[Any, object]] = []
    for end, pause in story:
        closed = circuit.state is CircuitState.CLOSED
        probes = sum(p.probe for p, _ in inside)
        passage = circuit.enter()
        if passage is not None:
            assert closed or not probes
            inside.append((passage, end))
        assert sum(p.probe for p, _ in inside) <= 1
        clock.now += pause
        if len(inside) > 2:
            circuit.leave(*inside.pop(0))
    for passage, end in inside:
        circuit.leave(passage, end)
    clock.now += 15
    assert circuit.refusing_for == 0


def test_each_change_is_logged_without_a_key(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "turnwire.runtime.models.breaker")
    clock = Clock()
    circuit = opened(clock)
    clock.now += 15
    ends(circuit, STOP)
    found = [(r.levelname, r.__dict__["state"], r.__dict__["provider"]) for r in caplog.records]
    assert found == [
        ("WARNING", "open", "http://models"),
        ("INFO", "half-open", "http://models"),
        ("INFO", "closed", "http://models"),
    ]


# --- calls ---


async def test_a_call_is_refused_at_once_and_may_be_repeated_later() -> None:
    inner = scripted(DOWN)
    model = guarded(inner, breaker(failures=1))
    assert (await last(model)).status_code == 503
    refused = await last(model)
    assert (refused.kind, refused.retryable) == (FailureKind.CONNECTION, True)
    assert refused.retry_after_seconds == 15
    assert "asked again in 15.0 s" in refused.message
    assert len(inner.requests) == 1


async def test_while_a_circuit_is_open_the_fallback_is_asked_without_a_wait() -> None:
    circuit = breaker(failures=2)
    quick = RetrySettings(attempts=10, first_delay_seconds=0.0)
    broken, second = scripted(DOWN), scripted(GOOD, name="scripted:b")
    first = RetryModel(guarded(broken, circuit), quick, circuit, has_next=True)
    model = FallbackModel([first, second])
    for _ in range(3):
        assert await last(model) == Finish(FinishReason.STOP, "stop")
    # The two that opened it: no further repeat, and no call after that.
    assert len(broken.requests) == 2
    assert len(second.requests) == 3


async def test_without_a_fallback_a_call_waits_until_it_may_find_out() -> None:
    clock = Clock()
    circuit = breaker(clock, failures=1, open_seconds=0.01)
    model = RetryModel(
        guarded(scripted(DOWN, GOOD), circuit), RetrySettings(first_delay_seconds=0.0), circuit
    )
    told: list[str] = []

    def waits(what: str, seconds: float, *_: object) -> None:
        told.append(what)
        clock.now += seconds

    events = [event async for event in model.stream(REQUEST, on_wait=waits)]
    assert TextDelta("hello") in events
    assert told == ["model.circuit"]
    assert circuit.state is CircuitState.CLOSED


async def test_a_circuit_that_stays_open_for_too_long_is_not_waited_for() -> None:
    circuit = breaker(failures=1, open_seconds=61)
    inner = scripted(DOWN, GOOD)
    found = await last(RetryModel(guarded(inner, circuit), RetrySettings(), circuit))
    assert found.status_code == 503
    assert len(inner.requests) == 1


async def test_a_reader_who_leaves_the_first_call_leaves_it_to_the_next() -> None:
    clock = Clock()
    circuit = opened(clock)
    clock.now += 15
    model = guarded(scripted([{"usage": {"input": 1}}, {"hang": True}], GOOD), circuit)
    async with aclosing(model.batches(REQUEST, on_sent=None, on_wait=None)) as batches:
        await anext(batches)
        assert circuit.state is CircuitState.HALF_OPEN
        assert circuit.enter() is None
    assert await last(model) == Finish(FinishReason.STOP, "stop")
    assert circuit.state is CircuitState.CLOSED
