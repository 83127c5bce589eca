"""Live panels: parts of the context that change on their own (a file, a tree, a list of tasks), shown to the model as
results of calls of one tool.

The input is the panels of a request, what the session remembers of them, and the conversation. The output is the
messages that show the panels, each with its place in the conversation, and a new memory. The package never fetches or
refreshes anything: the client does that, and sends each panel as it is now.

This file is one panel, with what its kind says about its changes, how far the client's conversation has come, by which
places of panels are found and checked, and which panels move to its end. ``board`` is the memory. It makes the board of
a request from the board of the request before, decides which panels stand last in each request, and adds up what each
panel has cost once the request has counted. ``inlay`` makes blocks of the panels in one of the two orders, and tells
the planner how likely each panel is to leave its place.

Panels that are written anew in any case move to the end of the conversation, and all others stay. A provider's cache
reads a prompt up to the first byte that has changed. Everything behind that byte is written anew wherever it stands. So
it costs nothing to move a panel from there to the end, and its next change breaks only what has come since. At one
place, large and steady panels stand in front of small ones that change often: in descending order of s q / (1 - q), as
for all other context.

The types of the stored values carry the bounds by which values from a store are checked.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from math import inf
from types import MappingProxyType
from typing import Annotated, Final

from msgspec import Meta, Struct
from msgspec.structs import replace

from proxy.context import Conversation, Turn
from proxy.kit.digest import DIGEST_BYTES, digest
from proxy.kit.value import dataclass
from proxy.protocol.request.message import MARK_KEYS
from proxy.protocol.wire.json_body import Members, Unreadable, elements, members_of, utf8

CONVERSATION = "chat"
"""The panel that stands for the conversation itself: the conversation is sent as messages, so this panel is never
shown."""
HISTORY_KIND = "conversation_history"
"""The kind of a panel that holds a frozen part of the conversation."""
FROZEN_PREFIX = "history_"
"""The prefix of the id of a frozen part of the conversation. No client's panel has such an id."""
OWN_KIND = "own"
"""Every unknown kind counts as this kind, in metrics and estimates."""

HAZARDS: Mapping[str, float] = MappingProxyType(
    {
        HISTORY_KIND: 0.0,
        "skill": 0.01,
        "library": 0.02,
        "tools": 0.02,
        "memory": 0.05,
        "tree": 0.1,
        "file": 0.1,
        "git": 0.2,
        "github": 0.2,
        "scratchpad": 0.2,
        "todo": 0.3,
        OWN_KIND: 0.3,
        "logs": 0.5,
        "spine": 0.5,
        "statistics": 0.9,
        "console": 0.9,
    }
)
"""The probability that a panel's content changes before the next request, by its kind, as long as the session has not
shown it. The order is an estimate: first frozen text, then panels that the client derives from settled state, last
panels that count or stream. It only decides which panel stands in front if several panels have changed at the same
time."""


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel as the client sends it now. ``id`` consists of ASCII letters, digits, ``_`` and ``-``, so that it can be
    a part of a call's id; it stands once in a request. ``header`` is one line. An empty ``content`` is not shown."""

    id: str
    kind: str
    header: str
    content: str

    @property
    def digest(self) -> bytes:
        """The digest of the shown text: header and content."""
        return digest(utf8(self.header), b"\n", utf8(self.content))

    @property
    def label(self) -> str:
        """The kind as a metric's label: one of the known kinds."""
        return self.kind if self.kind in HAZARDS else OWN_KIND

    @property
    def is_frozen(self) -> bool:
        """Whether the proxy made the panel from a part of the conversation. Such a panel stands in front of the
        conversation."""
        return self.id.startswith(FROZEN_PREFIX)

    @property
    def is_shown(self) -> bool:
        """Whether the panel reaches the model."""
        return self.id != CONVERSATION and bool(self.content)


_MARKS = frozenset(MARK_KEYS)


@dataclass(frozen=True, slots=True)
class Progress:
    """The client's conversation without its system messages, before anything in it is left out or shortened.

    ``digests`` are those of its messages, made by ``message_digest``, and ``sizes`` are their sizes in bytes.
    ``prompt_at`` is the index of the last user message, None if there is none. ``outside`` has, for each index and for
    the end, the next index at which something may stand without separating a call from its results. ``now_at`` is where
    the conversation stands: new panels are put in front of the message of this index. ``has_tail``: each request puts
    the tail behind everything that the request before has sent. ``prompt_share`` is about the share of the requests
    that ask something new; the others continue a tool loop. ``prompt_size`` is the mean size of such a question, in
    bytes.
    """

    digests: tuple[bytes, ...]
    sizes: tuple[int, ...]
    prompt_at: int | None
    outside: Sequence[int]
    now_at: int
    has_tail: bool = True
    prompt_share: float = 1.0
    prompt_size: float = 0.0

    @classmethod
    def of(cls, conversation: Conversation, *, has_thinking: bool = False) -> "Progress":
        """``has_thinking``: the request has thinking switched on. Providers then accept no messages of the proxy
        between the calls of a tool loop, so that new panels stand in front of the user's message."""
        turns = conversation.turns
        free = outside(turns)
        users = [i for i, turn in enumerate(turns) if turn.is_asked]
        prompt_at = users[-1] if users else None
        is_loop = bool(turns) and turns[-1].has_results
        start = len(conversation.history) if prompt_at is None else prompt_at
        return cls(
            digests=tuple([message_digest(turn) for turn in turns]),
            sizes=tuple([len(turn.raw) for turn in turns]),
            prompt_at=prompt_at,
            outside=free,
            now_at=len(turns) if is_loop and not has_thinking else free[start],
            has_tail=not has_thinking or not any(turn.has_results for turn in turns),
            prompt_share=min(1.0, 2 * len(users) / max(1, len(turns))),
            prompt_size=sum(len(turns[i].raw) for i in users) / max(1, len(users)),
        )

    @property
    def is_prompt_last(self) -> bool:
        """Whether nothing stands behind the last user message: it is sent for the first time, or once more."""
        return self.prompt_at == len(self.digests) - 1


def message_digest(turn: Turn) -> bytes:
    """The digest of a message's content. A client moves its markers from turn to turn, and may write a text as a list
    of one part while it is marked. Neither changes the digest, and spaces between members do not change it either."""
    try:
        members = turn.members
        content = bytes(members.get("content", b""))
        parts = [_said(members_of(part)) for part in elements(content)] if content.startswith(b"[") else [content]
    except Unreadable:
        return digest(turn.raw)
    return digest(_written(members, {"content"}), *parts)


def _said(part: Members) -> bytes:
    """A part without its marker. For a text part, only the text, in the form that it has if the content is a string."""
    if part.keys() - _MARKS == {"type", "text"} and bytes(part["type"]) == b'"text"':
        return bytes(part["text"])
    return _written(part, set())


def _written(members: Members, without: Set[str]) -> bytes:
    """The members in a fixed order, without markers."""
    return b",".join(
        [name.encode() + b":" + bytes(members[name]) for name in sorted(members.keys() - without - _MARKS)]
    )


def outside(turns: Iterable[Turn]) -> list[int]:
    """For each index, and for the end, the next one in front of which something may stand without separating a call
    from its results."""
    results = [turn.has_results for turn in turns]
    free = list(range(len(results) + 1))
    for index in range(len(results) - 1, -1, -1):
        if results[index]:
            free[index] = free[index + 1]
    return free


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


# The last second of the year 9999.
_MOST_TIME_S: Final = 253_402_300_799

Digest = Annotated[bytes, Meta(min_length=DIGEST_BYTES, max_length=DIGEST_BYTES)]
PanelId = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9_-]{1,64}\Z")]
Entry = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9_-]{1,64}:[0-9a-f]{0,32}\Z")]
Count = Annotated[int, Meta(ge=0, le=1 << 31)]
Time = Annotated[float, Meta(ge=0, le=_MOST_TIME_S)]
Usd = Annotated[float, Meta(ge=0, le=1e12)]


# The hazard of a panel's kind counts as much as this many requests of the session.
_PRIOR_WEIGHT = 2.0
LEAST_CHANGE = 0.001
FRAME_BYTES = 300
"""The approximate size of a panel without its content: the call, its words, and the line in front of the content."""
FRONT = -1
"""The index of the place in front of the conversation."""


class Place(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A place in the client's conversation, counted without system messages. ``index`` is the number of messages in
    front of it. ``before`` is the digest of the last of them, by which the place is checked; it is empty for index
    0."""

    index: Count
    before: Annotated[bytes, Meta(max_length=DIGEST_BYTES)] = b""


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
        return (FRONT if self.place is None else self.place.index, self.rank)


EVERYTHING = (-inf, -inf)
"""The position in front of all panels."""
_BEHIND_FRONT = (FRONT, inf)


def change_rate(panel: Panel, memory: PanelMemory, taken: int = 0) -> float:
    """The probability that the panel changes before the next request, estimated from its kind and from what the session
    has shown. With ``taken``, how often it was taken along, it is the probability that the panel leaves its place,
    whatever stands in front of it."""
    rate = (memory.changes + taken + _PRIOR_WEIGHT * HAZARDS[panel.label]) / (memory.seen + _PRIOR_WEIGHT)
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

    order = dict.fromkeys([panel.id for panel in sorted(moved, key=key)])
    standing = [memory.rank for id_, memory in memories.items() if memory.place == place and id_ not in order]
    ranked = enumerate(order, max(standing, default=-1) + 1)
    return {**memories, **{id_: replace(memories[id_], place=place, rank=rank, placed_s=now_s) for rank, id_ in ranked}}


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
