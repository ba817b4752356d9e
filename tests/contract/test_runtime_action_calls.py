"""The methods about actions on a real server: who may answer, what a list holds, what an inbox tells."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from support.action_rows import waiting
from support.bad_input_rig import refusal_of
from support.runtime_server import Runtime, running
from turnwire.api.runtime.v1 import action_pb2, thread_pb2, thread_service_pb2
from turnwire.api.runtime.v1 import turn_service_pb2 as pb
from turnwire.extend.actions import Action
from turnwire.wire.auth import load_tokens
from turnwire_client import AsyncClient

PEOPLE = {"alice": ["caller"], "ann": ["approver"], "both": ["caller", "approver"], "root": ["operator"]}
OPEN, APPROVED = action_pb2.ACTION_STATE_OPEN, action_pb2.ACTION_STATE_APPROVED


def token(name: str) -> str:
    return f"{name}-token-0123456789"


def as_(name: str) -> dict[str, Any]:
    return {"metadata": (("authorization", f"Bearer {token(name)}"),)}


@pytest.fixture(name="runtime")
async def _runtime(tmp_path: Path) -> AsyncIterator[Runtime]:
    entries = [
        {"token": token(name), "subject": name, "scopes": ["team"], "roles": roles}
        for name, roles in PEOPLE.items()
    ]
    entries.append({"token": token("eve"), "subject": "eve", "scopes": ["others"], "roles": ["approver"]})
    (tmp_path / "tokens.json").write_text(json.dumps(entries))
    authenticator = load_tokens(tmp_path / "tokens.json")
    async with running(tmp_path, {"plain": [[{"text": "hi"}]]}, authenticator=authenticator) as runtime:
        yield runtime


def approve(action: Action, **fields: Any) -> pb.ResolveActionRequest:
    request = pb.ResolveActionRequest(
        **{"action": action.name, "request_id": str(uuid.uuid4()), "digest": action.digest, **fields}
    )
    request.approve.SetInParent()
    return request


async def refused(call: Any) -> tuple[str, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return refusal_of(caught.value).answer


async def test_only_an_approver_or_an_operator_answers_an_approval(runtime: Runtime) -> None:
    (_, (one,)), (_, (two,)) = [await waiting(runtime.store) for _ in range(2)]
    assert await refused(runtime.turns.ResolveAction(approve(one), **as_("alice"))) == (
        "PERMISSION_DENIED",
        "ROLE_MISSING",
    )
    for action, name in ((one, "ann"), (two, "root")):
        answer = await runtime.turns.ResolveAction(approve(action), **as_(name))
        assert (answer.action.state, answer.action.resolver) == (APPROVED, name)


async def test_what_is_of_another_scope_is_not_there(runtime: Runtime) -> None:
    _, (action,) = await waiting(runtime.store)
    missing = ("NOT_FOUND", "ACTION_NOT_FOUND")
    assert await refused(runtime.turns.ResolveAction(approve(action), **as_("eve"))) == missing
    named = pb.GetActionRequest(name=action.name)
    assert await refused(runtime.turns.GetAction(named, **as_("eve"))) == missing
    everything = pb.ListActionsRequest(parent="threads/-")
    assert not (await runtime.turns.ListActions(everything, **as_("eve"))).actions
    assert len((await runtime.turns.ListActions(everything, **as_("alice"))).actions) == 1


async def test_an_action_is_shown_with_all_that_one_decides_by(runtime: Runtime) -> None:
    _, (action,) = await waiting(runtime.store)
    request = pb.GetActionRequest(name=action.name)
    shown = (await runtime.turns.GetAction(request, **as_("ann"))).action
    assert (shown.name, shown.state, shown.call_id) == (action.name, OPEN, action.call_id)
    assert (shown.tool_name, shown.arguments_json) == (action.tool_name, action.arguments_json)
    assert (shown.digest, shown.required_role) == (action.digest, "approver")
    assert shown.create_time.ToNanoseconds() == action.create_time
    assert shown.expire_time.ToNanoseconds() == action.expire_time
    assert not shown.HasField("resolve_time")


async def test_lists_are_narrowed_by_filter_and_come_in_pages(runtime: Runtime) -> None:
    # Each in a thread of its own: an answer lets its turn go on, and this one has nothing to go on with.
    asked = [(await waiting(runtime.store, f"call-{n}"))[1][0] for n in (1, 2, 3)]
    await runtime.turns.ResolveAction(approve(asked[1]), **as_("ann"))

    async def listed(**fields: Any) -> list[str]:
        names: list[str] = []
        request = pb.ListActionsRequest(parent="threads/-", page_size=1, **fields)
        while True:
            page = await runtime.turns.ListActions(request, **as_("ann"))
            names += [action.call_id for action in page.actions]
            if not page.next_page_token:
                return names
            request.page_token = page.next_page_token

    assert await listed() == ["call-1", "call-2", "call-3"]
    assert await listed(filter="state=OPEN") == ["call-1", "call-3"]
    assert await listed(filter="state=APPROVED AND kind=APPROVAL AND tool=shell") == ["call-2"]
    assert await listed(filter="kind=CLIENT_TOOL") == []


async def test_answers_that_this_version_does_not_take_are_refused_by_name(runtime: Runtime) -> None:
    _, (action,) = await waiting(runtime.store)
    for arm in ("resume", "client_result", "manual_result"):
        request = approve(action)
        getattr(request, arm).SetInParent()
        answer = await refused(runtime.turns.ResolveAction(request, **as_("root")))
        assert answer == ("UNIMPLEMENTED", "FEATURE_NOT_SERVED")


async def test_a_turn_that_waits_names_its_actions_wherever_it_is_read(runtime: Runtime) -> None:
    key, actions = await waiting(runtime.store, "call-1", "call-2")
    names = sorted(action.name for action in actions)
    turn = (await runtime.turns.GetTurn(pb.GetTurnRequest(name=key.name), **as_("ann"))).turn
    assert sorted(turn.open_actions) == names
    thread = thread_service_pb2.GetThreadRequest(name=key.thread.name)
    assert sorted((await runtime.threads.GetThread(thread, **as_("ann"))).live_turn.open_actions) == names
    turns = await runtime.turns.ListTurns(pb.ListTurnsRequest(parent="threads/-"), **as_("ann"))
    assert sorted(turns.turns[0].open_actions) == names


async def test_only_who_may_approve_sets_a_thread_to_auto(runtime: Runtime) -> None:
    auto = thread_pb2.Thread(permission_mode=thread_pb2.PERMISSION_MODE_AUTO)
    create = thread_service_pb2.CreateThreadRequest(thread=auto)
    assert (await refused(runtime.threads.CreateThread(create, **as_("alice"))))[1] == "ROLE_MISSING"
    made = (await runtime.threads.CreateThread(create, **as_("both"))).thread
    assert made.permission_mode == thread_pb2.PERMISSION_MODE_AUTO
    change = thread_service_pb2.UpdateThreadRequest(thread=made)
    change.update_mask.paths.append("permission_mode")
    change.thread.permission_mode = thread_pb2.PERMISSION_MODE_ASK
    asks = (await runtime.threads.UpdateThread(change, **as_("alice"))).thread
    assert asks.permission_mode == thread_pb2.PERMISSION_MODE_ASK
    change.thread.permission_mode = thread_pb2.PERMISSION_MODE_AUTO
    assert (await refused(runtime.threads.UpdateThread(change, **as_("alice"))))[1] == "ROLE_MISSING"
    again = (await runtime.threads.UpdateThread(change, **as_("both"))).thread
    assert again.permission_mode == thread_pb2.PERMISSION_MODE_AUTO


async def test_a_silent_inbox_is_sent_heartbeats(tmp_path: Path) -> None:
    async with (
        running(tmp_path, {"plain": [[{"text": "hi"}]]}, heartbeat=0.2) as runtime,
        asyncio.timeout(10),
    ):
        messages = aiter(runtime.turns.WatchActions(pb.WatchActionsRequest(parent="threads/-")))
        first, second = [await anext(messages) for _ in range(2)]
        for message in (first, second):
            assert message.snapshot_complete
            assert not message.HasField("action")


async def test_a_client_follows_the_inbox_and_answers(runtime: Runtime) -> None:
    _, (one,) = await waiting(runtime.store)
    async with asyncio.timeout(20), AsyncClient(runtime.target, token=token("ann")) as client:
        inbox = client.watch_actions(query="state=OPEN")
        first = await anext(inbox)
        assert (first.name, first.state) == (one.name, OPEN)
        done = await client.decide(first, approve=True, comment="fine")
        assert await anext(inbox) == done
        assert (await client.get_action(one.name)) == done
        assert [a.name async for a in client.list_actions(query="state=APPROVED")] == [one.name]
        await inbox.aclose()  # type: ignore[attr-defined]
