"""Cases of ThreadService and AgentService."""

from __future__ import annotations

from support.bad_input_registry import caller_of, case, request_of
from support.bad_input_rig import BOB, Bad, Rig, new_id
from support.bad_input_turns import MISSING_THREAD, new_thread
from support.descriptors import Method

CREATE, GET = "ThreadService.CreateThread", "ThreadService.GetThread"
LIST, MESSAGES = "ThreadService.ListThreads", "ThreadService.ListMessages"
INFO, AGENTS, AGENT = "AgentService.GetServerInfo", "AgentService.ListAgents", "AgentService.GetAgent"


@case("INVALID_REQUEST", CREATE)
async def long_title(rig: Rig, method: Method) -> Bad:
    request = request_of(CREATE)
    request.thread.title = "x" * 257
    return Bad.of(request)


@case("AGENT_NOT_FOUND", CREATE)
async def no_such_agent(rig: Rig, method: Method) -> Bad:
    request = request_of(CREATE)
    request.thread.agent = "agents/nobody"
    return Bad.of(request)


@case("REQUEST_ID_REUSED", CREATE)
async def other_body(rig: Rig, method: Method) -> Bad:
    request = request_of(CREATE, request_id=new_id())
    await rig.ask(CREATE, request)
    request.thread.title = "another"
    return Bad.of(request)


@case("THREAD_ID_USED", CREATE)
async def id_taken(rig: Rig, method: Method) -> Bad:
    return Bad.of(request_of(CREATE, thread_id=(await new_thread(rig)).rpartition("/")[2]))


@case("FEATURE_NOT_SERVED", CREATE)
async def later_mode(rig: Rig, method: Method) -> Bad:
    """A permission mode that a later version may have."""
    request = request_of(CREATE)
    request.thread.permission_mode = 9
    return Bad.of(request)


@case("INVALID_REQUEST", GET)
async def no_name(rig: Rig, method: Method) -> Bad:
    return Bad.of(request_of(GET))


@case("THREAD_NOT_FOUND", GET)
async def foreign_thread(rig: Rig, method: Method) -> Bad:
    return Bad.of(request_of(GET, name=await new_thread(rig, BOB)))


@case("INVALID_REQUEST", LIST)
async def negative_page(rig: Rig, method: Method) -> Bad:
    return Bad.of(request_of(LIST, page_size=-1))


@case("PAGE_TOKEN_MISMATCH", LIST)
async def token_of_another_scope(rig: Rig, method: Method) -> Bad:
    await new_thread(rig, BOB)
    await new_thread(rig, BOB)
    (answer,) = await rig.ask(LIST, request_of(LIST, page_size=1), caller=BOB)
    return Bad.of(request_of(LIST, page_token=answer.next_page_token))


@case("INVALID_REQUEST", MESSAGES)
async def no_parent(rig: Rig, method: Method) -> Bad:
    return Bad.of(request_of(MESSAGES, parent="threads/-"))


@case("PAGE_TOKEN_MISMATCH", MESSAGES)
async def invented_token(rig: Rig, method: Method) -> Bad:
    return Bad.of(request_of(MESSAGES, parent=await new_thread(rig), page_token="bm90IG91cnM"))


@case("THREAD_NOT_FOUND", MESSAGES)
async def missing_thread(rig: Rig, method: Method) -> Bad:
    return Bad.of(request_of(MESSAGES, parent=MISSING_THREAD))


@case("INVALID_REQUEST", INFO)
async def no_message(rig: Rig, method: Method) -> Bad:
    """A request without fields can only be wrong as bytes."""
    return Bad.of(b"\xff\xff\xff")


@case("INVALID_REQUEST", "AdminService.PruneEvents")
async def negative_age(rig: Rig, method: Method) -> Bad:
    request = request_of("AdminService.PruneEvents")
    request.older_than.FromSeconds(-1)
    return Bad.of(request, caller=caller_of(method))


@case("INVALID_REQUEST", AGENTS)
async def negative_agents(rig: Rig, method: Method) -> Bad:
    return Bad.of(request_of(AGENTS, page_size=-5))


@case("PAGE_TOKEN_MISMATCH", AGENTS)
async def broken_token(rig: Rig, method: Method) -> Bad:
    return Bad.of(request_of(AGENTS, page_token="%%%"))


@case("INVALID_REQUEST", AGENT)
async def no_agent_name(rig: Rig, method: Method) -> Bad:
    return Bad.of(request_of(AGENT, name="agents/Not An Agent"))


@case("AGENT_NOT_FOUND", AGENT)
async def missing_agent(rig: Rig, method: Method) -> Bad:
    return Bad.of(request_of(AGENT, name="agents/nobody"))
