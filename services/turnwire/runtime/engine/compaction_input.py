"""What a summariser is given: bounded texts, whatever is to be summarised."""

from __future__ import annotations

from collections.abc import Iterable

from turnwire.runtime.engine.compaction_text import rendered
from turnwire.runtime.engine.history import Exchange

__all__ = ["MAX_CHUNKS", "chunks", "summary_request"]

# Calls for one summary; what does not fit into so many is left out in the middle, with a mark.
MAX_CHUNKS = 4


def chunks(found: Iterable[Exchange], limit: int) -> list[str]:
    """Return exchanges as at most `MAX_CHUNKS` texts of at most about `limit` characters."""
    made: list[list[str]] = []
    room = 0
    for line in (line for exchange in found for line in rendered(exchange)):
        if not made or len(line) > room:
            made.append([])
            room = limit
        made[-1].append(line)
        room -= len(line) + 1
    if len(made) > MAX_CHUNKS:
        half = MAX_CHUNKS // 2
        left_out = sum(map(len, made[half:-half]))
        made = [*made[:half], *made[-half:]]
        made[half].insert(0, f"[{left_out} entries left out here]")
    return ["\n".join(lines) for lines in made]


def summary_request(text: str, summary: str, limit: int) -> str:
    """Return what a summariser reads beside its instructions.

    Args:
        text: the part to be summarised.
        summary: of what was before it, empty when there was nothing.
        limit: characters of the summary.
    """
    parts = []
    if summary:
        parts.append(_fenced("earlier_summary", summary))
    parts.append(_fenced("conversation", text))
    both = "the earlier summary and the conversation" if summary else "the conversation"
    parts.append(f"Summarise {both} above, as one text of at most {limit} characters.")
    return "\n\n".join(parts)


def _fenced(name: str, text: str) -> str:
    # What is inside cannot end the fence.
    return f"<{name}>\n{text.replace(f'</{name}', f'< /{name}')}\n</{name}>"
