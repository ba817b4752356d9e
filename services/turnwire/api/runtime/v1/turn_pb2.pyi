import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.rpc import status_pb2 as _status_pb2
from turnwire.api.llm.v1 import llm_event_pb2 as _llm_event_pb2
from turnwire.api.runtime.v1 import content_pb2 as _content_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TurnState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TURN_STATE_UNSPECIFIED: _ClassVar[TurnState]
    TURN_STATE_QUEUED: _ClassVar[TurnState]
    TURN_STATE_RUNNING: _ClassVar[TurnState]
    TURN_STATE_WAITING: _ClassVar[TurnState]
    TURN_STATE_COMPLETED: _ClassVar[TurnState]
    TURN_STATE_FAILED: _ClassVar[TurnState]
    TURN_STATE_CANCELLED: _ClassVar[TurnState]

class BusyPolicy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BUSY_POLICY_UNSPECIFIED: _ClassVar[BusyPolicy]
    BUSY_POLICY_QUEUE: _ClassVar[BusyPolicy]
    BUSY_POLICY_REJECT: _ClassVar[BusyPolicy]
    BUSY_POLICY_INTERRUPT: _ClassVar[BusyPolicy]
    BUSY_POLICY_STEER: _ClassVar[BusyPolicy]

class WaitingPolicy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WAITING_POLICY_UNSPECIFIED: _ClassVar[WaitingPolicy]
    WAITING_POLICY_QUEUE: _ClassVar[WaitingPolicy]
    WAITING_POLICY_CANCEL: _ClassVar[WaitingPolicy]

class ToolChoiceMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TOOL_CHOICE_MODE_UNSPECIFIED: _ClassVar[ToolChoiceMode]
    TOOL_CHOICE_MODE_AUTO: _ClassVar[ToolChoiceMode]
    TOOL_CHOICE_MODE_NONE: _ClassVar[ToolChoiceMode]
    TOOL_CHOICE_MODE_REQUIRED: _ClassVar[ToolChoiceMode]
    TOOL_CHOICE_MODE_TOOL: _ClassVar[ToolChoiceMode]

class TurnDisposition(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TURN_DISPOSITION_UNSPECIFIED: _ClassVar[TurnDisposition]
    TURN_DISPOSITION_STARTED: _ClassVar[TurnDisposition]
    TURN_DISPOSITION_QUEUED: _ClassVar[TurnDisposition]
    TURN_DISPOSITION_STEERED: _ClassVar[TurnDisposition]
    TURN_DISPOSITION_ATTACHED: _ClassVar[TurnDisposition]

class TurnView(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TURN_VIEW_UNSPECIFIED: _ClassVar[TurnView]
    TURN_VIEW_BASIC: _ClassVar[TurnView]
    TURN_VIEW_FULL: _ClassVar[TurnView]
TURN_STATE_UNSPECIFIED: TurnState
TURN_STATE_QUEUED: TurnState
TURN_STATE_RUNNING: TurnState
TURN_STATE_WAITING: TurnState
TURN_STATE_COMPLETED: TurnState
TURN_STATE_FAILED: TurnState
TURN_STATE_CANCELLED: TurnState
BUSY_POLICY_UNSPECIFIED: BusyPolicy
BUSY_POLICY_QUEUE: BusyPolicy
BUSY_POLICY_REJECT: BusyPolicy
BUSY_POLICY_INTERRUPT: BusyPolicy
BUSY_POLICY_STEER: BusyPolicy
WAITING_POLICY_UNSPECIFIED: WaitingPolicy
WAITING_POLICY_QUEUE: WaitingPolicy
WAITING_POLICY_CANCEL: WaitingPolicy
TOOL_CHOICE_MODE_UNSPECIFIED: ToolChoiceMode
TOOL_CHOICE_MODE_AUTO: ToolChoiceMode
TOOL_CHOICE_MODE_NONE: ToolChoiceMode
TOOL_CHOICE_MODE_REQUIRED: ToolChoiceMode
TOOL_CHOICE_MODE_TOOL: ToolChoiceMode
TURN_DISPOSITION_UNSPECIFIED: TurnDisposition
TURN_DISPOSITION_STARTED: TurnDisposition
TURN_DISPOSITION_QUEUED: TurnDisposition
TURN_DISPOSITION_STEERED: TurnDisposition
TURN_DISPOSITION_ATTACHED: TurnDisposition
TURN_VIEW_UNSPECIFIED: TurnView
TURN_VIEW_BASIC: TurnView
TURN_VIEW_FULL: TurnView

class Turn(_message.Message):
    __slots__ = ("name", "state", "agent", "agent_digest", "stop_reason", "error", "final_message", "usage", "step", "max_steps", "last_sequence", "first_kept_sequence", "queue_position", "labels", "metadata", "create_time", "start_time", "finish_time", "etag", "request_id", "retry_of", "open_actions", "checkpoint", "task", "response_schema_json")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    AGENT_DIGEST_FIELD_NUMBER: _ClassVar[int]
    STOP_REASON_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    FINAL_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    MAX_STEPS_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    FIRST_KEPT_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_POSITION_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    FINISH_TIME_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    RETRY_OF_FIELD_NUMBER: _ClassVar[int]
    OPEN_ACTIONS_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_SCHEMA_JSON_FIELD_NUMBER: _ClassVar[int]
    name: str
    state: TurnState
    agent: str
    agent_digest: str
    stop_reason: str
    error: _status_pb2.Status
    final_message: str
    usage: UsageSummary
    step: int
    max_steps: int
    last_sequence: int
    first_kept_sequence: int
    queue_position: int
    labels: _containers.ScalarMap[str, str]
    metadata: _containers.ScalarMap[str, str]
    create_time: _timestamp_pb2.Timestamp
    start_time: _timestamp_pb2.Timestamp
    finish_time: _timestamp_pb2.Timestamp
    etag: str
    request_id: str
    retry_of: str
    open_actions: _containers.RepeatedScalarFieldContainer[str]
    checkpoint: TurnCheckpoint
    task: Task
    response_schema_json: str
    def __init__(self, name: _Optional[str] = ..., state: _Optional[_Union[TurnState, str]] = ..., agent: _Optional[str] = ..., agent_digest: _Optional[str] = ..., stop_reason: _Optional[str] = ..., error: _Optional[_Union[_status_pb2.Status, _Mapping]] = ..., final_message: _Optional[str] = ..., usage: _Optional[_Union[UsageSummary, _Mapping]] = ..., step: _Optional[int] = ..., max_steps: _Optional[int] = ..., last_sequence: _Optional[int] = ..., first_kept_sequence: _Optional[int] = ..., queue_position: _Optional[int] = ..., labels: _Optional[_Mapping[str, str]] = ..., metadata: _Optional[_Mapping[str, str]] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., finish_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., etag: _Optional[str] = ..., request_id: _Optional[str] = ..., retry_of: _Optional[str] = ..., open_actions: _Optional[_Iterable[str]] = ..., checkpoint: _Optional[_Union[TurnCheckpoint, _Mapping]] = ..., task: _Optional[_Union[Task, _Mapping]] = ..., response_schema_json: _Optional[str] = ...) -> None: ...

class TurnCheckpoint(_message.Message):
    __slots__ = ("step", "extension_state_json", "create_time")
    STEP_FIELD_NUMBER: _ClassVar[int]
    EXTENSION_STATE_JSON_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    step: int
    extension_state_json: str
    create_time: _timestamp_pb2.Timestamp
    def __init__(self, step: _Optional[int] = ..., extension_state_json: _Optional[str] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class TurnSpec(_message.Message):
    __slots__ = ("thread", "new_thread", "agent", "input", "task", "client_tools", "allowed_tools", "tool_choice", "model_options", "limits", "response_schema_json", "busy_policy", "on_waiting", "expected_version", "metadata", "labels")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    THREAD_FIELD_NUMBER: _ClassVar[int]
    NEW_THREAD_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    CLIENT_TOOLS_FIELD_NUMBER: _ClassVar[int]
    ALLOWED_TOOLS_FIELD_NUMBER: _ClassVar[int]
    TOOL_CHOICE_FIELD_NUMBER: _ClassVar[int]
    MODEL_OPTIONS_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_SCHEMA_JSON_FIELD_NUMBER: _ClassVar[int]
    BUSY_POLICY_FIELD_NUMBER: _ClassVar[int]
    ON_WAITING_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    thread: str
    new_thread: NewThread
    agent: str
    input: Input
    task: Task
    client_tools: _containers.RepeatedCompositeFieldContainer[ClientTool]
    allowed_tools: _containers.RepeatedScalarFieldContainer[str]
    tool_choice: ToolChoice
    model_options: ModelOptions
    limits: TurnLimits
    response_schema_json: str
    busy_policy: BusyPolicy
    on_waiting: WaitingPolicy
    expected_version: int
    metadata: _containers.ScalarMap[str, str]
    labels: _containers.ScalarMap[str, str]
    def __init__(self, thread: _Optional[str] = ..., new_thread: _Optional[_Union[NewThread, _Mapping]] = ..., agent: _Optional[str] = ..., input: _Optional[_Union[Input, _Mapping]] = ..., task: _Optional[_Union[Task, _Mapping]] = ..., client_tools: _Optional[_Iterable[_Union[ClientTool, _Mapping]]] = ..., allowed_tools: _Optional[_Iterable[str]] = ..., tool_choice: _Optional[_Union[ToolChoice, _Mapping]] = ..., model_options: _Optional[_Union[ModelOptions, _Mapping]] = ..., limits: _Optional[_Union[TurnLimits, _Mapping]] = ..., response_schema_json: _Optional[str] = ..., busy_policy: _Optional[_Union[BusyPolicy, str]] = ..., on_waiting: _Optional[_Union[WaitingPolicy, str]] = ..., expected_version: _Optional[int] = ..., metadata: _Optional[_Mapping[str, str]] = ..., labels: _Optional[_Mapping[str, str]] = ...) -> None: ...

class NewThread(_message.Message):
    __slots__ = ("thread_id", "title", "metadata", "labels")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    THREAD_ID_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    thread_id: str
    title: str
    metadata: _containers.ScalarMap[str, str]
    labels: _containers.ScalarMap[str, str]
    def __init__(self, thread_id: _Optional[str] = ..., title: _Optional[str] = ..., metadata: _Optional[_Mapping[str, str]] = ..., labels: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Input(_message.Message):
    __slots__ = ("parts",)
    PARTS_FIELD_NUMBER: _ClassVar[int]
    parts: _containers.RepeatedCompositeFieldContainer[_content_pb2.Part]
    def __init__(self, parts: _Optional[_Iterable[_Union[_content_pb2.Part, _Mapping]]] = ...) -> None: ...

class Task(_message.Message):
    __slots__ = ("description", "expected_output", "parts")
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    description: str
    expected_output: str
    parts: _containers.RepeatedCompositeFieldContainer[_content_pb2.Part]
    def __init__(self, description: _Optional[str] = ..., expected_output: _Optional[str] = ..., parts: _Optional[_Iterable[_Union[_content_pb2.Part, _Mapping]]] = ...) -> None: ...

class ClientTool(_message.Message):
    __slots__ = ("name", "description", "input_schema_json", "output_schema_json")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    INPUT_SCHEMA_JSON_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_SCHEMA_JSON_FIELD_NUMBER: _ClassVar[int]
    name: str
    description: str
    input_schema_json: str
    output_schema_json: str
    def __init__(self, name: _Optional[str] = ..., description: _Optional[str] = ..., input_schema_json: _Optional[str] = ..., output_schema_json: _Optional[str] = ...) -> None: ...

class ToolChoice(_message.Message):
    __slots__ = ("mode", "tool_name")
    MODE_FIELD_NUMBER: _ClassVar[int]
    TOOL_NAME_FIELD_NUMBER: _ClassVar[int]
    mode: ToolChoiceMode
    tool_name: str
    def __init__(self, mode: _Optional[_Union[ToolChoiceMode, str]] = ..., tool_name: _Optional[str] = ...) -> None: ...

class ModelOptions(_message.Message):
    __slots__ = ("model", "temperature", "top_p", "max_output_tokens", "stop", "reasoning_effort")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    MAX_OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    REASONING_EFFORT_FIELD_NUMBER: _ClassVar[int]
    model: str
    temperature: float
    top_p: float
    max_output_tokens: int
    stop: _containers.RepeatedScalarFieldContainer[str]
    reasoning_effort: str
    def __init__(self, model: _Optional[str] = ..., temperature: _Optional[float] = ..., top_p: _Optional[float] = ..., max_output_tokens: _Optional[int] = ..., stop: _Optional[_Iterable[str]] = ..., reasoning_effort: _Optional[str] = ...) -> None: ...

class TurnLimits(_message.Message):
    __slots__ = ("steps", "turn_timeout", "tokens", "cost_micro_usd", "tool_timeout")
    STEPS_FIELD_NUMBER: _ClassVar[int]
    TURN_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    COST_MICRO_USD_FIELD_NUMBER: _ClassVar[int]
    TOOL_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    steps: int
    turn_timeout: _duration_pb2.Duration
    tokens: int
    cost_micro_usd: int
    tool_timeout: _duration_pb2.Duration
    def __init__(self, steps: _Optional[int] = ..., turn_timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., tokens: _Optional[int] = ..., cost_micro_usd: _Optional[int] = ..., tool_timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class UsageSummary(_message.Message):
    __slots__ = ("tokens", "model_calls", "tool_calls", "cost_micro_usd")
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    MODEL_CALLS_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    COST_MICRO_USD_FIELD_NUMBER: _ClassVar[int]
    tokens: _llm_event_pb2.TokenUsage
    model_calls: int
    tool_calls: int
    cost_micro_usd: int
    def __init__(self, tokens: _Optional[_Union[_llm_event_pb2.TokenUsage, _Mapping]] = ..., model_calls: _Optional[int] = ..., tool_calls: _Optional[int] = ..., cost_micro_usd: _Optional[int] = ...) -> None: ...
