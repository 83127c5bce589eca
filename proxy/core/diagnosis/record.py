"""A prompt as diagnosis compares it: pieces in the order in which a provider renders them, as digests and sizes.

No text is kept. A record is made from pieces of any wire format (``proxy.core.diagnosis.wire``), from the planner's
layout (``proxy.core.planner.diagnosed``), or read from a file of fingerprints.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final
from zlib import crc32

from msgspec import Struct

TOOL: Final = "tool"
SYSTEM: Final = "system"
TURN: Final = "turn"
"""Kinds of pieces, besides those of ``proxy.core.recognition.pieces.PieceKind``."""

LineSizes = tuple[tuple[int, int], ...]
"""A text by its lines, each as a hash and a length in characters."""

_MOST_LINES = 2_000
"""A text of more lines is compared as a whole."""


@dataclass(frozen=True, slots=True)
class PromptPiece:
    """One piece of a prompt. ``key`` names it over time ("read_file", "system", "user", "file:src/app.py").

    ``place`` is its index in the list where it stands on the wire (tools, system blocks, messages; -1: not known).
    ``lines`` are those of a system text; empty where its lines are not compared. ``is_marked``: a cache marker of the
    client's stands on it.
    """

    key: str
    kind: str
    digest: bytes
    tokens: int
    place: int = -1
    lines: LineSizes = ()
    is_marked: bool = False


class PromptRecord(Struct, frozen=True, array_like=True):
    """One request's prompt by columns: piece i has ``digests[i]``, ends ``ends[i]`` tokens from the beginning, and is
    ``keys[i]`` of ``kinds[i]``; ``places[i]`` is its place on the wire.

    ``at`` is in seconds. ``parameters`` are digests of the request's other members by their names. ``lines`` are those
    of system texts by the index of the piece. ``stops`` are the ends, in tokens and ascending, up to which the provider
    keeps the prompt where it keeps it at markers only. ``stored`` is how much of it the provider holds, in tokens (-1:
    nobody knows; then the cache's rules say it), and ``life_s`` for how long (0: as the rules say).
    """

    at: float = 0.0
    model: str = ""
    route: str = ""
    digests: Sequence[bytes] = ()
    ends: Sequence[int] = ()
    keys: Sequence[str] = ()
    kinds: Sequence[str] = ()
    places: Sequence[int] = ()
    parameters: Mapping[str, bytes] = {}
    lines: Mapping[int, LineSizes] = {}
    stops: Sequence[int] = ()
    stored: int = -1
    life_s: float = 0.0

    @property
    def total(self) -> int:
        """The prompt's tokens."""
        return self.ends[-1] if self.ends else 0

    @property
    def is_sound(self) -> bool:
        """Whether the columns fit together: a record may come from a file or from another process."""
        columns = (self.ends, self.keys, self.kinds, self.places)
        return all(len(column) == len(self.digests) for column in columns)

    def pieces(self, first: int = 0) -> list[PromptPiece]:
        """The pieces from an index on."""
        starts = [self.ends[first - 1] if first else 0, *self.ends[first:]]
        return [
            PromptPiece(
                self.keys[i],
                self.kinds[i],
                self.digests[i],
                self.ends[i] - starts[i - first],
                self.places[i],
                self.lines.get(i, ()),
            )
            for i in range(first, len(self.digests))
        ]


def record_of(
    pieces: Iterable[PromptPiece],
    *,
    at: float,
    model: str = "",
    route: str = "",
    parameters: Mapping[str, bytes] | None = None,
    stored: int = -1,
    life_s: float = 0.0,
) -> PromptRecord:
    """The record of a prompt that consists of these pieces, in the order in which the provider renders them."""
    found = list(pieces)
    ends = list(accumulate(piece.tokens for piece in found))
    return PromptRecord(
        at=at,
        model=model,
        route=route,
        digests=[piece.digest for piece in found],
        ends=ends,
        keys=[piece.key for piece in found],
        kinds=[piece.kind for piece in found],
        places=[piece.place for piece in found],
        parameters=parameters or {},
        lines={index: piece.lines for index, piece in enumerate(found) if piece.lines},
        stops=[end for piece, end in zip(found, ends, strict=True) if piece.is_marked],
        stored=stored,
        life_s=life_s,
    )


def common_front(one: Sequence[bytes], other: Sequence[bytes]) -> int:
    """How many digests both begin with."""
    count = min(len(one), len(other))
    # Two lists are compared far faster than their elements in a loop.
    if one[:count] == other[:count]:
        return count
    return next((i for i in range(count) if one[i] != other[i]), count)


def lines_of(text: str) -> LineSizes:
    """A text by its lines; nothing where it has only one, or too many to compare."""
    if not 0 < text.count("\n") < _MOST_LINES:
        return ()
    return tuple((crc32(line.encode("utf-8", "surrogatepass")), len(line)) for line in text.split("\n"))
