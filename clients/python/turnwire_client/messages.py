"""The generated messages that users of the client meet, under one roof."""

from __future__ import annotations

from turnwire.api.common.v1.tool_pb2 import (
    ExecutionMode,
    RangeUnit,
    ReadRange,
    ResultHandle,
    RiskTier,
    Tool,
    ToolOutcome,
)
from turnwire.api.control.v1.command_pb2 import Command, CommandOutcome, CommandRecord, OutcomeKind
from turnwire.api.llm.v1.llm_event_pb2 import LlmEvent, TokenUsage, UsageProvenance
from turnwire.api.runtime.v1.action_pb2 import Action, ActionKind, ActionState
from turnwire.api.runtime.v1.admin_service_pb2 import PruneEventsResponse
from turnwire.api.runtime.v1.agent_pb2 import Agent
from turnwire.api.runtime.v1.agent_service_pb2 import GetServerInfoResponse
from turnwire.api.runtime.v1.content_pb2 import BlobContent, Part, TextContent, UriContent
from turnwire.api.runtime.v1.message_pb2 import Message, MessageRole
from turnwire.api.runtime.v1.thread_pb2 import Thread
from turnwire.api.runtime.v1.thread_service_pb2 import GetThreadResponse, WatchThreadResponse
from turnwire.api.runtime.v1.turn_event_pb2 import NoticeSeverity, ToolCallFinished, TurnEvent, TurnFinished
from turnwire.api.runtime.v1.turn_pb2 import (
    BusyPolicy,
    ClientTool,
    ModelOptions,
    Task,
    ToolChoice,
    Turn,
    TurnDisposition,
    TurnLimits,
    TurnSpec,
    TurnState,
    UsageSummary,
    WaitingPolicy,
)
from turnwire.api.runtime.v1.turn_service_pb2 import StreamHeader

__all__ = [
    "Action",
    "ActionKind",
    "ActionState",
    "Agent",
    "BlobContent",
    "BusyPolicy",
    "ClientTool",
    "Command",
    "CommandOutcome",
    "CommandRecord",
    "ExecutionMode",
    "GetServerInfoResponse",
    "GetThreadResponse",
    "LlmEvent",
    "Message",
    "MessageRole",
    "ModelOptions",
    "NoticeSeverity",
    "OutcomeKind",
    "Part",
    "PruneEventsResponse",
    "RangeUnit",
    "ReadRange",
    "ResultHandle",
    "RiskTier",
    "StreamHeader",
    "Task",
    "TextContent",
    "Thread",
    "TokenUsage",
    "Tool",
    "ToolCallFinished",
    "ToolChoice",
    "ToolOutcome",
    "Turn",
    "TurnDisposition",
    "TurnEvent",
    "TurnFinished",
    "TurnLimits",
    "TurnSpec",
    "TurnState",
    "UriContent",
    "UsageProvenance",
    "UsageSummary",
    "WaitingPolicy",
    "WatchThreadResponse",
]
