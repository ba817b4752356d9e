"""What a turn used is counted honestly: reported, estimated or unknown, and priced where a price is known."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.runtime_fakes import FakeModel, Turn, agent, call, spec, tool
from turnwire.extend.errors import AgentCancelledError
from turnwire.extend.events import EpisodeKind, TurnState
from turnwire.extend.llm import (
    FailureKind,
    Finish,
    FinishReason,
    MediaPart,
    ModelRequest,
    StreamFailure,
    TextDelta,
    TextPart,
    TokenUsage,
    ToolDefinition,
    UsageProvenance,
    UsageSnapshot,
    UserMessage,
)
from turnwire.runtime.domain.prices import Price, PriceTable
from turnwire.runtime.domain.resumption import Resumption
from turnwire.runtime.engine.estimates import MEDIA_TOKENS, request_tokens, text_tokens

STOP = Finish(FinishReason.STOP)
CALLS = Finish(FinishReason.TOOL_CALLS)
CUT = StreamFailure(FailureKind.INCOMPLETE, "the stream just ended")
PRICES = PriceTable.model_validate({"models": {"fake:model": {"input": "0.5", "output": 2}}})


def usage(given: int, output: int) -> UsageSnapshot:
    return UsageSnapshot(TokenUsage(given, 0, 0, output, 0, UsageProvenance.REPORTED))


def tokens(turn: Turn) -> TokenUsage:
    return turn.end.usage.tokens


# --- who says it ---


async def test_usage_that_nobody_reported_is_estimated_and_never_zero() -> None:
    turn = Turn(FakeModel([TextDelta("x" * 400), STOP]))
    await turn.run()
    assert tokens(turn).provenance is UsageProvenance.ESTIMATED
    assert tokens(turn).input_tokens >= text_tokens(["hello"])
    assert tokens(turn).output_tokens == 100


async def test_without_estimates_usage_that_nobody_reported_is_unknown() -> None:
    turn = Turn(FakeModel([usage(1, 1), call("add"), CALLS], [STOP]), tool("add"), bytes_per_token=0)
    await turn.run()
    assert tokens(turn).provenance is UsageProvenance.UNKNOWN
    assert turn.end.usage.model_calls == 2


async def test_a_stream_that_is_cut_before_its_usage_came_is_estimated() -> None:
    turn = Turn(FakeModel([TextDelta("x" * 40), CUT]))
    await turn.run()
    assert (tokens(turn).output_tokens, tokens(turn).provenance) == (10, UsageProvenance.ESTIMATED)


async def test_a_cancel_before_the_usage_came_is_estimated() -> None:
    gate = asyncio.Event()
    turn = Turn(FakeModel([TextDelta("x" * 40), gate]))

    async def act() -> None:
        await turn.journal.saw(TextDelta)
        turn.token.fire(AgentCancelledError("enough"))

    assert await turn.run_while(act) is TurnState.CANCELLED
    assert (tokens(turn).output_tokens, tokens(turn).provenance) == (10, UsageProvenance.ESTIMATED)
    assert tokens(turn).input_tokens > 0


async def test_what_a_broken_stream_had_reported_stands_and_its_output_is_at_least_what_was_said() -> None:
    turn = Turn(FakeModel([usage(70, 1), TextDelta("x" * 40), CUT]))
    await turn.run()
    assert tokens(turn) == TokenUsage(70, output_tokens=10, provenance=UsageProvenance.ESTIMATED)


async def test_the_last_report_of_an_attempt_wins_and_is_not_added() -> None:
    split = UsageSnapshot(TokenUsage(20, 4, 0, 7, 0, UsageProvenance.REPORTED))
    turn = Turn(FakeModel([usage(24, 0), TextDelta("x"), split, STOP]))
    await turn.run()
    assert tokens(turn) == split.usage


async def test_a_request_that_the_provider_refused_used_nothing() -> None:
    turn = Turn(FakeModel([StreamFailure(FailureKind.AUTH, "no", status_code=401)]), prices=PRICES)
    await turn.run()
    assert tokens(turn) == TokenUsage(provenance=UsageProvenance.REPORTED)
    assert (turn.end.usage.model_calls, turn.end.usage.cost_micro_usd) == (1, 0)


async def test_a_request_that_got_no_answer_is_estimated_by_what_was_asked() -> None:
    turn = Turn(FakeModel([StreamFailure(FailureKind.TIMEOUT, "silence")]))
    await turn.run()
    assert (tokens(turn).output_tokens, tokens(turn).provenance) == (0, UsageProvenance.ESTIMATED)
    assert tokens(turn).input_tokens > 0


class Unsent(FakeModel):
    """A model whose request never leaves."""

    async def stream(self, request: ModelRequest, **_: Any) -> Any:
        yield StreamFailure(FailureKind.CONNECTION, "nobody listens")


async def test_a_request_that_never_left_is_no_model_call() -> None:
    turn = Turn(Unsent())
    await turn.run()
    assert turn.end.usage.model_calls == 0


async def test_attempts_that_died_with_their_owner_are_counted_by_their_request() -> None:
    resumption = Resumption(2, EpisodeKind.RECOVERY, next_attempt=3)
    turn = Turn(FakeModel([usage(100, 5), STOP]), resumption=resumption)
    await turn.run()
    assert turn.end.usage.model_calls == 3
    assert tokens(turn).input_tokens > 100
    assert tokens(turn).provenance is UsageProvenance.ESTIMATED


# --- how it is estimated ---


def test_an_estimate_counts_messages_tools_schema_and_media() -> None:
    said = UserMessage((TextPart("x" * 40), MediaPart("image/png", b"1")))
    plain = request_tokens(ModelRequest("m", (said,)))
    assert plain == 10 + MEDIA_TOKENS + 4
    tools = (ToolDefinition("abcd", "e" * 4, "{" + " " * 6 + "}"),)
    more = ModelRequest("m", (said,), tools=tools, response_schema_json="{" + " " * 10 + "}")
    assert request_tokens(more) == plain + 4 + 3


@given(st.lists(st.text(), max_size=5), st.floats(0.5, 50))
def test_an_estimate_never_says_nothing_for_something(texts: list[str], size: float) -> None:
    found = text_tokens(texts, size)
    assert (found > 0) is bool("".join(texts))
    assert found >= sum(len(t.encode("utf-8", "replace")) for t in texts) / size


# --- what it costs ---


async def test_the_cost_is_that_of_all_calls_by_their_prices() -> None:
    model = FakeModel([usage(1000, 10), call("add"), CALLS], [usage(2000, 20), STOP])
    turn = Turn(model, tool("add"), prices=PRICES)
    await turn.run()
    assert turn.end.usage.cost_micro_usd == 500 + 20 + 1000 + 40


async def test_without_a_price_there_is_no_cost() -> None:
    turn = Turn(FakeModel([usage(10, 10), STOP]))
    await turn.run()
    assert turn.end.usage.cost_micro_usd is None


async def test_a_cost_of_which_a_part_is_unknown_is_unknown() -> None:
    model = FakeModel([usage(10, 10), call("add"), CALLS], [STOP])
    turn = Turn(model, tool("add"), prices=PRICES, bytes_per_token=0)
    await turn.run()
    assert turn.end.usage.cost_micro_usd is None


async def test_prices_of_the_agent_win_over_those_of_the_deployment() -> None:
    own = agent(prices={"fake:model": {"input": 1, "output": 1}})
    turn = Turn(FakeModel([usage(10, 10), STOP]), prices=PRICES, agent=own)
    await turn.run()
    assert turn.end.usage.cost_micro_usd == 20


def test_the_longest_name_that_fits_has_the_price() -> None:
    table = PriceTable.model_validate(
        {
            "models": {
                "a:*": {"input": 1, "output": 1},
                "a:big*": {"input": 2, "output": 2},
                "a:big-one": {"input": 3, "output": 3},
            }
        }
    )
    found = [table.price_of(name) for name in ("a:small", "a:big-two", "a:big-one", "b:big")]
    assert [price and price.input for price in found] == [1, 2, 3, None]


COUNTS = st.integers(0, 2**40)
DOLLARS = st.decimals(0, 1000, places=4)


@given(COUNTS, COUNTS, COUNTS, COUNTS, DOLLARS, DOLLARS, st.none() | DOLLARS, st.none() | DOLLARS)
def test_a_cost_is_exact_to_half_a_millionth(
    fresh: int,
    read: int,
    written: int,
    output: int,
    a: Decimal,
    b: Decimal,
    c: Decimal | None,
    d: Decimal | None,
) -> None:
    price = Price(input=a, output=b, cache_read=c, cache_creation=d)
    spent = TokenUsage(fresh, read, written, output, 0, UsageProvenance.REPORTED)
    exact = fresh * a + read * (a if c is None else c) + written * (a if d is None else d) + output * b
    assert abs(price.cost_micro_usd(spent) - exact) <= Decimal("0.5")


@pytest.mark.parametrize("limit", [{"cost_micro_usd": 100}, None])
async def test_a_cost_above_the_limit_ends_the_turn_between_steps(limit: dict[str, int] | None) -> None:
    own = agent() if limit else agent(limits={"cost_usd": "0.0001"})
    model = FakeModel([TextDelta("so far"), usage(1000, 10), call("add"), CALLS])
    turn = Turn(model, tool("add"), agent=own, spec=spec(limits=limit or {}), prices=PRICES)
    assert await turn.run() is TurnState.FAILED
    assert (turn.end.stop_reason, turn.end.error_reason) == ("budget", "BUDGET_EXHAUSTED")
    assert (turn.end.text, turn.end.error_text) == ("so far", "the turn used up its 0.0001 USD")


async def test_an_answer_that_is_paid_for_is_kept_above_the_limit_of_cost() -> None:
    limits = {"cost_micro_usd": 1}
    turn = Turn(FakeModel([TextDelta("paid"), usage(999, 9), STOP]), spec=spec(limits=limits), prices=PRICES)
    assert await turn.run() is TurnState.COMPLETED
    assert turn.end.text == "paid"
