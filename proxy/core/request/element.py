"""Elements: the units of a request that a layout can place."""

from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from proxy.core.digest import digest
from proxy.core.recognition.pieces import ContextPiece
from proxy.core.request.message import Message, Part
from proxy.core.value import dataclass


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
