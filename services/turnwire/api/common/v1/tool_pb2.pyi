import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ToolOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TOOL_OUTCOME_UNSPECIFIED: _ClassVar[ToolOutcome]
    TOOL_OUTCOME_SUCCEEDED: _ClassVar[ToolOutcome]
    TOOL_OUTCOME_FAILED: _ClassVar[ToolOutcome]
    TOOL_OUTCOME_TIMED_OUT: _ClassVar[ToolOutcome]
    TOOL_OUTCOME_STOPPED: _ClassVar[ToolOutcome]
    TOOL_OUTCOME_NOT_STARTED: _ClassVar[ToolOutcome]
    TOOL_OUTCOME_REJECTED: _ClassVar[ToolOutcome]
    TOOL_OUTCOME_SKIPPED: _ClassVar[ToolOutcome]
    TOOL_OUTCOME_OUTCOME_UNKNOWN: _ClassVar[ToolOutcome]

class ExecutionMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EXECUTION_MODE_UNSPECIFIED: _ClassVar[ExecutionMode]
    EXECUTION_MODE_EXCLUSIVE: _ClassVar[ExecutionMode]
    EXECUTION_MODE_PARALLEL: _ClassVar[ExecutionMode]

class RiskTier(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RISK_TIER_UNSPECIFIED: _ClassVar[RiskTier]
    RISK_TIER_NORMAL: _ClassVar[RiskTier]
    RISK_TIER_SENSITIVE: _ClassVar[RiskTier]
    RISK_TIER_DANGEROUS: _ClassVar[RiskTier]
    RISK_TIER_HARDLINE: _ClassVar[RiskTier]

class RangeUnit(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RANGE_UNIT_UNSPECIFIED: _ClassVar[RangeUnit]
    RANGE_UNIT_BYTES: _ClassVar[RangeUnit]
    RANGE_UNIT_LINES: _ClassVar[RangeUnit]
TOOL_OUTCOME_UNSPECIFIED: ToolOutcome
TOOL_OUTCOME_SUCCEEDED: ToolOutcome
TOOL_OUTCOME_FAILED: ToolOutcome
TOOL_OUTCOME_TIMED_OUT: ToolOutcome
TOOL_OUTCOME_STOPPED: ToolOutcome
TOOL_OUTCOME_NOT_STARTED: ToolOutcome
TOOL_OUTCOME_REJECTED: ToolOutcome
TOOL_OUTCOME_SKIPPED: ToolOutcome
TOOL_OUTCOME_OUTCOME_UNKNOWN: ToolOutcome
EXECUTION_MODE_UNSPECIFIED: ExecutionMode
EXECUTION_MODE_EXCLUSIVE: ExecutionMode
EXECUTION_MODE_PARALLEL: ExecutionMode
RISK_TIER_UNSPECIFIED: RiskTier
RISK_TIER_NORMAL: RiskTier
RISK_TIER_SENSITIVE: RiskTier
RISK_TIER_DANGEROUS: RiskTier
RISK_TIER_HARDLINE: RiskTier
RANGE_UNIT_UNSPECIFIED: RangeUnit
RANGE_UNIT_BYTES: RangeUnit
RANGE_UNIT_LINES: RangeUnit

class Tool(_message.Message):
    __slots__ = ("name", "description", "input_schema_json", "output_schema_json", "digest", "execution_mode", "execution_timeout", "repeatable", "risk_tier", "suspend_steps")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    INPUT_SCHEMA_JSON_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_SCHEMA_JSON_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_MODE_FIELD_NUMBER: _ClassVar[int]
    EXECUTION_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    REPEATABLE_FIELD_NUMBER: _ClassVar[int]
    RISK_TIER_FIELD_NUMBER: _ClassVar[int]
    SUSPEND_STEPS_FIELD_NUMBER: _ClassVar[int]
    name: str
    description: str
    input_schema_json: str
    output_schema_json: str
    digest: str
    execution_mode: ExecutionMode
    execution_timeout: _duration_pb2.Duration
    repeatable: bool
    risk_tier: RiskTier
    suspend_steps: _containers.RepeatedCompositeFieldContainer[SuspendStep]
    def __init__(self, name: _Optional[str] = ..., description: _Optional[str] = ..., input_schema_json: _Optional[str] = ..., output_schema_json: _Optional[str] = ..., digest: _Optional[str] = ..., execution_mode: _Optional[_Union[ExecutionMode, str]] = ..., execution_timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., repeatable: _Optional[bool] = ..., risk_tier: _Optional[_Union[RiskTier, str]] = ..., suspend_steps: _Optional[_Iterable[_Union[SuspendStep, _Mapping]]] = ...) -> None: ...

class SuspendStep(_message.Message):
    __slots__ = ("name", "payload_schema_json", "resume_schema_json", "resume_timeout")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_SCHEMA_JSON_FIELD_NUMBER: _ClassVar[int]
    RESUME_SCHEMA_JSON_FIELD_NUMBER: _ClassVar[int]
    RESUME_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    name: str
    payload_schema_json: str
    resume_schema_json: str
    resume_timeout: _duration_pb2.Duration
    def __init__(self, name: _Optional[str] = ..., payload_schema_json: _Optional[str] = ..., resume_schema_json: _Optional[str] = ..., resume_timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class ReadRange(_message.Message):
    __slots__ = ("unit", "offset", "length")
    UNIT_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    unit: RangeUnit
    offset: int
    length: int
    def __init__(self, unit: _Optional[_Union[RangeUnit, str]] = ..., offset: _Optional[int] = ..., length: _Optional[int] = ...) -> None: ...

class ResultHandle(_message.Message):
    __slots__ = ("handle", "size_bytes", "sha256", "media_type")
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    MEDIA_TYPE_FIELD_NUMBER: _ClassVar[int]
    handle: str
    size_bytes: int
    sha256: str
    media_type: str
    def __init__(self, handle: _Optional[str] = ..., size_bytes: _Optional[int] = ..., sha256: _Optional[str] = ..., media_type: _Optional[str] = ...) -> None: ...

class ResultPart(_message.Message):
    __slots__ = ("media_type", "data", "handle")
    MEDIA_TYPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    media_type: str
    data: bytes
    handle: ResultHandle
    def __init__(self, media_type: _Optional[str] = ..., data: _Optional[bytes] = ..., handle: _Optional[_Union[ResultHandle, _Mapping]] = ...) -> None: ...
