"""Where a conversation is cut: only between exchanges, and never before what the turn is about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from turnwire.runtime.domain.compaction import Measure
from turnwire.runtime.engine.conversation import Conversation, Placed
from turnwire.runtime.engine.history import Exchange

__all__ = ["Cut", "plan_cut"]


@dataclass(frozen=True, slots=True)
class Cut:
    """What is left out of the requests to come, and what stays.

    Args:
        covered: exchanges that a summary is to stand for, oldest first.
        size: of `covered` together; `left` is that of all others.
        kept: message ids of exchanges that stay though they are older than what is covered.
        pinned: those exchanges that stay before the tail; `tail`: the exchanges from the cut on.
        through_message, through_step: the newest exchange that is covered.
    """

    covered: tuple[Exchange, ...]
    size: Measure
    left: Measure
    kept: tuple[str, ...]
    pinned: tuple[Exchange, ...]
    tail: tuple[Exchange, ...]
    through_message: str
    through_step: int


def plan_cut(conversation: Conversation, keep: int) -> Cut | None:
    """Return the cut that keeps at least so many messages at the end; None when nothing comes before it.

    Three user messages stay wherever the cut is: the latest that asks, the latest of all, and the one that
    the first exchange of the tail answers, so that the rest begins with what a user said.
    """
    placed = conversation.placed
    cut = _tail_at(placed, keep)
    stay = _pinned(placed, cut)
    covered = [i for i in range(cut) if i not in stay]
    if not covered:
        return None
    new = [i for i in covered if not placed[i].old]
    made = conversation.compaction
    if new:
        end = placed[new[-1]].exchange
        reach, through = new[-1] + 1, (end.message_id, end.step)
    else:
        assert made is not None
        reach = sum(p.old for p in placed)
        through = (made.through_message, made.through_step)
    size = _sum([placed[i] for i in covered])
    whole = conversation.size
    left = Measure(
        whole.messages - size.messages, whole.characters - size.characters, whole.tokens - size.tokens
    )
    return Cut(
        tuple(placed[i].exchange for i in covered),
        size,
        left,
        tuple(placed[i].exchange.message_id for i in sorted(stay) if i < reach),
        tuple(placed[i].exchange for i in sorted(stay)),
        tuple(p.exchange for p in placed[cut:]),
        *through,
    )


def _tail_at(placed: Sequence[Placed], keep: int) -> int:
    """Return where the tail begins: as late as it can with `keep` messages in it."""
    index, held = len(placed), 0
    while index > 0 and held < keep:
        index -= 1
        held += placed[index].size.messages
    return index


def _pinned(placed: Sequence[Placed], cut: int) -> set[int]:
    users = [i for i, p in enumerate(placed) if p.exchange.from_user]
    asks = [i for i in users if placed[i].exchange.asks]
    stay = {*users[-1:], *asks[-1:]}
    if cut < len(placed) and not placed[cut].exchange.from_user:
        stay.update([i for i in users if i < cut][-1:])
    return {i for i in stay if i < cut}


def _sum(placed: Sequence[Placed]) -> Measure:
    return Measure(
        sum(p.size.messages for p in placed),
        sum(p.size.characters for p in placed),
        sum(p.size.tokens for p in placed),
    )
