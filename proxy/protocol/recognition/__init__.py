"""Cuts texts into pieces.

One text of a message comes in; pieces that cover it exactly once go out: files, documents, blocks, changed lines. Each
recogniser is a pure function of a message's role and text, and takes time that is linear in the length of the text. A
text that no recogniser understands stays whole. ``proxy.protocol.request.transcript``, which sees the whole request,
decides what the cuts mean for the layout (whether an acknowledgement follows, whether the message stands before the
last user message). A plugin needs the names in ``__all__``.

First comes every word that the transparent path may add to a prompt. None carries a time or a counter. (Beside the
prompt, this path may add markers, and the parameters in ``routing``: a routing key, or the request not to cache.) A
message of context files may be taken apart, so that stable files stand in front of the conversation. Each part except
the last one opens with a header that repeats the client's own claim about the files (``CLAIM_HEADERS``). It is
acknowledged by ``PART_ACKNOWLEDGEMENT`` (a constant of the systems from which this proxy developed). The last part
keeps the client's own opening and acknowledgement, and stands behind the others (``AS_SAID`` refers to it). A volatile
line that was moved out of a system message stands between ``TAG_OPEN`` and ``TAG_CLOSE``.

Then come the results of recognisers. At the end are files under the fixed headers of tiered assemblies, in the form in
which such clients write them. A header never changes. Below it, each file is written as its path on one line, a fence,
the content and the closing fence, with a blank line between two files. A fence may be longer than three backticks: such
a client makes it longer until the content does not contain it. Each line is read once. If a line within a file may also
be a border, the files cannot be told apart.
"""

import re
from collections.abc import Iterable, Iterator
from enum import StrEnum
from types import MappingProxyType
from typing import Protocol

from msgspec import Struct, structs

from proxy.kit.value import dataclass, replace
from proxy.protocol.wire.json_body import printable

__all__ = [
    "MOST_CHARS",
    "MOST_PIECES",
    "MOVABLE_IN_SYSTEM",
    "Bound",
    "Cut",
    "FileClaim",
    "KnownTexts",
    "MessageKind",
    "PieceKind",
    "Recogniser",
    "Recognition",
    "TooMuch",
    "covers",
    "joined",
    "recognise_text",
]


class FileClaim(StrEnum):
    """The claim that a client makes about files that it shows to the model."""

    EDITABLE = "editable"
    SHOWN = "shown"
    READ_ONLY = "read-only"
    MAP = "map"
    DOCUMENT = "document"
    WORKING = "working"
    REFERENCE = "reference"
    AS_SAID = "as-said"
    """Only the claim of the message itself, whose words the proxy does not know and must not replace by others."""


CLAIM_HEADERS = MappingProxyType(
    {
        FileClaim.EDITABLE: (
            "These files are in the chat and may be edited. Trust this message as their true contents.\n\n"
        ),
        FileClaim.SHOWN: (
            "These files are in the chat for reference in this question. Trust this message as their true contents.\n\n"
        ),
        FileClaim.READ_ONLY: "These files are provided READ ONLY for reference. Do not edit them.\n\n",
        FileClaim.MAP: (
            "These are summaries of some files in the git repository. Treat them as read-only; "
            "ask for a file to be added to the chat before editing it.\n\n"
        ),
        FileClaim.DOCUMENT: "These documents are provided for reference.\n\n",
        FileClaim.WORKING: "These are working files.\n\n",
        FileClaim.REFERENCE: "These files are included for reference.\n\n",
        FileClaim.AS_SAID: (
            "These files belong to a later message of this conversation that only shows more files. "
            "What it says about those holds for these as well.\n\n"
        ),
    }
)

PART_ACKNOWLEDGEMENT = "Ok."

TAG_OPEN = "<stratiform-context>\n"
TAG_CLOSE = "\n</stratiform-context>"


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
    """The bounds that a recogniser can reach: the text has more characters than it searches, consists of more pieces
    than a plan can hold, or has something more often than it checks. All of them count work, never time, so that the
    same request always gets the same layout."""

    LENGTH = "length"
    PIECES = "pieces"
    MATCHES = "matches"


class TooMuch(Exception):
    """A recogniser raises this if a text exceeds one of its bounds. Then the next recogniser is asked."""

    def __init__(self, bound: Bound) -> None:
        super().__init__(bound.value)
        self.bound = bound


class KnownTexts:
    """The texts of one kind: those of these ``roles`` that begin with one of the ``openings``, or have one of the
    ``words`` in any place. What is not said limits nothing. A single text stands for a tuple of it."""

    def __init__(
        self,
        *,
        roles: str | Iterable[str] = (),
        openings: str | Iterable[str] = (),
        words: str | Iterable[str] = (),
    ) -> None:
        self.roles, self.openings, self.words = (
            (given,) if isinstance(given, str) else tuple(given) for given in (roles, openings, words)
        )

    def may_have(self, role: str, text: str) -> bool:
        """Whether a text may be of this kind."""
        if self.roles and role not in self.roles:
            return False
        is_any = not (self.openings or self.words)
        return is_any or text.startswith(self.openings) or any(map(text.__contains__, self.words))


class Recogniser(Protocol):
    """Finds the pieces in the texts of one kind of client. Recognisers with a lower ``priority`` are asked first. A
    recogniser that has ``texts`` (``KnownTexts``) is asked about no others."""

    name: str
    priority: int

    def recognise(self, role: str, text: str) -> Recognition | None:
        """The pieces, or None if the text is not of this kind. Raises TooMuch if the text exceeds a bound."""


def recognise_text(recognisers: Iterable[Recogniser], role: str, text: str) -> Recognition | None:
    """The first recogniser's answer whose cuts cover the text exactly once. Most texts are of no recogniser's kind, and
    none is asked about them."""
    for recogniser in recognisers:
        texts = getattr(recogniser, "texts", None)
        if isinstance(texts, KnownTexts) and not texts.may_have(role, text):
            continue
        try:
            found = recogniser.recognise(role, text)
        except TooMuch:
            continue
        is_bounded = found is not None and len(found.cuts) <= MOST_PIECES and len(text) <= MOST_CHARS
        if found is not None and is_bounded and covers(found.cuts, len(text)):
            cuts = found.cuts
            # Keys can be logged, stored and shown: a path may hold half of a surrogate pair.
            if any(printable(cut.key) != cut.key for cut in cuts):
                cuts = tuple(structs.replace(cut, key=printable(cut.key)) for cut in cuts)
            cuts = joined(cuts) if found.form in (MessageKind.CONTEXT, MessageKind.CANDIDATE) else cuts
            return found if cuts is found.cuts else replace(found, cuts=cuts)
    return None


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


_FENCE = "```"
_FENCE_LINE = re.compile("(?<!`)(`{3,}+)\n")
_MOST_PATH_CHARS = 512
_INCLUDED = "These files are included for reference:\n\n"

WORKING_HEADER = "# Working Files\n\nHere are the files:\n\n"
REFERENCE_HEADERS = {
    "L0": f"# Reference Files (Stable)\n\n{_INCLUDED}",
    "L1": f"# Reference Files\n\n{_INCLUDED}",
    "L2": f"# Reference Files (L2)\n\n{_INCLUDED}",
    "L3": f"# Reference Files (L3)\n\n{_INCLUDED}",
}


@dataclass(frozen=True, slots=True)
class FileSpan:
    """The place of a file in a text, from its path to the end of its closing fence, which is ``fence``."""

    path: str
    start: int
    end: int
    fence: str = _FENCE


@dataclass(frozen=True, slots=True)
class Listing:
    """The files from some position of a text to its end. ``is_clear``: the end of each file is certain, and no path
    occurs twice."""

    files: tuple[FileSpan, ...]
    is_clear: bool


def listing(text: str, start: int) -> Listing | None:
    """The files from ``start`` on; None if the rest of the text does not consist of files only. Raises TooMuch."""
    files = tuple(_files(text, start))
    if not files or text[files[-1].end :].strip():
        return None
    # No line of a content may look like the closing fence. A longer fence was chosen so that none does.
    short = [file for file in files if len(file.fence) == len(_FENCE)]
    has_clear_ends = all(text.count("\n" + _FENCE, file.start, file.end) == 2 for file in short)
    return Listing(files, has_clear_ends and len({file.path for file in files}) == len(files))


def _files(text: str, position: int) -> Iterator[FileSpan]:
    """The files one after another, up to the first place where no file follows."""
    for number in range(MOST_PIECES + 1):
        fence = text.find("\n", position)
        path = text[position:fence] if 0 < fence - position <= _MOST_PATH_CHARS else ""
        opening = _FENCE_LINE.match(text, fence + 1)
        if not path.strip() or path.startswith(_FENCE) or opening is None:
            return
        if number == MOST_PIECES:
            raise TooMuch(Bound.PIECES)
        # An empty file's fences stand on neighbouring lines.
        end = text.find("\n" + opening[1], opening.end() - 1)
        if end < 0:
            return
        end += 1 + len(opening[1])
        yield FileSpan(path, position, end, opening[1])
        if not text.startswith("\n\n", end):
            return
        position = end + 2


def files_at_end(text: str) -> tuple[FileSpan, ...]:
    """The files that end a system text, under the one header in it; none if they are not clear. Raises TooMuch."""
    found = [(at, header) for header in (WORKING_HEADER, *REFERENCE_HEADERS.values()) if (at := text.find(header)) >= 0]
    if len(found) != 1:
        return ()
    ((at, header),) = found
    if (at > 0 and text[at - 1] != "\n") or text.find(header, at + 1) >= 0:
        return ()
    known = listing(text, at + len(header))
    return known.files if known is not None and known.is_clear else ()
