"""Whatever is edited in whatever order, the model is sent a history that strict providers accept."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from support.history_rules import chat_fault, messages_fault, request_fault
from support.runtime_rig import CANCELLED, DONE, begin, end, open_store, queued
from support.thread_edits import (
    FAILED,
    answer,
    call,
    edit,
    hide,
    regenerate,
    retry,
    rows,
    said,
    settle,
    suspended,
    version,
)
from turnwire.core.errors import Conflict, NotFound, WrongState
from turnwire.extend.events import Compacted, UsageSummary
from turnwire.extend.llm import ModelRequest
from turnwire.runtime.domain.compaction import Compaction
from turnwire.runtime.domain.message import StoredMessage
from turnwire.runtime.domain.rewrites import ForkCommand
from turnwire.runtime.domain.turn import ThreadKey, TurnKey
from turnwire.runtime.engine.compaction_plan import plan_cut
from turnwire.runtime.engine.conversation import Conversation
from turnwire.runtime.engine.history import exchanges, model_messages
from turnwire.runtime.engine.token_count import TokenCounter
from turnwire.runtime.models.anthropic_request import encode_messages
from turnwire.runtime.models.dialects import ProviderProfile
from turnwire.runtime.models.openai_request import encode_chat
from turnwire.runtime.store.journal import Journal
from turnwire.runtime.store.thread_edits import ThreadEdits
from turnwire.runtime.store.turn_store import TurnStore

PROFILE = ProviderProfile(format="openai-chat")
EDITS = (
    "turn",
    "tool turn",
    "failed",
    "silent",
    "wait",
    "queue",
    "regenerate",
    "retry",
    "hide",
    "show",
    "fork",
    "summary",
)
PLANS = st.lists(st.tuples(st.sampled_from(EDITS), st.integers(0, 7)), min_size=1, max_size=10)


class Story:
    """A thread that goes through a plan, one step at a time."""

    def __init__(self, store: TurnStore) -> None:
        self.store = store
        self.thread = ThreadKey("team", "")

    async def play(self, step: str, choice: int) -> None:
        """Do one step; one that is refused leaves everything as it was."""
        before = await rows(self.store, "SELECT version FROM threads")
        try:
            await self._play(step, choice)
        except (WrongState, NotFound, Conflict):
            assert await rows(self.store, "SELECT version FROM threads") == before
        await self.check()

    async def _play(self, step: str, choice: int) -> None:
        at = await version(self.store, self.thread)
        edits = ThreadEdits(self.store)
        if step in ("turn", "tool turn", "failed", "silent", "wait", "queue"):
            await self._turn(step)
        elif step == "regenerate":
            await edit(self.store, regenerate(self.thread, at, await self._message(choice)))
            await self._run_queue()
        elif step == "retry":
            await edit(self.store, retry(await self._some_turn(choice), at))
            await self._run_queue()
        elif step == "fork":
            asked = ForkCommand(self.thread, str(uuid.uuid4()), await self._message(choice))
            self.thread = (await edits.fork(asked)).key
        elif step == "summary":
            await self._summary(choice)
        else:
            visibility = "hidden" if step == "hide" else "visible"
            message = await self._message(choice)
            await edit(self.store, hide(self.thread, at, message, visibility=visibility))

    async def _turn(self, step: str) -> None:
        ((live,),) = await rows(
            self.store, "SELECT live_turn FROM threads WHERE thread_id = ?", self.thread.thread_id
        )
        if live:
            behind = await queued(self.store, self.thread)
            if step == "failed":
                await self.store.cancel_queued(behind, CANCELLED, ())
        elif step == "wait":
            await suspended(self.store, self.thread.thread_id)
        else:
            _, journal = await begin(self.store, self.thread.thread_id)
            await finish(journal, step)

    async def _summary(self, choice: int) -> None:
        """Run a turn that lets a summary stand for all but its last messages; it names what it stands for."""
        ((live,),) = await rows(
            self.store, "SELECT live_turn FROM threads WHERE thread_id = ?", self.thread.thread_id
        )
        if live:
            return
        _, journal = await begin(self.store, self.thread.thread_id)
        told = await self._told()
        found = plan_cut(told, choice + 1)
        if found is not None:
            before = json.loads(told.compaction.summary) if told.compaction is not None else []
            stands = json.dumps([*before, *([e.message_id, e.step] for e in found.covered)])
            through = (found.through_message, found.through_step)
            made = Compaction(uuid.uuid4().hex, *through, len(stands), stands, kept=found.kept)
            journal.compact(made, UsageSummary(), Compacted(1, stands, "messages"))
        await finish(journal, "turn")

    async def _told(self) -> Conversation:
        """What a turn that begins now tells its model."""
        told = Conversation("fake", TokenCounter())
        told.load(await self.store.history(self.thread))
        return told

    async def _check_summary(self, transcript: Sequence[StoredMessage]) -> None:
        """Each visible exchange is told, or the summary was made of it as it is, and no other one was."""
        told = await self._told()
        assert request_fault(ModelRequest("model", told.messages())) == ""
        there = [(e.message_id, e.step) for e in exchanges(transcript, "fake")]
        shown = [(p.exchange.message_id, p.exchange.step) for p in told.placed]
        made = told.compaction
        stands = [(name, step) for name, step in json.loads(made.summary)] if made is not None else []
        assert sorted([*stands, *shown]) == sorted(there)

    async def _run_queue(self) -> None:
        while (admitted := await self.store.claim(self.thread)) is not None:
            await self.check(running=True)
            assert isinstance(admitted.journal, Journal)
            await finish(admitted.journal, "turn")

    async def _message(self, choice: int) -> str:
        found = await rows(
            self.store,
            "SELECT message_id FROM messages WHERE thread_id = ? ORDER BY position DESC",
            self.thread.thread_id,
        )
        return str(found[choice % len(found)][0])

    async def _some_turn(self, choice: int) -> TurnKey:
        found = await rows(
            self.store,
            "SELECT turn_id FROM turns WHERE thread_id = ? ORDER BY turn_id",
            self.thread.thread_id,
        )
        name = found[choice % len(found)][0] if found else "none"
        return TurnKey(self.thread.scope, self.thread.thread_id, str(name))

    async def check(self, *, running: bool = False) -> None:
        """The history is in good order, and what is superseded is in no view of it."""
        transcript = await self.store.transcript(self.thread)
        assert all(message.visibility == "visible" for message in transcript)
        assert [m.position for m in transcript] == sorted(m.position for m in transcript)
        await self._check_summary(transcript)
        # A turn that waits goes on with its own calls: the model is asked when they have their results.
        closed = [message for message in transcript if not message.open]
        if running:
            assert closed
            assert closed[-1].role == "user"
        request = ModelRequest("model", tuple(model_messages(closed, "fake")))
        chat = json.loads(encode_chat(request, PROFILE, stream=True))["messages"]
        assert chat_fault(chat) == ""
        blocks = json.loads(encode_messages(request, PROFILE, stream=True))["messages"]
        assert messages_fault(blocks) == ""
        assert not blocks or blocks[0]["role"] == "user"


async def finish(journal: Journal, step: str) -> None:
    """End a turn in one of the ways that turns end."""
    if step == "tool turn":
        part = replace(call(f"call-{uuid.uuid4().hex}"))
        await answer(journal, said("let me see"), part)
        await settle(journal, part, "seen")
    elif step != "silent":
        await answer(journal, said("hi"))
    await end(journal, FAILED if step in ("failed", "silent") else DONE)


async def story(folder: Path, plan: list[tuple[str, int]]) -> None:
    async with open_store(folder / "runtime.db") as store:
        told = Story(store)
        key, journal = await begin(store)
        told.thread = key.thread
        await finish(journal, "turn")
        async with asyncio.timeout(30):
            for step, choice in plan:
                await told.play(step, choice)


@settings(max_examples=40, deadline=None)
@given(PLANS)
def test_the_history_is_in_good_order_after_any_edits(plan: list[tuple[str, int]]) -> None:
    with TemporaryDirectory() as folder:
        asyncio.run(story(Path(folder), plan))
