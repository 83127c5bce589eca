"""The result of a recogniser for a text: the pieces that the text consists of.

A recogniser is a pure function of one message's role and text. Its cuts cover the text exactly once.
``proxy.core.request.transcript``, which sees the whole request, decides what the cuts mean for the layout (whether an
acknowledgement follows, whether the message stands before the last user message).
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Protocol

from msgspec import Struct, structs

from proxy.core.recognition.fixed_texts import FileClaim
from proxy.core.value import dataclass, replace
from proxy.core.wire.json_body import printable


class PieceKind(StrEnum):
    """The kinds of pieces of a text."""

    OPENING = "opening"
    FILE = "file"
    SYMBOL = "symbol"
    DOCUMENT = "document"
    VOLATILE = "volatile"
    REMINDER = "reminder"
    SECTION = "section"
    PROMPT = "prompt"


MOVABLE_IN_SYSTEM = frozenset({PieceKind.DOCUMENT, PieceKind.FILE})
"""Pieces of a system text that can stand behind the rest of it."""


class MessageKind(StrEnum):
    """The kinds of recognised messages."""

    CONTEXT = "context"
    """Context that the client renders anew with each request. It is movable."""
    CANDIDATE = "candidate"
    """A message that looks like context. It is movable only after the session has seen it rendered anew."""
    SYSTEM = "system"
    """A system text with sections, documents and volatile lines."""
    PROMPT = "prompt"
    """A user's turn with a reminder that the client appends to it."""


class Cut(Struct, frozen=True):
    """Characters ``start`` to ``end`` of the text. ``key`` identifies the piece over time ("file:src/app.py")."""

    key: str
    kind: PieceKind
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Recognition:
    """A recognised text. ``name`` is the group that the pieces belong to ("aider:files").

    ``claim`` is the client's claim about the pieces. It differs from ``AS_SAID`` only if the client's exact words are
    known. ``acknowledgements`` are the beginnings of the assistant messages by which the client closes such a message.
    """

    name: str
    form: MessageKind
    cuts: tuple[Cut, ...]
    claim: FileClaim = FileClaim.AS_SAID
    acknowledgements: tuple[str, ...] = ()


class ContextPiece(Struct, frozen=True):
    """One movable piece: a file, a map. ``key`` names it over time, ``digest`` covers its text."""

    key: str
    kind: PieceKind
    claim: FileClaim
    text: str
    digest: bytes


MOST_CHARS = 500_000
"""A longer text stays whole: while Python searches a text for a pattern, it can do nothing else."""
MOST_PIECES = 2_000
"""A text of more pieces stays whole: planning all of them would hold up all other requests."""


class Bound(StrEnum):
    """The bounds that a recogniser can reach. All of them count work, never time, so that the same request always gets
    the same layout."""

    LENGTH = "length"
    """The text has more characters than a recogniser searches."""
    PIECES = "pieces"
    """The text consists of more pieces than a plan can hold."""
    MATCHES = "matches"
    """Something occurs in the text more often than a recogniser checks."""


class TooMuch(Exception):
    """A recogniser raises this if a text exceeds one of its bounds. Then the next recogniser is asked."""

    def __init__(self, bound: Bound) -> None:
        super().__init__(bound.value)
        self.bound = bound


class Recogniser(Protocol):
    """Finds the pieces in the texts of one kind of client. Recognisers with a lower ``priority`` are asked first."""

    name: str
    priority: int

    def recognise(self, role: str, text: str) -> Recognition | None:
        """The pieces, or None if the text is not of this kind. Raises TooMuch if the text exceeds a bound."""


def recognise_text(recognisers: Iterable[Recogniser], role: str, text: str) -> Recognition | None:
    """The first recogniser's answer whose cuts cover the text exactly once."""
    for recogniser in recognisers:
        try:
            found = recogniser.recognise(role, text)
        except TooMuch:
            continue
        is_bounded = found is not None and len(found.cuts) <= MOST_PIECES and len(text) <= MOST_CHARS
        if found is not None and is_bounded and covers(found.cuts, len(text)):
            cuts = _printable(found.cuts)
            cuts = joined(cuts) if found.form in (MessageKind.CONTEXT, MessageKind.CANDIDATE) else cuts
            return found if cuts is found.cuts else replace(found, cuts=cuts)
    return None


def _printable(cuts: tuple[Cut, ...]) -> tuple[Cut, ...]:
    """The cuts with keys that can be logged, stored and shown: a path may hold half of a surrogate pair."""
    if all(printable(cut.key) == cut.key for cut in cuts):
        return cuts
    return tuple(structs.replace(cut, key=printable(cut.key)) for cut in cuts)


def joined(cuts: tuple[Cut, ...]) -> tuple[Cut, ...]:
    """The cuts, with all cuts of one key joined to one, from the first to the last with everything between them.

    A source that comes in several pieces (excerpts of a file, parts of a document) must keep its order, so it stays in
    one place.
    """
    last = {cut.key: index for index, cut in enumerate(cuts)}
    if len(last) == len(cuts):
        return cuts
    found: list[Cut] = []
    index = 0
    while index < len(cuts):
        first, end, at = cuts[index], index, index
        # A piece in between may have further pieces behind the last one.
        while at <= end:
            end = max(end, last[cuts[at].key])
            at += 1
        found.append(Cut(first.key, first.kind, first.start, cuts[end].end))
        index = end + 1
    return tuple(found)


def covers(cuts: Iterable[Cut], length: int) -> bool:
    """Whether the cuts follow each other without gap or overlap from 0 to ``length``."""
    position = 0
    for cut in cuts:
        if cut.start != position or cut.end <= cut.start:
            return False
        position = cut.end
    return position == length
