"""Any sequence of lives and deaths: who follows the rule for consumers ends with exactly the transcript."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.ledger_executor import LedgerExecutor
from support.postgres import Location
from support.recovery_rig import StepModel, World, check_told
from support.runtime_fakes import call, tool
from turnwire.extend.actions import ActionState
from turnwire.extend.llm import Finish, FinishReason, ReasoningDelta, TextDelta
from turnwire.runtime.domain.execution import RiskTier
from turnwire.runtime.domain.message import CallPart, ContentPart
from turnwire_client.view import TurnView

CALLS = Finish(FinishReason.TOOL_CALLS)
TOOLS = (
    tool("find", parallel=True),
    tool("write"),
    replace(tool("send"), risk_tier=RiskTier.DANGEROUS),
)


@st.composite
def steps(draw: st.DrawFn) -> list[list[object]]:
    """A few steps of words and calls; the last one only speaks."""
    found: list[list[object]] = []
    for number in range(draw(st.integers(0, 2))):
        names = draw(st.lists(st.sampled_from(["find", "write", "send", "fly"]), min_size=1, max_size=4))
        calls = [call(name, f'{{"n": {i}}}', f"p{number}-{i}") for i, name in enumerate(names)]
        found.append([*draw(words()), *calls, CALLS])
    return [*found, [*draw(words()), TextDelta("end"), Finish(FinishReason.STOP)]]


def words() -> st.SearchStrategy[list[object]]:
    delta = st.sampled_from([TextDelta, TextDelta, ReasoningDelta])
    return st.lists(st.builds(lambda kind, text: kind(text), delta, st.text("abc ", min_size=1)), max_size=6)


DEATHS = st.lists(st.tuples(st.integers(1, 12), st.booleans()), max_size=4)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps(), DEATHS, st.sampled_from([ActionState.APPROVED, ActionState.REJECTED]))
async def test_what_consumers_keep_is_what_is_stored_whatever_dies(
    fresh_location: Callable[..., Location],
    script: list[list[object]],
    deaths: list[tuple[int, bool]],
    answer: ActionState,
) -> None:
    executor = LedgerExecutor(*TOOLS)
    made = World(fresh_location(), StepModel(*script), executor, answer=answer)  # type: ignore[arg-type]
    for commits, lingers in deaths:
        await made.live(commits, lingers=lingers)
    await made.finish()
    log, transcript = await made.told()
    check_told(log, transcript)
    assert set(executor.starts.values()) <= {1}
    view = TurnView(log)
    parts = [p for m in transcript if m.role == "assistant" for p in m.parts]
    said = {p.step: p.content.text for p in parts if isinstance(p, ContentPart)}
    assert {s.step: s.text for s in view.steps.values() if s.text} == said
    # A turn that three owners died over leaves its last step as it was begun, with nothing of it said.
    left = [step for step in view.steps.values() if not step.committed]
    assert len(left) <= (log[-1].turn_finished.stop_reason == "recovery-exhausted")
    assert not any(step.text for step in left)
    results = {c.call_id: c.content for c in parts if isinstance(c, CallPart)}
    assert {c.call_id: c.result.content for c in view.calls.values() if c.result} == results
    assert not view.actions
