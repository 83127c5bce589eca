"""The symbol map under the policy ``economic``: a few chunks, each a message of its own, that the planner orders.

Which chunk a path belongs to is decided once in a conversation, and holds as long as the conversation does: also while
the file is selected and its symbols are not shown. Chunks that are sorted by age were measured to cost more, because
each promotion writes two of them anew; so were a single message, and a message for each file.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

CHUNKS = 4
"""Measured on coding sessions that follow a git history: 0.43 (quiet) and 0.62 (busy) of the cost of full texts; one
message 0.48 and 0.60, tiers by age 0.52 and 0.61, eight chunks 0.42 and 0.62."""
_MOST_CHARS = 250_000
"""No chunk is longer at first: recognisers look through 500,000 characters."""


@dataclass(frozen=True, slots=True)
class MapChunks:
    """The chunk of each path that was shown in a conversation. ``count`` is the number of chunks."""

    places: Mapping[str, int] = field(default_factory=dict)
    count: int = 0

    def with_paths(self, sizes: Mapping[str, int]) -> "MapChunks":
        """The chunks with these paths in them (the characters of each block). Those of the first request are shared out
        in the order of their paths, so that chunks have about the same size; later ones go to the last chunk."""
        new = [path for path in sizes if path not in self.places]
        if not new:
            return self
        if self.count:
            return MapChunks({**self.places, **dict.fromkeys(new, self.count - 1)}, self.count)
        total = sum(sizes.values())
        count = max(CHUNKS, -(-total // _MOST_CHARS))
        return MapChunks(dict(_shared_out(sizes, total, count)), count)

    def shown(self, paths: Iterable[str]) -> list[list[str]]:
        """The paths of each chunk that has any of these, in the order of paths."""
        found: list[list[str]] = [[] for _ in range(self.count)]
        for path in sorted(paths):
            found[self.places[path]].append(path)
        return [chunk for chunk in found if chunk]


def _shared_out(sizes: Mapping[str, int], total: int, count: int) -> Iterator[tuple[str, int]]:
    before = 0
    for path in sorted(sizes):
        yield path, min(before * count // max(total, 1), count - 1)
        before += sizes[path]
