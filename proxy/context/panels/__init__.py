"""Live panels: parts of the context that change on their own (a file, a tree, a list of tasks), shown to the model as
results of calls of one tool.

The input is the panels of a request, what the session remembers of them, and the conversation. The output is the
messages that show the panels, each with its place in the conversation, and a new memory. The package never fetches or
refreshes anything: the client does that, and sends each panel as it is now.

This file is one panel, with what its kind says about its changes, and with the messages that show it: a call of the
tool ``dynamic_panel`` and its result. Their words are read from ``prompts/panels.md``. The tool's declaration and the
answer to a call that the model makes itself belong to them. Then the file says how far the client's conversation has
come, by which places of panels are found and checked, and which panels move to its end. ``board`` is the memory. It
makes the board of a request from the board of the request before, decides which panels stand last in each request, and
adds up what each panel has cost once the request has counted. It makes blocks of the panels in one of the two orders,
and tells the planner how likely each panel is to leave its place.

Panels that are written anew in any case move to the end of the conversation, and all others stay. A provider's cache
reads a prompt up to the first byte that has changed. Everything behind that byte is written anew wherever it stands. So
it costs nothing to move a panel from there to the end, and its next change breaks only what has come since. At one
place, large and steady panels stand in front of small ones that change often: in descending order of s q / (1 - q), as
for all other context.

The types of the stored values carry the bounds by which values from a store are checked.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from datetime import UTC, datetime
from math import inf
from types import MappingProxyType
from typing import Annotated, Final

from msgspec import Meta, Raw, Struct
from msgspec.structs import replace

from proxy.context import Conversation, Turn
from proxy.kit.value import DIGEST_BYTES, dataclass, digest
from proxy.protocol.request.message import MARK_KEYS
from proxy.protocol.response.panel_answer import PANEL_TOOL
from proxy.protocol.wire.json_body import Members, Unreadable, elements, members_of, text_json, text_value, utf8

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


ISO_TIME = "{iso_time}"
SYSTEM = "{system}"
"""Placeholders of the texts: for a time, and for the client's system prompt."""

# The beginning of 2020, in UTC. A clock that shows an earlier time was never set.
_FIRST_KNOWN_S = 1_577_836_800.0
# The beginning of the year 10000, which cannot be written in this form.
_LAST_KNOWN_S = 253_402_300_800.0


@dataclass(frozen=True, slots=True)
class PanelTexts:
    """The texts, without blank lines around them. ``timestamp`` and ``datetime`` hold ``{iso_time}``, ``repeat`` holds
    ``{system}``. ``ok`` is the text of the message that is added if an upstream requires a message of the other
    role."""

    header: str
    timestamp: str
    unknown_timestamp: str
    footer: str
    footer_ack: str
    datetime: str
    repeat: str
    repeat_ack: str
    ok: str

    def generated(self, stamp_s: float) -> str:
        """The words for the time at which a panel has changed, in seconds since 1970."""
        known = iso_time(stamp_s)
        return self.timestamp.replace(ISO_TIME, known) if known else self.unknown_timestamp

    def current(self, time_s: float) -> str:
        """The words for the time at which a prompt was first sent, in seconds since 1970; empty for a time that is not
        known."""
        known = iso_time(time_s)
        return self.datetime.replace(ISO_TIME, known) if known else ""


def iso_time(time_s: float) -> str:
    """A time in UTC, down to the second: ``2026-02-19T14:00:00Z``. Empty for a time that no clock shows that was
    set."""
    is_known = _FIRST_KNOWN_S <= time_s < _LAST_KNOWN_S
    return f"{datetime.fromtimestamp(int(time_s), UTC):%Y-%m-%dT%H:%M:%SZ}" if is_known else ""


FOOTER = "footer"
MOST_ID_CHARS = 40
"""OpenAI refuses longer ids of calls (https://github.com/vercel/ai/issues/5171)."""
_DIGEST_CHARS = 16
_PLAIN_CHARS = 9
_CALL_ID = re.compile(rb'("id"|"tool_call_id"):"([A-Za-z0-9_-]+)"')


def panel_text(panel: Panel) -> str:
    """The text of a panel for the model: a line with its id and its header, and its content."""
    return f"======= [{panel.id}] {panel.header} =======\n{panel.content}"


def call_id(panel_id: str) -> str:
    """The id of the call that shows a panel. The id for a long name is shortened, and ends in the name's digest."""
    named = f"panel_{panel_id}"
    if len(named) <= MOST_ID_CHARS:
        return named
    return f"{named[: MOST_ID_CHARS - _DIGEST_CHARS - 1]}_{digest(utf8(panel_id)).hex()[:_DIGEST_CHARS]}"


def with_plain_ids(messages: Iterable[bytes]) -> tuple[bytes, ...]:
    """The messages of pairs with ids of nine letters and digits, which are made from their present ids."""
    # The first match is the id of the call or of the result: quotes within texts are escaped.
    return tuple([_CALL_ID.sub(_plain_id, message, count=1) for message in messages])


def _plain_id(found: re.Match[bytes]) -> bytes:
    return found[1] + b':"' + digest(found[2]).hex()[:_PLAIN_CHARS].encode() + b'"'


def panel_pair(panel_id: str, words: str, text: str) -> tuple[bytes, bytes]:
    """The call for a panel, with these words as its content, and its result. The call for the footer ends the display
    of panels."""
    name = text_json(call_id(panel_id))
    arguments = '{"action":"end_panels"}' if panel_id == FOOTER else f'{{"id":{text_json(panel_id).decode()}}}'
    call = (
        b'{"role":"assistant","content":' + text_json(words) + b',"tool_calls":[{"id":' + name
        + b',"type":"function","function":{"name":"' + PANEL_TOOL.encode() + b'","arguments":'
        + text_json(arguments) + b"}}]}"
    )  # fmt: skip
    return call, b'{"role":"tool","tool_call_id":' + name + b',"content":' + text_json(text) + b"}"


DECLARATION = (
    b'{"type":"function","function":{"name":"'
    + PANEL_TOOL.encode()
    + b'","description":"Shows a panel: a part of the context'
    b" that changes on its own, as it is now. Panels are shown without being asked for, whenever they have changed, so"
    b' that there is no need to call this tool.","parameters":{"type":"object","properties":{"id":{"type":"string",'
    b'"description":"The id of the panel."},"action":{"type":"string","enum":["end_panels"],"description":"Ends the'
    b' display of panels."}}}}}'
)
"""The tool as an element of ``tools``. It is the same in every request, so that it never breaks the cache."""

UNKNOWN = "There is no panel with this id."
EMPTY = "This panel is empty at present."


def panel_answer(panels: Iterable[Panel], panel_id: str) -> str:
    """The result of a call for the panel: the text that the conversation shows for it, as it is now. If no panel has
    this id, or if the panel has no content, the result is a fixed sentence that repeats nothing from the call."""
    for panel in panels:
        if panel.id == panel_id and panel.id != CONVERSATION:
            return panel_text(panel) if panel.is_shown else EMPTY
    return UNKNOWN


def with_declaration(tools: Raw | bytes | None) -> bytes | None:
    """The request's tools with the declaration in front of them; None if they are not an array, and therefore stay as
    they are."""
    raw = b"null" if tools is None else bytes(tools).strip()
    if raw != b"null" and not raw.startswith(b"["):
        return None
    own = b"" if raw == b"null" else raw[1:-1]
    return b"[" + DECLARATION + (b"," + own if own.strip() else b"") + b"]"


def names_tool(tools: Raw | bytes | None) -> bool:
    """Whether one of the client's own tools has this name, however it is escaped. Tools that cannot be read count as
    not having it."""
    with suppress(Unreadable):
        return tools is not None and any(PANEL_TOOL in _names(tool) for tool in elements(tools))
    return False


def _names(tool: Raw) -> list[object]:
    """The names in a tool's definition. The name stands in the definition itself, or in the member that is named after
    the tool's type."""
    try:
        members = members_of(tool)
        holders = [members, *(members_of(members[kind]) for kind in ("function", "custom") if kind in members)]
        return [text_value(holder["name"]) for holder in holders if "name" in holder]
    except Unreadable:
        return []


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


class PanelPlace(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
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
    place: PanelPlace | None = None
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
    place: PanelPlace | None,
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
