"""A prompt as diagnosis compares it: pieces in the order in which a provider renders them, as digests and sizes.

No text is kept. A record is made from pieces of any wire format (``proxy.core.diagnosis.wire``), from the planner's
layout (``proxy.core.planner.diagnosed``), or read from a file of fingerprints.
"""

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final
from zlib import crc32

from msgspec import Struct

from proxy.core.digest import DIGEST_BYTES

TOOL: Final = "tool"
SYSTEM: Final = "system"
TURN: Final = "turn"
"""Kinds of pieces, besides those of ``proxy.core.recognition.pieces.PieceKind``."""

LineSizes = tuple[tuple[int, int], ...]
"""A text by its lines, each as a hash and a length in characters."""

# Numbers as ``array`` writes them, in the machine's order.
_NUMBER: Final = "I"
_PLACE: Final = "i"
_NAME: Final = "H"
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
    """One request's prompt by columns, packed: a long conversation is copied, compared and shared in no time.

    ``digests`` are those of the pieces, 16 bytes each; ``packed_ends`` are their ends in tokens from the beginning,
    ``packed_places`` their places on the wire, and ``packed_names`` the indexes of their kinds and keys in ``names``
    (numbers of 32, 32 and 16 bits). ``at`` is in seconds. ``parameters`` are digests of the request's other members by
    their names. ``lines`` are those of system texts by the index of the piece. ``stops`` are the ends, in tokens and
    ascending, up to which the provider keeps the prompt where it keeps it at markers only. ``stored`` is how much of it
    the provider holds, in tokens (-1: nobody knows; then the cache's rules say it), and ``life_s`` for how long (0: as
    the rules say).
    """

    at: float = 0.0
    model: str = ""
    route: str = ""
    digests: bytes = b""
    packed_ends: bytes = b""
    packed_places: bytes = b""
    packed_names: bytes = b""
    names: tuple[tuple[str, str], ...] = ()
    parameters: Mapping[str, bytes] = {}
    lines: Mapping[int, LineSizes] = {}
    stops: Sequence[int] = ()
    stored: int = -1
    life_s: float = 0.0

    @property
    def count(self) -> int:
        """How many pieces there are."""
        return len(self.digests) // DIGEST_BYTES

    @property
    def ends(self) -> Sequence[int]:
        """The ends of the pieces, in tokens."""
        return memoryview(self.packed_ends).cast(_NUMBER)

    @property
    def places(self) -> Sequence[int]:
        """The places of the pieces on the wire."""
        return memoryview(self.packed_places).cast(_PLACE)

    @property
    def total(self) -> int:
        """The prompt's tokens."""
        return self.end(self.count)

    @property
    def is_sound(self) -> bool:
        """Whether the columns fit together: a record may come from another process."""
        sizes = (len(self.digests), 4 * len(self.packed_ends), 4 * len(self.packed_places), 8 * len(self.packed_names))
        if any(size != DIGEST_BYTES * self.count for size in sizes):
            return False
        return max(memoryview(self.packed_names).cast(_NAME), default=-1) < len(self.names)

    def end(self, count: int) -> int:
        """How many tokens the first ``count`` pieces have."""
        return self.ends[count - 1] if count else 0

    def digest(self, index: int) -> bytes:
        """The digest of a piece."""
        return self.digests[index * DIGEST_BYTES : (index + 1) * DIGEST_BYTES]

    def named(self, first: int = 0) -> Iterator[tuple[str, str]]:
        """Kind and key of the pieces from an index on."""
        names = self.names
        return (names[index] for index in memoryview(self.packed_names).cast(_NAME)[first:])

    def pieces(self, first: int = 0) -> list[PromptPiece]:
        """The pieces from an index on."""
        found, before, stops = [], self.end(first), set(self.stops)
        rest = zip(self.named(first), self.ends[first:], self.places[first:], strict=True)
        for index, ((kind, key), end, place) in enumerate(rest, first):
            lines = self.lines.get(index, ())
            found.append(PromptPiece(key, kind, self.digest(index), end - before, place, lines, end in stops))
            before = end
        return found

    def extended(self, count: int, pieces: Sequence[PromptPiece], **others: Any) -> "PromptRecord":
        """The record of the first ``count`` pieces and of these behind them; ``others`` are its other fields."""
        numbers = {name: number for number, name in enumerate(self.names)}
        named = [numbers.setdefault((piece.kind, piece.key), len(numbers)) for piece in pieces]
        ends = list(accumulate([piece.tokens for piece in pieces], initial=self.end(count)))[1:]
        lines = {index: text for index, text in self.lines.items() if index < count}
        lines |= {index: piece.lines for index, piece in enumerate(pieces, count) if piece.lines}
        return PromptRecord(
            digests=self.digests[: count * DIGEST_BYTES] + b"".join([piece.digest for piece in pieces]),
            packed_ends=self.packed_ends[: 4 * count] + array(_NUMBER, ends).tobytes(),
            packed_places=self.packed_places[: 4 * count] + array(_PLACE, [piece.place for piece in pieces]).tobytes(),
            packed_names=self.packed_names[: 2 * count] + array(_NAME, named).tobytes(),
            names=tuple(numbers),
            lines=lines,
            **others,
        )


_NOTHING = PromptRecord()


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
    """The record of a prompt that consists of these pieces, in the order in which the provider renders them. Digests
    have 16 bytes, and there are at most 65,536 different keys."""
    found = list(pieces)
    ends = accumulate(piece.tokens for piece in found)
    return _NOTHING.extended(
        0,
        found,
        at=at,
        model=model,
        route=route,
        parameters=parameters or {},
        stops=[end for piece, end in zip(found, ends, strict=True) if piece.is_marked],
        stored=stored,
        life_s=life_s,
    )


def shared_front(old: PromptRecord, new: PromptRecord) -> int:
    """How many pieces both prompts begin with."""
    if new.digests.startswith(old.digests):
        return old.count
    count = min(old.count, new.count)
    return next((i for i in range(count) if old.digest(i) != new.digest(i)), count)


def lines_of(text: str) -> LineSizes:
    """A text by its lines; nothing where it has only one, or too many to compare."""
    if not 0 < text.count("\n") < _MOST_LINES:
        return ()
    return tuple((crc32(line.encode("utf-8", "surrogatepass")), len(line)) for line in text.split("\n"))
