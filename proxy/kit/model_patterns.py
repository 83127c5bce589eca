"""Names of models with stars: in model lists and allow-lists, ``openai/*`` stands for every name that begins with
``openai/``."""

import re
from collections.abc import Collection, Iterable, Sequence

# Servers cut names at a zero byte, trim them, or build a path or a query from them. So the names "gpt-4o?-mini" and
# "gpt-4o\0-mini" do not count as names that end in "-mini".
_ORDINARY = re.compile(r"[^\s\x00-\x1f\x7f-\x9f\\%?#<>\"'`&;|^{}\u200b-\u200f\u2028-\u202e\ufeff\ud800-\udfff]*+")


def allows(lists: Iterable[Sequence[str]], names: Sequence[str], groups: Collection[str] = ()) -> bool:
    """Whether every list allows a model that has any of these names, or is in any of these groups. An empty list allows
    all models. A group is listed by its whole name: patterns apply to names of models only.

    A team's list and a key's list must both allow the model, so the narrower list always wins. A name that servers may
    read in different ways is allowed only if it is listed exactly as it is, or if all names are allowed.
    """
    return all(
        any(
            pattern in groups
            or any(
                pattern == name or _is_all(pattern) or (matches(pattern, name) and is_ordinary(name)) for name in names
            )
            for pattern in patterns
        )
        for patterns in lists
        if patterns
    )


def allows_all(lists: Iterable[Sequence[str]]) -> bool:
    """Whether every list allows every model."""
    return all(any(_is_all(pattern) for pattern in patterns) for patterns in lists if patterns)


def is_ordinary(name: str) -> bool:
    """Whether every server reads the name alike, wherever the server uses it."""
    return _ORDINARY.fullmatch(name) is not None and "/../" not in f"/{name}/"


def captured(pattern: str, name: str) -> tuple[str, ...] | None:
    """The part of the name that each star of the pattern stands for; None if the name does not match the pattern.

    If there are several ways to match, the first star takes as much as it can, then the second star, and so on.
    ``(.*)`` of a regular expression does the same; but here the time grows with the lengths only, whatever the number
    of stars.
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
    """Whether the name matches the pattern. The time grows with their lengths, not with the number of stars."""
    return captured(pattern, name) is not None


def matches_any(patterns: Iterable[str], name: str) -> bool:
    """Whether the name matches any of the patterns."""
    return any(matches(pattern, name) for pattern in patterns)


def fitting(patterns: Collection[str], names: Sequence[str]) -> list[str]:
    """The patterns that match one of a model's names, the most general one first. Patterns with stars come first, those
    with the fewest fixed characters in front; then come whole names in the order of ``names``."""
    wide = [one for one in patterns if "*" in one and any(matches(one, name) for name in names)]
    whole = dict.fromkeys(name for name in names if "*" not in name and name in patterns)
    return [*sorted(wide, key=lambda one: (len(one.replace("*", "")), one)), *whole]


def _is_all(pattern: str) -> bool:
    return pattern != "" and pattern.strip("*") == ""
