"""Ids and resource names: segments are `[a-z0-9-]{4,63}`, opaque to clients and never reformatted."""

from __future__ import annotations

import base64
import os
import re
import time
from contextlib import suppress
from typing import NamedTuple, NoReturn
from uuid import UUID

from turnwire.core.errors import FieldViolation, InvalidRequest

__all__ = [
    "ActionRef",
    "AgentRef",
    "MessageRef",
    "ThreadRef",
    "TurnRef",
    "is_segment",
    "mint_id",
    "require_request_id",
    "require_segment",
]

_SEGMENT = r"([a-z0-9-]{4,63})"
_is_segment = re.compile(_SEGMENT).fullmatch
_match_agent = re.compile(f"agents/{_SEGMENT}").fullmatch
_match_thread = re.compile(f"threads/{_SEGMENT}").fullmatch
_match_turn = re.compile(f"threads/{_SEGMENT}/turns/{_SEGMENT}").fullmatch
_match_message = re.compile(f"threads/{_SEGMENT}/messages/{_SEGMENT}").fullmatch
_match_action = re.compile(f"threads/{_SEGMENT}/turns/{_SEGMENT}/actions/{_SEGMENT}").fullmatch


def mint_id() -> str:
    """Return a new id: 20 digits of base 32 (RFC 4648, hex alphabet), for the second and 68 random bits.

    Ids that are made together stand together in an index, however many there are: a new row costs a large
    store no more pages than a small one.
    """
    second = int(time.time()) & 0xFFFFFFFF
    return base64.b32hexencode(second.to_bytes(4, "big") + os.urandom(9))[:20].decode().lower()


def is_segment(text: str) -> bool:
    """Tell whether `text` can stand as one segment of a resource name."""
    return _is_segment(text) is not None


def require_segment(text: str, field: str) -> str:
    """Return `text` unchanged.

    Raises:
        InvalidRequest: it is not `[a-z0-9-]{4,63}`.
    """
    if _is_segment(text) is None:
        _refuse(field, "must be 4 to 63 characters out of a-z, 0-9 and -")
    return text


def require_request_id(text: str, field: str = "request_id") -> str:
    """Return the request id in its one canonical form, lower-case with hyphens.

    Raises:
        InvalidRequest: it is not a UUID of 36 characters.
    """
    if len(text) == 36:
        with suppress(ValueError):
            return str(UUID(text))
    return _refuse(
        field, "must be a UUID such as 7d3f2c1e-8f0a-4a37-9a55-0c6f3a1f9b10, one per intended change"
    )


def _refuse(field: str, description: str) -> NoReturn:
    raise InvalidRequest(
        f"{field} {description}", violations=(FieldViolation(field, description),), field=field
    )


class AgentRef(NamedTuple):
    """`agents/{agent}`."""

    agent: str

    @property
    def name(self) -> str:
        return f"agents/{self.agent}"

    @classmethod
    def parse(cls, name: str, field: str = "name") -> AgentRef:
        """Read a resource name. Raises: InvalidRequest."""
        if match := _match_agent(name):
            return cls(match[1])
        _refuse(field, "must look like agents/{agent}")


class ThreadRef(NamedTuple):
    """`threads/{thread}`."""

    thread: str

    @property
    def name(self) -> str:
        return f"threads/{self.thread}"

    @classmethod
    def parse(cls, name: str, field: str = "name") -> ThreadRef:
        """Read a resource name. Raises: InvalidRequest."""
        if match := _match_thread(name):
            return cls(match[1])
        _refuse(field, "must look like threads/{thread}")

    def turn(self, turn: str) -> TurnRef:
        """Return the name of one of its turns."""
        return TurnRef(self.thread, turn)

    def message(self, message: str) -> MessageRef:
        """Return the name of one of its messages."""
        return MessageRef(self.thread, message)


class MessageRef(NamedTuple):
    """`threads/{thread}/messages/{message}`."""

    thread: str
    message: str

    @property
    def name(self) -> str:
        return f"threads/{self.thread}/messages/{self.message}"

    @classmethod
    def parse(cls, name: str, field: str = "name") -> MessageRef:
        """Read a resource name. Raises: InvalidRequest."""
        if match := _match_message(name):
            return cls(match[1], match[2])
        _refuse(field, "must look like threads/{thread}/messages/{message}")


class TurnRef(NamedTuple):
    """`threads/{thread}/turns/{turn}`."""

    thread: str
    turn: str

    @property
    def name(self) -> str:
        return f"threads/{self.thread}/turns/{self.turn}"

    @property
    def parent(self) -> ThreadRef:
        return ThreadRef(self.thread)

    @classmethod
    def parse(cls, name: str, field: str = "name") -> TurnRef:
        """Read a resource name. Raises: InvalidRequest."""
        if match := _match_turn(name):
            return cls(match[1], match[2])
        _refuse(field, "must look like threads/{thread}/turns/{turn}")

    def action(self, action: str) -> ActionRef:
        """Return the name of one of its actions."""
        return ActionRef(self.thread, self.turn, action)


class ActionRef(NamedTuple):
    """`threads/{thread}/turns/{turn}/actions/{action}`."""

    thread: str
    turn: str
    action: str

    @property
    def name(self) -> str:
        return f"threads/{self.thread}/turns/{self.turn}/actions/{self.action}"

    @property
    def parent(self) -> TurnRef:
        return TurnRef(self.thread, self.turn)

    @classmethod
    def parse(cls, name: str, field: str = "name") -> ActionRef:
        """Read a resource name. Raises: InvalidRequest."""
        if match := _match_action(name):
            return cls(match[1], match[2], match[3])
        _refuse(field, "must look like threads/{thread}/turns/{turn}/actions/{action}")
