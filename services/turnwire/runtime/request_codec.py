"""From requests to the domain: everything that can be wrong with a request is found here, field by field.

A field that is not served yet is refused by name, never ignored.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from turnwire.api.runtime.v1 import content_pb2, thread_pb2, turn_pb2
from turnwire.core.errors import FieldViolation, InvalidRequest, NotServed
from turnwire.core.ids import AgentRef, ThreadRef, TurnRef, require_request_id, require_segment
from turnwire.core.text import require_clean
from turnwire.runtime.domain.answer_schema import schema_problem
from turnwire.runtime.domain.thread import NewThreadCommand, ThreadPatch
from turnwire.runtime.domain.turn import (
    BusyPolicy,
    InputPart,
    NewThread,
    OptionsSpec,
    StartCommand,
    TaskSpec,
    ThreadKey,
    ToolChoiceSpec,
    TurnKey,
    TurnLimits,
    TurnSpec,
    WaitingPolicy,
)

__all__ = [
    "agent_name",
    "bad",
    "create_thread_from_proto",
    "disconnect_grace",
    "input_parts",
    "model_options",
    "not_before",
    "not_served",
    "seconds",
    "start_command_from_proto",
    "thread_key",
    "thread_patch_from_proto",
    "turn_key",
    "turn_spec_from_proto",
]

MAX_PARTS = 32
MAX_INPUT_BYTES = 2 * 1024 * 1024
MAX_PART_BYTES = 1024 * 1024
MAX_DESCRIPTION_BYTES = 256 * 1024
MAX_EXPECTED_BYTES = 64 * 1024
MAX_LABELS = 16
MAX_ALLOWED_TOOLS = 256
MAX_SHORT_CHARS = 256
MAX_METADATA_BYTES = 16 * 1024
# What most requests leave out, made once.
_NO_CHOICE, _NO_OPTIONS, _NO_LIMITS = ToolChoiceSpec(), OptionsSpec(), TurnLimits()
LONGEST_SECONDS = 366 * 86400.0

_BUSY = {
    turn_pb2.BUSY_POLICY_UNSPECIFIED: None,
    turn_pb2.BUSY_POLICY_QUEUE: BusyPolicy.QUEUE,
    turn_pb2.BUSY_POLICY_REJECT: BusyPolicy.REJECT,
    turn_pb2.BUSY_POLICY_INTERRUPT: BusyPolicy.INTERRUPT,
}
_ON_WAITING = {
    turn_pb2.WAITING_POLICY_UNSPECIFIED: WaitingPolicy.QUEUE,
    turn_pb2.WAITING_POLICY_QUEUE: WaitingPolicy.QUEUE,
    turn_pb2.WAITING_POLICY_CANCEL: WaitingPolicy.CANCEL,
}
_PATCHED = frozenset({"title", "metadata", "labels", "permission_mode"})
_MODES = {0: "ask", thread_pb2.PERMISSION_MODE_ASK: "ask", thread_pb2.PERMISSION_MODE_AUTO: "auto"}
_CHOICES = {0: "auto", 1: "auto", 2: "none", 3: "required", 4: "tool"}


def bad(field: str, description: str) -> InvalidRequest:
    """Return the error for one wrong field."""
    return InvalidRequest(f"{field} {description}", violations=[FieldViolation(field, description)])


def not_served(feature: str) -> NotServed:
    """Return the error for a part of the contract that is not served."""
    return NotServed(f"{feature} is not served by this version: upgrade the server", feature=feature)


def start_command_from_proto(
    request_id: str,
    spec: turn_pb2.TurnSpec,
    scope: str,
    subject: str,
    grace: float | None = None,
    after_sequence: int = 0,
    not_before: int = 0,
) -> StartCommand:
    """Return the admission that a RunTurn or StartTurn request asks for."""
    known = turn_spec_from_proto(spec)
    request_id = require_request_id(request_id)
    return StartCommand(scope, request_id, known, subject, grace, after_sequence, not_before)


def not_before(request: Any) -> int:
    """Return `not_before_time` in nanoseconds since the epoch, 0 when it is absent. Raises InvalidRequest."""
    if not request.HasField("not_before_time"):
        return 0
    field, moment = "not_before_time", request.not_before_time
    if not 0 <= moment.nanos < 10**9 or moment.seconds < 0:
        raise bad(field, "is no time since 1970")
    if moment.seconds > time.time() + LONGEST_SECONDS:
        raise bad(field, f"is more than {LONGEST_SECONDS / 86400:g} days ahead")
    return int(moment.seconds * 10**9 + moment.nanos)


def turn_spec_from_proto(spec: turn_pb2.TurnSpec) -> TurnSpec:
    """Return the validated domain form of a spec."""
    _refuse_unserved(spec)
    if bool(spec.thread) == spec.HasField("new_thread"):
        raise bad("spec.thread", "or spec.new_thread is needed: set exactly one of them")
    if spec.WhichOneof("work") is None:
        raise bad("spec.work", "is needed: set spec.input or spec.task")
    if spec.thread:
        ThreadRef.parse(spec.thread, "spec.thread")
    return TurnSpec(
        thread=spec.thread,
        new_thread=_new_thread(spec.new_thread) if spec.HasField("new_thread") else None,
        agent=agent_name(spec.agent, "spec.agent") if spec.agent else "",
        parts=input_parts(spec.input.parts, "spec.input.parts") if spec.HasField("input") else (),
        task=_task(spec.task) if spec.HasField("task") else None,
        allowed_tools=_allowed_tools(spec.allowed_tools),
        tool_choice=_tool_choice(spec.tool_choice) if spec.HasField("tool_choice") else _NO_CHOICE,
        options=model_options(spec.model_options) if spec.HasField("model_options") else _NO_OPTIONS,
        limits=_limits(spec.limits) if spec.HasField("limits") else _NO_LIMITS,
        response_schema_json=_response_schema(spec.response_schema_json),
        busy_policy=_BUSY[spec.busy_policy],
        on_waiting=_ON_WAITING[spec.on_waiting],
        expected_version=spec.expected_version if spec.HasField("expected_version") else None,
        metadata=_texts(spec.metadata, "spec.metadata", MAX_METADATA_BYTES),
        labels=_labels(spec.labels, "spec.labels"),
    )


def _refuse_unserved(spec: turn_pb2.TurnSpec) -> None:
    if spec.client_tools:
        raise not_served("spec.client_tools")
    if spec.on_waiting not in _ON_WAITING:
        raise bad("spec.on_waiting", "is no known value")
    if spec.busy_policy not in _BUSY:
        known = spec.busy_policy in turn_pb2.BusyPolicy.values()
        raise not_served("spec.busy_policy") if known else bad("spec.busy_policy", "is no known value")
    if spec.tool_choice.mode not in _CHOICES:
        raise bad("spec.tool_choice.mode", "is no known value")


def _new_thread(new: turn_pb2.NewThread) -> NewThread:
    if new.thread_id:
        require_segment(new.thread_id, "spec.new_thread.thread_id")
    if len(new.title) > 256:
        raise bad("spec.new_thread.title", "is longer than 256 characters")
    return NewThread(
        thread_id=new.thread_id,
        title=require_clean(new.title, "spec.new_thread.title"),
        metadata=_texts(new.metadata, "spec.new_thread.metadata", MAX_METADATA_BYTES),
        labels=_labels(new.labels, "spec.new_thread.labels"),
    )


def _task(task: turn_pb2.Task) -> TaskSpec:
    if not task.description.strip():
        raise bad("spec.task.description", "is needed")
    for name, most in (("description", MAX_DESCRIPTION_BYTES), ("expected_output", MAX_EXPECTED_BYTES)):
        if len(getattr(task, name).encode()) > most:
            raise bad(f"spec.task.{name}", f"is above {most} bytes")
    return TaskSpec(
        description=require_clean(task.description, "spec.task.description"),
        expected_output=require_clean(task.expected_output, "spec.task.expected_output"),
        parts=input_parts(task.parts, "spec.task.parts") if task.parts else (),
    )


def _response_schema(text: str) -> str:
    problem = schema_problem(text) if text else ""
    if problem:
        raise bad("spec.response_schema_json", problem)
    return text


def input_parts(parts: Sequence[content_pb2.Part], field: str) -> tuple[InputPart, ...]:
    """Return what a user says. Raises InvalidRequest."""
    if not parts:
        raise bad(field, "needs at least one part")
    # Counted before it is read: a request of 4 MiB has room for a million of them.
    if len(parts) > MAX_PARTS:
        raise bad(field, f"has more than {MAX_PARTS} parts")
    found = tuple(_part(p, f"{field}[{i}]") for i, p in enumerate(parts))
    if sum(len(p.text.encode()) + len(p.data) for p in found) > MAX_INPUT_BYTES:
        raise bad(field, f"is above {MAX_INPUT_BYTES} bytes in all")
    return found


def _part(part: content_pb2.Part, field: str) -> InputPart:
    match part.WhichOneof("content"):
        case "text":
            if len(part.text.text.encode()) > MAX_PART_BYTES:
                raise bad(f"{field}.text", f"is above {MAX_PART_BYTES} bytes")
            return InputPart(kind="text", text=require_clean(part.text.text, f"{field}.text"))
        case "blob":
            if len(part.blob.data) > MAX_PART_BYTES:
                raise bad(f"{field}.blob", f"is above {MAX_PART_BYTES} bytes")
            if not part.blob.media_type:
                raise bad(f"{field}.blob.media_type", "is needed")
            return InputPart(
                kind="blob",
                data=part.blob.data,
                media_type=_short(part.blob.media_type, f"{field}.blob.media_type"),
                filename=_short(part.blob.filename, f"{field}.blob.filename"),
            )
        case "uri":
            if not part.uri.uri.startswith("https://") or len(part.uri.uri) > 2048:
                raise bad(f"{field}.uri", "must be an https address of at most 2,048 characters")
            return InputPart(
                kind="uri",
                uri=require_clean(part.uri.uri, f"{field}.uri"),
                media_type=_short(part.uri.media_type, f"{field}.uri.media_type"),
            )
        case "handle":
            raise not_served(f"{field}.handle")
    raise bad(field, "has no content that this server knows")


def _allowed_tools(names: Sequence[str]) -> tuple[str, ...]:
    if len(names) > MAX_ALLOWED_TOOLS:
        raise bad("spec.allowed_tools", f"has more than {MAX_ALLOWED_TOOLS} names")
    return tuple(_short(name, "spec.allowed_tools") for name in names)


def _short(text: str, field: str) -> str:
    """Return a text that stands for a name or a word: clean, and of no more than 256 characters."""
    if len(text) > MAX_SHORT_CHARS:
        raise bad(field, f"is longer than {MAX_SHORT_CHARS} characters")
    return require_clean(text, field)


def _tool_choice(choice: turn_pb2.ToolChoice) -> ToolChoiceSpec:
    mode = _CHOICES[choice.mode]
    if (mode == "tool") != bool(choice.tool_name):
        raise bad("spec.tool_choice.tool_name", "is set with mode TOOL and only with it")
    name = _short(choice.tool_name, "spec.tool_choice.tool_name")
    return ToolChoiceSpec.model_validate({"mode": mode, "tool_name": name})


def model_options(options: turn_pb2.ModelOptions, field: str = "spec.model_options") -> OptionsSpec:
    """Return settings of the model. Raises InvalidRequest."""
    temperature = options.temperature if options.HasField("temperature") else None
    if temperature is not None and not 0 <= temperature <= 2:
        raise bad(f"{field}.temperature", "must be from 0 to 2")
    top_p = options.top_p if options.HasField("top_p") else None
    if top_p is not None and not 0 < top_p <= 1:
        raise bad(f"{field}.top_p", "must be above 0 and at most 1")
    if len(options.stop) > 8:
        raise bad(f"{field}.stop", "has more than 8 texts")
    return OptionsSpec(
        model=_short(options.model, f"{field}.model"),
        temperature=temperature,
        top_p=top_p,
        max_output_tokens=_optional(options, "max_output_tokens", f"{field}.max_output_tokens"),
        stop=tuple(_short(s, f"{field}.stop") for s in options.stop),
        reasoning_effort=_short(options.reasoning_effort, f"{field}.reasoning_effort"),
    )


def _limits(limits: turn_pb2.TurnLimits) -> TurnLimits:
    return TurnLimits(
        steps=_optional(limits, "steps", "spec.limits.steps"),
        turn_timeout=seconds(limits, "turn_timeout", "spec.limits.turn_timeout"),
        tokens=_optional(limits, "tokens", "spec.limits.tokens"),
        cost_micro_usd=_optional(limits, "cost_micro_usd", "spec.limits.cost_micro_usd"),
        tool_timeout=seconds(limits, "tool_timeout", "spec.limits.tool_timeout"),
    )


def _optional(message: Any, name: str, field: str) -> int | None:
    if not message.HasField(name):
        return None
    value: int = getattr(message, name)
    if value < 1:
        raise bad(field, "must be at least 1")
    return value


def seconds(message: Any, name: str, field: str, most: float = LONGEST_SECONDS) -> float | None:
    """Return a Duration field as seconds above 0, None when it is absent. Raises InvalidRequest."""
    if not message.HasField(name):
        return None
    value = getattr(message, name)
    found = float(value.seconds + value.nanos / 1e9)
    if not 0 < found <= most:
        raise bad(field, f"must be above 0 and at most {most:g} seconds")
    return found


def disconnect_grace(request: Any) -> float | None:
    """Return the grace of `cancel_on_disconnect` in seconds, None when it is not asked for."""
    if not request.HasField("cancel_on_disconnect"):
        return None
    option = request.cancel_on_disconnect
    return seconds(option, "grace_timeout", "cancel_on_disconnect.grace_timeout") or 10.0


def turn_key(name: str, field: str, scope: str) -> TurnKey:
    """Return the key of a turn's name. Raises InvalidRequest."""
    ref = TurnRef.parse(name, field)
    return TurnKey(scope, ref.thread, ref.turn)


def thread_key(name: str, field: str, scope: str, *, wildcard: bool = False) -> ThreadKey:
    """Return the key of a thread's name; with `wildcard`, `threads/-` is the id `-`.

    Raises:
        InvalidRequest: it is no such name.
    """
    if wildcard and name == "threads/-":
        return ThreadKey(scope, "-")
    return ThreadKey(scope, ThreadRef.parse(name, field).thread)


def agent_name(name: str, field: str) -> str:
    """Return the bare name of `agents/{agent}`. Raises InvalidRequest."""
    return AgentRef.parse(name if name.startswith("agents/") else f"agents/{name}", field).agent


def create_thread_from_proto(request: Any, scope: str) -> NewThreadCommand:
    """Return the thread that a CreateThread request asks for."""
    thread: thread_pb2.Thread = request.thread
    mode = _MODES.get(thread.permission_mode)
    if mode is None:
        raise not_served("thread.permission_mode")
    if request.thread_id:
        require_segment(request.thread_id, "thread_id")
    if len(thread.title) > 256:
        raise bad("thread.title", "is longer than 256 characters")
    return NewThreadCommand(
        scope=scope,
        request_id=require_request_id(request.request_id) if request.request_id else "",
        thread_id=request.thread_id,
        title=require_clean(thread.title, "thread.title"),
        agent=agent_name(thread.agent, "thread.agent") if thread.agent else "",
        metadata=_texts(thread.metadata, "thread.metadata", MAX_METADATA_BYTES),
        private_metadata=_texts(request.private_metadata, "private_metadata", MAX_METADATA_BYTES),
        labels=_labels(thread.labels, "thread.labels"),
        permission_mode=mode,
    )


def thread_patch_from_proto(request: Any) -> ThreadPatch:
    """Return what an UpdateThread request changes."""
    thread: thread_pb2.Thread = request.thread
    paths = set(request.update_mask.paths)
    if not paths or not paths <= _PATCHED:
        raise bad("update_mask", f"may name {', '.join(sorted(_PATCHED))}, and must name one")
    mode = _MODES.get(thread.permission_mode)
    if "permission_mode" in paths and mode is None:
        raise bad("thread.permission_mode", "is no known value")
    if len(thread.title) > 256:
        raise bad("thread.title", "is longer than 256 characters")
    return ThreadPatch(
        require_clean(thread.title, "thread.title") if "title" in paths else None,
        _texts(thread.metadata, "thread.metadata", MAX_METADATA_BYTES) if "metadata" in paths else None,
        _labels(thread.labels, "thread.labels") if "labels" in paths else None,
        mode if "permission_mode" in paths else None,
    )


def _texts(texts: Mapping[str, str], field: str, limit: int) -> dict[str, str]:
    if not texts:
        return {}
    # By key, as a fingerprint must not depend on the order in which a map comes.
    found = {require_clean(k, field): require_clean(v, f"{field}[{k!r}]") for k, v in sorted(texts.items())}
    if sum(len(k.encode()) + len(v.encode()) for k, v in found.items()) > limit:
        raise bad(field, f"is above {limit} bytes in all")
    return found


def _labels(labels: Mapping[str, str], field: str) -> dict[str, str]:
    if len(labels) > MAX_LABELS:
        raise bad(field, f"has more than {MAX_LABELS} labels")
    for key, value in labels.items():
        if not 1 <= len(key) <= 63 or not set(key) <= _LABEL_CHARS:
            raise bad(field, "keys must be 1 to 63 characters out of a-z, 0-9, ., _, / and -")
        if len(value) > 256:
            raise bad(f"{field}[{key!r}]", "is longer than 256 characters")
    return _texts(labels, field, MAX_METADATA_BYTES)


_LABEL_CHARS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789._/-")
