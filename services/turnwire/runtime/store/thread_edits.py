"""Edits and deletions of threads on the runtime's store: one transaction each, told to who waits on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from turnwire.extend.lifecycle import MetadataPatch
from turnwire.runtime.domain.deletion import Deletion, Purge
from turnwire.runtime.domain.rewrites import ForkCommand, NewTurn, RewriteBase, RewriteCommand, Rewritten
from turnwire.runtime.domain.thread import ThreadRow
from turnwire.runtime.domain.turn import ThreadKey, TurnKey
from turnwire.runtime.store import claims, deletion, forks, rewrite_bases, rewrites
from turnwire.runtime.store.endings import Ending
from turnwire.runtime.store.turn_store import TurnStore
from turnwire.storage.units import Connection

__all__ = ["ThreadEdits"]

T = TypeVar("T")


class ThreadEdits:
    """Implements what the engine's edits and deletions need of the store, on `store`."""

    def __init__(self, store: TurnStore) -> None:
        self._store = store
        self._encode_page = store.encode_page
        self._owner = store.owner

    async def find_rewrite(self, command: RewriteCommand) -> TurnKey | None:
        """Return the turn that the same request began. Raises AlreadyExists (REQUEST_ID_REUSED)."""
        return await self._store.read(lambda db: rewrite_bases.find_rewrite(db, command))

    async def study(self, command: RewriteCommand) -> RewriteBase:
        """Find what an edit is of. Raises NotFound, Conflict, WrongState."""
        return await self._store.read(lambda db: rewrite_bases.study(db, command))

    async def hold(self, command: RewriteCommand) -> int:
        """Hold the thread for an edit; returns the epoch. Raises as `study`, and Unavailable."""
        change = self._store.change
        _, held = await change(command.thread, lambda db: rewrites.hold_for_rewrite(db, command, self._owner))
        return held.epoch

    async def release(self, thread: ThreadKey, epoch: int) -> None:
        """Give a thread back that was held and is not edited."""
        await self._store.change(thread, lambda db: claims.release_admin(db, thread, self._owner, epoch))

    async def commit_rewrite(
        self,
        command: RewriteCommand,
        rewrite_id: str,
        turn: NewTurn | None,
        patch: MetadataPatch,
        epoch: int | None,
    ) -> Rewritten:
        """Make the edit in one transaction. Raises as `hold`, and AlreadyExists (REQUEST_ID_REUSED)."""
        held = None if epoch is None else rewrites.Hold(self._owner, epoch)
        given = rewrites.Patched(rewrite_id, turn, patch, held, self._owner)
        return await self._ending(
            command.thread, lambda db: rewrites.commit_rewrite(db, command, given, self._encode_page)
        )

    async def note_observed(self, thread: ThreadKey, rewrite_id: str, errors: Sequence[str]) -> None:
        """Note that the observers of an edit were told."""
        await self._store.change(thread, lambda db: rewrites.note_observed(db, thread, rewrite_id, errors))

    async def fork(self, command: ForkCommand) -> ThreadRow:
        """Copy a thread. Raises NotFound, AlreadyExists, WrongState."""
        return await self._store.change(command.thread, lambda db: forks.fork_thread(db, command))

    async def begin_deletion(self, thread: ThreadKey, expected_version: int | None) -> Deletion:
        """Mark a thread as deleted. Raises NotFound (THREAD_NOT_FOUND), Conflict (THREAD_CHANGED)."""
        marked = await self._ending(
            thread, lambda db: deletion.begin_deletion(db, thread, expected_version, self._encode_page)
        )
        if marked.running is not None:
            self._store.hint(thread)
        return marked

    async def seal(self, thread: ThreadKey) -> int:
        """Shut out whoever still runs a turn of a deleted thread; returns its last version."""
        version, ending = await self._store.change(
            thread, lambda db: deletion.seal(db, thread, self._encode_page)
        )
        if ending is not None:
            self._store.ended(ending.key, ending.page)
        return version

    async def live_turn_of_deleted(self, thread: ThreadKey) -> str:
        """Return the bare id of the turn that still runs in a deleted thread, empty when none does."""
        return await self._store.read(lambda db: deletion.live_turn_of_deleted(db, thread))

    async def purges(self) -> Sequence[Purge]:
        """Return threads whose content is still to be removed."""
        return await self._store.read(deletion.purges)

    async def purge_rows(self, thread: ThreadKey) -> bool:
        """Remove some rows of a deleted thread; False when nothing is left."""
        return await self._store.change(thread, lambda db: deletion.purge_rows(db, thread))

    async def end_purge(self, thread: ThreadKey) -> None:
        """Note that nothing of a thread is left anywhere."""
        await self._store.change(thread, lambda db: deletion.end_purge(db, thread))

    async def _ending(
        self, thread: ThreadKey, write: Callable[[Connection], tuple[T, Sequence[Ending]]]
    ) -> T:
        """Run a transaction that may end turns, and tell their readers."""
        result, endings = await self._store.change(thread, write)
        for ending in endings:
            self._store.ended(ending.key, ending.page)
        return result
