"""Files under the fixed headers of tiered assemblies, in the form in which such clients write them.

A header never changes. Below it, each file is written as its path on one line, a fence, the content and the closing
fence, with a blank line between two files. A fence may be longer than three backticks: such a client makes it longer
until the content does not contain it. Each line is read once. If a line within a file may also be a border, the files
cannot be told apart.
"""

import re
from collections.abc import Iterator

from proxy.core.recognition.pieces import MOST_PIECES, Bound, TooMuch
from proxy.core.value import dataclass

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


def files_at_end(text: str) -> Listing | None:
    """The files that end a system text, under the one header in it. Raises TooMuch."""
    found = [(at, header) for header in (WORKING_HEADER, *REFERENCE_HEADERS.values()) if (at := text.find(header)) >= 0]
    if len(found) != 1:
        return None
    ((at, header),) = found
    if (at > 0 and text[at - 1] != "\n") or text.find(header, at + 1) >= 0:
        return None
    known = listing(text, at + len(header))
    return known if known is not None and known.is_clear else None
