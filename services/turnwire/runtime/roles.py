"""Which role a caller needs for each method of the runtime; tested over all methods there are."""

from __future__ import annotations

__all__ = ["ROLES"]

_CALLER = frozenset({"caller", "operator"})
_READER = frozenset({"caller", "approver", "operator"})
_APPROVER = frozenset({"approver", "operator"})
_OPERATOR = frozenset({"operator"})

_TURNS = "/turnwire.api.runtime.v1.TurnService/"
_THREADS = "/turnwire.api.runtime.v1.ThreadService/"
_AGENTS = "/turnwire.api.runtime.v1.AgentService/"
_GRAPHS = "/turnwire.api.runtime.v1.GraphService/"
_ADMIN = "/turnwire.api.runtime.v1.AdminService/"

ROLES: dict[str, frozenset[str]] = {
    _TURNS + "RunTurn": _CALLER,
    _TURNS + "StartTurn": _CALLER,
    _TURNS + "WatchTurn": _READER,
    _TURNS + "GetTurn": _READER,
    _TURNS + "ListTurns": _READER,
    _TURNS + "ContinueTurn": _CALLER,
    _TURNS + "ResolveAction": _READER,
    _TURNS + "GetAction": _READER,
    _TURNS + "ListActions": _READER,
    _TURNS + "WatchActions": _READER,
    _TURNS + "ReadToolResult": _READER,
    _THREADS + "CreateThread": _CALLER,
    _THREADS + "GetThread": _READER,
    _THREADS + "ListThreads": _READER,
    _THREADS + "UpdateThread": _CALLER,
    _THREADS + "DeleteThread": _CALLER,
    _THREADS + "ListMessages": _READER,
    _THREADS + "WatchThread": _READER,
    _THREADS + "ListQueuedTurns": _READER,
    _THREADS + "UpdateQueuedTurn": _CALLER,
    _THREADS + "RegenerateTurn": _CALLER,
    _THREADS + "RetryTurn": _CALLER,
    _THREADS + "SetMessageVisibility": _CALLER,
    _THREADS + "ForkThread": _CALLER,
    _AGENTS + "GetServerInfo": _READER,
    _AGENTS + "ListAgents": _READER,
    _AGENTS + "GetAgent": _READER,
    _GRAPHS + "StartGraph": _CALLER,
    _GRAPHS + "GetGraph": _READER,
    _GRAPHS + "ListGraphs": _READER,
    _GRAPHS + "WatchGraph": _READER,
    _ADMIN + "PruneEvents": _OPERATOR,
}
