"""No event above 1 MiB, whichever of its fields holds the text: it ends its turn and is never stored."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import AsyncIterator, Iterator
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from support.runtime_rig import begin, end, events, open_store, pages
from turnwire.api.runtime.v1 import turn_event_pb2
from turnwire.extend.events import TurnEvent, TurnFinished, TurnState
from turnwire.extend.llm import ToolCallFragment
from turnwire.runtime.event_codec import event_to_proto
from turnwire.runtime.store.log import MAX_EVENT_BYTES
from turnwire.runtime.store.turn_store import TurnStore
from turnwire.storage.units import UnitRejected

EMOJI = "😀"
# Where one field of an event holds the text.
Path_ = tuple[str, ...]
# Fields whose text is one of a few words.
WORDS = {"risk_tier": "normal", "error_reason": "INTERNAL"}
FAILED = TurnFinished(TurnState.FAILED, "error", 0.0, 0, error_reason="INTERNAL")


def text_paths(kind: Any) -> Iterator[Path_]:
    """Every field, however deep, of a class of events that is text or bytes."""
    for field in dataclasses.fields(kind):
        if field.name in WORDS:
            continue
        for inner in _paths(typing.get_type_hints(kind)[field.name]):
            yield (field.name, *inner)


def _paths(kind: Any) -> Iterator[Path_]:
    if kind in (str, bytes):
        yield ()
    elif dataclasses.is_dataclass(kind):
        yield from text_paths(kind)
    else:
        for argument in _arguments(kind):
            yield from _paths(argument)


def _arguments(kind: Any) -> tuple[Any, ...]:
    return tuple(a for a in typing.get_args(kind) if a not in (type(None), ...))


def build(kind: Any, path: Path_, text: str) -> Any:
    """A value of a type whose field at `path` holds the text; all other fields say as little as they can."""
    if kind is str:
        return text if path == () else ""
    if kind is bytes:
        return text.encode() if path == () else b""
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return kind(
            **{
                f.name: WORDS[f.name]
                if f.name in WORDS
                else build(hints[f.name], path[1:], text)
                if path[:1] == (f.name,)
                else least(hints[f.name])
                for f in dataclasses.fields(kind)
            }
        )
    inner = build(_arguments(kind)[0], path, text)
    return (inner,) if typing.get_origin(kind) is tuple else inner


def least(kind: Any) -> Any:
    """The least value of a type."""
    if isinstance(kind, type) and issubclass(kind, Enum):
        return next(iter(kind))
    if dataclasses.is_dataclass(kind):
        return build(kind, ("",), "")
    origin = typing.get_origin(kind)
    if origin is tuple:
        return ()
    if origin in (UnionType, typing.Union):
        return None if type(None) in typing.get_args(kind) else least(typing.get_args(kind)[0])
    return kind()


# A fragment of a call is told as ToolCallPreparing.
KINDS = [kind for kind in typing.get_args(TurnEvent) if kind is not ToolCallFragment]
ALL_FIELDS = [(kind, path) for kind in KINDS for path in text_paths(kind)]


def wire_form(event: Any, sequence: int = 1, time_ns: int = 1) -> turn_event_pb2.TurnEvent:
    return event_to_proto("threads/some-thread/turns/some-turn", (sequence, time_ns, (0, 0, 0), event))


def name_of(kind: Any, path: Path_) -> str:
    return f"{kind.__name__}.{'.'.join(path)}"


# What the codec itself cuts.
CUT = {"TurnFinished.error_text"}
FIELDS = [(k, p) for k, p in ALL_FIELDS if wire_form(build(k, p, "x")) != wire_form(build(k, ("",), ""))]
IDS = [name_of(kind, path) for kind, path in FIELDS]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[TurnStore]:
    async with open_store(tmp_path / "runtime.db") as opened:
        yield opened


async def test_an_event_above_the_limit_ends_its_turn_whichever_field_is_to_blame(store: TurnStore) -> None:
    text = EMOJI * (MAX_EVENT_BYTES // 4)  # one mebibyte, and the rest of the event comes on top
    for (kind, path), name in zip(FIELDS, IDS, strict=True):
        if name in CUT:
            assert wire_form(build(kind, path, text)).ByteSize() < MAX_EVENT_BYTES / 4
            continue
        key, journal = await begin(store)
        before = (await store.get_turn(key)).last_sequence
        journal.log.emit(build(kind, path, text))
        with pytest.raises(UnitRejected):
            await journal.log.flush()
        assert (await store.get_turn(key)).last_sequence == before, name
        journal.log.begin_anew()
        await end(journal, FAILED)
        assert (await store.get_turn(key)).state is TurnState.FAILED, name
        assert all(len(page) < MAX_EVENT_BYTES for page in await pages(store, key)), name


async def test_an_event_below_the_limit_is_kept_and_read_as_it_is(store: TurnStore) -> None:
    text = EMOJI * ((MAX_EVENT_BYTES - 1024) // 4)
    for (kind, path), name in zip(FIELDS, IDS, strict=True):
        if kind is TurnFinished:
            continue  # ends the turn
        key, journal = await begin(store)
        event = build(kind, path, text)
        sequence = journal.log.emit(event)
        await journal.log.flush()
        await end(journal)
        (found,) = (e for page in await pages(store, key) for e in events(page) if e.sequence == sequence)
        assert len(found.SerializeToString()) > MAX_EVENT_BYTES - 1024, name
        assert found == event_to_proto(key.name, (sequence, _ns(found), (0, 0, 0), event)), name


def _ns(event: turn_event_pb2.TurnEvent) -> int:
    return event.create_time.ToNanoseconds()


# Arms of the contract that this version does not emit.
LATER = {
    "subagent_checkpoint",
    "subagent_completed",
    "subagent_failed",
    "subagent_paused",
    "subagent_progress",
    "subagent_started",
}
# What stays inside of the runtime.
INSIDE = {"ToolCallComplete.error", "ActionRequired.action.answer"}


def wire_texts(message: Descriptor, above: tuple[str, ...] = ()) -> Iterator[str]:
    """Every text and bytes field of a message, as a dotted path."""
    for field in message.fields:
        if field.message_type is not None:
            yield from wire_texts(field.message_type, (*above, field.name))
        elif field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
            yield ".".join((*above, field.name))


def filled(message: Any, above: tuple[str, ...] = ()) -> Iterator[str]:
    """The text fields that a message has."""
    for field, value in message.ListFields():
        values = value if field.is_repeated else [value]
        for each in values:
            if field.message_type is not None:
                yield from filled(each, (*above, field.name))
            elif field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
                yield ".".join((*above, field.name))


def test_every_text_of_an_event_on_the_wire_was_tried() -> None:
    tried = {name for kind, path in FIELDS for name in filled(wire_form(build(kind, path, "x")))}
    missing = set(wire_texts(turn_event_pb2.TurnEvent.DESCRIPTOR)) - tried
    assert {path.partition(".")[0] for path in missing} == LATER
    assert {name_of(kind, path) for kind, path in ALL_FIELDS} - set(IDS) == INSIDE
