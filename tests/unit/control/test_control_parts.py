"""The small parts of control and of the runtime's link: filters, tokens, timers, codecs, reports."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.control_fakes import FakeClock
from turnwire.api.control.v1 import command_pb2 as command_pb
from turnwire.api.control.v1 import control_service_pb2 as service_pb
from turnwire.control import codec
from turnwire.control.alarm import Alarm
from turnwire.control.domain import CommandKind, CommandState, DeliveryMode, OutcomeKind
from turnwire.control.filters import CommandFilter, parse_filter
from turnwire.control.settings import ControlSettings
from turnwire.control.tokens import page_token, read_page_token, read_resume_token, resume_token
from turnwire.core.clock import SystemClock
from turnwire.core.errors import InvalidRequest
from turnwire.runtime.ownership_link import OwnershipReports

T1, T2 = ("acme", "threads/aaaa/turns/one1"), ("acme", "threads/bbbb/turns/two2")


def names(enum: object, prefix: str) -> set[str]:
    """Names of an enum of the contract without their prefix and without UNSPECIFIED."""
    found = {value.name.removeprefix(prefix) for value in enum.DESCRIPTOR.values}  # type: ignore[attr-defined]
    return {name.lower() for name in found - {"UNSPECIFIED"}}


def test_every_arm_and_enum_value_of_the_contract_has_its_kind() -> None:
    arms = command_pb.Command.DESCRIPTOR.oneofs_by_name["command"].fields
    assert {arm.name for arm in arms} == {kind.value for kind in CommandKind}
    assert names(command_pb.CommandState, "COMMAND_STATE_") == {state.value for state in CommandState}
    assert names(command_pb.OutcomeKind, "OUTCOME_KIND_") == {kind.value for kind in OutcomeKind}
    assert names(service_pb.DeliveryMode, "DELIVERY_MODE_") == {mode.value for mode in DeliveryMode}


def test_a_fingerprint_covers_everything_but_the_id() -> None:
    def command(command_id: str = "command-01", **changes: object) -> command_pb.Command:
        message = command_pb.Command(command_id=command_id)
        message.target.turn = str(changes.get("turn", T1[1]))
        message.cancel_turn.cause = str(changes.get("cause", ""))
        message.cancel_turn.clear_queue = bool(changes.get("clear", False))
        if "ttl" in changes:
            message.ttl_timeout.seconds = int(str(changes["ttl"]))
        return message

    base = codec.command_from_proto(command()).fingerprint
    assert codec.command_from_proto(command("command-02")).fingerprint == base
    assert codec.command_from_proto(command(ttl=300)).fingerprint == base, "the default spelt out is the same"
    different = [command(turn=T2[1]), command(cause="x"), command(clear=True), command(ttl=5)]
    assert len({codec.command_from_proto(message).fingerprint for message in different} | {base}) == 5


@given(st.floats(min_value=0.000001, max_value=86400.0))
def test_a_duration_comes_back_from_the_wire(seconds: float) -> None:
    back = codec.seconds_from_proto(codec.seconds_to_proto(seconds), "x")
    assert back == pytest.approx(seconds, abs=1e-9)


def test_a_filter_reads_every_term_and_writes_its_clause() -> None:
    terms = parse_filter(
        "state=Done AND outcome=APPLIED AND type=cancel_turn AND turn=x AND thread=y AND subject=z"
    )
    assert terms == CommandFilter("done", "applied", "cancel_turn", "y", "x", "z")
    where, values = terms.where()
    assert where.count("?") == len(values)
    assert parse_filter("  ") == CommandFilter()


@pytest.mark.parametrize("text", ["a" * 2000, "state=done AND", "=x", "state", "outcome=won", "turn=a\0b"])
def test_a_malformed_filter_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_filter(text)


@given(st.integers(min_value=0, max_value=2**62))
def test_tokens_come_back_and_belong_to_their_request(number: int) -> None:
    assert read_resume_token(resume_token("abcd", number), "abcd") == number
    assert read_resume_token(resume_token("abcd", number), "other") == 0
    token = page_token(number, "scope", "filter")
    assert read_page_token(token, "scope", "filter") == number
    with pytest.raises(InvalidRequest):
        read_page_token(token, "scope", "another")


@given(st.text(max_size=80))
def test_no_text_breaks_the_reading_of_tokens(text: str) -> None:
    for read in (lambda: read_resume_token(text, "abcd"), lambda: read_page_token(text, "x")):
        try:
            read()
        except InvalidRequest:
            continue


def test_settings_have_their_documented_defaults() -> None:
    settings = ControlSettings()
    assert settings.listen.port == 50052
    assert str(settings.data / "control.db") == ".turnwire/control.db"
    assert settings.store.retention_days == 30


async def test_an_alarm_rings_once_at_the_earliest_moment() -> None:
    clock = SystemClock()
    alarm = Alarm(clock)
    rang = asyncio.Event()
    alarm.connect(rang.set)
    alarm.arm(clock.monotonic() + 3600)
    alarm.arm(clock.monotonic() + 0.01)
    alarm.arm(clock.monotonic() + 60)
    async with asyncio.timeout(20):
        await rang.wait()
    alarm.arm(clock.monotonic() + 60)
    alarm.stop()


async def test_an_alarm_that_is_early_by_the_clock_waits_on() -> None:
    clock = FakeClock()
    alarm = Alarm(clock)
    rang: list[float] = []
    alarm.connect(lambda: rang.append(clock.seconds))
    alarm.arm(clock.seconds)
    clock.seconds -= 1.0
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not rang
    alarm.stop()


class Reports:
    """Reports of ownership, with how often the writer was woken."""

    def __init__(self) -> None:
        self.woken = asyncio.Event()
        self.reports = OwnershipReports(self.woken.set, spacing=0.01, close_delay=0.05)
        self.reports.snapshot()

    async def next(self) -> tuple[dict[tuple[str, str], int], dict[tuple[str, str], int]]:
        while (report := self.reports.take()) is None:
            async with asyncio.timeout(20):
                await self.woken.wait()
            self.woken.clear()
        return report


async def test_turns_opened_together_make_one_report() -> None:
    reports = Reports()
    reports.reports.opened(T1, 1)
    reports.reports.opened(T2, 4)
    assert await reports.next() == ({T1: 1, T2: 4}, {})
    assert reports.reports.take() is None


async def test_a_turn_that_has_come_and_gone_untold_makes_no_report() -> None:
    reports = Reports()
    reports.reports.opened(T1, 1)
    reports.reports.closed(T1, 1)
    assert reports.reports.take() is None
    assert len(reports.reports) == 0


async def test_the_end_of_a_turn_is_told_after_a_while() -> None:
    reports = Reports()
    reports.reports.opened(T1, 1)
    await reports.next()
    reports.reports.closed(T1, 1)
    assert await reports.next() == ({}, {T1: 1})


async def test_an_end_older_than_the_ownership_is_ignored() -> None:
    reports = Reports()
    reports.reports.opened(T1, 5)
    reports.reports.closed(T1, 4)
    assert await reports.next() == ({T1: 5}, {})
    assert reports.reports.live_in("acme", "threads/aaaa") == T1[1]
    assert reports.reports.live_in("other", "threads/aaaa") == ""


async def test_while_nobody_listens_only_the_snapshot_grows() -> None:
    reports = OwnershipReports(lambda: None)
    reports.opened(T1, 1)
    reports.opened(T2, 1)
    reports.closed(T2, 1)
    assert reports.take() is None
    assert reports.snapshot() == {T1: 1}


async def test_an_end_that_may_wait_does_not_hold_back_a_beginning() -> None:
    reports = Reports()
    reports.reports.opened(T1, 1)
    await reports.next()
    reports.reports.closed(T1, 1)
    reports.reports.opened(T2, 1)
    assert await reports.next() == ({T2: 1}, {})
    assert await reports.next() == ({}, {T1: 1})


async def test_a_turn_taken_again_is_not_ended_by_its_earlier_end() -> None:
    reports = Reports()
    reports.reports.opened(T1, 1)
    await reports.next()
    reports.reports.closed(T1, 1)
    reports.reports.opened(T1, 2)
    assert await reports.next() == ({T1: 2}, {})
    assert await reports.next() == ({}, {T1: 1})
    reports.reports.closed(T1, 2)
    assert await reports.next() == ({}, {T1: 2})
