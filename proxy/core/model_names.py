"""Names with stars: ``openai/*`` stands for every name that begins so, and its star for the rest of it."""


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
