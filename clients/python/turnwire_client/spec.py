"""Requests from plain arguments: names may be given short, files as bytes, durations in seconds."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from google.protobuf.duration_pb2 import Duration

from turnwire.api.control.v1.command_pb2 import CancelTurn, Command, CommandTarget, InjectSteer
from turnwire.api.control.v1.control_service_pb2 import SendCommandRequest
from turnwire.api.runtime.v1.action_pb2 import Action
from turnwire.api.runtime.v1.content_pb2 import Part, TextContent
from turnwire.api.runtime.v1.turn_pb2 import (
    BusyPolicy,
    Input,
    ModelOptions,
    NewThread,
    Task,
    TurnLimits,
    TurnSpec,
)
from turnwire.api.runtime.v1.turn_service_pb2 import (
    Approve,
    CancelOnDisconnect,
    Reject,
    ResolveActionRequest,
    RunTurnRequest,
)

__all__ = [
    "agent_name",
    "cancel_request",
    "decision",
    "duration",
    "new_id",
    "run_turn_request",
    "steer_request",
    "thread_name",
    "turn_spec",
]


def new_id() -> str:
    """Mint an idempotency key."""
    return str(uuid.uuid4())


def duration(seconds: float) -> Duration:
    """Give a number of seconds as a message."""
    whole = Duration()
    whole.FromNanoseconds(round(seconds * 1e9))
    return whole


def agent_name(agent: str) -> str:
    """Give `agents/{agent}` for an agent's id or name; nothing stays nothing."""
    return agent if not agent or "/" in agent else f"agents/{agent}"


def thread_name(thread: str) -> str:
    """Give `threads/{thread}` for a thread's id or name; nothing stays nothing."""
    return thread if not thread or "/" in thread else f"threads/{thread}"


def turn_spec(
    *,
    agent: str = "",
    text: str | None = None,
    parts: Iterable[Part] = (),
    task: Task | str | None = None,
    schema: Mapping[str, Any] | str | None = None,
    thread: str = "",
    new_thread: NewThread | None = None,
    limits: TurnLimits | None = None,
    model_options: ModelOptions | None = None,
    busy_policy: BusyPolicy = BusyPolicy.BUSY_POLICY_UNSPECIFIED,
    labels: Mapping[str, str] | None = None,
    metadata: Mapping[str, str] | None = None,
    **fields: Any,
) -> TurnSpec:
    """Build what a turn is asked to do.

    Args:
        agent: id or name; empty = the thread's own.
        text: what the user says; stands before `parts`.
        parts: further pieces, such as files.
        task: instead of text and parts: a Task, or its description.
        schema: JSON Schema that the answer must fit, as an object or as JSON.
        thread: id or name of a thread; empty = a new one, made with the turn as `new_thread` says.
        fields: any other field of TurnSpec, by name.

    Raises:
        ValueError: not exactly one of text/parts and task, or both thread and new_thread.
    """
    pieces = [*([Part(text=TextContent(text=text))] if text is not None else ()), *parts]
    if bool(pieces) == (task is not None):
        raise ValueError("give either text (with or without parts) or a task")
    if thread and new_thread is not None:
        raise ValueError("give either thread or new_thread")
    fields.setdefault("response_schema_json", _json(schema))
    spec = TurnSpec(
        agent=agent_name(agent),
        limits=limits,
        model_options=model_options,
        busy_policy=busy_policy,
        labels=labels or {},
        metadata=metadata or {},
        **fields,
    )
    if thread:
        spec.thread = thread_name(thread)
    else:
        spec.new_thread.CopyFrom(new_thread or NewThread())
    if task is not None:
        spec.task.CopyFrom(Task(description=task) if isinstance(task, str) else task)
    else:
        spec.input.CopyFrom(Input(parts=pieces))
    return spec


def _json(schema: Mapping[str, Any] | str | None) -> str:
    if schema is None or isinstance(schema, str):
        return schema or ""
    return json.dumps(schema)


def run_turn_request(
    spec: TurnSpec,
    *,
    request_id: str | None = None,
    after: int = 0,
    follow_while_waiting: bool = False,
    cancel_on_disconnect: float | None = None,
) -> RunTurnRequest:
    """Build a RunTurnRequest; without `request_id` the turn is a new one.

    Args:
        after: last sequence that the caller has.
        cancel_on_disconnect: seconds after which a turn that nobody reads is cancelled; None = never.
    """
    request = RunTurnRequest(
        request_id=request_id or new_id(),
        spec=spec,
        after_sequence=after,
        follow_while_waiting=follow_while_waiting,
    )
    if cancel_on_disconnect is not None:
        request.cancel_on_disconnect.CopyFrom(
            CancelOnDisconnect(grace_timeout=duration(cancel_on_disconnect))
        )
    return request


def cancel_request(
    target: str, *, cause: str, clear_queue: bool, wait: float, command_id: str | None
) -> SendCommandRequest:
    """Build the command that stops a turn, or what is live on a thread."""
    return SendCommandRequest(
        command=Command(
            command_id=command_id or new_id(),
            target=_target(target),
            cancel_turn=CancelTurn(cause=cause, clear_queue=clear_queue),
        ),
        wait_timeout=duration(wait),
    )


def steer_request(target: str, text: str, *, wait: float, command_id: str | None) -> SendCommandRequest:
    """Build the command that adds a user message to a running turn."""
    return SendCommandRequest(
        command=Command(
            command_id=command_id or new_id(), target=_target(target), inject_steer=InjectSteer(text=text)
        ),
        wait_timeout=duration(wait),
    )


def decision(action: Action, approve: bool, comment: str, request_id: str | None) -> ResolveActionRequest:
    """Build the answer to an action, bound to what was shown by its digest."""
    request = ResolveActionRequest(
        action=action.name, request_id=request_id or new_id(), digest=action.digest
    )
    if approve:
        request.approve.CopyFrom(Approve(comment=comment))
    else:
        request.reject.CopyFrom(Reject(comment=comment))
    return request


def _target(name: str) -> CommandTarget:
    """Name a turn, or the thread whose live turn is meant."""
    return CommandTarget(turn=name) if "/turns/" in name else CommandTarget(thread=thread_name(name))
