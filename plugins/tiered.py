"""Recognises the context of tiered assemblies: messages that begin with one of their fixed headers.

Such a client sorts its files by how stable they are and shows each tier in a separate message: the tier's part of the
repository map, if it has one, then its files under a header that never changes
(``proxy.protocol.recognition``). The list of all files, fetched pages and the review are separate messages,
which stay whole. The client renders all of them anew for every request, and closes each with an assistant message that
never changes, either.

If a line of a file may also be a border, the message stays in one piece.
"""

from proxy.hookspecs import hookimpl
from proxy.protocol.recognition import (
    REFERENCE_HEADERS,
    WORKING_HEADER,
    Cut,
    FileClaim,
    KnownTexts,
    MessageKind,
    PieceKind,
    Recognition,
    listing,
)

_OK = ("Ok.",)
_HEADERS = (
    (WORKING_HEADER, "tiered:working", FileClaim.WORKING),
    *((header, f"tiered:{tier}", FileClaim.REFERENCE) for tier, header in REFERENCE_HEADERS.items()),
)
_MORE_MAP = "# Repository Structure (continued)\n\n"
_MAP = (
    "# Repository Structure\n\nBelow is a map of the repository showing classes, functions, and their relationships.\n"
    "Use this to understand the codebase structure and find relevant code.\n\n"
)
_TREE = "# Repository Files\n\nComplete list of files in the repository:\n\n"
_URLS = "# URL Context\n\nThe following content was fetched from URLs mentioned in the conversation:\n\n"
# Content that changes less than all other shown content counts as read-only. Such a message is never taken apart.
_WHOLE = (
    (_MORE_MAP, "tiered:map", FileClaim.READ_ONLY, _OK),
    (_MAP, "tiered:map", FileClaim.READ_ONLY, _OK),
    (_TREE, "tiered:tree", FileClaim.READ_ONLY, _OK),
    (_URLS, "tiered:urls", FileClaim.REFERENCE, ("Ok, I've reviewed the URL content.",)),
    ("# Code Review Context\n\n", "tiered:review", FileClaim.REFERENCE, ("Ok, I've reviewed the code changes.",)),
)


class TieredRecogniser:
    """Finds context messages by their headers."""

    name = "tiered"
    priority = 60
    texts = KnownTexts(
        roles="user", openings=[header for header, _, _ in _HEADERS] + [header for header, _, _, _ in _WHOLE]
    )

    def recognise(self, role: str, text: str) -> Recognition | None:
        """Header and files, or one piece; None if the text is neither of them. Raises TooMuch."""
        return _files(text) or _whole(text)


def _files(text: str) -> Recognition | None:
    """Files under one header, perhaps with a part of the repository map in front of it."""
    found = [(at, header, name, claim) for header, name, claim in _HEADERS if (at := _header_at(text, header)) >= 0]
    if len(found) != 1:
        return None
    ((at, header, name, claim),) = found
    known = listing(text, at + len(header))
    if known is None:
        return None
    cuts = [Cut("files", PieceKind.FILE, 0, len(text))]
    if known.is_clear:
        # The blank line in front of a file belongs to it, so that a file is the same in any place.
        files = known.files
        borders = [at + len(header.rstrip("\n")), *(file.end for file in files[:-1]), len(text)]
        pieces = zip(files, borders, borders[1:], strict=False)
        cuts = [Cut("opening", PieceKind.OPENING, 0, borders[0])]
        cuts += [Cut(f"file:{file.path}", PieceKind.FILE, start, end) for file, start, end in pieces]
    return Recognition(name, MessageKind.CONTEXT, tuple(cuts), claim, _OK)


def _header_at(text: str, header: str) -> int:
    """The position of this header: at the beginning of the text, or behind a part of the repository map. It is -1 if
    the header is not there, or if it is unclear which one is meant."""
    if not text.startswith((_MORE_MAP, _MAP)):
        return 0 if text.startswith(header) else -1
    at = text.find("\n" + header)
    return at + 1 if at >= 0 and text.find("\n" + header, at + 1) < 0 else -1


def _whole(text: str) -> Recognition | None:
    for header, name, claim, acknowledgements in _WHOLE:
        if text.startswith(header) and text[len(header) :].strip():
            cuts = (Cut(name.partition(":")[2], PieceKind.DOCUMENT, 0, len(text)),)
            return Recognition(name, MessageKind.CONTEXT, cuts, claim, acknowledgements)
    return None


@hookimpl
def register_recognisers() -> list[TieredRecogniser]:
    """The one recogniser of this plugin."""
    return [TieredRecogniser()]
