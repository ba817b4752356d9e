"""Each unary call as a value: path, request, answer type and time limit; both clients only carry them out.

Every operation may be repeated: reads change nothing, and what changes something carries an idempotency key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.message import Message as ProtoMessage
from google.protobuf.timestamp_pb2 import Timestamp

from turnwire.api.common.v1.tool_pb2 import RangeUnit, ReadRange
from turnwire.api.control.v1 import control_service_pb2 as control
from turnwire.api.runtime.v1 import admin_service_pb2 as admin
from turnwire.api.runtime.v1 import agent_service_pb2 as agents
from turnwire.api.runtime.v1 import thread_service_pb2 as threads
from turnwire.api.runtime.v1 import turn_service_pb2 as turns
from turnwire.api.runtime.v1.content_pb2 import Part
from turnwire.api.runtime.v1.message_pb2 import MESSAGE_VISIBILITY_HIDDEN, MESSAGE_VISIBILITY_VISIBLE
from turnwire.api.runtime.v1.thread_pb2 import Thread
from turnwire.api.runtime.v1.turn_pb2 import Input, ModelOptions, TurnSpec, TurnView
from turnwire_client.spec import agent_name, duration, new_id, thread_name

__all__ = [
    "ADMIN",
    "AGENTS",
    "CONTROL",
    "MAX_WAIT",
    "Operation",
    "READ_TOOL_RESULT",
    "RUN_TURN",
    "THREADS",
    "TURNS",
    "WATCH_ACTIONS",
    "WATCH_THREAD",
    "WATCH_TURN",
    "continue_turn",
    "create_thread",
    "delete_thread",
    "fork_thread",
    "get_action",
    "get_agent",
    "get_thread",
    "get_turn",
    "list_actions",
    "list_agents",
    "list_commands",
    "list_messages",
    "list_queued_turns",
    "list_threads",
    "list_turns",
    "prune_events",
    "read_tool_result",
    "regenerate_turn",
    "resolve_action",
    "retry_turn",
    "send_command",
    "server_info",
    "set_message_visibility",
    "start_turn",
    "update_queued_turn",
    "update_thread",
    "watch_actions",
]

_R = TypeVar("_R", bound=ProtoMessage)

ADMIN = "/turnwire.api.runtime.v1.AdminService"
AGENTS = "/turnwire.api.runtime.v1.AgentService"
CONTROL = "/turnwire.api.control.v1.ControlService"
THREADS = "/turnwire.api.runtime.v1.ThreadService"
TURNS = "/turnwire.api.runtime.v1.TurnService"
RUN_TURN = f"{TURNS}/RunTurn"
WATCH_TURN = f"{TURNS}/WatchTurn"
WATCH_THREAD = f"{THREADS}/WatchThread"
WATCH_ACTIONS = f"{TURNS}/WatchActions"
READ_TOOL_RESULT = f"{TURNS}/ReadToolResult"

# Longest wait that a server grants in one call, in seconds; a longer wait is several calls.
MAX_WAIT = 300.0

_TIMEOUT = 30.0
# Deleting goes on as long as there is something to delete.
_PRUNE_TIMEOUT = 3600.0


@dataclass(frozen=True, slots=True)
class Operation(Generic[_R]):
    """One unary call; `timeout` in seconds bounds each attempt."""

    path: str
    request: ProtoMessage
    response: type[_R]
    timeout: float = _TIMEOUT


def server_info() -> Operation[agents.GetServerInfoResponse]:
    return Operation(f"{AGENTS}/GetServerInfo", agents.GetServerInfoRequest(), agents.GetServerInfoResponse)


def get_agent(agent: str) -> Operation[agents.GetAgentResponse]:
    return Operation(
        f"{AGENTS}/GetAgent", agents.GetAgentRequest(name=agent_name(agent)), agents.GetAgentResponse
    )


def list_agents(page_size: int) -> Callable[[str], Operation[agents.ListAgentsResponse]]:
    def page(token: str) -> Operation[agents.ListAgentsResponse]:
        request = agents.ListAgentsRequest(page_size=page_size, page_token=token)
        return Operation(f"{AGENTS}/ListAgents", request, agents.ListAgentsResponse)

    return page


def prune_events(older_than: float | None, dry_run: bool) -> Operation[admin.PruneEventsResponse]:
    request = admin.PruneEventsRequest(
        older_than=None if older_than is None else duration(older_than), dry_run=dry_run
    )
    return Operation(f"{ADMIN}/PruneEvents", request, admin.PruneEventsResponse, _PRUNE_TIMEOUT)


def start_turn(
    spec: TurnSpec, request_id: str | None, not_before: float | None
) -> Operation[turns.StartTurnResponse]:
    request = turns.StartTurnRequest(request_id=request_id or new_id(), spec=spec)
    if not_before is not None:
        moment = Timestamp()
        moment.FromNanoseconds(round(not_before * 1e9))
        request.not_before_time.CopyFrom(moment)
    return Operation(f"{TURNS}/StartTurn", request, turns.StartTurnResponse)


def get_turn(name: str, wait: float, full: bool) -> Operation[turns.GetTurnResponse]:
    request = turns.GetTurnRequest(
        name=name,
        wait_timeout=duration(wait) if wait > 0 else None,
        view=TurnView.TURN_VIEW_FULL if full else TurnView.TURN_VIEW_BASIC,
    )
    return Operation(f"{TURNS}/GetTurn", request, turns.GetTurnResponse, _TIMEOUT + wait)


def list_turns(
    thread: str, query: str, page_size: int
) -> Callable[[str], Operation[turns.ListTurnsResponse]]:
    def page(token: str) -> Operation[turns.ListTurnsResponse]:
        request = turns.ListTurnsRequest(
            parent=thread_name(thread), page_size=page_size, page_token=token, filter=query
        )
        return Operation(f"{TURNS}/ListTurns", request, turns.ListTurnsResponse)

    return page


def continue_turn(turn: str, steps: int, request_id: str | None) -> Operation[turns.ContinueTurnResponse]:
    request = turns.ContinueTurnRequest(turn=turn, request_id=request_id or new_id(), steps=steps)
    return Operation(f"{TURNS}/ContinueTurn", request, turns.ContinueTurnResponse)


def resolve_action(request: turns.ResolveActionRequest) -> Operation[turns.ResolveActionResponse]:
    if not request.request_id:
        request.request_id = new_id()
    return Operation(f"{TURNS}/ResolveAction", request, turns.ResolveActionResponse)


def get_action(name: str) -> Operation[turns.GetActionResponse]:
    return Operation(f"{TURNS}/GetAction", turns.GetActionRequest(name=name), turns.GetActionResponse)


def watch_actions(parent: str, query: str) -> turns.WatchActionsRequest:
    return turns.WatchActionsRequest(parent=thread_name(parent), filter=query)


def list_actions(
    parent: str, query: str, page_size: int
) -> Callable[[str], Operation[turns.ListActionsResponse]]:
    def page(token: str) -> Operation[turns.ListActionsResponse]:
        request = turns.ListActionsRequest(
            parent=thread_name(parent), page_size=page_size, page_token=token, filter=query
        )
        return Operation(f"{TURNS}/ListActions", request, turns.ListActionsResponse)

    return page


def read_tool_result(
    turn: str, call_id: str, offset: int, length: int, unit: RangeUnit
) -> turns.ReadToolResultRequest:
    whole = offset == 0 and length == 0
    span = None if whole else ReadRange(unit=unit, offset=offset, length=length)
    return turns.ReadToolResultRequest(turn=turn, call_id=call_id, range=span)


def create_thread(
    thread: Thread, thread_id: str, request_id: str | None
) -> Operation[threads.CreateThreadResponse]:
    request = threads.CreateThreadRequest(
        request_id=request_id or new_id(), thread_id=thread_id, thread=thread
    )
    return Operation(f"{THREADS}/CreateThread", request, threads.CreateThreadResponse)


def get_thread(thread: str, message_count: int) -> Operation[threads.GetThreadResponse]:
    request = threads.GetThreadRequest(name=thread_name(thread), message_count=message_count)
    return Operation(f"{THREADS}/GetThread", request, threads.GetThreadResponse)


def delete_thread(
    thread: str, expected_version: int | None = None
) -> Operation[threads.DeleteThreadResponse]:
    request = threads.DeleteThreadRequest(name=thread_name(thread), expected_version=expected_version)
    return Operation(f"{THREADS}/DeleteThread", request, threads.DeleteThreadResponse)


def fork_thread(
    thread: str, message: str, thread_id: str, request_id: str | None
) -> Operation[threads.ForkThreadResponse]:
    request = threads.ForkThreadRequest(
        thread=thread_name(thread), request_id=request_id or new_id(), message=message, thread_id=thread_id
    )
    return Operation(f"{THREADS}/ForkThread", request, threads.ForkThreadResponse)


def regenerate_turn(
    thread: str, version: int, message: str, options: ModelOptions | None, request_id: str | None
) -> Operation[threads.RegenerateTurnResponse]:
    request = threads.RegenerateTurnRequest(
        thread=thread_name(thread),
        request_id=request_id or new_id(),
        message=message,
        expected_version=version,
        model_options=options,
    )
    return Operation(f"{THREADS}/RegenerateTurn", request, threads.RegenerateTurnResponse)


def retry_turn(turn: str, version: int, request_id: str | None) -> Operation[threads.RetryTurnResponse]:
    request = threads.RetryTurnRequest(turn=turn, request_id=request_id or new_id(), expected_version=version)
    return Operation(f"{THREADS}/RetryTurn", request, threads.RetryTurnResponse)


def set_message_visibility(
    thread: str, version: int, messages: Sequence[str], hidden: bool
) -> Operation[threads.SetMessageVisibilityResponse]:
    request = threads.SetMessageVisibilityRequest(
        thread=thread_name(thread),
        messages=messages,
        visibility=MESSAGE_VISIBILITY_HIDDEN if hidden else MESSAGE_VISIBILITY_VISIBLE,
        expected_version=version,
    )
    return Operation(f"{THREADS}/SetMessageVisibility", request, threads.SetMessageVisibilityResponse)


def update_thread(
    thread: Thread, fields: Sequence[str], expected_version: int | None
) -> Operation[threads.UpdateThreadResponse]:
    request = threads.UpdateThreadRequest(
        thread=thread, update_mask=FieldMask(paths=fields), expected_version=expected_version
    )
    return Operation(f"{THREADS}/UpdateThread", request, threads.UpdateThreadResponse)


def list_queued_turns(
    thread: str, page_size: int
) -> Callable[[str], Operation[threads.ListQueuedTurnsResponse]]:
    def page(token: str) -> Operation[threads.ListQueuedTurnsResponse]:
        request = threads.ListQueuedTurnsRequest(
            parent=thread_name(thread), page_size=page_size, page_token=token
        )
        return Operation(f"{THREADS}/ListQueuedTurns", request, threads.ListQueuedTurnsResponse)

    return page


def update_queued_turn(
    turn: str, etag: str, parts: Sequence[Part]
) -> Operation[threads.UpdateQueuedTurnResponse]:
    request = threads.UpdateQueuedTurnRequest(name=turn, etag=etag, input=Input(parts=parts))
    return Operation(f"{THREADS}/UpdateQueuedTurn", request, threads.UpdateQueuedTurnResponse)


def list_threads(query: str, page_size: int) -> Callable[[str], Operation[threads.ListThreadsResponse]]:
    def page(token: str) -> Operation[threads.ListThreadsResponse]:
        request = threads.ListThreadsRequest(page_size=page_size, page_token=token, filter=query)
        return Operation(f"{THREADS}/ListThreads", request, threads.ListThreadsResponse)

    return page


def list_messages(
    thread: str, include_hidden: bool, page_size: int
) -> Callable[[str], Operation[threads.ListMessagesResponse]]:
    def page(token: str) -> Operation[threads.ListMessagesResponse]:
        request = threads.ListMessagesRequest(
            parent=thread_name(thread),
            page_size=page_size,
            page_token=token,
            include_hidden=include_hidden,
        )
        return Operation(f"{THREADS}/ListMessages", request, threads.ListMessagesResponse)

    return page


def send_command(request: control.SendCommandRequest) -> Operation[control.SendCommandResponse]:
    wait = request.wait_timeout
    seconds = wait.seconds + wait.nanos / 1e9
    return Operation(f"{CONTROL}/SendCommand", request, control.SendCommandResponse, _TIMEOUT + seconds)


def list_commands(query: str, page_size: int) -> Callable[[str], Operation[control.ListCommandsResponse]]:
    def page(token: str) -> Operation[control.ListCommandsResponse]:
        request = control.ListCommandsRequest(page_size=page_size, page_token=token, filter=query)
        return Operation(f"{CONTROL}/ListCommands", request, control.ListCommandsResponse)

    return page
