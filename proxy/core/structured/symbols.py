"""The map of the repository: a short block of symbols for each file, the legend with short names of directories, and
the chunks in which the map is sent. No file is read here.

A block lists the classes, functions, methods and constants of one file, without their bodies and without line numbers.
It depends only on the file's own text and on the alias of its path. An edit inside a function, another selection, or a
change in another file does not change its bytes. References between files are therefore kept beside the blocks and
never inside them.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from proxy.core.structured.context import ContextFile
from proxy.core.value import dataclass, field


@dataclass(frozen=True, slots=True)
class SymbolMap:
    """The symbols of all files of one request.

    ``blocks`` has the text of each file that has symbols, by path, in the order of the files; a block does not end with
    a line break. ``legend`` explains the notation and lists the aliases of directories. ``references`` has, for each
    path, the other paths that it refers to; a path without references may be absent.
    """

    blocks: Mapping[str, str] = field(default_factory=dict)
    legend: str = ""
    references: Mapping[str, frozenset[str]] = field(default_factory=dict)


class SymbolIndexer(Protocol):
    """Makes symbol maps. It is called in several threads at once, never on the event loop. It keeps its results by the
    digest of the text, within a bound of memory."""

    name: str
    priority: int

    def index(self, files: Sequence[ContextFile], aliases: Mapping[str, str]) -> SymbolMap:
        """The symbols of these files. ``aliases`` are those of the session (see ``legend_for``). The digests of the
        files must be those of their texts: the caller has computed them. Never raises an error because of a file's
        content."""


MOST_ALIASES = 64
_MOST_DEPTH = 16
"""Deeper directories get no alias, so that the work is linear in the number of paths."""
_FEWEST_PATHS = 4
_FEWEST_CHARS_SAVED = 80
_LOOKS_ALIASED = re.compile(r"@\d+/")


def legend_for(
    paths: Collection[str], given: Mapping[str, str], settled: Collection[str] = frozenset()
) -> dict[str, str]:
    """The aliases by directory: the given ones in their order, and behind them new ones for ``paths``.

    ``settled`` are the paths that earlier requests of the session have shown: a directory above one of them gets no new
    alias. The result depends on the set of paths and not on their order.
    """
    aliases = dict(given)
    closed = {directory for path in settled for directory in _directories(path)}
    saved = _saved_chars(set(paths), aliases, closed)
    best = sorted(saved, key=lambda directory: (-saved[directory], directory))[: max(0, MOST_ALIASES - len(aliases))]
    for directory in sorted(best):
        aliases[directory] = f"@{len(aliases) + 1}"
    return aliases


def shorten(path: str, aliases: Mapping[str, str]) -> str:
    """The path with the longest aliased directory written as its alias, or the path itself. A path that could be
    mistaken for one with an alias is written with ``./`` in front."""
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
    """The directories that are worth an alias, and how many characters it saves. A path counts only for the deepest
    such directory above it."""
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


CHUNKS = 4
"""Measured on coding sessions that follow a git history, as a share of the cost of full texts: four chunks 0.43 (quiet)
and 0.62 (busy), one message 0.48 and 0.60, tiers by age 0.52 and 0.61, eight chunks 0.42 and 0.62."""
_MOST_CHARS = 250_000
"""No chunk is longer than this at first, because recognisers look through 500,000 characters."""


@dataclass(frozen=True, slots=True)
class MapChunks:
    """The chunk of each path that was shown in a conversation. ``count`` is the number of chunks."""

    places: Mapping[str, int] = field(default_factory=dict)
    count: int = 0

    def with_paths(self, sizes: Mapping[str, int]) -> "MapChunks":
        """The chunks with these paths added; ``sizes`` gives the number of characters of each path's block. The paths
        of the first request are shared out in their order, so that chunks have about the same size. Later paths go to
        the last chunk."""
        new = [path for path in sizes if path not in self.places]
        if not new:
            return self
        if self.count:
            return MapChunks({**self.places, **dict.fromkeys(new, self.count - 1)}, self.count)
        total = sum(sizes.values())
        count = max(CHUNKS, -(-total // _MOST_CHARS))
        return MapChunks(dict(_shared_out(sizes, total, count)), count)

    def shown(self, paths: Iterable[str]) -> list[list[str]]:
        """For each chunk that has any of these paths, its paths among them, sorted."""
        found: list[list[str]] = [[] for _ in range(self.count)]
        for path in sorted(paths):
            found[self.places[path]].append(path)
        return [chunk for chunk in found if chunk]


def _shared_out(sizes: Mapping[str, int], total: int, count: int) -> Iterator[tuple[str, int]]:
    before = 0
    for path in sorted(sizes):
        yield path, min(before * count // max(total, 1), count - 1)
        before += sizes[path]
