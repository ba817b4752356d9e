"""Cases of TurnService, and the turns that they and others need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from support.bad_input_registry import case, request_of
from support.bad_input_rig import ALICE, BOB, Bad, Caller, Rig, new_id
from support.descriptors import Method
from turnwire.api.runtime.v1 import turn_pb2

__all__ = ["Made", "done_turn", "fill", "hung_turn", "new_thread", "turn_with_result"]

RUN, START = "TurnService.RunTurn", "TurnService.StartTurn"
WATCH, GET, LIST = "TurnService.WatchTurn", "TurnService.GetTurn", "TurnService.ListTurns"
READ = "TurnService.ReadToolResult"
MISSING_THREAD, MISSING_TURN = "threads/no-such-thread", "threads/no-such-thread/turns/no-such-turn"


@dataclass(frozen=True, slots=True)
class Made:
    """A turn that a test has made: by `request`; `result` is a call of it that has a stored result."""

    thread: str
    turn: str
    request: Any
    result: str = ""


def fill(request: Any, *, agent: str = "plain", thread: str = "", text: str = "hi") -> Any:
    """Make a RunTurn or StartTurn request that would be taken, with a new thread unless one is named."""
    request.request_id = new_id()
    request.spec.agent = f"agents/{agent}"
    if thread:
        request.spec.thread = thread
    else:
        request.spec.new_thread.SetInParent()
    request.spec.input.parts.add().text.text = text
    return request


async def new_thread(rig: Rig, caller: Caller = ALICE) -> str:
    """Create a thread."""
    (answer,) = await rig.ask(
        "ThreadService.CreateThread", request_of("ThreadService.CreateThread"), caller=caller
    )
    return str(answer.thread.name)


async def _run(rig: Rig, agent: str, caller: Caller, until: str) -> Made:
    request = fill(request_of(RUN), agent=agent)
    seen = await rig.until(RUN, request, lambda answer: _has(answer, until), caller)
    header = seen[0].header
    ends = [e.tool_call_finished for a in seen for e in a.events if e.HasField("tool_call_finished")]
    kept = [end.call_id for end in ends if end.HasField("overflow")]
    assert not ends or kept, ends
    return Made(header.thread, header.turn, request, kept[0] if kept else "")


def _has(answer: Any, kind: str) -> bool:
    return any(event.WhichOneof("event") == kind for event in answer.events)


async def _once(rig: Rig, name: str, agent: str, caller: Caller, until: str) -> Made:
    """Make a turn, or return the one of that name: cases only read it."""
    if name not in rig.made:
        rig.made[name] = await _run(rig, agent, caller, until)
    return rig.made[name]  # type: ignore[no-any-return]


async def done_turn(rig: Rig, caller: Caller = ALICE) -> Made:
    """A turn that has ended."""
    return await _once(rig, f"done {caller.token}", "plain", caller, "turn_finished")


async def hung_turn(rig: Rig, which: str = "hung") -> Made:
    """A turn that waits for its model for ever, with all it has said committed; each `which` is another."""
    return await _once(rig, which, "hang", ALICE, "llm")


async def turn_with_result(rig: Rig, caller: Caller = ALICE) -> Made:
    """A turn that has ended, one of whose calls has a stored result."""
    return await _once(rig, f"result {caller.token}", "reader", caller, "turn_finished")


@case("INVALID_REQUEST", RUN, START)
async def no_request_id(rig: Rig, method: Method) -> Bad:
    request = fill(method.new_request())
    request.request_id = "yesterday's"
    return Bad.of(request)


@case("MODEL_UNKNOWN", RUN, START)
async def model_unknown(rig: Rig, method: Method) -> Bad:
    return Bad.of(fill(method.new_request(), agent="strange"))


@case("MODEL_NOT_CONFIGURED", RUN, START)
async def model_without_key(rig: Rig, method: Method) -> Bad:
    return Bad.of(fill(method.new_request(), agent="unkeyed"))


@case("THREAD_NOT_FOUND", RUN, START)
async def foreign_thread(rig: Rig, method: Method) -> Bad:
    return Bad.of(fill(method.new_request(), thread=await new_thread(rig, BOB)))


@case("AGENT_NOT_FOUND", RUN, START)
async def no_such_agent(rig: Rig, method: Method) -> Bad:
    return Bad.of(fill(method.new_request(), agent="nobody"))


@case("REQUEST_ID_REUSED", RUN, START)
async def other_spec(rig: Rig, method: Method) -> Bad:
    request = fill(method.new_request(), text="something else")
    request.request_id = (await done_turn(rig)).request.request_id
    return Bad.of(request)


@case("THREAD_ID_USED", RUN, START)
async def thread_id_taken(rig: Rig, method: Method) -> Bad:
    request = fill(method.new_request())
    request.spec.new_thread.thread_id = (await new_thread(rig)).rpartition("/")[2]
    return Bad.of(request)


@case("THREAD_BUSY", RUN, START)
async def busy_thread(rig: Rig, method: Method) -> Bad:
    request = fill(method.new_request(), thread=(await hung_turn(rig)).thread)
    request.spec.busy_policy = turn_pb2.BUSY_POLICY_REJECT
    return Bad.of(request)


@case("QUEUE_FULL", RUN, START)
async def full_queue(rig: Rig, method: Method) -> Bad:
    hung = await hung_turn(rig)
    if "queue" not in rig.made:
        rig.made["queue"] = [
            await rig.ask(START, fill(request_of(START), thread=hung.thread)) for _ in range(2)
        ]
    return Bad.of(fill(method.new_request(), thread=hung.thread))


@case("THREAD_CHANGED", RUN, START)
async def old_version(rig: Rig, method: Method) -> Bad:
    request = fill(method.new_request(), thread=await new_thread(rig))
    request.spec.expected_version = 77
    return Bad.of(request)


@case("FEATURE_NOT_SERVED", RUN, START)
async def a_client_tool(rig: Rig, method: Method) -> Bad:
    request = fill(method.new_request())
    request.spec.client_tools.add(name="mine")
    return Bad.of(request)


@case("LOG_REPLACED", RUN)
async def run_of_another_log(rig: Rig, method: Method) -> Bad:
    request = fill(method.new_request())
    request.log_id = "0123456789abcdef"
    return Bad.of(request)


@case("LOG_REPLACED", WATCH)
async def watch_of_another_log(rig: Rig, method: Method) -> Bad:
    return Bad.of(request_of(WATCH, turn=(await done_turn(rig)).turn, log_id="0123456789abcdef"))


async def _pruned(rig: Rig) -> Made:
    """A turn whose first events have been dropped, as retention will do."""
    if "pruned" not in rig.made:
        made = rig.made["pruned"] = await _run(rig, "plain", ALICE, "turn_finished")
        sql = "UPDATE turn_heads SET first_kept_sequence = 3 WHERE turn_id = ?"
        assert rig.change("runtime", sql, made.turn.rpartition("/")[2]) == 1
    return rig.made["pruned"]  # type: ignore[no-any-return]


@case("EVENTS_EXPIRED", RUN)
async def run_of_a_pruned_turn(rig: Rig, method: Method) -> Bad:
    return Bad.of((await _pruned(rig)).request)


@case("EVENTS_EXPIRED", WATCH)
async def watch_of_a_pruned_turn(rig: Rig, method: Method) -> Bad:
    return Bad.of(request_of(WATCH, turn=(await _pruned(rig)).turn))


@case("SEQUENCE_AHEAD", RUN)
async def run_ahead(rig: Rig, method: Method) -> Bad:
    """Of a turn that does not exist yet: it must not begin to exist."""
    request = fill(method.new_request())
    request.after_sequence = 1000
    return Bad.of(request)


@case("SEQUENCE_AHEAD", WATCH)
async def watch_ahead(rig: Rig, method: Method) -> Bad:
    return Bad.of(request_of(WATCH, turn=(await done_turn(rig)).turn, after_sequence=1000))


@case("INVALID_REQUEST", WATCH, READ)
async def no_turn_name(rig: Rig, method: Method) -> Bad:
    request = method.new_request()
    request.turn = "threads/only-a-thread"
    return Bad.of(request)


@case("TURN_NOT_FOUND", WATCH, READ)
async def foreign_turn(rig: Rig, method: Method) -> Bad:
    request = method.new_request()
    request.turn = (await done_turn(rig, BOB)).turn
    if method.name == "ReadToolResult":
        request.call_id = "call-1"
    return Bad.of(request)


@case("INVALID_REQUEST", GET)
async def wait_without_end(rig: Rig, method: Method) -> Bad:
    request = request_of(GET, name=(await done_turn(rig)).turn)
    request.wait_timeout.seconds = 301
    return Bad.of(request)


@case("TURN_NOT_FOUND", GET)
async def missing_turn(rig: Rig, method: Method) -> Bad:
    return Bad.of(request_of(GET, name=MISSING_TURN))


@case("FEATURE_NOT_SERVED", GET)
async def full_view(rig: Rig, method: Method) -> Bad:
    return Bad.of(request_of(GET, name=(await done_turn(rig)).turn, view=turn_pb2.TURN_VIEW_FULL))


@case("INVALID_REQUEST", LIST)
async def strange_filter(rig: Rig, method: Method) -> Bad:
    return Bad.of(request_of(LIST, parent="threads/-", filter="colour=red"))


@case("PAGE_TOKEN_MISMATCH", LIST)
async def token_of_another_filter(rig: Rig, method: Method) -> Bad:
    await done_turn(rig)
    await turn_with_result(rig)
    (answer,) = await rig.ask(LIST, request_of(LIST, parent="threads/-", page_size=1))
    assert answer.next_page_token
    request = request_of(LIST, parent="threads/-", page_token=answer.next_page_token, filter="state=FAILED")
    return Bad.of(request)


@case("THREAD_NOT_FOUND", LIST)
async def turns_of_a_foreign_thread(rig: Rig, method: Method) -> Bad:
    return Bad.of(request_of(LIST, parent=await new_thread(rig, BOB)))


@case("RESULT_NOT_FOUND", READ)
async def no_such_call(rig: Rig, method: Method) -> Bad:
    return Bad.of(request_of(READ, turn=(await done_turn(rig)).turn, call_id="no-such-call"))


@case("RANGE_INVALID", READ)
async def behind_the_end(rig: Rig, method: Method) -> Bad:
    made = await turn_with_result(rig)
    request = request_of(READ, turn=made.turn, call_id=made.result)
    request.range.offset = 1_000_000
    return Bad.of(request)
