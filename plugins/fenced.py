"""Recognises context in a generic shape: a user message of only an opening line and fenced or tagged files.

Many tools show files this way, and so do people in their own turns. The shape alone proves nothing, so the message is
only a *candidate*. It becomes movable once the session has seen the client render it anew, because a turn is never
rendered anew.

The claim of an opening is not known here. "You may edit the first file", "Outdated, do not trust them", "In the order
of their weight": a message with such an opening moves, but is never taken apart. If every word of the opening only
shows ("Here are the current files of my project:"), or if there is no opening, files may be separated from it, under a
header that refers to it and claims nothing itself.
"""

import re

from proxy.hookspecs import hookimpl
from proxy.kit.value import digest
from proxy.protocol.recognition import (
    MOST_PIECES,
    Bound,
    Cut,
    FileClaim,
    KnownTexts,
    MessageKind,
    PieceKind,
    Recognition,
    TooMuch,
)

_MAX_OPENING_CHARS = 800
# One pattern, so that each character of the text is looked at once:
# a path on its own line (perhaps bold, in backticks or a heading), then a fence with or without a language;
# or the path on the fence line (```src/app.py, ```python title="src/app.py"); or an XML-like tag with a path. A path or
# tag that was matched is never tried again shorter or longer: that could not help to match the text behind it.
_FILE = re.compile(
    r"""(?:^|\n)(?:
      (?:\#{1,6}\ |\*\*|`)?(?P<line_path>(?>[\w./\\@+\-\[\]()]+\.\w++))(?:\*\*|`)?:?\n{1,3}
        (?P<line_fence>`{3,64}+|~{3,64}+)[^\n`]*+\n
    | (?P<fence>`{3,64}+|~{3,64}+)(?:\w++[ :])?(?:title=|path=|file=)?["']?
        (?P<fence_path>(?>[\w./\\@+\-\[\]()]+\.\w++))["']?[^\n]*+\n
    | <(?P<tag>file|document|source|doc|file_content|context)\b(?>[^>\n]*?\b
        (?:path|name|source|src|filename|title|url)=["'](?P<tag_path>[^"'\n]++)["'])[^>\n]*+>
    )""",
    re.VERBOSE,
)
# Words that in no sentence permit, forbid, order, count or doubt anything.
_SHOWS = re.compile(
    r"""(?:an?|all|and|are|as|asked|about|at|attached|below|chat|code|codebase|contents?|context|conversation|current
    |currently|documents?|excerpts?|files?|following|for|from|full|have|here|i|in|is|its?|me|my|need|now|of|on|our
    |present|project|question|relevant|repo|repository|shown|snippets?|some|sources?|task|texts?|that|the|their|them
    |these|they|this|those|we|with|workspace|you|your)\Z""",
    re.VERBOSE,
)
_WORD = re.compile(r"\w++(?:['’]\w++)*+")
# The end of a path that says which part of its source it is: "a.py:10-40", "a.py (part 2 of 3)", "notes.md#L10",
# "/doc?page=2".
_PART = re.compile(
    r"(?:(?<!\s)\s++|[:,(\[]\s*+|[#?&](?=\w*[-_=]?\d))(?:(?:part|chunk|page|section|lines?|excerpt|no\.?)[\s=_-]*+)?"
    r"L?\d++(?:\s*+(?:of|/|-|–|:|,)\s*+L?\d++)?\s*+[)\]]?\Z",
    re.IGNORECASE,
)
# The blanks that may follow a closing fence on its line.
_BLANKS = re.compile(r"(?<![ \t])[ \t]*+(?=\n|\Z)")


class FencedRecogniser:
    """Finds messages that consist of files, in every common fence and tag."""

    name = "fenced"
    priority = 900
    texts = KnownTexts(roles="user", words=("```", "~~~", "<file", "<doc", "<source", "<context"))

    def recognise(self, role: str, text: str) -> Recognition | None:
        """A candidate for context, if nothing but an opening is around the files."""
        spans = _spans(text)
        if not spans or spans[0][0] > _MAX_OPENING_CHARS:
            return None
        # The opening ends its last line, so that any file can follow it.
        first = spans[0][0]
        opening = text[: first + (text[first] == "\n" and not text.endswith("\n", 0, first))]
        name = "fenced:" + digest(opening.strip().encode("utf-8", "surrogatepass")).hex()[:12]
        # An opening that only claims that files follow is true for each file, in any order.
        if not all(_SHOWS.match(word) for word in _WORD.findall(opening.lower())):
            return Recognition(name, MessageKind.CANDIDATE, (Cut("files", PieceKind.FILE, 0, len(text)),))
        cuts = [Cut("opening", PieceKind.OPENING, 0, len(opening))] if opening else []
        begin = len(opening)
        for number, (_, end, key) in enumerate(spans, 1):
            # A file includes its line end; blank lines belong to the next file. So the next file does not change it.
            end = len(text) if number == len(spans) else end + text.startswith("\n", end)
            cuts.append(Cut(key, PieceKind.FILE, begin, end))
            begin = end
        return Recognition(name, MessageKind.CANDIDATE, tuple(cuts), FileClaim.AS_SAID)


def _spans(text: str) -> list[tuple[int, int, str]]:
    """(start, end, key) of every file, if there is only blank space between the files and behind the last one; else
    nothing. Raises TooMuch."""
    spans: list[tuple[int, int, str]] = []
    found = _next_file(text, 0)
    while found is not None:
        if spans and text[spans[-1][1] : found[0]].strip():
            return []
        if len(spans) >= MOST_PIECES:
            raise TooMuch(Bound.PIECES)
        spans.append(found)
        found = _next_file(text, found[1])
    return [] if not spans or text[spans[-1][1] :].strip() else spans


def _next_file(text: str, position: int) -> tuple[int, int, str] | None:
    """The next file at or behind ``position``: its start, its end, and its key. Parts of one source share a key."""
    found = _FILE.search(text, position)
    if found is None:
        return None
    end = _closing(text, found)
    if end is None:
        return None
    path = found.group("line_path") or found.group("fence_path") or found.group("tag_path")
    return found.start(), end, "file:" + _PART.sub("", path).rstrip()


def _closing(text: str, opened: re.Match[str]) -> int | None:
    """The end of the file: behind the closing tag, or behind the closing fence at the beginning of a line."""
    if tag := opened.group("tag"):
        close = f"</{tag}>"
        at = text.find(close, opened.end())
        return None if at < 0 else at + len(close)
    close = "\n" + (opened.group("line_fence") or opened.group("fence"))
    at = text.find(close, opened.end() - 1)
    while at >= 0:
        behind = _BLANKS.match(text, at + len(close))
        if behind is not None:
            return behind.end()
        at = text.find(close, at + 1)
    return None


@hookimpl
def register_recognisers() -> list[FencedRecogniser]:
    """The one recogniser of this plugin."""
    return [FencedRecogniser()]
