"""Which runtimes are attached and which turns each of them owns, as they say themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from turnwire.control.board import Active
from turnwire.control.domain import CommandRow, Key, OwnedTurn, thread_of
from turnwire.control.ports import RuntimeLink

__all__ = ["Attachment", "Routes"]


@dataclass(slots=True)
class Attachment:
    """What is known of one attached runtime; `complete` once it has named all its turns."""

    link: RuntimeLink
    complete: bool = False
    turns: dict[Key, int] = field(default_factory=dict)
    deliveries: dict[int, Active] = field(default_factory=dict)


class Routes:
    """The attached runtimes, and from turn or thread to the runtime that owns it."""

    def __init__(self) -> None:
        self._attached: dict[RuntimeLink, Attachment] = {}
        self._owners: dict[Key, dict[RuntimeLink, int]] = {}
        self._live: dict[Key, dict[str, None]] = {}

    def __len__(self) -> int:
        return len(self._attached)

    def __iter__(self) -> Iterator[Attachment]:
        return iter(tuple(self._attached.values()))

    @property
    def turns(self) -> int:
        """Number of turns that have an owner."""
        return len(self._owners)

    def get(self, link: RuntimeLink) -> Attachment | None:
        """Return what is known of a runtime, or None once it is detached."""
        return self._attached.get(link)

    def add(self, link: RuntimeLink) -> None:
        """Attach a runtime."""
        self._attached[link] = Attachment(link)

    def remove(self, link: RuntimeLink) -> Attachment | None:
        """Detach a runtime and forget its turns; returns what was known of it."""
        attachment = self._attached.pop(link, None)
        if attachment is not None:
            for key in attachment.turns:
                self._disown(key, link)
        return attachment

    def opened(self, attachment: Attachment, turns: Iterable[OwnedTurn]) -> None:
        """Note that a runtime owns turns."""
        for owned in turns:
            key = (owned.scope, owned.turn)
            attachment.turns[key] = owned.epoch
            self._owners.setdefault(key, {})[attachment.link] = owned.epoch
            self._live.setdefault((owned.scope, thread_of(owned.turn)), {})[owned.turn] = None

    def closed(self, attachment: Attachment, turns: Iterable[OwnedTurn]) -> None:
        """Note that a runtime no longer owns turns; a close older than the ownership changes nothing."""
        for owned in turns:
            key = (owned.scope, owned.turn)
            if attachment.turns.get(key, owned.epoch + 1) <= owned.epoch:
                del attachment.turns[key]
                self._disown(key, attachment.link)

    def owner(self, row: CommandRow) -> RuntimeLink | None:
        """Return the runtime that owns what the command is for: the highest epoch wins."""
        if row.turn:
            return self._highest((row.scope, row.turn))
        live = self._live.get((row.scope, row.target.thread), ())
        found = [link for turn in live if (link := self._highest((row.scope, turn)))]
        return found[-1] if found else None

    def epoch(self, link: RuntimeLink, scope: str, turn: str) -> int:
        """Return the epoch at which a runtime owns a turn, or -1."""
        return self._owners.get((scope, turn), {}).get(link, -1)

    def any(self) -> RuntimeLink | None:
        """Return a runtime that has named all its turns, each of them in its turn."""
        for link, attachment in self._attached.items():
            if attachment.complete:
                self._attached[link] = self._attached.pop(link)
                return link
        return None

    def _highest(self, key: Key) -> RuntimeLink | None:
        owners = self._owners.get(key)
        return max(owners, key=lambda link: owners[link]) if owners else None

    def _disown(self, key: Key, link: RuntimeLink) -> None:
        owners = self._owners.get(key)
        if owners is None or owners.pop(link, None) is None or owners:
            return
        del self._owners[key]
        scope, turn = key
        place = (scope, thread_of(turn))
        live = self._live[place]
        del live[turn]
        if not live:
            del self._live[place]
