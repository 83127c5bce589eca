"""Recognises the files of tiered assemblies: working and reference files under their fixed headers.

Such a client sorts its files by how stable they are and shows each tier in a message of its own: a header that never
changes, then each file as its path on one line, a fence, the content and the closing fence, with a blank line between
two files. It renders all of them anew for every request, and closes each message with an assistant's "Ok.".

Each line is looked at once. Where some line of a file may be a border, too, the message stays in one piece.
"""

from collections.abc import Iterator

from proxy.core.recognition import MOST_CHARS, MOST_PIECES, Bound, Cut, Form, PieceKind, Recognition, TooMuch
from proxy.core.words import Claim
from proxy.hookspecs import hookimpl

_FENCE = "```"
_MOST_PATH_CHARS = 512
_INCLUDED = "These files are included for reference:\n\n"
_HEADERS = (
    ("# Working Files\n\nHere are the files:\n\n", "tiered:working", Claim.WORKING),
    ("# Reference Files (Stable)\n\n" + _INCLUDED, "tiered:L0", Claim.REFERENCE),
    ("# Reference Files\n\n" + _INCLUDED, "tiered:L1", Claim.REFERENCE),
    ("# Reference Files (L2)\n\n" + _INCLUDED, "tiered:L2", Claim.REFERENCE),
    ("# Reference Files (L3)\n\n" + _INCLUDED, "tiered:L3", Claim.REFERENCE),
)


class TieredRecogniser:
    """Finds messages of files by their headers."""

    name = "tiered"
    priority = 60

    def recognise(self, role: str, text: str) -> Recognition | None:
        """Header and files; None where the text does not consist of them alone. Raises TooMuch."""
        if role != "user" or not text.startswith("# "):
            return None
        for header, name, claim in _HEADERS:
            if text.startswith(header):
                if len(text) > MOST_CHARS:
                    raise TooMuch(Bound.LENGTH)
                cuts = _cuts(text, len(header))
                return Recognition(name, Form.CONTEXT, cuts, claim, ("Ok.",)) if cuts else None
        return None


def _cuts(text: str, start: int) -> tuple[Cut, ...]:
    """The blank lines in front of a file belong to it, so that one is the same whatever follows it."""
    files = list(_files(text, start))
    end = files[-1][1] if files else start
    if not files or text[end:].strip():
        return ()
    is_clear = text.count("\n" + _FENCE, start) == 2 * len(files)
    paths = {path for path, _ in files}
    if not is_clear or len(paths) < len(files):
        return (Cut("files", PieceKind.FILE, 0, len(text)),)
    cuts = [Cut("opening", PieceKind.OPENING, 0, start)]
    for path, end in files:
        cuts.append(Cut(f"file:{path}", PieceKind.FILE, cuts[-1].end, end))
    last = cuts.pop()
    return (*cuts, Cut(last.key, last.kind, last.start, len(text)))


def _files(text: str, position: int) -> Iterator[tuple[str, int]]:
    """Each file's path, and where it ends: behind its closing fence. Ends where no file follows. Raises TooMuch."""
    for number in range(MOST_PIECES + 1):
        fence = text.find("\n", position)
        path = text[position:fence] if 0 < fence - position <= _MOST_PATH_CHARS else ""
        if not path.strip() or path.startswith(_FENCE) or not text.startswith(_FENCE + "\n", fence + 1):
            return
        if number == MOST_PIECES:
            raise TooMuch(Bound.PIECES)
        # An empty file's fences stand on neighbouring lines.
        end = text.find("\n" + _FENCE, fence + len(_FENCE) + 1)
        if end < 0:
            return
        end += 1 + len(_FENCE)
        yield path, end
        if not text.startswith("\n\n", end):
            return
        position = end + 2


@hookimpl
def register_recognisers() -> list[TieredRecogniser]:
    """The one recogniser of this plugin."""
    return [TieredRecogniser()]
