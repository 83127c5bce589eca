"""Places of panels: panels that are written anew in any case move to the end of the conversation, and all others stay.

A provider's cache reads a prompt up to the first byte that has changed. Everything behind that byte is written anew
wherever it stands. So it costs nothing to move a panel from there to the end, and its next change breaks only what has
come since. At one place, large and steady panels stand in front of small ones that change often: in descending order of
s q / (1 - q), as for all other context. The types of the stored values carry the bounds by which values from a store
are checked."""

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from math import inf
from typing import Annotated, Final

from msgspec import Meta, Struct
from msgspec.structs import replace

from proxy.core.digest import DIGEST_BYTES
from proxy.core.structured.panels.panel import HAZARDS, Panel
from proxy.core.value import dataclass

UNKNOWN_LIFE_S = 3_600.0
"""After a pause of this length no provider is expected to still hold a prompt in its cache: the longest life that is
sold for a single prompt is an hour (Anthropic, "Prompt caching")."""


@dataclass(frozen=True, slots=True)
class CacheTerms:
    """``read`` and ``write`` are the costs of a cache read and of a cache write of one token, in input prices. The
    cache holds the conversation for ``life_s`` seconds from its last request on; this is 0 if the conversation is
    rewritten from its beginning in any case. ``is_full``: the last prompt has nearly filled the model's window.
    ``ends_at_answers``: a cache entry may end with an answer."""

    read: float
    write: float
    life_s: float = UNKNOWN_LIFE_S
    is_full: bool = False
    ends_at_answers: bool = False

    @property
    def anew(self) -> float:
        """The price of writing a token, minus the price of reading it."""
        return self.write - self.read


_MOST_INDEX: Final = 1 << 31
_MOST_TIME_S: Final = 253_402_300_799
"""The last second of the year 9999."""
_MOST_USD: Final = 1e12

Digest = Annotated[bytes, Meta(min_length=DIGEST_BYTES, max_length=DIGEST_BYTES)]
DigestOrNone = Annotated[bytes, Meta(max_length=DIGEST_BYTES)]
PanelId = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9_-]{1,64}\Z")]
Entry = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9_-]{1,64}:[0-9a-f]{0,32}\Z")]
Count = Annotated[int, Meta(ge=0, le=_MOST_INDEX)]
Time = Annotated[float, Meta(ge=0, le=_MOST_TIME_S)]
Usd = Annotated[float, Meta(ge=0, le=_MOST_USD)]


_PRIOR_WEIGHT = 2.0
"""The hazard of a panel's kind counts as much as this many requests of the session."""
LEAST_CHANGE = 0.001
FRAME_BYTES = 300
"""The approximate size of a panel without its content: the call, its words, and the line in front of the content."""
_FRONT = -1


class Place(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A place in the client's conversation, counted without system messages. ``index`` is the number of messages in
    front of it. ``before`` is the digest of the last of them, by which the place is checked; it is empty for index
    0."""

    index: Count
    before: DigestOrNone = b""


class PanelMemory(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The memory of one panel, in a session and in a store. ``digest`` is the digest of what the panel shows, and
    ``stamp_s`` is when that last changed. ``place`` is None in front of the conversation; ``rank`` is the rank among
    the panels of that place, and ``placed_s`` is since when the panel stands there. ``changes`` counts in how many of
    the ``seen`` requests it changed, ``taken`` in how many others it was taken along, and ``in_loops`` how many of the
    changes came in tool loops. Times are seconds since 1970. The order of the fields is that of the stored form."""

    id: PanelId
    digest: Digest
    stamp_s: Time
    place: Place | None = None
    rank: Count = 0
    placed_s: Time = 0.0
    seen: Count = 1
    changes: Count = 0
    taken: Count = 0
    in_loops: Count = 0

    @property
    def changed_s(self) -> float:
        """The time of the last change of its content or its place."""
        return max(self.stamp_s, self.placed_s)

    @property
    def position(self) -> tuple[float, float]:
        """The sort key of panels in the conversation."""
        return (_FRONT if self.place is None else self.place.index, self.rank)


EVERYTHING = (-inf, -inf)
"""The position in front of all panels."""
_BEHIND_FRONT = (_FRONT, inf)


def change_rate(panel: Panel, memory: PanelMemory) -> float:
    """The probability that the panel changes before the next request, estimated from its kind and from what the session
    has shown."""
    return _rate(memory.changes, panel, memory)


def leaving_rate(panel: Panel, memory: PanelMemory) -> float:
    """The probability that the panel leaves its place before the next request because it changes or is taken along,
    whatever stands in front of it."""
    return _rate(memory.changes + memory.taken, panel, memory)


def _rate(count: int, panel: Panel, memory: PanelMemory) -> float:
    rate = (count + _PRIOR_WEIGHT * HAZARDS[panel.label]) / (memory.seen + _PRIOR_WEIGHT)
    return min(max(rate, LEAST_CHANGE), 1.0)


def weight(panel: Panel, memory: PanelMemory) -> float:
    """The weight by which panels are ordered, the largest in front: the number of the panel's characters times the odds
    that it does not change before the next request."""
    change = change_rate(panel, memory)
    return len(panel.content) * (1.0 - change) / change


def first_broken(
    old: Mapping[str, PanelMemory], digests: Mapping[str, bytes], new: Iterable[Panel]
) -> tuple[float, float] | None:
    """The foremost position behind which nothing is read from the cache. It is the position of a panel that has changed
    or is no longer shown, or, if a part of the conversation was frozen, the end of the panels in front of the
    conversation. None if there is no such position. ``digests`` are those of the shown panels by id; ``new`` are panels
    that were not there before."""
    broken = [memory.position for key, memory in old.items() if digests.get(key) != memory.digest]
    if any(panel.is_frozen for panel in new):
        broken.append(_BEHIND_FRONT)
    return min(broken, default=None)


def put(
    memories: Mapping[str, PanelMemory],
    moved: Iterable[Panel],
    place: Place | None,
    now_s: float,
    tail: Set[str] = frozenset(),
) -> dict[str, PanelMemory]:
    """The memories with the ``moved`` panels at this place, behind the panels that stand there already. Frozen parts of
    the conversation come first and keep their order; panels in the ``tail`` come last."""

    def key(panel: Panel) -> tuple[bool, bool, float]:
        return not panel.is_frozen, panel.id in tail, 0.0 if panel.is_frozen else -weight(panel, memories[panel.id])

    order = sorted(moved, key=key)
    movers = {panel.id for panel in order}
    standing = [memory.rank for key, memory in memories.items() if key not in movers and memory.place == place]
    first = max(standing, default=-1) + 1
    found = dict(memories)
    for number, panel in enumerate(order):
        found[panel.id] = replace(memories[panel.id], place=place, rank=first + number, placed_s=now_s)
    return found


def taken_along(
    old: Mapping[str, PanelMemory],
    panels: Mapping[str, Panel],
    moved: Collection[str],
    broken: tuple[float, float],
    sizes: Sequence[int],
) -> list[str]:
    """The panels in front of the ``broken`` position that move as well because that is cheaper in expectation. They are
    checked from that position to the front, up to the first panel for which moving is not cheaper. ``panels`` are all
    shown panels by id, and ``moved`` are the ids of those that move anyway; ``sizes`` are those of the conversation's
    messages in bytes.

    A panel that moves is written anew, with the messages between it and the panels that move anyway. This pays off if
    the panel changes before any of the panels that stand in front of it or have just changed. Without the move, that
    change would cause a second write of everything that this request writes anew, except what is new in it."""
    found: list[str] = []
    reached = _message_at(broken)
    again = max(0.0, sum(sizes[reached:]) - turn_size(sizes))
    ahead = [key for key in panels if key in old and not panels[key].is_frozen and old[key].position <= broken]
    rates = {key: change_rate(panels[key], old[key]) for key in ahead}
    total = sum(rates.values())
    for key in sorted((key for key in ahead if key not in moved), key=lambda key: old[key].position, reverse=True):
        at = _message_at(old[key].position)
        between, size = sum(sizes[at:reached]), size_of(panels[key])
        if between + size > rates[key] / total * (between + again):
            break
        found.append(key)
        reached, again = at, again + between + size
    return found


def turn_size(sizes: Sequence[int]) -> float:
    """The number of bytes that a request adds to a conversation whose messages have these sizes: two messages of the
    mean size."""
    return 2 * sum(sizes) / max(1, len(sizes))


def _message_at(position: tuple[float, float]) -> int:
    """The index of the message that stands directly behind a position."""
    return int(max(position[0], 0.0))


def size_of(panel: Panel) -> int:
    """The size of a panel with its frame, in bytes."""
    return FRAME_BYTES + len(panel.content)
