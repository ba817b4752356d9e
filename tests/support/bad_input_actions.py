"""Cases of the methods of TurnService that are about actions."""

from __future__ import annotations

import time
from typing import Any

from support.bad_input_registry import case, request_of
from support.bad_input_rig import ANN, Bad, Rig, new_id
from support.bad_input_turns import done_turn
from support.descriptors import Method

__all__ = ["MISSING_ACTION", "answer", "asked", "asked_once"]

RESOLVE, GET = "TurnService.ResolveAction", "TurnService.GetAction"
LIST, WATCH = "TurnService.ListActions", "TurnService.WatchActions"
MISSING_ACTION = "threads/no-such-thread/turns/no-such-turn/actions/no-such-action"
DIGEST = "d1d1d1d1"


async def asked(rig: Rig, call_id: str = "", *, state: str = "open") -> str:
    """Store an action of Alice's; its turn has ended, so that nothing comes of an answer."""
    made = await done_turn(rig)
    _, thread, _, turn = made.turn.split("/")
    action, now = f"action-{new_id()}", time.time_ns()
    rig.change(
        "runtime",
        "INSERT INTO actions (scope, thread_id, turn_id, action_id, kind, state, call_id, digest,"
        " create_time) VALUES ('acme', ?, ?, ?, 'approval', ?, ?, ?, ?)",
        *(thread, turn, action, state, call_id or f"call-{new_id()}", DIGEST, now),
    )
    return f"{made.turn}/actions/{action}"


async def asked_once(rig: Rig) -> str:
    """An action that nobody answers."""
    if "action" not in rig.made:
        rig.made["action"] = await asked(rig)
    return str(rig.made["action"])


def answer(action: str, **fields: Any) -> Any:
    """An approval of what was shown."""
    request = request_of(RESOLVE, **{"action": action, "request_id": new_id(), "digest": DIGEST, **fields})
    request.approve.SetInParent()
    return request


@case("INVALID_REQUEST", RESOLVE)
async def without_an_answer(rig: Rig, method: Method) -> Bad:
    request = answer(await asked(rig))
    request.ClearField("approve")
    return Bad.of(request, caller=ANN)


@case("ACTION_NOT_FOUND", RESOLVE)
async def answer_to_nothing(rig: Rig, method: Method) -> Bad:
    return Bad.of(answer(MISSING_ACTION), caller=ANN)


@case("REQUEST_ID_REUSED", RESOLVE)
async def another_answer(rig: Rig, method: Method) -> Bad:
    request = answer(await asked(rig))
    await rig.ask(RESOLVE, request, caller=ANN)
    request.reject.comment = "on second thoughts"
    return Bad.of(request, caller=ANN)


@case("ACTION_RESOLVED", RESOLVE)
async def second_answer(rig: Rig, method: Method) -> Bad:
    request = answer(await asked(rig))
    await rig.ask(RESOLVE, request, caller=ANN)
    request.request_id = new_id()
    return Bad.of(request, caller=ANN)


@case("ACTION_STALE", RESOLVE)
async def answer_to_a_replaced_action(rig: Rig, method: Method) -> Bad:
    call_id = f"call-{new_id()}"
    former = await asked(rig, call_id, state="voided")
    await asked(rig, call_id)
    return Bad.of(answer(former), caller=ANN)


@case("DIGEST_MISMATCH", RESOLVE)
async def answer_to_something_else(rig: Rig, method: Method) -> Bad:
    return Bad.of(answer(await asked(rig), digest="e2e2e2e2"), caller=ANN)


@case("INVALID_REQUEST", GET)
async def no_action_name(rig: Rig, method: Method) -> Bad:
    return Bad.of(request_of(GET, name=(await done_turn(rig)).turn))


@case("ACTION_NOT_FOUND", GET)
async def missing_action(rig: Rig, method: Method) -> Bad:
    return Bad.of(request_of(GET, name=MISSING_ACTION))


@case("INVALID_REQUEST", LIST, WATCH)
async def strange_filter(rig: Rig, method: Method) -> Bad:
    return Bad.of(request_of(method.short, parent="threads/-", filter="label.team=search"))


@case("PAGE_TOKEN_MISMATCH", LIST)
async def token_of_another_parent(rig: Rig, method: Method) -> Bad:
    await asked(rig)
    await asked(rig)
    (page,) = await rig.ask(LIST, request_of(LIST, parent="threads/-", page_size=1))
    other = (await done_turn(rig)).thread
    return Bad.of(request_of(LIST, parent=other, page_token=page.next_page_token))
