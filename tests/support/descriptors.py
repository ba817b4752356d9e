"""The contract as `buf build` writes it: every method with the errors that its comment and its service list.

A comment lists errors as `CODE / REASON`: those of a method stand behind `Errors:`, those of a whole service
behind `Every method may also answer`.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pool import Default

from turnwire.api.control.v1 import control_service_pb2
from turnwire.api.executor.v1 import tool_executor_service_pb2
from turnwire.api.runtime.v1 import (
    admin_service_pb2,
    agent_service_pb2,
    graph_service_pb2,
    thread_service_pb2,
    turn_service_pb2,
)

__all__ = ["ROOT", "Answer", "Contract", "Method", "Reason", "contract", "descriptor_set", "string_fields"]

ROOT = Path(__file__).parents[2]
# Imported so that the default pool knows the messages of every service.
MODULES = (
    control_service_pb2,
    tool_executor_service_pb2,
    admin_service_pb2,
    agent_service_pb2,
    graph_service_pb2,
    thread_service_pb2,
    turn_service_pb2,
)

_PAIR = re.compile(r"\b([A-Z][A-Z_]+) / ([A-Z][A-Z_]+)\b")
_KEYS = re.compile(r"\(([a-z_]+(?:, [a-z_]+)*)\)\.?$")
_PREFIX = "ERROR_REASON_"
_SERVICE, _METHOD, _ENUM, _VALUE = 6, 2, 5, 2

# A code and a reason, as in ("NOT_FOUND", "TURN_NOT_FOUND").
Answer = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Method:
    """One RPC: `answers` are its own errors, `service_answers` those of every method of its service.

    `mentioned` are those that its service speaks of elsewhere, of which a method may have its share.
    """

    service: str
    name: str
    request_streaming: bool
    response_streaming: bool
    answers: tuple[Answer, ...]
    service_answers: tuple[Answer, ...]
    mentioned: tuple[Answer, ...]
    request: Descriptor
    response: Descriptor

    @property
    def path(self) -> str:
        """As gRPC spells it."""
        return f"/{self.service}/{self.name}"

    @property
    def short(self) -> str:
        """As people spell it, such as `TurnService.GetTurn`."""
        return f"{self.service.rpartition('.')[2]}.{self.name}"

    @property
    def allowed(self) -> frozenset[Answer]:
        """Everything that a call of it may end with but OK."""
        return frozenset(self.answers + self.service_answers + self.mentioned)

    def new_request(self) -> Any:
        """An empty request message."""
        return message_factory.GetMessageClass(self.request)()


@dataclass(frozen=True, slots=True)
class Reason:
    """One value of the enum: its code, the keys of its metadata, its comment in one line."""

    name: str
    code: str
    keys: frozenset[str]
    comment: str


@dataclass(frozen=True, slots=True)
class Contract:
    """All methods by short name, all reasons by name."""

    methods: Mapping[str, Method]
    reasons: Mapping[str, Reason]


@cache
def descriptor_set() -> descriptor_pb2.FileDescriptorSet:
    """Run `buf build`; raises CalledProcessError when the protos do not compile."""
    buf = Path(sys.executable).with_name("buf")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "contract.binpb"
        command = [str(buf), "build", "--as-file-descriptor-set", "-o", str(out)]
        subprocess.run(command, cwd=ROOT, check=True, timeout=60)
        return descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())


@cache
def contract() -> Contract:
    """Read methods and reasons with their comments."""
    methods: dict[str, Method] = {}
    reasons: dict[str, Reason] = {}
    for file in descriptor_set().file:
        if not file.package.startswith("turnwire."):
            continue
        comments = {tuple(item.path): item.leading_comments for item in file.source_code_info.location}
        for method in _methods(file, comments):
            methods[method.short] = method
        for reason in _reasons(file, comments):
            reasons[reason.name] = reason
    return Contract(methods, reasons)


def _methods(file: descriptor_pb2.FileDescriptorProto, comments: Mapping[Any, str]) -> Iterator[Method]:
    for i, service in enumerate(file.service):
        before, _, after = comments.get((_SERVICE, i), "").partition("Every method may also answer")
        full = f"{file.package}.{service.name}"
        for j, method in enumerate(service.method):
            own = _pairs(comments.get((_SERVICE, i, _METHOD, j), "").partition("Errors:")[2])
            yield Method(
                full,
                method.name,
                method.client_streaming,
                method.server_streaming,
                own,
                _pairs(after),
                _pairs(before),
                Default().FindMessageTypeByName(method.input_type.removeprefix(".")),
                Default().FindMessageTypeByName(method.output_type.removeprefix(".")),
            )


def _reasons(file: descriptor_pb2.FileDescriptorProto, comments: Mapping[Any, str]) -> Iterator[Reason]:
    for i, enum in enumerate(file.enum_type):
        if enum.name != "ErrorReason":
            continue
        for j, value in enumerate(enum.value):
            if value.number:
                comment = " ".join(comments.get((_ENUM, i, _VALUE, j), "").split())
                code = re.match(r"[A-Z_]+", comment)
                keys = _KEYS.search(comment)
                yield Reason(
                    value.name.removeprefix(_PREFIX),
                    code[0] if code else "",
                    frozenset(keys[1].split(", ")) if keys else frozenset(),
                    comment,
                )


def _pairs(text: str) -> tuple[Answer, ...]:
    return tuple((code, reason) for code, reason in _PAIR.findall(" ".join(text.split())))


def string_fields(message: Descriptor, depth: int = 4) -> Iterator[tuple[FieldDescriptor, ...]]:
    """Yield the path of every string field below a message; repeated and map fields count as one element."""
    for field in message.fields:
        if field.type == FieldDescriptor.TYPE_STRING:
            yield (field,)
        elif field.type == FieldDescriptor.TYPE_MESSAGE and depth:
            for rest in string_fields(field.message_type, depth - 1):
                yield (field, *rest)
