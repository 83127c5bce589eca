"""The preamble of a client's prompts: how often its tools and system messages change, and which conversation it belongs
to.

Side calls (a title, a summary, a commit message) often begin with the very same user turn as the conversation that they
belong to, under other instructions. Two preambles are compared by their sketches: the smallest checksums of their
lines, or of their words if there are few lines. Two sketches have about the same share in common as the whole texts
(Broder 1997, "On the resemblance and containment of documents").

"""

from collections.abc import Iterable
from heapq import nsmallest
from typing import Annotated
from zlib import crc32

from msgspec import Meta, Struct, field

from proxy.core.request.message import Message
from proxy.core.sessions.volatile_lines import VolatileRegions
from proxy.core.stability.change_rates import fixed_hazard
from proxy.core.stability.edit_signals import read_text

# P(the next request has yet another text in a place whose text has just been replaced), before anything was seen. Most
# new texts stay for one request only.
_FRESH_CHANGE = 0.6


_Count = Annotated[int, Meta(ge=0)]


class PlaceChanges(Struct, array_like=True):
    """How often the next request had another text in one place.

    ``seen`` and ``changes`` count texts that had been in their place for at least one request. ``fresh_seen`` and
    ``fresh_changes`` count texts that had just replaced another text: some of them stay for one request only (a
    question asked in another mode), some change with every request.
    """

    seen: _Count = 0
    changes: _Count = 0
    fresh_seen: _Count = 0
    fresh_changes: _Count = 0


class PreambleChanges(Struct, array_like=True):
    """How often tools and system messages changed from one request of a session to the next, by their place."""

    places: list[PlaceChanges] = []
    evidence: VolatileRegions = field(default_factory=VolatileRegions)

    def add(self, before: tuple[bytes, ...], after: tuple[bytes, ...], fresh: frozenset[int] = frozenset()) -> None:
        """Count one pair of consecutive requests. ``fresh`` are the places where the first of them had a new text."""
        for place in range(max(len(before), len(after))):
            if place == len(self.places):
                self.places.append(PlaceChanges())
            counts, is_changed = self.places[place], before[place : place + 1] != after[place : place + 1]
            if place in fresh:
                counts.fresh_seen += 1
                counts.fresh_changes += is_changed
            else:
                counts.seen += 1
                counts.changes += is_changed

    def of(self, place: int) -> tuple[int, int]:
        """How many requests had this place, and how many of them had changed it."""
        counts = self._at(place)
        return counts.seen + counts.fresh_seen, counts.changes + counts.fresh_changes

    def requests(self) -> int:
        return sum(place.seen + place.fresh_seen for place in self.places)

    def hazard(self, place: int, prior: float, *, is_fresh: bool = False, is_edited: bool = False) -> float:
        """-ln P(unchanged in the next request); ``prior`` is the probability of a change before anything was seen.

        ``is_fresh``: another text has just come to this place. ``is_edited``: the same text has just changed in part.
        This change counts already: a date or a setting changes rarely, a counter changes each time.
        """
        counts = self._at(place)
        if is_fresh:
            prior = max(prior, _FRESH_CHANGE)
            return fixed_hazard(counts.fresh_seen + is_edited, counts.fresh_changes + is_edited, prior)
        return fixed_hazard(counts.seen + is_edited, counts.changes + is_edited, prior)

    def _at(self, place: int) -> PlaceChanges:
        return self.places[place] if place < len(self.places) else PlaceChanges()


def changed_places(before: tuple[bytes, ...], after: tuple[bytes, ...]) -> frozenset[int]:
    """The places at which two heads differ."""
    return frozenset(i for i in range(max(len(before), len(after))) if before[i : i + 1] != after[i : i + 1])


Sketch = frozenset[int]

_SIZE = 64
_FEW_LINES = 8
_ALIKE = 0.4
_MAX_CHARS = 200_000
_MOST_BYTES = 1 << 20


def sketch_of(preamble: Iterable[Message]) -> Sketch:
    """The sketch of a request's system messages, as far as they are read; each message is read once."""
    found: set[int] = set()
    left = _MAX_CHARS
    for message in preamble:
        if left <= 0:
            break
        found |= _sketch(message)
        left -= len(message.raw)
    return frozenset(nsmallest(_SIZE, found))


def are_alike(one: Sketch, other: Sketch) -> bool:
    """Whether two heads have much in common. Two requests without a head are alike, too."""
    if one == other:
        return True
    smallest = nsmallest(_SIZE, one | other)
    both = sum(1 for item in smallest if item in one and item in other)
    return both >= _ALIKE * len(smallest)


def _sketch(message: Message) -> Sketch:
    known = message.memo.get("sketch")
    if isinstance(known, frozenset):
        return known
    text = message.text
    if text is None:
        # Reading all of a larger message would hold up all other requests.
        text = message.lead if len(message.raw) > _MOST_BYTES else read_text(message)
    text = text[:_MAX_CHARS]
    pieces = [line for line in text.split("\n") if line.strip()]
    if len(pieces) < _FEW_LINES:
        pieces = text.split()
    found = frozenset(nsmallest(_SIZE, {crc32(piece.encode("utf-8", "surrogatepass")) for piece in pieces}))
    message.memo["sketch"] = found
    return found
