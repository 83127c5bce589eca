"""Elements: the units of a request that a layout can place.

An element is made of a message, of a piece of a message, or of all tools, which stand in front of everything else.

``ToolOrders`` keeps tools in the order and form in which a client first sent them. If a client builds its list from a
set, or writes its schemas' keys in another order each time, no request reads anything of the prompt from the cache
(whoz-oss/coday #1322, QwenLM/qwen-code #6339, maximhq/bifrost #2082). If the very same definitions come again in
another order or form, they are sent as they came first. Values are never changed, and the items of a list keep their
order. If a client marks its tools, it decides their places itself: these tools are sent as they came.
"""

import json
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import lru_cache, partial

from msgspec import Raw, Struct
from msgspec.structs import replace

from proxy.kit.lru import Bounded, LastUsed
from proxy.kit.value import dataclass, digest
from proxy.protocol.caches import Life
from proxy.protocol.recognition import ContextPiece
from proxy.protocol.request.message import MARK_KEYS, ByContent, Message, Part, PartKind, marker_of, named, unmarked
from proxy.protocol.request.tokens import TokenCounter
from proxy.protocol.wire.json_body import elements, join_members, members_of, raw_text, value


class ElementKind(StrEnum):
    """How an element is written."""

    TOOLS = "tools"
    MESSAGE = "message"
    """One of the client's messages, as it came."""
    WHOLE = "whole"
    """A context message with its acknowledgement, both as they came."""
    PART = "part"
    """One piece of a context message, under the header that repeats the client's claim, with an acknowledgement."""
    LAST_PART = "last-part"
    """The last piece of a context message, under the client's own opening, with the client's own acknowledgement."""
    SYSTEM = "system"
    """A system message without its volatile lines and documents."""
    DOCUMENT = "document"
    """A retrieved document, as a further part of the system message in front of it."""
    REST = "rest"
    """A system message from its first volatile line or document on, as a further part of it."""
    TAG = "tag"
    """Volatile lines that were moved out of the system messages, in the documented tag."""


class Element(Struct, frozen=True):
    """The smallest thing that is moved as a whole. ``digest`` covers exactly the bytes sent for it.

    ``message`` is the index of the client's message that is written (MESSAGE), or whose members other than the content
    are written (PART, LAST_PART, SYSTEM). ``ack`` is the index of its acknowledgement. A composed text is ``lead``
    followed by the text of ``item``. For tools, ``lead`` holds their names, one per line.
    """

    key: str
    kind: ElementKind
    digest: bytes
    parts: tuple[Part, ...]
    tokens: int
    role: str = ""
    message: int = -1
    ack: int = -1
    lead: str = ""
    item: ContextPiece | None = None


# If a client trims its history, a message stands at another place in each request.
_MAX_PLACES = 4
# Each request of a session asks for the digests of the same pieces.
_MOST_DIGESTS = 512


def message_element(message: Message, index: int, key: str = "turn") -> Element:
    """A message as it came. The same place gives the same element, so that layouts can share their positions."""
    known = message.memo.get((index, key))
    if isinstance(known, Element):
        return known
    element = Element(
        key=key,
        kind=ElementKind.MESSAGE,
        digest=message.digest,
        parts=message.parts,
        tokens=message.tokens,
        role="tool" if message.answers else message.role,  # some clients write results into a user's message
        message=index,
    )
    if len(message.memo) >= _MAX_PLACES:
        message.memo.clear()
    message.memo[(index, key)] = element
    return element


def whole_element(key: str, message: Message, ack: Message, source: tuple[int, int]) -> Element:
    """A context message with its acknowledgement, as they came."""
    return Element(
        key=key,
        kind=ElementKind.WHOLE,
        digest=digest(message.digest, ack.digest),
        parts=message.parts + tuple(replace(part, markable=False) for part in ack.parts),
        tokens=message.tokens + ack.tokens,
        role=message.role,
        message=source[0],
        ack=source[1],
    )


def form_digest(lead: bytes, item: bytes, ack: Part) -> bytes:
    """The digest of a piece under a lead (``composed_digest``). It can be made for a version whose text is no longer at
    hand, too."""
    return _answered_digest(composed_digest(lead, item), ack.digest)


@lru_cache(maxsize=_MOST_DIGESTS)
def composed_digest(lead: bytes, item: bytes) -> bytes:
    """The digest of a lead and a piece, made from their two digests (``piece_digest``)."""
    return digest(b"composed", lead, item)


@lru_cache(maxsize=_MOST_DIGESTS)
def _answered_digest(composed: bytes, ack: bytes) -> bytes:
    return digest(composed, ack)


@dataclass(frozen=True, slots=True)
class Lead:
    """The text in front of a piece in the same message text: a header, or the client's opening."""

    text: str
    digest: bytes
    tokens: int


def part_element(
    kind: ElementKind,
    lead: Lead,
    item: ContextPiece,
    composed: bytes,
    own: Sequence[Part],
    ack: Part,
    source: tuple[int, int],
) -> Element:
    """A part of a context message: ``lead`` and one piece, followed by ``ack``.

    ``composed`` is the digest of lead and piece (``composed_digest``). ``own`` are the positions of the text: a single
    one, or one for each span.
    """
    return Element(
        key=item.key,
        kind=kind,
        digest=_answered_digest(composed, ack.digest),
        parts=(*own, ack),
        tokens=sum([part.tokens for part in own]) + ack.tokens,
        role="user",
        message=source[0],
        ack=source[1],
        lead=lead.text,
        item=item,
    )


def text_element(
    key: str,
    kind: ElementKind,
    role: str,
    own: Sequence[Part],
    *,
    message: int = -1,
    lead: str = "",
    item: ContextPiece | None = None,
) -> Element:
    """A composed text, whose one position is ``own``, or several parts of a system message's list, each with its index
    there."""
    return Element(
        key=key,
        kind=kind,
        digest=digest(kind.encode(), *[part.digest for part in own]),
        parts=tuple(own),
        tokens=sum([part.tokens for part in own]),
        role=role,
        message=message,
        lead=lead,
        item=item,
    )


_MOST_NAME_CHARS = 64
_NO_FUNCTION = Raw(b"null")


def bare_tool(raw: bytes) -> bytes:
    """A tool without the markers on the tool and on its function (litellm forwards both)."""
    members = members_of(raw)
    changes: dict[str, bytes | None] = {key: None for key in MARK_KEYS if key in members}
    function = members.get("function", _NO_FUNCTION)
    if bytes(function).startswith(b"{"):
        inner = members_of(function)
        if any(key in inner for key in MARK_KEYS):
            changes["function"] = join_members(inner, {key: None for key in MARK_KEYS if key in inner})
    return join_members(members, changes) if changes else raw


def _read_tool(raw: Raw) -> tuple[bytes, Life | None, str]:
    """The digest of a tool, its marker, and its name on one line. The digest is the same with and without a marker,
    wherever the marker stands. The function is hashed by its members, too."""
    members = function = members_of(raw)
    mark = marker_of(members)
    parts: list[bytes] = []
    for key, each in members.items():
        if key == "function" and bytes(each).startswith(b"{"):
            function = members_of(each)
            mark = mark or marker_of(function)
            parts.append(digest(*unmarked(function)))
        elif key not in MARK_KEYS:
            parts.append(named(key, each))
    name = value(function["name"]) if "name" in function else None
    shown = " ".join(name.split())[:_MOST_NAME_CHARS] if isinstance(name, str) else ""
    return digest(b"tool", *parts), mark, shown or "tool"


class ToolReader:
    """Reads a tools array once per distinct array."""

    def __init__(
        self, counter: TokenCounter, *, capacity_bytes: int = 32 * 2**20, base: "ToolReader | None" = None
    ) -> None:
        self._counter = counter
        self._known: ByContent[bytes, Element] = ByContent(
            self._parse,
            capacity_bytes,
            lambda kept: 1_000 + len(kept[0]) + 300 * len(kept[1].parts),
            base._known if base is not None else None,
        )

    def merge(self, other: "ToolReader") -> None:
        """Remember what a reader remembers whose ``base`` is this one."""
        self._known.merge(other._known)

    def read(self, raw: Raw | bytes | None) -> tuple[Element, ...]:
        """One element for all tools; nothing if there are no tools. Raises Unreadable if they are no array of
        objects."""
        if raw is None or bytes(raw) in (b"null", b"[]"):
            return ()
        return (self._known.of(bytes(raw)),)

    def _parse(self, content: bytes) -> Element:
        parts, names = [], []
        tools = elements(content)
        for index, raw in enumerate(tools):
            own, mark, name = _read_tool(raw)
            names.append(name)
            tokens = self._counter.count(own, raw_text(bytes(raw)))
            # Only the last tool carries our marker: a marker within the list would split tools that always change
            # together.
            parts.append(Part(PartKind.OTHER, own, tokens, index, index == len(tools) - 1, mark))
        return Element(
            key="tools",
            kind=ElementKind.TOOLS,
            digest=digest(*(p.digest for p in parts)),
            parts=tuple(parts),
            tokens=sum(p.tokens for p in parts),
            lead="\n".join(names),
        )


def in_order(raw: bytes, known: Element, digests: Sequence[bytes]) -> bytes | None:
    """The array ``raw``, which was read as ``known``, with its tools in the order of these ``digests``; None if the
    digests are those of other tools."""
    by_digest = dict(zip((part.digest for part in known.parts), elements(raw), strict=True))
    if len(digests) != len(known.parts) or not by_digest.keys() >= set(digests):
        return None
    return b"[" + b",".join(bytes(by_digest[one]) for one in digests) + b"]"


_MAX_SETS = 1024
_MAX_BYTES = 64 * 2**20
# Longer arrays, and arrays of more values, are equal only if their bytes are equal: parsing one would hold up all other
# requests. A value takes about a microsecond, and there are hardly more values than commas.
_LONGEST_BYTES = 1 << 20
_MOST_COMMAS = 25_000


class ToolOrders:
    """The first form of each set of tools, by the scope in which it was sent. The least recently used are dropped
    first."""

    def __init__(self, *, capacity_bytes: int = _MAX_BYTES) -> None:
        self._first: Bounded[tuple[bytes, bytes], bytes] = Bounded(capacity_bytes, len, _MAX_SETS)
        self._sets: LastUsed[tuple[bytes, bytes], bytes] = LastUsed(_MAX_SETS)

    def steady(self, scope: bytes, form: bytes, raw: bytes) -> bytes | None:
        """The array as this scope first sent it, if the scope now sends the same tools in another order or form; else
        None. ``form`` is the digest of ``raw``, an array of objects."""
        if any(f'"{key}"'.encode() in raw for key in MARK_KEYS):
            return None
        known = self._sets.find((scope, form)) or _set_of(raw)
        self._sets.put((scope, form), known)
        first = self._first.get((scope, known), raw)
        self._first.put((scope, known), first)
        return first if first != raw else None


def _set_of(raw: bytes) -> bytes:
    """A digest of the tools that depends neither on their order nor on the order of their keys. Equal tools count as
    often as they occur. If the array is very long, has very many values, is nested too deep, names a key twice, or has
    a number that could be written in another way, only equal bytes give the same digest."""
    if len(raw) > _LONGEST_BYTES or raw.count(b",") > _MOST_COMMAS:
        return digest(b"raw", raw)
    try:
        tools = json.loads(
            raw, object_pairs_hook=_once, parse_float=partial(_plain, float), parse_int=partial(_plain, int)
        )
        return digest(b"tools", *sorted(json.dumps(tool, sort_keys=True).encode() for tool in tools))
    except (ValueError, RecursionError):
        return digest(b"raw", raw)


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice")
    return found


def _plain(kind: Callable[[str], float], text: str) -> float:
    found = kind(text)
    if repr(found) != text:
        raise ValueError("a number that is not written as it would be written again")
    return found
