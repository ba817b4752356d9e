"""Actions as resources of the contract: total functions, one each."""

from __future__ import annotations

from turnwire.api.common.v1 import tool_pb2
from turnwire.api.runtime.v1 import action_pb2
from turnwire.extend.actions import Action, ActionKind, ActionState
from turnwire.runtime.domain.execution import RiskTier
from turnwire.runtime.proto_values import enum_table, timestamp

__all__ = ["ACTION_KINDS", "ACTION_STATES", "action_to_proto"]

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
