"""Answers that must fit a schema: what becomes of one that misses it.

It goes back to the model as a reminder that names what is wrong, so often as the agent allows, and each time
costs a step like any other. Then the turn has failed, with the last answer as it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from turnwire.core.ids import mint_id
from turnwire.extend.events import MessageOrigin, Notice, NoticeSeverity, SteerApplied
from turnwire.runtime.domain.answer_schema import CheckedAnswer, check_answer
from turnwire.runtime.domain.resumption import Progress
from turnwire.runtime.domain.turn import InputPart
from turnwire.runtime.engine import templates
from turnwire.runtime.engine.cancel import CancelToken
from turnwire.runtime.engine.ending import End
from turnwire.runtime.ports import TurnJournal

__all__ = ["AnswerRules"]


class AnswerRules:
    """What the answer of a turn has to be. `retries` counts the answers that went back to the model.

    Args:
        schema_json: what the answer must fit, empty = nothing.
        limit: most retries.
    """

    def __init__(self, schema_json: str, limit: int, retries: int, token: CancelToken) -> None:
        self._schema = schema_json
        self._limit = limit
        self._token = token
        self.retries = retries

    async def judge(self, end: End, refused: bool) -> tuple[End | None, Sequence[str]]:
        """Judge the answer that a turn is to complete with.

        Returns:
            The end it makes, or None and what is wrong with it when the model is to be asked again.
        """
        if not self._schema or end.stop_reason != "completed":
            return end, ()
        found = await self._check(end.text)
        if not found.violations:
            return replace(end, text=found.text), ()
        if refused or self.retries >= self._limit:
            again = f" after {self.retries} retries" if self.retries else ""
            text = "the model refused to answer" if refused else f"the answer misses its schema{again}"
            return End("answer-invalid", end.text, "ANSWER_INVALID", f"{text}: {found.violations[0]}"), ()
        return None, found.violations

    async def _check(self, text: str) -> CheckedAnswer:
        check = asyncio.to_thread(check_answer, self._schema, text)
        return await self._token.race(check, name="turn.answer")

    def ask_again(
        self, journal: TurnJournal, thread: str, progress: Progress, step: int, wrong: Sequence[str]
    ) -> tuple[str, InputPart]:
        """Add the reminder that has the model answer once more; returns its id and what it says."""
        self.retries += 1
        message_id = mint_id()
        said = InputPart(kind="text", text=templates.answer_invalid(wrong))
        text = f"The answer misses its schema (retry {self.retries} of {self._limit}): {wrong[0]}"
        journal.take_in(
            message_id,
            MessageOrigin.REMINDER,
            [said],
            [
                Notice(NoticeSeverity.WARNING, "answer-invalid", text),
                SteerApplied(f"{thread}/messages/{message_id}", MessageOrigin.REMINDER),
            ],
            progress=replace(progress, answer_retries=self.retries, taken_in=step),
        )
        return message_id, said
