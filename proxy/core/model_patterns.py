"""Names of models with stars: ``openai/*`` stands for every name that begins so, in model lists and in allow-lists."""

import re
from collections.abc import Collection, Iterable, Sequence

# Servers cut names at a zero byte, trim them, or build a path or a query from them: "gpt-4o?-mini" and "gpt-4o\0-mini"
# are no names that end in "-mini".
_ORDINARY = re.compile(r"[^\s\x00-\x1f\x7f-\x9f\\%?#<>\"'`&;|^{}\u200b-\u200f\u2028-\u202e\ufeff\ud800-\udfff]*+")


def allows(lists: Iterable[Sequence[str]], names: Sequence[str], groups: Collection[str] = ()) -> bool:
    """Whether every list lets a model pass that goes by any of these names, or is in any of these groups. An empty list
    lets all pass. A group is listed by its whole name: a pattern is one of models.

    A team's list and a key's are both asked, so the narrower one wins whichever of the two it is. A name that servers
    may read in different ways passes where it is listed as it is, or where all names are.
    """
    return all(
        any(pattern in groups or any(_lets_pass(pattern, name) for name in names) for pattern in patterns)
        for patterns in lists
        if patterns
    )


def allows_all(lists: Iterable[Sequence[str]]) -> bool:
    """Whether every list lets every model pass."""
    return all(any(_is_all(pattern) for pattern in patterns) for patterns in lists if patterns)


def is_ordinary(name: str) -> bool:
    """Whether every server reads the name alike, wherever it puts it."""
    return _ORDINARY.fullmatch(name) is not None and "/../" not in f"/{name}/"


def captured(pattern: str, name: str) -> tuple[str, ...] | None:
    """What each star of the pattern stands for in the name; None where the name is not of that pattern.

    Of several ways the one whose first star stands for most is taken, then the second: as ``(.*)`` of a regular
    expression does it, but in a time that grows with the lengths, whatever the number of stars.
    """
    first, *others = pattern.split("*")
    if not others:
        return () if pattern == name else None
    last = others.pop()
    if len(name) < len(first) + len(last) or not name.startswith(first) or not name.endswith(last):
        return None
    end = len(name) - len(last)
    found: list[str] = []
    for part in reversed(others):
        at = name.rfind(part, len(first), end)
        if at < 0:
            return None
        found.append(name[at + len(part) : end])
        end = at
    found.append(name[len(first) : end])
    return tuple(reversed(found))


def matches(pattern: str, name: str) -> bool:
    """Whether the name is of that pattern. The time grows with their lengths, not with the number of stars."""
    return captured(pattern, name) is not None


def matches_any(patterns: Iterable[str], name: str) -> bool:
    """Whether the name is of any of the patterns."""
    return any(matches(pattern, name) for pattern in patterns)


def fitting(patterns: Collection[str], names: Sequence[str]) -> list[str]:
    """The patterns that one of a model's names is of, the most general one first: those with stars by how much they
    leave open, then whole names in the order of ``names``."""
    wide = [one for one in patterns if "*" in one and any(matches(one, name) for name in names)]
    whole = dict.fromkeys(name for name in names if "*" not in name and name in patterns)
    return [*sorted(wide, key=lambda one: (len(one.replace("*", "")), one)), *whole]


def _lets_pass(pattern: str, name: str) -> bool:
    if pattern == name or _is_all(pattern):
        return True
    return matches(pattern, name) and is_ordinary(name)


def _is_all(pattern: str) -> bool:
    return pattern != "" and pattern.strip("*") == ""
