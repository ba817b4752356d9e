"""One group, one transaction; a unit that fails costs nobody else. The part that no engine differs in."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

from turnwire.storage.stats import WriterStats
from turnwire.storage.trouble import Trouble
from turnwire.storage.units import Connection, Done, Unit, UnitRejected

__all__ = ["Call", "IsolatingCommitter", "Item", "Outcome", "Spoiled"]

logger = logging.getLogger(__name__)

Outcome = Exception | None


class Call:
    """A function that runs in the group's transaction, in a savepoint of its own."""

    __slots__ = ("done", "fn", "key", "result", "size")

    def __init__(self, fn: Callable[[Connection], Any], key: str, done: Done) -> None:
        self.fn = fn
        self.key = key
        self.done = done
        self.size = 0
        self.result: Any = None


Item = Unit | Call


class Spoiled(Exception):
    """The transaction must be undone to take one item out, which alone has the outcome."""

    def __init__(self, outcome: Exception) -> None:
        super().__init__("spoiled")
        self.outcome = outcome


class IsolatingCommitter(ABC):
    """Commits groups on the calling thread and keeps trying while the trouble is the store's, not the data's.

    Args:
        trouble: how the engine's errors are classed.
        retry_for: seconds of back-off after which the error is raised and the writer ends.
        stats: counters, shared with the loop side.
        on_health: called on this thread with False at the first failed try and True after recovery.
    """

    def __init__(
        self,
        trouble: Trouble,
        *,
        retry_for: float,
        stats: WriterStats,
        on_health: Callable[[bool], None],
    ) -> None:
        self._trouble = trouble
        self._retry_for = retry_for
        self._stats = stats
        self._on_health = on_health
        self._broken = False

    @abstractmethod
    def open(self) -> None:
        """Connect."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""

    def between_groups(self) -> None:  # noqa: B027 -- most engines need nothing
        """Do what keeps the store in shape and would make a commit wait."""

    @abstractmethod
    def _transaction(self, items: Sequence[Item]) -> list[Outcome]:
        """Commit the items as one transaction. Raises Spoiled or the driver's error, with nothing done."""

    def commit(self, items: Sequence[Item]) -> list[Outcome]:
        """Commit the group and say for each item None (durable) or why it, and it alone, is not.

        Raises:
            Exception: the driver's error; the store failed for longer than `retry_for`, or is damaged.
        """
        started = time.perf_counter()
        outcomes = self._isolating(items)
        self._stats.seconds += time.perf_counter() - started
        return outcomes

    def _isolating(self, items: Sequence[Item]) -> list[Outcome]:
        try:
            return self._persistent(items)
        except Spoiled as spoiled:
            if len(items) == 1:
                return [spoiled.outcome]
        self._stats.isolated_groups += 1
        return [self._isolating((item,))[0] for item in items]

    def _persistent(self, items: Sequence[Item]) -> list[Outcome]:
        try:
            return self._transaction(items)
        except Exception as error:
            if not self._trouble.is_transient(error):
                raise
            self._note_failure(error)
        outcomes = Retrying(
            stop=stop_after_delay(self._retry_for),
            wait=wait_random_exponential(multiplier=0.02, max=1.0),
            retry=retry_if_exception(self._trouble.is_transient),
            reraise=True,
        )(self._retry, items)
        logger.info("storage.recovered", extra={"units": len(items)})
        self._on_health(True)
        return outcomes

    def _retry(self, items: Sequence[Item]) -> list[Outcome]:
        self._stats.retries += 1
        try:
            if self._broken:
                self._reconnect()
            return self._transaction(items)
        except Spoiled:
            self._on_health(True)  # the store answers again; this item's data is what fails
            raise
        except Exception as error:
            self._broken = self._broken or self._trouble.wants_reconnect(error)
            raise

    def _note_failure(self, error: Exception) -> None:
        self._broken = self._broken or self._trouble.wants_reconnect(error)
        fields = {"error": self._trouble.describe(error), "retry_for": self._retry_for}
        logger.warning("storage.commit_failed", extra=fields)
        self._on_health(False)

    def _reconnect(self) -> None:
        self.close()
        self.open()
        self._broken = False

    def _rejection(self, key: str, error: Exception) -> UnitRejected:
        """Turn an error of the data into a rejection; an error of the store goes on up."""
        if self._trouble.is_transient(error) or self._trouble.is_corruption(error):
            raise error
        rejection = UnitRejected(f"the unit cannot be stored: {self._trouble.describe(error)}", key)
        rejection.__cause__ = error
        return rejection
