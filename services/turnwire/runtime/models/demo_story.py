"""The one story that the demo model knows: about four hundred words, made from a few sentences."""

from __future__ import annotations

__all__ = ["story"]

_OPENING = (
    "There was once a small clerk who lived inside a machine and answered letters. Nobody had told the clerk "
    "how many letters there would be, so it kept a notebook and wrote down every word before it was said. "
)
_DAYS = (
    ("first", "a merchant who wanted the price of salt", "three", "a sparrow"),
    ("second", "a captain who had lost a harbour", "seven", "a lantern"),
    ("third", "a gardener whose roses argued", "two", "a grey cat"),
    ("seventh", "a child who only asked why", "forty", "a paper crown"),
)
_DAY = (
    "On the {ordinal} day a letter came from {sender}. The clerk read it {times} times, looked up what it "
    "did not know, and wrote an answer that was short and true. When the lights went out in the middle of a "
    "sentence, the clerk opened the notebook, found the last word, and went on with the next one. In the "
    "evening {thing} stood on the window sill, and the clerk took it for thanks. "
)
_ENDING = (
    "After that the letters became fewer, and at last there was a morning without any. The clerk read the "
    "whole notebook from the first page to the last, found nothing missing and nothing said twice, and was "
    "content."
)


def story() -> str:
    """Return the story."""
    days = "".join(
        _DAY.format(ordinal=ordinal, sender=sender, times=times, thing=thing)
        for ordinal, sender, times, thing in _DAYS
    )
    return _OPENING + days + _ENDING
