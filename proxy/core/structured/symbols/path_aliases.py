"""Short names for the directories that many paths begin with, which the legend of a symbol map gives once.

An alias that was given never changes and is never taken back, because blocks that were sent are written with it. A new
alias is given only to a directory of which no path was shown before, so that no block that was sent changes either.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping

MOST_ALIASES = 64
_MOST_DEPTH = 16
"""Deeper directories get no alias, so that the work is linear in the number of paths."""
_FEWEST_PATHS = 4
_FEWEST_CHARS_SAVED = 80
_LOOKS_ALIASED = re.compile(r"@\d+/")


def legend_for(
    paths: Collection[str], given: Mapping[str, str], settled: Collection[str] = frozenset()
) -> dict[str, str]:
    """The aliases by directory: those that were given, in their order, and behind them new ones for ``paths``.

    ``settled`` are the paths that earlier requests of the session have shown: a directory above one of them gets no new
    alias. The answer depends on the set of paths and not on their order.
    """
    aliases = dict(given)
    closed = {directory for path in settled for directory in _directories(path)}
    saved = _saved_chars(set(paths), aliases, closed)
    best = sorted(saved, key=lambda directory: (-saved[directory], directory))[: max(0, MOST_ALIASES - len(aliases))]
    for directory in sorted(best):
        aliases[directory] = f"@{len(aliases) + 1}"
    return aliases


def shorten(path: str, aliases: Mapping[str, str]) -> str:
    """The path with the longest aliased directory written as its alias, or the path itself. A path that could be read
    as one with an alias is written with ``./`` in front."""
    for directory in _directories(path):
        if directory in aliases:
            return aliases[directory] + path[len(directory) :]
    return f"./{path}" if _LOOKS_ALIASED.match(path) else path


def _directories(path: str) -> Iterator[str]:
    """The directories above a path, the deepest first, without those that are too deep for an alias."""
    parts = path.split("/", _MOST_DEPTH + 1)[:-1][:_MOST_DEPTH]
    for count in range(len(parts), 0, -1):
        yield "/".join(parts[:count])


def _saved_chars(paths: set[str], aliases: Mapping[str, str], closed: set[str]) -> dict[str, int]:
    """The directories that are worth an alias, and how many characters it saves. A path counts for the deepest such
    directory above it only."""
    waiting = Counter(directory for path in paths if (directory := next(_directories(path), "")))
    for directory in list(waiting):
        for above in _directories(directory + "/"):
            waiting.setdefault(above, 0)
    saved = {}
    for directory in sorted(waiting, key=lambda one: (-one.count("/"), one)):
        count = waiting[directory]
        gain = count * (len(directory) - 3) - len(directory)
        if directory in aliases:
            continue
        if directory not in closed and count >= _FEWEST_PATHS and gain >= _FEWEST_CHARS_SAVED:
            saved[directory] = gain
        elif "/" in directory:
            waiting[directory.rpartition("/")[0]] += count
    return saved
