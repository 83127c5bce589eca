"""Recognises what moves inside a system prompt: clock lines, and retrieved documents.

A line that tells the time changes with every request and takes everything behind it out of the cache. Applications
that retrieve put the documents of the moment into the system prompt, in front of instructions that never change.
"""

import re
from collections.abc import Iterator

from proxy.core.digest import digest
from proxy.core.recognition import Cut, Form, PieceKind, Recognition
from proxy.hookspecs import hookimpl

_MAX_VOLATILE_CHARS = 400
_MAX_CLOCKS = 2
_TIME = r"(?<![\d:.+-])(?:[01]?\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:\.\d+)?)?(?![\d:])"
# A time of day, and near it a word or a date that says it is now.
_CLOCK = re.compile(
    rf"(?:\b(?:current|now|today|time|date|datetime|timestamp)\b[^\n]{{0,120}}?{_TIME}"
    rf"|{_TIME}[^\n]{{0,60}}?\b(?:now|today|currently)\b"
    r"|\b\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(?::\d{2})?)",
    re.IGNORECASE,
)
# A block of lines of its own that says which document it is: without, <result> or <source> in a sentence, or in the
# description of an output format, would be torn out of it.
_DOCUMENT = re.compile(
    r"^<(?P<tag>document|doc|chunk|passage|excerpt|source|result)\b(?P<attributes>[^<>\n]{0,1000})>", re.MULTILINE
)
_ATTRIBUTE = re.compile(r"[\w-]+\s*=\s*(?:\"[^\"]*\"|'[^']*')")


class SystemTextRecogniser:
    """Cuts a system text into fixed sections, volatile lines and documents."""

    name = "system-text"
    priority = 500

    def recognise(self, role: str, text: str) -> Recognition | None:
        """None where nothing in it moves."""
        if role not in ("system", "developer"):
            return None
        clocks = list(_clocks(text))
        # A prompt tells the time once or twice; more such lines are an example, a log or a timetable.
        clocks = clocks if len(clocks) <= _MAX_CLOCKS else []
        spans = sorted([*_documents(text), *clocks], key=lambda s: s[0])
        cuts = list(_cover(_apart(spans), len(text)))
        if all(cut.kind is PieceKind.SECTION for cut in cuts):
            return None
        return Recognition("system", Form.SYSTEM, tuple(cuts))


Span = tuple[int, int, str, PieceKind]


def _clocks(text: str) -> Iterator[Span]:
    position = 0
    number = 0
    while (found := _CLOCK.search(text, position)) is not None:
        start, end = _line(text, found.start())
        position = max(end, found.end())
        if end - start <= _MAX_VOLATILE_CHARS:
            number += 1
            yield start, end, f"volatile:clock#{number}", PieceKind.VOLATILE


def _line(text: str, position: int) -> tuple[int, int]:
    """The line around a position, with its end."""
    start = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    return start, len(text) if end < 0 else end + 1


def _documents(text: str) -> Iterator[Span]:
    position = 0
    while (found := _DOCUMENT.search(text, position)) is not None:
        position = found.end()
        if not _ATTRIBUTE.search(found.group("attributes")):
            continue
        close = f"</{found.group('tag')}>"
        at = text.find(close, position)
        end = at + len(close)
        # Without an end, or with one in the middle of a line, it is not clear where a document ends.
        if at < 0 or text[end : end + 1] not in ("", "\n"):
            return
        while end < len(text) and text[end] == "\n":
            end += 1
        attributes = " ".join(sorted(_ATTRIBUTE.findall(found.group("attributes"))))
        body = digest(text[found.start() : at].encode("utf-8", "surrogatepass")).hex()[:12]
        yield found.start(), end, f"document:{attributes[:200]}:{body}", PieceKind.DOCUMENT
        position = end


def _apart(spans: list[Span]) -> Iterator[Span]:
    """Spans that do not overlap: the earlier one wins (a clock inside a document is part of the document)."""
    position = 0
    for span in spans:
        if span[0] >= position:
            yield span
            position = span[1]


def _cover(spans: Iterator[Span], length: int) -> Iterator[Cut]:
    position = number = 0
    for start, end, key, kind in spans:
        if start > position:
            yield Cut(f"section:{number}", PieceKind.SECTION, position, start)
            number += 1
        yield Cut(key, kind, start, end)
        position = end
    if position < length:
        yield Cut(f"section:{number}", PieceKind.SECTION, position, length)


@hookimpl
def register_recognisers() -> list[SystemTextRecogniser]:
    """The one recogniser of this plugin."""
    return [SystemTextRecogniser()]
