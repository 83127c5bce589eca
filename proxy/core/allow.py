"""Allow-lists of models: names, and patterns in which ``*`` stands for any text, as in the model list. Pure."""

from collections.abc import Iterable, Sequence


def allows(lists: Iterable[Sequence[str]], names: Sequence[str]) -> bool:
    """Whether every list lets a model pass that goes by any of these names. An empty list lets all pass.

    A team's list and a key's are both asked, so the narrower one wins whichever of the two it is.
    """
    return all(any(matches(pattern, name) for pattern in patterns for name in names) for patterns in lists if patterns)


def matches(pattern: str, name: str) -> bool:
    """Whether the name is of that pattern. The time grows with their lengths, not with the number of stars."""
    if "*" not in pattern:
        return pattern == name
    first, *middle, last = pattern.split("*")
    if len(name) < len(first) + len(last) or not name.startswith(first) or not name.endswith(last):
        return False
    at, end = len(first), len(name) - len(last)
    for part in middle:
        found = name.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True
