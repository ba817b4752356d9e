"""Between actions and the contract: resources by total functions, answers with everything checked."""

from __future__ import annotations

from turnwire.api.common.v1 import tool_pb2
from turnwire.api.runtime.v1 import action_pb2
from turnwire.api.runtime.v1 import turn_service_pb2 as pb
from turnwire.core.ids import ActionRef, require_request_id
from turnwire.core.text import require_clean
from turnwire.extend.actions import Action, ActionKind, ActionState
from turnwire.runtime.domain.action import ActionAnswer, ActionKey, ActionPlace
from turnwire.runtime.domain.execution import RiskTier
from turnwire.runtime.domain.turn import TurnKey
from turnwire.runtime.request_codec import bad, not_served, thread_key, turn_key
from turnwire.runtime.store.rows import encode
from turnwire.runtime.values_codec import enum_table, timestamp
from turnwire.wire.auth import Principal

__all__ = [
    "ACTION_KINDS",
    "ACTION_STATES",
    "action_key",
    "action_place",
    "action_to_proto",
    "answer_from_proto",
]

MAX_COMMENT_CHARS = 1000
ACTION_KINDS = enum_table(ActionKind, action_pb2.ActionKind, "ACTION_KIND_")
ACTION_STATES = enum_table(ActionState, action_pb2.ActionState, "ACTION_STATE_")
_TIERS = {tier.value: value for tier, value in enum_table(RiskTier, tool_pb2.RiskTier, "RISK_TIER_").items()}


def action_to_proto(action: Action) -> action_pb2.Action:
    """Return the resource of an action."""
    return action_pb2.Action(
        name=action.name,
        kind=ACTION_KINDS[action.kind],
        state=ACTION_STATES[action.state],
        call_id=action.call_id,
        tool_name=action.tool_name,
        arguments_json=action.arguments_json,
        digest=action.digest,
        risk_tier=_TIERS[action.risk_tier],
        question=action.question,
        payload_json=action.payload_json,
        answer_schema_json=action.answer_schema_json,
        required_role=action.required_role,
        create_time=timestamp(action.create_time) if action.create_time else None,
        expire_time=timestamp(action.expire_time) if action.expire_time else None,
        resolve_time=timestamp(action.resolve_time) if action.resolve_time else None,
        resolver=action.resolver,
        agent=action.agent,
    )


def answer_from_proto(request: pb.ResolveActionRequest, principal: Principal) -> ActionAnswer:
    """Return the answer that a ResolveAction request gives. Raises InvalidRequest, NotServed."""
    key = action_key(request.action, "action", principal.scope)
    request_id = require_request_id(request.request_id)
    if not request.digest:
        raise bad("digest", "is needed: the one of the action that was shown")
    state, answer = _answer(request)
    return ActionAnswer(
        key,
        request_id,
        require_clean(request.digest, "digest"),
        state,
        answer,
        principal.subject,
        frozenset(principal.roles),
    )


def _answer(request: pb.ResolveActionRequest) -> tuple[ActionState, str]:
    kind = request.WhichOneof("answer")
    match kind:
        case "approve":
            comment = _comment(request.approve.comment, "approve.comment")
            return ActionState.APPROVED, encode({"comment": comment}) if comment else "{}"
        case "reject":
            return ActionState.REJECTED, encode(
                {"reason": _comment(request.reject.comment, "reject.comment")}
            )
        case None:
            raise bad("answer", "is needed: set approve or reject (or an answer that this server knows)")
    raise not_served(kind)


def _comment(text: str, field: str) -> str:
    if len(text) > MAX_COMMENT_CHARS:
        raise bad(field, f"is longer than {MAX_COMMENT_CHARS} characters")
    return require_clean(text, field)


def action_key(name: str, field: str, scope: str) -> ActionKey:
    """Return the key of an action's name. Raises InvalidRequest."""
    ref = ActionRef.parse(name, field)
    return ActionKey(TurnKey(scope, ref.thread, ref.turn), ref.action)


def action_place(parent: str, scope: str) -> ActionPlace:
    """Return where a list or a watch looks: a turn, a thread, or `threads/-`. Raises InvalidRequest."""
    if "/turns/" in parent:
        turn = turn_key(parent, "parent", scope)
        return ActionPlace(scope, turn.thread_id, turn.turn_id)
    return ActionPlace(scope, thread_key(parent, "parent", scope, wildcard=True).thread_id)
