"""A call that somebody has to allow: its turn waits unheld, however long, and goes on once."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
import pytest_asyncio
from google.protobuf import json_format

from support.approval_rig import WAITING, answer, approval_rig, approver, read, waiting
from support.bad_input_rig import refusal_of
from support.cli_process import terminal, turnwire
from support.cluster import Process
from support.postgres import PostgresServer
from support.strict_provider import says
from support.turn_rig import Stream, TurnRig, arms
from turnwire.api.common.v1.tool_pb2 import ToolOutcome
from turnwire.api.runtime.v1 import action_pb2, thread_pb2, thread_service_pb2, turn_event_pb2
from turnwire.api.runtime.v1 import turn_service_pb2 as pb
from turnwire.api.runtime.v1.turn_pb2 import TurnState
from turnwire.api.runtime.v1.turn_service_pb2_grpc import TurnServiceStub

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

APPROVED, REJECTED = action_pb2.ACTION_STATE_APPROVED, action_pb2.ACTION_STATE_REJECTED
EXPIRED, CANCELLED = action_pb2.ACTION_STATE_EXPIRED, action_pb2.ACTION_STATE_CANCELLED


@pytest_asyncio.fixture(name="rig", scope="module", loop_scope="module")
async def _rig(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[TurnRig]:
    async with approval_rig(tmp_path_factory.mktemp("approvals")) as rig:
        yield rig


def resolved(events: list[turn_event_pb2.TurnEvent]) -> list[tuple[str, int, str]]:
    """Call, state and resolver of each ActionResolved."""
    found = [e.action_resolved for e in events if e.HasField("action_resolved")]
    return [(r.call_id, r.state, r.resolver) for r in found]


def outcomes(events: list[turn_event_pb2.TurnEvent]) -> list[tuple[int, str]]:
    """Outcome and content of each call that finished."""
    found = [e.tool_call_finished for e in events if e.HasField("tool_call_finished")]
    return [(f.outcome, f.content) for f in found]


async def reason(call: grpc.aio.UnaryUnaryCall) -> tuple[str, dict[str, str]]:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    refusal = refusal_of(refused.value)
    return refusal.reason, dict(refusal.metadata)


async def test_the_turn_waits_unheld_through_a_kill_and_an_answer_from_elsewhere_lets_it_go_on(
    rig: TurnRig, tmp_path: Path
) -> None:
    async with asyncio.timeout(90):
        asked = await waiting(rig, tmp_path)
        assert arms(asked.events)[-2:] == ["action_required", "turn_suspended"]
        (action,) = asked.actions
        assert (action.tool_name, action.state) == ("erase", action_pb2.ACTION_STATE_OPEN)
        assert json.loads(action.arguments_json)["line"] == "erase-0"
        assert asked.events[-1].turn_suspended.actions == [action.name]
        turn = await asked.get()
        assert (turn.state, list(turn.open_actions)) == (WAITING, [action.name])
        assert asked.owner() == ("", "")

        await rig.cluster.runtime.restart()
        assert asked.owner() == ("", "")
        shown = await turnwire("actions", "show", action.name, target=rig.cluster.runtime.target)
        assert "open" in shown.out
        assert action.digest in shown.out
        done = await turnwire("actions", "approve", action.name, target=rig.cluster.runtime.target)
        assert (done.code, done.err) == (0, "")

        rest = await asked.follow().rest()
        assert arms(rest)[:4] == [
            "action_resolved",
            "turn_resumed",
            "tool_call_started",
            "tool_call_finished",
        ]
        assert resolved(rest) == [(action.call_id, APPROVED, "local")]
        assert rest[-1].turn_finished.text == "done"
        assert asked.lines == ["erase-0"]
        assert rig.provider.refusals == []


async def test_a_rejection_is_the_result_of_the_call_and_the_model_reads_why(
    rig: TurnRig, tmp_path: Path
) -> None:
    async with asyncio.timeout(60):
        asked = await waiting(rig, tmp_path)
        (action,) = asked.actions
        request = answer(action, approve=False, comment="not on a Friday")
        response = await approver(rig).ResolveAction(request)
        assert (response.action.state, response.action.resolver) == (REJECTED, "local")
        rest = await asked.follow().rest()
        ((outcome, content),) = outcomes(rest)
        assert outcome == ToolOutcome.TOOL_OUTCOME_REJECTED
        assert "not on a Friday" in content
        assert "not on a Friday" in json.dumps(rig.provider.requests[asked.model][-1])
        assert asked.lines == []


async def test_nobody_s_answer_is_a_no(tmp_path: Path) -> None:
    patience = {"TURNWIRE_RUNTIME_TURNS__APPROVAL_TIMEOUT_SECONDS": "0.5"}
    async with asyncio.timeout(60), approval_rig(tmp_path, runtime=patience) as rig:
        asked = await waiting(rig, tmp_path)
        (action,) = asked.actions
        assert action.expire_time.ToNanoseconds() - action.create_time.ToNanoseconds() == 500_000_000
        rest = await asked.follow().rest()
        assert resolved(rest) == [(action.call_id, EXPIRED, "expiry")]
        assert [outcome for outcome, _ in outcomes(rest)] == [ToolOutcome.TOOL_OUTCOME_REJECTED]
        assert rest[-1].turn_finished.state == TurnState.TURN_STATE_COMPLETED
        late = await reason(rig.turns.ResolveAction(answer(action)))
        assert late[0] == "ACTION_RESOLVED"
        assert late[1]["state"] == "EXPIRED"
        assert asked.lines == []


async def test_the_first_of_two_answers_wins_and_the_same_one_again_is_no_second(
    rig: TurnRig, tmp_path: Path
) -> None:
    async with asyncio.timeout(60):
        asked = await waiting(rig, tmp_path)
        (action,) = asked.actions
        requests = [answer(action), answer(action)]
        ends: list[tuple[int, object]] = []

        async def give(number: int) -> None:
            try:
                ends.append((number, await approver(rig).ResolveAction(requests[number])))
            except grpc.aio.AioRpcError as error:
                ends.append((number, refusal_of(error).reason))

        async with asyncio.TaskGroup() as tasks:
            for number in range(2):
                tasks.create_task(give(number))
        (winner,) = [number for number, end in ends if end != "ACTION_RESOLVED"]
        first = dict(ends)[winner]
        rest = await asked.follow().rest()
        assert await rig.turns.ResolveAction(requests[winner]) == first
        assert len(resolved(rest)) == 1
        assert asked.lines == ["erase-0"]


async def test_an_answer_to_what_was_not_shown_changes_nothing(rig: TurnRig, tmp_path: Path) -> None:
    async with asyncio.timeout(60):
        asked = await waiting(rig, tmp_path)
        (action,) = asked.actions
        wrong = await reason(rig.turns.ResolveAction(answer(action, digest="0" * 64)))
        assert wrong == ("DIGEST_MISMATCH", {"action": action.name})
        assert (await asked.get()).state == WAITING
        await rig.turns.ResolveAction(answer(action))
        assert (await asked.follow().rest())[-1].HasField("turn_finished")


async def test_several_calls_are_answered_one_by_one_and_none_runs_twice(
    rig: TurnRig, tmp_path: Path
) -> None:
    async with asyncio.timeout(60):
        asked = await waiting(rig, tmp_path, "send", "note", "erase")
        first, second = asked.actions
        assert asked.lines == ["note-1"]
        stream = asked.follow()
        await rig.turns.ResolveAction(answer(first))
        suspended = await stream.until("turn_suspended")
        assert suspended.turn_suspended.actions == [second.name]
        assert asked.lines == ["note-1", "send-0"]
        turn = await asked.get()
        assert (turn.state, list(turn.open_actions)) == (WAITING, [second.name])
        await rig.turns.ResolveAction(answer(second, approve=False))
        rest = await stream.rest()
        assert resolved(rest) == [(first.call_id, APPROVED, "local"), (second.call_id, REJECTED, "local")]
        assert asked.lines == ["note-1", "send-0"]
        assert len(rig.provider.requests[asked.model]) == 2
        assert rig.provider.refusals == []


async def test_both_answers_at_once_are_taken_in_together_or_one_after_the_other(
    rig: TurnRig, tmp_path: Path
) -> None:
    async with asyncio.timeout(60):
        asked = await waiting(rig, tmp_path, "send", "erase")
        async with asyncio.TaskGroup() as tasks:
            for action in asked.actions:
                tasks.create_task(_resolve(rig, answer(action)))
        rest = await asked.follow().rest()
        assert sorted(resolved(rest)) == sorted((a.call_id, APPROVED, "local") for a in asked.actions)
        assert sorted(asked.lines) == ["erase-1", "send-0"]


async def _resolve(rig: TurnRig, request: pb.ResolveActionRequest) -> None:
    await approver(rig).ResolveAction(request)


async def test_cancelling_a_turn_that_waits_closes_the_question_and_the_call(
    rig: TurnRig, tmp_path: Path
) -> None:
    async with asyncio.timeout(60):
        asked = await waiting(rig, tmp_path)
        (action,) = asked.actions
        await rig.cancel(turn=asked.turn)
        rest = await asked.follow().rest()
        assert resolved(rest) == [(action.call_id, CANCELLED, "")]
        assert [outcome for outcome, _ in outcomes(rest)] == [ToolOutcome.TOOL_OUTCOME_NOT_STARTED]
        end = rest[-1].turn_finished
        assert (end.state, end.stop_reason) == (TurnState.TURN_STATE_CANCELLED, "cancelled")
        late = await reason(rig.turns.ResolveAction(answer(action)))
        assert (late[0], late[1]["state"]) == ("ACTION_RESOLVED", "CANCELLED")
        following = await rig.whole("openai:after-cancel", "go on", thread=asked.thread)
        assert following[-1].turn_finished.text == "done"
        assert rig.provider.refusals == []
        assert asked.lines == []


async def test_in_a_thread_of_mode_auto_nobody_is_asked_and_all_is_told(rig: TurnRig, tmp_path: Path) -> None:
    async with asyncio.timeout(60):
        thread = thread_pb2.Thread(permission_mode=thread_pb2.PERMISSION_MODE_AUTO)
        created = await rig.threads.CreateThread(thread_service_pb2.CreateThreadRequest(thread=thread))
        assert created.thread.permission_mode == thread_pb2.PERMISSION_MODE_AUTO
        ran = await waiting(rig, tmp_path, "erase", thread=created.thread.name)
        kinds = arms(ran.events)
        at = kinds.index("action_required")
        assert kinds[at : at + 3] == ["action_required", "action_resolved", "tool_call_started"]
        assert resolved(ran.events) == [(ran.actions[0].call_id, APPROVED, "auto")]
        assert ran.lines == ["erase-0"]
        shown = await rig.turns.GetAction(pb.GetActionRequest(name=ran.actions[0].name))
        assert (shown.action.state, shown.action.resolver) == (APPROVED, "auto")


async def test_an_inbox_over_threads_is_told_of_each_question_and_of_its_end(
    rig: TurnRig, tmp_path: Path
) -> None:
    async with asyncio.timeout(60):
        before = await waiting(rig, tmp_path)
        request = pb.WatchActionsRequest(parent="threads/-", filter="state=OPEN")
        inbox = aiter(approver(rig).WatchActions(request))
        seen: dict[str, int] = {}
        while not (news := await anext(inbox)).snapshot_complete:
            seen[news.action.name] = news.action.state
        assert seen[before.actions[0].name] == action_pb2.ACTION_STATE_OPEN
        after = await waiting(rig, tmp_path)
        news = await anext(inbox)
        assert news.action == after.actions[0]
        for asked in (before, after):
            (action,) = asked.actions
            await rig.turns.ResolveAction(answer(action))
            news = await anext(inbox)
            assert (news.action.name, news.action.state) == (action.name, APPROVED)
            await asked.follow().rest()


async def test_a_person_at_the_terminal_is_asked_and_the_turn_goes_on(rig: TurnRig, tmp_path: Path) -> None:
    file = tmp_path / "asked.txt"
    rig.provider.queue("usual", says("", calls=[("erase", {"file": str(file), "line": "x"})]))
    async with (
        asyncio.timeout(60),
        terminal("run", "--agent", "main", "do it", target=rig.cluster.runtime.target) as screen,
    ):
        await screen.sees("May the dangerous tool erase run")
        await screen.sees("allow? [y/N]")
        screen.types("y\r")
        await screen.sees("done")
        assert await screen.ends() == 0
    assert file.read_text() == "x\n"
    assert read(rig, "SELECT count(*) FROM actions WHERE state = 'open'") == [(0,)]


async def test_an_answer_that_comes_while_another_call_runs_is_taken_in_after_it(
    rig: TurnRig, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    file = tmp_path / "ran.txt"
    model = "answered-early"
    calls = [("send", {"file": str(file), "line": "sent"}), ("hold", {"pipe": str(gate)})]
    rig.provider.queue(model, says("", calls=calls))
    async with asyncio.timeout(60):
        stream = rig.run(rig.request(f"openai:{model}"))
        action = (await stream.until("action_required")).action_required.action
        await stream.until("tool_call_started")
        await approver(rig).ResolveAction(answer(action))
        await asyncio.to_thread(gate.write_text, "go\n")
        await stream.until("turn_suspended")
        request = pb.WatchTurnRequest(
            turn=stream.header.turn, after_sequence=stream.events[-1].sequence, follow_while_waiting=True
        )
        rest = await Stream(rig.turns.WatchTurn(request)).rest()
        assert arms(rest)[:3] == ["action_resolved", "turn_resumed", "tool_call_started"]
        assert file.read_text() == "sent\n"
        assert rig.provider.refusals == []


async def test_the_command_line_lists_shows_and_answers(rig: TurnRig, tmp_path: Path) -> None:
    target = rig.cluster.runtime.target
    async with asyncio.timeout(90):
        asked = await waiting(rig, tmp_path)
        (action,) = asked.actions
        listed = await turnwire("actions", "list", "--in", asked.thread, target=target)
        assert [line.split("\t")[:4] for line in listed.out.splitlines()] == [
            [action.name, "open", "approval", "erase"]
        ]
        shown = await turnwire("actions", "show", "--json", action.name, target=target)
        assert json_format.Parse(shown.out, action_pb2.Action()) == action
        other = await turnwire("actions", "approve", action.name, "--digest", "d" * 64, target=target)
        assert other.code == 5
        assert "FAILED_PRECONDITION / DIGEST_MISMATCH" in other.err
        said = await turnwire("actions", "reject", action.name, "-m", "not today", target=target)
        assert (said.code, said.out.split()[0]) == (0, "rejected")
        late = await turnwire("actions", "approve", action.name, target=target)
        assert late.code == 5
        assert "rejected by local already" in late.err
        rest = await asked.follow().rest()
        assert "not today" in outcomes(rest)[0][1]
        none = await turnwire("actions", "list", "--in", asked.thread, target=target)
        assert none.out == ""


async def test_without_a_terminal_a_turn_that_asks_is_left_waiting(rig: TurnRig, tmp_path: Path) -> None:
    file = tmp_path / "asked.txt"
    rig.provider.queue("usual", says("", calls=[("erase", {"file": str(file), "line": "x"})]))
    async with asyncio.timeout(60):
        done = await turnwire("run", "--agent", "main", "do it", target=rig.cluster.runtime.target)
        assert done.code == 6
        (name,) = [word for word in done.err.split() if "/actions/" in word]
        shown = await rig.turns.GetAction(pb.GetActionRequest(name=name))
        await rig.turns.ResolveAction(answer(shown.action, approve=False))
    assert not file.exists()


async def test_another_runtime_on_the_same_store_takes_the_answer_in(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    url = postgres.fresh()
    shared = {"TURNWIRE_RUNTIME_STORE__URL": url, "TURNWIRE_RUNTIME_RUNTIME_ID": "first"}
    async with asyncio.timeout(110), approval_rig(tmp_path, runtime=shared) as rig:
        first = rig.cluster.runtime
        (tmp_path / "second").mkdir()
        environment = {**first.environment, "TURNWIRE_RUNTIME_RUNTIME_ID": "second"}
        second = Process("runtime", tmp_path / "second", environment, rig.cluster.data)
        await second.start()
        try:
            elsewhere = TurnServiceStub(rig.cluster.channel(second))
            one, two = [await waiting(rig, tmp_path) for _ in range(2)]
            # A reader at the first hears of an answer given at the second, whoever takes the turn up.
            reader = one.follow()
            await reader.opened()
            await elsewhere.ResolveAction(answer(one.actions[0]))
            rest = await reader.rest()
            assert resolved(rest) == [(one.actions[0].call_id, APPROVED, "local")]
            assert one.lines == ["erase-0"]
            # The first is gone: the second knows the question, and goes on alone.
            await first.kill()
            shown = (await elsewhere.GetAction(pb.GetActionRequest(name=two.actions[0].name))).action
            assert shown == two.actions[0]
            await elsewhere.ResolveAction(answer(shown))
            request = pb.WatchTurnRequest(turn=two.turn, follow_while_waiting=True)
            whole = await Stream(elsewhere.WatchTurn(request)).rest()
            assert whole[-1].turn_finished.state == TurnState.TURN_STATE_COMPLETED
            assert two.lines == ["erase-0"]
        finally:
            await second.kill()
    postgres.drop(url)
