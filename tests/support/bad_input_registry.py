"""Which test provokes which reason of which method: cases by key, and the tables of everything else.

A key is (method, reason), as in ("TurnService.GetTurn", "TURN_NOT_FOUND"); for what every method of a service
may answer it is (service, reason).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from support.bad_input_rig import ALICE, EXECUTOR, NOBODY, OPERATOR, RUNTIME, Bad, Caller, Rig
from support.descriptors import Method, contract

__all__ = [
    "CASES",
    "FAULTS",
    "GENERIC",
    "NOT_SERVED_YET",
    "UNSERVED_METHODS",
    "Case",
    "Key",
    "case",
    "caller_of",
]

Key = tuple[str, str]
# Sets the scene and returns the call that must be refused.
Case = Callable[[Rig, Method], Awaitable[Bad]]

CASES: dict[Key, Case] = {}


def case(reason: str, *methods: str) -> Callable[[Case], Case]:
    """Register a case for one or more methods; a second one of the same key is an error."""

    def register(function: Case) -> Case:
        for method in methods:
            assert (method, reason) not in CASES, (method, reason)
            CASES[method, reason] = function
        return function

    return register


def caller_of(method: Method) -> Caller:
    """Somebody who may call the method and has one scope."""
    if method.service.endswith("ToolExecutorService") or method.name == "Attach":
        return RUNTIME
    return OPERATOR.within("acme") if method.name in ("WatchCommands", "PruneEvents") else ALICE


def _with(caller_for: Callable[[Method], Caller]) -> Case:
    async def provoke(rig: Rig, method: Method) -> Bad:
        # A stream is refused before it is read: a write would only race with the answer.
        requests = () if method.request_streaming else (method.new_request(),)
        return Bad(requests, caller_for(method))

    return provoke


# What the wire layer answers before it looks at the request: one way to provoke each, for every method.
GENERIC: dict[str, Case] = {
    "CREDENTIALS_MISSING": _with(lambda method: NOBODY),
    "CREDENTIALS_INVALID": _with(lambda method: Caller("a-token-that-nobody-has")),
    "ROLE_MISSING": _with(lambda method: EXECUTOR),
    "SCOPE_REQUIRED": _with(lambda method: OPERATOR),
    "SCOPE_FORBIDDEN": _with(lambda method: Caller(caller_of(method).token, "initech")),
}

# Methods of the contract that this version refuses with FEATURE_NOT_SERVED.
UNSERVED_METHODS = frozenset(
    {
        "GraphService.StartGraph",
        "GraphService.GetGraph",
        "GraphService.ListGraphs",
        "GraphService.WatchGraph",
        "TurnService.ContinueTurn",
    }
)

# Reasons of served methods that nothing can provoke in this version, with why. No source of a service may
# raise them: the day one does, the entry has to go and a case has to come.
NOT_SERVED_YET: dict[Key, str] = {
    ("TurnService", "TOKEN_EXPIRED"): "tokens of a file have no expiry; tokens of an identity provider will",
    ("AdminService", "TOKEN_EXPIRED"): "tokens of a file have no expiry; tokens of an identity provider will",
    ("TurnService.RunTurn", "TURN_QUOTA_EXCEEDED"): "scopes have no quota yet",
    ("TurnService.StartTurn", "TURN_QUOTA_EXCEEDED"): "scopes have no quota yet",
    ("AgentService", "INTERNAL"): "agents are read at start: nothing behind these methods can break",
    ("GraphService", "INTERNAL"): "no method is served",
    ("GraphService", "FEATURE_NOT_SERVED"): "is what each of its methods answers: see the unserved methods",
}

# What needs a process in trouble: `test_bad_input_faults` provokes these, each where its name says.
FAULTS: dict[str, tuple[Key, ...]] = {
    "draining": (
        ("TurnService.RunTurn", "DRAINING"),
        ("TurnService.StartTurn", "DRAINING"),
        ("ToolExecutorService.Execute", "DRAINING"),
        ("ControlService.Connect", "DRAINING"),
        ("ControlService.SendCommand", "DRAINING"),
        ("ControlService.WatchCommands", "DRAINING"),
        ("ControlService.Attach", "DRAINING"),
    ),
    "owner_lost": (("TurnService.WatchTurn", "DRAINING"),),
    "overloaded": (
        ("TurnService.RunTurn", "OVERLOADED"),
        ("TurnService.StartTurn", "OVERLOADED"),
        ("ToolExecutorService.Execute", "OVERLOADED"),
        ("ControlService.SendCommand", "OVERLOADED"),
    ),
    "silent": (
        ("ControlService.Connect", "HEARTBEAT_MISSED"),
        ("ControlService.Attach", "HEARTBEAT_MISSED"),
    ),
    "stalled": (
        ("ControlService.Connect", "READER_STALLED"),
        ("ControlService.Attach", "READER_STALLED"),
    ),
    "unread": (
        ("TurnService.RunTurn", "READER_STALLED"),
        ("TurnService.WatchTurn", "READER_STALLED"),
        ("TurnService.WatchActions", "READER_STALLED"),
        ("ThreadService.WatchThread", "READER_STALLED"),
    ),
    "leaving": (
        ("TurnService.WatchActions", "DRAINING"),
        ("ThreadService.WatchThread", "DRAINING"),
    ),
    "executor_gone": (("TurnService.ReadToolResult", "EXECUTOR_UNAVAILABLE"),),
    "store_gone": (
        ("TurnService", "STORE_UNAVAILABLE"),
        ("ThreadService", "STORE_UNAVAILABLE"),
        ("AdminService", "STORE_UNAVAILABLE"),
        ("ToolExecutorService", "STORE_UNAVAILABLE"),
        ("ControlService", "STORE_UNAVAILABLE"),
    ),
    "defect": (
        ("TurnService", "INTERNAL"),
        ("ThreadService", "INTERNAL"),
        ("AdminService", "INTERNAL"),
        ("ToolExecutorService", "INTERNAL"),
        ("ControlService", "INTERNAL"),
    ),
}


def request_of(short: str, **fields: Any) -> Any:
    """An empty request of a method, with these top-level fields set."""
    request = contract().methods[short].new_request()
    for name, value in fields.items():
        setattr(request, name, value)
    return request
