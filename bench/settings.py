"""What the services ship with, as far as it decides what durable turns cost."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import BaseModel

from turnwire.runtime.settings import RuntimeSettings

# Parts of the names of the settings that are worth printing beside the figures.
TELLING = ("synchronous", "spacing", "sample_ratio", "level")


def shipped_settings() -> dict[str, str]:
    """The runtime's telling settings by their dotted names, as they are when nobody sets anything."""
    return {name: str(value) for name, value in walk(RuntimeSettings.model_construct()) if is_telling(name)}


def synchronous() -> str:
    """The synchronous mode that the runtime commits with: FULL or NORMAL."""
    return next(value for name, value in shipped_settings().items() if name.endswith("synchronous"))


def is_telling(name: str) -> bool:
    """Whether a setting is worth printing."""
    return any(word in name.rpartition(".")[2] for word in TELLING)


def walk(group: BaseModel, prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield each plain setting of a group and of the groups in it."""
    for name in type(group).model_fields:
        value = getattr(group, name)
        if isinstance(value, BaseModel):
            yield from walk(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
