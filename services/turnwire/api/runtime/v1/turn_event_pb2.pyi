import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.rpc import status_pb2 as _status_pb2
from turnwire.api.common.v1 import tool_pb2 as _tool_pb2
from turnwire.api.llm.v1 import llm_event_pb2 as _llm_event_pb2
from turnwire.api.runtime.v1 import action_pb2 as _action_pb2
from turnwire.api.runtime.v1 import turn_pb2 as _turn_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EpisodeKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EPISODE_KIND_UNSPECIFIED: _ClassVar[EpisodeKind]
    EPISODE_KIND_START: _ClassVar[EpisodeKind]
    EPISODE_KIND_RESUME: _ClassVar[EpisodeKind]
    EPISODE_KIND_RECOVERY: _ClassVar[EpisodeKind]

class NoticeSeverity(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NOTICE_SEVERITY_UNSPECIFIED: _ClassVar[NoticeSeverity]
    NOTICE_SEVERITY_INFO: _ClassVar[NoticeSeverity]
    NOTICE_SEVERITY_WARNING: _ClassVar[NoticeSeverity]
    NOTICE_SEVERITY_ERROR: _ClassVar[NoticeSeverity]

class MessageOrigin(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MESSAGE_ORIGIN_UNSPECIFIED: _ClassVar[MessageOrigin]
    MESSAGE_ORIGIN_REQUEST: _ClassVar[MessageOrigin]
    MESSAGE_ORIGIN_STEER: _ClassVar[MessageOrigin]
    MESSAGE_ORIGIN_REMINDER: _ClassVar[MessageOrigin]
    MESSAGE_ORIGIN_CONTINUATION: _ClassVar[MessageOrigin]
    MESSAGE_ORIGIN_INBOX: _ClassVar[MessageOrigin]
EPISODE_KIND_UNSPECIFIED: EpisodeKind
EPISODE_KIND_START: EpisodeKind
EPISODE_KIND_RESUME: EpisodeKind
EPISODE_KIND_RECOVERY: EpisodeKind
NOTICE_SEVERITY_UNSPECIFIED: NoticeSeverity
NOTICE_SEVERITY_INFO: NoticeSeverity
NOTICE_SEVERITY_WARNING: NoticeSeverity
NOTICE_SEVERITY_ERROR: NoticeSeverity
MESSAGE_ORIGIN_UNSPECIFIED: MessageOrigin
MESSAGE_ORIGIN_REQUEST: MessageOrigin
MESSAGE_ORIGIN_STEER: MessageOrigin
MESSAGE_ORIGIN_REMINDER: MessageOrigin
MESSAGE_ORIGIN_CONTINUATION: MessageOrigin
MESSAGE_ORIGIN_INBOX: MessageOrigin

class TurnEvent(_message.Message):
    __slots__ = ("sequence", "create_time", "turn", "turn_attempt", "step", "step_attempt", "llm", "turn_accepted", "turn_started", "step_started", "step_reset", "step_committed", "step_settled", "tool_call_preparing", "tool_call_started", "tool_call_progress", "tool_call_finished", "action_required", "action_resolved", "steer_applied", "compacted", "subagent_started", "subagent_progress", "subagent_checkpoint", "subagent_paused", "subagent_completed", "subagent_failed", "waiting", "notice", "turn_suspended", "turn_resumed", "turn_finished")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    TURN_FIELD_NUMBER: _ClassVar[int]
    TURN_ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    STEP_ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    LLM_FIELD_NUMBER: _ClassVar[int]
    TURN_ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    TURN_STARTED_FIELD_NUMBER: _ClassVar[int]
    STEP_STARTED_FIELD_NUMBER: _ClassVar[int]
    STEP_RESET_FIELD_NUMBER: _ClassVar[int]
    STEP_COMMITTED_FIELD_NUMBER: _ClassVar[int]
    STEP_SETTLED_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_PREPARING_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_STARTED_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_PROGRESS_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_FINISHED_FIELD_NUMBER: _ClassVar[int]
    ACTION_REQUIRED_FIELD_NUMBER: _ClassVar[int]
    ACTION_RESOLVED_FIELD_NUMBER: _ClassVar[int]
    STEER_APPLIED_FIELD_NUMBER: _ClassVar[int]
    COMPACTED_FIELD_NUMBER: _ClassVar[int]
    SUBAGENT_STARTED_FIELD_NUMBER: _ClassVar[int]
    SUBAGENT_PROGRESS_FIELD_NUMBER: _ClassVar[int]
    SUBAGENT_CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    SUBAGENT_PAUSED_FIELD_NUMBER: _ClassVar[int]
    SUBAGENT_COMPLETED_FIELD_NUMBER: _ClassVar[int]
    SUBAGENT_FAILED_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    NOTICE_FIELD_NUMBER: _ClassVar[int]
    TURN_SUSPENDED_FIELD_NUMBER: _ClassVar[int]
    TURN_RESUMED_FIELD_NUMBER: _ClassVar[int]
    TURN_FINISHED_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    create_time: _timestamp_pb2.Timestamp
    turn: str
    turn_attempt: int
    step: int
    step_attempt: int
    llm: _llm_event_pb2.LlmEvent
    turn_accepted: TurnAccepted
    turn_started: TurnStarted
    step_started: StepStarted
    step_reset: StepReset
    step_committed: StepCommitted
    step_settled: StepSettled
    tool_call_preparing: ToolCallPreparing
    tool_call_started: ToolCallStarted
    tool_call_progress: ToolCallProgress
    tool_call_finished: ToolCallFinished
    action_required: ActionRequired
    action_resolved: ActionResolved
    steer_applied: SteerApplied
    compacted: Compacted
    subagent_started: SubagentStarted
    subagent_progress: SubagentProgress
    subagent_checkpoint: SubagentCheckpoint
    subagent_paused: SubagentPaused
    subagent_completed: SubagentCompleted
    subagent_failed: SubagentFailed
    waiting: Waiting
    notice: Notice
    turn_suspended: TurnSuspended
    turn_resumed: TurnResumed
    turn_finished: TurnFinished
    def __init__(self, sequence: _Optional[int] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., turn: _Optional[str] = ..., turn_attempt: _Optional[int] = ..., step: _Optional[int] = ..., step_attempt: _Optional[int] = ..., llm: _Optional[_Union[_llm_event_pb2.LlmEvent, _Mapping]] = ..., turn_accepted: _Optional[_Union[TurnAccepted, _Mapping]] = ..., turn_started: _Optional[_Union[TurnStarted, _Mapping]] = ..., step_started: _Optional[_Union[StepStarted, _Mapping]] = ..., step_reset: _Optional[_Union[StepReset, _Mapping]] = ..., step_committed: _Optional[_Union[StepCommitted, _Mapping]] = ..., step_settled: _Optional[_Union[StepSettled, _Mapping]] = ..., tool_call_preparing: _Optional[_Union[ToolCallPreparing, _Mapping]] = ..., tool_call_started: _Optional[_Union[ToolCallStarted, _Mapping]] = ..., tool_call_progress: _Optional[_Union[ToolCallProgress, _Mapping]] = ..., tool_call_finished: _Optional[_Union[ToolCallFinished, _Mapping]] = ..., action_required: _Optional[_Union[ActionRequired, _Mapping]] = ..., action_resolved: _Optional[_Union[ActionResolved, _Mapping]] = ..., steer_applied: _Optional[_Union[SteerApplied, _Mapping]] = ..., compacted: _Optional[_Union[Compacted, _Mapping]] = ..., subagent_started: _Optional[_Union[SubagentStarted, _Mapping]] = ..., subagent_progress: _Optional[_Union[SubagentProgress, _Mapping]] = ..., subagent_checkpoint: _Optional[_Union[SubagentCheckpoint, _Mapping]] = ..., subagent_paused: _Optional[_Union[SubagentPaused, _Mapping]] = ..., subagent_completed: _Optional[_Union[SubagentCompleted, _Mapping]] = ..., subagent_failed: _Optional[_Union[SubagentFailed, _Mapping]] = ..., waiting: _Optional[_Union[Waiting, _Mapping]] = ..., notice: _Optional[_Union[Notice, _Mapping]] = ..., turn_suspended: _Optional[_Union[TurnSuspended, _Mapping]] = ..., turn_resumed: _Optional[_Union[TurnResumed, _Mapping]] = ..., turn_finished: _Optional[_Union[TurnFinished, _Mapping]] = ...) -> None: ...

class TurnAccepted(_message.Message):
    __slots__ = ("agent", "disposition", "queue_position", "request_id")
    AGENT_FIELD_NUMBER: _ClassVar[int]
    DISPOSITION_FIELD_NUMBER: _ClassVar[int]
    QUEUE_POSITION_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    agent: str
    disposition: _turn_pb2.TurnDisposition
    queue_position: int
    request_id: str
    def __init__(self, agent: _Optional[str] = ..., disposition: _Optional[_Union[_turn_pb2.TurnDisposition, str]] = ..., queue_position: _Optional[int] = ..., request_id: _Optional[str] = ...) -> None: ...

class TurnStarted(_message.Message):
    __slots__ = ("episode", "kind", "epoch", "input_message")
    EPISODE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    INPUT_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    episode: int
    kind: EpisodeKind
    epoch: int
    input_message: str
    def __init__(self, episode: _Optional[int] = ..., kind: _Optional[_Union[EpisodeKind, str]] = ..., epoch: _Optional[int] = ..., input_message: _Optional[str] = ...) -> None: ...

class StepStarted(_message.Message):
    __slots__ = ("step", "max_steps", "model")
    STEP_FIELD_NUMBER: _ClassVar[int]
    MAX_STEPS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    step: int
    max_steps: int
    model: str
    def __init__(self, step: _Optional[int] = ..., max_steps: _Optional[int] = ..., model: _Optional[str] = ...) -> None: ...

class StepReset(_message.Message):
    __slots__ = ("from_sequence", "to_sequence", "cause")
    FROM_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TO_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    from_sequence: int
    to_sequence: int
    cause: str
    def __init__(self, from_sequence: _Optional[int] = ..., to_sequence: _Optional[int] = ..., cause: _Optional[str] = ...) -> None: ...

class StepCommitted(_message.Message):
    __slots__ = ("message", "call_ids")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CALL_IDS_FIELD_NUMBER: _ClassVar[int]
    message: str
    call_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, message: _Optional[str] = ..., call_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class StepSettled(_message.Message):
    __slots__ = ("usage",)
    USAGE_FIELD_NUMBER: _ClassVar[int]
    usage: _turn_pb2.UsageSummary
    def __init__(self, usage: _Optional[_Union[_turn_pb2.UsageSummary, _Mapping]] = ...) -> None: ...

class ToolCallPreparing(_message.Message):
    __slots__ = ("tool_name", "argument_bytes")
    TOOL_NAME_FIELD_NUMBER: _ClassVar[int]
    ARGUMENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    tool_name: str
    argument_bytes: int
    def __init__(self, tool_name: _Optional[str] = ..., argument_bytes: _Optional[int] = ...) -> None: ...

class ToolCallStarted(_message.Message):
    __slots__ = ("call_id", "tool_name", "attempt", "execution_timeout")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    TOOL_NAME_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    tool_name: str
    attempt: int
    execution_timeout: _duration_pb2.Duration
    def __init__(self, call_id: _Optional[str] = ..., tool_name: _Optional[str] = ..., attempt: _Optional[int] = ..., execution_timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class ToolCallProgress(_message.Message):
    __slots__ = ("call_id", "text")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    text: str
    def __init__(self, call_id: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...

class ToolCallFinished(_message.Message):
    __slots__ = ("call_id", "tool_name", "outcome", "content", "is_error", "overflow", "parts", "elapsed_duration", "settle_order", "call_index", "exit_code")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    TOOL_NAME_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    IS_ERROR_FIELD_NUMBER: _ClassVar[int]
    OVERFLOW_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    ELAPSED_DURATION_FIELD_NUMBER: _ClassVar[int]
    SETTLE_ORDER_FIELD_NUMBER: _ClassVar[int]
    CALL_INDEX_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    tool_name: str
    outcome: _tool_pb2.ToolOutcome
    content: str
    is_error: bool
    overflow: _tool_pb2.ResultHandle
    parts: _containers.RepeatedCompositeFieldContainer[_tool_pb2.ResultPart]
    elapsed_duration: _duration_pb2.Duration
    settle_order: int
    call_index: int
    exit_code: int
    def __init__(self, call_id: _Optional[str] = ..., tool_name: _Optional[str] = ..., outcome: _Optional[_Union[_tool_pb2.ToolOutcome, str]] = ..., content: _Optional[str] = ..., is_error: _Optional[bool] = ..., overflow: _Optional[_Union[_tool_pb2.ResultHandle, _Mapping]] = ..., parts: _Optional[_Iterable[_Union[_tool_pb2.ResultPart, _Mapping]]] = ..., elapsed_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., settle_order: _Optional[int] = ..., call_index: _Optional[int] = ..., exit_code: _Optional[int] = ...) -> None: ...

class ActionRequired(_message.Message):
    __slots__ = ("action",)
    ACTION_FIELD_NUMBER: _ClassVar[int]
    action: _action_pb2.Action
    def __init__(self, action: _Optional[_Union[_action_pb2.Action, _Mapping]] = ...) -> None: ...

class ActionResolved(_message.Message):
    __slots__ = ("action", "call_id", "state", "resolver")
    ACTION_FIELD_NUMBER: _ClassVar[int]
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    RESOLVER_FIELD_NUMBER: _ClassVar[int]
    action: str
    call_id: str
    state: _action_pb2.ActionState
    resolver: str
    def __init__(self, action: _Optional[str] = ..., call_id: _Optional[str] = ..., state: _Optional[_Union[_action_pb2.ActionState, str]] = ..., resolver: _Optional[str] = ...) -> None: ...

class SteerApplied(_message.Message):
    __slots__ = ("command_id", "message", "origin")
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    command_id: str
    message: str
    origin: MessageOrigin
    def __init__(self, command_id: _Optional[str] = ..., message: _Optional[str] = ..., origin: _Optional[_Union[MessageOrigin, str]] = ...) -> None: ...

class Compacted(_message.Message):
    __slots__ = ("compacted_count", "summary", "trigger", "tokens_before", "tokens_after", "fallback")
    COMPACTED_COUNT_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    TRIGGER_FIELD_NUMBER: _ClassVar[int]
    TOKENS_BEFORE_FIELD_NUMBER: _ClassVar[int]
    TOKENS_AFTER_FIELD_NUMBER: _ClassVar[int]
    FALLBACK_FIELD_NUMBER: _ClassVar[int]
    compacted_count: int
    summary: str
    trigger: str
    tokens_before: int
    tokens_after: int
    fallback: bool
    def __init__(self, compacted_count: _Optional[int] = ..., summary: _Optional[str] = ..., trigger: _Optional[str] = ..., tokens_before: _Optional[int] = ..., tokens_after: _Optional[int] = ..., fallback: _Optional[bool] = ...) -> None: ...

class SubagentStarted(_message.Message):
    __slots__ = ("child_turn", "agent", "call_id", "task")
    CHILD_TURN_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    child_turn: str
    agent: str
    call_id: str
    task: str
    def __init__(self, child_turn: _Optional[str] = ..., agent: _Optional[str] = ..., call_id: _Optional[str] = ..., task: _Optional[str] = ...) -> None: ...

class SubagentProgress(_message.Message):
    __slots__ = ("child_turn", "text")
    CHILD_TURN_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    child_turn: str
    text: str
    def __init__(self, child_turn: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...

class SubagentCheckpoint(_message.Message):
    __slots__ = ("child_turn", "step", "max_steps", "tool_names")
    CHILD_TURN_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    MAX_STEPS_FIELD_NUMBER: _ClassVar[int]
    TOOL_NAMES_FIELD_NUMBER: _ClassVar[int]
    child_turn: str
    step: int
    max_steps: int
    tool_names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, child_turn: _Optional[str] = ..., step: _Optional[int] = ..., max_steps: _Optional[int] = ..., tool_names: _Optional[_Iterable[str]] = ...) -> None: ...

class SubagentPaused(_message.Message):
    __slots__ = ("child_turn", "action", "step")
    CHILD_TURN_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    child_turn: str
    action: str
    step: int
    def __init__(self, child_turn: _Optional[str] = ..., action: _Optional[str] = ..., step: _Optional[int] = ...) -> None: ...

class SubagentCompleted(_message.Message):
    __slots__ = ("child_turn", "deliverable", "preview", "usage")
    CHILD_TURN_FIELD_NUMBER: _ClassVar[int]
    DELIVERABLE_FIELD_NUMBER: _ClassVar[int]
    PREVIEW_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    child_turn: str
    deliverable: int
    preview: str
    usage: _turn_pb2.UsageSummary
    def __init__(self, child_turn: _Optional[str] = ..., deliverable: _Optional[int] = ..., preview: _Optional[str] = ..., usage: _Optional[_Union[_turn_pb2.UsageSummary, _Mapping]] = ...) -> None: ...

class SubagentFailed(_message.Message):
    __slots__ = ("child_turn", "stop_reason", "error", "usage")
    CHILD_TURN_FIELD_NUMBER: _ClassVar[int]
    STOP_REASON_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    child_turn: str
    stop_reason: str
    error: _status_pb2.Status
    usage: _turn_pb2.UsageSummary
    def __init__(self, child_turn: _Optional[str] = ..., stop_reason: _Optional[str] = ..., error: _Optional[_Union[_status_pb2.Status, _Mapping]] = ..., usage: _Optional[_Union[_turn_pb2.UsageSummary, _Mapping]] = ...) -> None: ...

class Waiting(_message.Message):
    __slots__ = ("what", "wait_duration", "next_attempt")
    WHAT_FIELD_NUMBER: _ClassVar[int]
    WAIT_DURATION_FIELD_NUMBER: _ClassVar[int]
    NEXT_ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    what: str
    wait_duration: _duration_pb2.Duration
    next_attempt: int
    def __init__(self, what: _Optional[str] = ..., wait_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., next_attempt: _Optional[int] = ...) -> None: ...

class Notice(_message.Message):
    __slots__ = ("severity", "reason", "text", "call_id")
    SEVERITY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    severity: NoticeSeverity
    reason: str
    text: str
    call_id: str
    def __init__(self, severity: _Optional[_Union[NoticeSeverity, str]] = ..., reason: _Optional[str] = ..., text: _Optional[str] = ..., call_id: _Optional[str] = ...) -> None: ...

class TurnSuspended(_message.Message):
    __slots__ = ("actions",)
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    actions: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, actions: _Optional[_Iterable[str]] = ...) -> None: ...

class TurnResumed(_message.Message):
    __slots__ = ("episode", "kind", "epoch")
    EPISODE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    episode: int
    kind: EpisodeKind
    epoch: int
    def __init__(self, episode: _Optional[int] = ..., kind: _Optional[_Union[EpisodeKind, str]] = ..., epoch: _Optional[int] = ...) -> None: ...

class TurnFinished(_message.Message):
    __slots__ = ("state", "stop_reason", "final_message", "text", "text_truncated", "display_text", "usage", "error", "elapsed_duration", "steps")
    STATE_FIELD_NUMBER: _ClassVar[int]
    STOP_REASON_FIELD_NUMBER: _ClassVar[int]
    FINAL_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TEXT_TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    DISPLAY_TEXT_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ELAPSED_DURATION_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    state: _turn_pb2.TurnState
    stop_reason: str
    final_message: str
    text: str
    text_truncated: bool
    display_text: str
    usage: _turn_pb2.UsageSummary
    error: _status_pb2.Status
    elapsed_duration: _duration_pb2.Duration
    steps: int
    def __init__(self, state: _Optional[_Union[_turn_pb2.TurnState, str]] = ..., stop_reason: _Optional[str] = ..., final_message: _Optional[str] = ..., text: _Optional[str] = ..., text_truncated: _Optional[bool] = ..., display_text: _Optional[str] = ..., usage: _Optional[_Union[_turn_pb2.UsageSummary, _Mapping]] = ..., error: _Optional[_Union[_status_pb2.Status, _Mapping]] = ..., elapsed_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., steps: _Optional[int] = ...) -> None: ...
