"""How large a regex is once its counts are copied out, which is what matching it costs per character."""

from __future__ import annotations

import re

__all__ = ["pattern_size"]

_COUNT = re.compile(r"\{(\d*)(?:,(\d*))?\}")


def pattern_size(pattern: str) -> int:
    """Return about how many single characters a regex asks for: `(ab){3}c` is 7.

    Counts inside of counts multiply. What is no regex gets some number as well.
    """
    open_groups: list[int] = []
    total = last = position = 0
    while position < len(pattern):
        found = pattern[position]
        count = _COUNT.match(pattern, position) if found == "{" else None
        if count is not None:
            times = max(int(count[1] or 0), int(count[2] or 0), 1)
            total, last = total + last * (times - 1), last * times
            position = count.end()
            continue
        if found == "(":
            open_groups.append(total)
            total = last = 0
        elif found == ")" and open_groups:
            last = max(total, 1)
            total = open_groups.pop() + last
        else:
            position = _end_of_atom(pattern, position)
            total, last = total + 1, 1
            continue
        position += 1
    return total + sum(open_groups)


def _end_of_atom(pattern: str, start: int) -> int:
    """Return the place after an escape, a class or a plain character."""
    if pattern[start] == "\\":
        return start + 2
    if pattern[start] != "[":
        return start + 1
    depth, position = 0, start
    while position < len(pattern):
        if pattern[position] == "\\":
            position += 1
        elif pattern[position] == "[":
            depth += 1
        elif pattern[position] == "]":
            depth -= 1
            if not depth:
                return position + 1
        position += 1
    return position
