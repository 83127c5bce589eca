"""Recognises the moving parts of a system prompt: clock lines, retrieved documents, and files under a fixed header.

A line that tells the time changes with every request and takes everything behind it out of the cache. Applications
with retrieval put the current documents into the system prompt, in front of instructions that never change.
"""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice, pairwise

from proxy.hookspecs import hookimpl
from proxy.kit.value import digest
from proxy.protocol.recognition import (
    MOST_PIECES,
    Bound,
    Cut,
    KnownTexts,
    MessageKind,
    PieceKind,
    Recognition,
    TooMuch,
    files_at_end,
)
from proxy.protocol.recognition.lines import break_before, lines_before, one_break_before

# A text that is longer, or has more of these, is not a prompt that a person wrote. To look through it would delay all
# other requests. A text beyond one of the bounds stays whole.
_MOST_TIMES = 5_000  # lines that have one
_MOST_BLOCKS = 20_000
# The text around a document is a piece, too.
_MOST_DOCUMENTS = MOST_PIECES // 2
_MOST_TAGS = 20_000
_MAX_VOLATILE_CHARS = 400
_MAX_CLOCKS = 2
_TIME = re.compile(r"(?<![\d:.+-])(?:[01]?\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:\.\d++)?)?(?![\d:])|\dT[0-2]\d:[0-5]\d")
# Words near a time of day that say that it is the present time; or there is only a date on the line.
_NOW_BEFORE = re.compile(r"\b(?:current|now|today|time|date|datetime|timestamp)\b", re.IGNORECASE)
_NOW_BEHIND = re.compile(r"\b(?:now|today|currently)\b", re.IGNORECASE)
_BEFORE_CHARS, _BEHIND_CHARS = 120, 60
# A line without any of these is not examined further.
_NOW = re.compile(r"current|now|today|time|date", re.IGNORECASE)
_MOST_TIMES_OF_A_LINE = 16
_BARE_DATE = re.compile(
    r"\W{0,64}+\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d++)?)?(?: ?[A-Z]{1,4}|[+-]\d{2}:?\d{2})?\W{0,64}+"
)
# A document is a block on its own lines that names the document. Without this condition, <result> or <source> in a
# sentence, or in the description of an output format, would be torn out. Code between fences is not examined.
_DOCUMENT_TAGS = ("document", "doc", "chunk", "passage", "excerpt", "source", "result")
# White space ends the tag's name: <document-list> is another element. A self-closing tag, <doc id="1"/>, is empty.
_BLOCK = re.compile(
    rf"^(?:<(?P<tag>{'|'.join(_DOCUMENT_TAGS)})(?P<attributes>\s[^<>\n]{{0,1000}}+)(?<!/)>"
    r"|(?P<fence>`{3,64}+|~{3,64}+))",
    re.MULTILINE,
)
_BOTH_TAGS = {tag: re.compile(rf"<(/?){tag}(?:\s[^<>\n]*+)?>") for tag in _DOCUMENT_TAGS}
_FENCE = re.compile(r"^(?:`{3,}|~{3,})", re.MULTILINE)
_ATTRIBUTE = re.compile(r"(?<![\w-])[\w-]++\s*+=\s*+(?:\"[^\"]*+\"|'[^']*+')")
_TAG = re.compile(r"<(/?)([A-Za-z][\w.-]{0,63}+)(?:\s[^<>\n]{0,1000}+)?>")
_LINE_ENDS = re.compile(r"\n*+")
_CLOSING_LINE = re.compile(r"</([\w.-]{1,64}+)>(?=\n|\Z)")


class SystemTextRecogniser:
    """Cuts a system text into fixed sections, volatile lines and documents."""

    name = "system-text"
    priority = 500
    texts = KnownTexts(roles=("system", "developer"))

    def recognise(self, role: str, text: str) -> Recognition | None:
        """The pieces of a system text. None if nothing in it moves. Raises TooMuch."""
        fences, documents = _blocks(text)
        clocks = [span for span in _clocks(text) if not _is_within(span[0], fences)]
        # A prompt tells the time once or twice; more such lines are an example, a log or a timetable.
        clocks = clocks if len(clocks) <= _MAX_CLOCKS else []
        movable = _movable(text, documents) if documents else _files_at_end(text)
        spans = sorted([*movable, *clocks], key=lambda s: s[0])
        cuts = list(_cover(_with_breaks(text, list(_apart(spans))), len(text)))
        if all(cut.kind is PieceKind.SECTION for cut in cuts):
            return None
        return Recognition("system", MessageKind.SYSTEM, tuple(cuts))


Span = tuple[int, int, str, PieceKind]


def _clocks(text: str) -> Iterator[Span]:
    """The lines that tell the time. Raises TooMuch."""
    position = number = 0
    for _ in range(_MOST_TIMES):
        found = _TIME.search(text, position)
        if found is None:
            return
        start, position = _line(text, found.start())
        if position - start <= _MAX_VOLATILE_CHARS and _tells_now(text, start, position, found):
            number += 1
            yield start, position, f"volatile:clock#{number}", PieceKind.VOLATILE
    raise TooMuch(Bound.MATCHES)


def _is_within(position: int, ranges: list[tuple[int, int]]) -> bool:
    """Whether a position is in one of these ranges, which are in order."""
    index = bisect_right(ranges, position, key=lambda one: one[0]) - 1
    return index >= 0 and position < ranges[index][1]


def _tells_now(text: str, start: int, end: int, first: re.Match[str]) -> bool:
    """Whether one of the times of day on a line, the ``first`` or a later one, is the present time."""
    if _NOW.search(text, start, end) is not None:
        for time in islice(_TIME.finditer(text, first.start(), end), _MOST_TIMES_OF_A_LINE):
            before = text[max(start, time.start() - _BEFORE_CHARS) : time.start()]
            behind = text[time.end() : min(end, time.end() + _BEHIND_CHARS)]
            if _NOW_BEFORE.search(before) or _NOW_BEHIND.search(behind):
                return True
    return _BARE_DATE.fullmatch(text, start, end) is not None


def _line(text: str, position: int) -> tuple[int, int]:
    """The line around a position, with its end."""
    start = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    return start, len(text) if end < 0 else end + 1


def _blocks(text: str) -> tuple[list[tuple[int, int]], list[Span]]:
    """The ranges of fenced code, and the documents outside of them.

    If there is one fence too many, it is unclear which one it is: everything from the first fence on may be code.
    Raises TooMuch.
    """
    fences: list[tuple[int, int]] = []
    documents: list[Span] = []
    position = seen = 0
    while (found := _BLOCK.search(text, position)) is not None:
        position = found.end()
        seen += 1
        if seen > _MOST_BLOCKS:
            raise TooMuch(Bound.MATCHES)
        if fence := found.group("fence"):
            close = text.find("\n" + fence, position)
            if close >= 0:
                position = close + 1 + len(fence)
                fences.append((found.start(), position))
            else:
                fences = [(fences[0][0] if fences else found.start(), len(text))]
            continue
        attributes = _ATTRIBUTE.findall(found.group("attributes"))
        if not attributes:
            continue
        end = _end_of(text, found.group("tag"), position)
        # If a document has no end, or an end in the middle of a line, it is unclear where it ends and another begins.
        # From then on it is also unclear which fence opens and which one closes.
        if end is None:
            if (fence_behind := _FENCE.search(text, position)) is not None:
                fences.append((fence_behind.start(), len(text)))
            return fences, []
        if len(documents) >= _MOST_DOCUMENTS:
            raise TooMuch(Bound.PIECES)
        position = end
        said = " ".join(sorted(attributes))[:200]
        documents.append((found.start(), end, f"document:{said}:{_body(text, found.start(), end)}", PieceKind.DOCUMENT))
    return fences, documents


def _end_of(text: str, tag: str, position: int) -> int | None:
    """The position behind the tag that closes the one in front of ``position``. Elements of the same name may be
    inside."""
    depth = 1
    for found in _BOTH_TAGS[tag].finditer(text, position):
        depth += -1 if found.group(1) else 1
        if depth == 0:
            return found.end() if text[found.end() : found.end() + 1] in ("", "\n") else None
    return None


def _body(text: str, start: int, end: int) -> str:
    return digest(text[start:end].encode("utf-8", "surrogatepass")).hex()[:12]


def _movable(text: str, documents: list[Span]) -> list[Span]:
    """The documents that can be moved: all of them, if there is no text between them and no two are parts of one
    source; else none. If a tag encloses them, the tag and the documents are one piece, so that the prompt's statements
    about the tag stay true. If the tag holds anything else, the documents stay where they are."""
    if any(text[one[1] : next_[0]].strip() for one, next_ in pairwise(documents)):
        return []
    start, end = documents[0][0], documents[-1][1]
    while (closing := _closing_line(text, end)) is not None:
        opening = _opening_line(text, closing.group(1), start)
        if opening is None:
            return []
        start, end = opening, closing.end()
    if _is_enclosed(text, start, end):
        return []
    if (start, end) != (documents[0][0], documents[-1][1]):
        return [_as_one(text, start, end)]
    return _joined(text, documents)


def _files_at_end(text: str) -> list[Span]:
    """The files under their header that end the system prompt of a tiered assembly. Raises TooMuch."""
    files = files_at_end(text)
    if len(files) > _MOST_DOCUMENTS:
        raise TooMuch(Bound.PIECES)
    return [(file.start, file.end, f"tiered:system/file:{file.path}", PieceKind.FILE) for file in files]


def _closing_line(text: str, end: int) -> re.Match[str] | None:
    """The closing tag that is alone on the next line. Blank lines are skipped."""
    begin = _behind_breaks(text, end)
    return _CLOSING_LINE.match(text, begin) if begin > end else None


def _is_enclosed(text: str, start: int, end: int) -> bool:
    """Whether some tag that opens in front of ``start`` closes behind ``end``. Raises TooMuch."""
    opened: Counter[str] = Counter()
    for tag in _tags(text, 0, start):
        opened[tag.group(2)] += -1 if tag.group(1) else 1
    return any(tag.group(1) and opened[tag.group(2)] > 0 for tag in _tags(text, end, len(text)))


def _tags(text: str, start: int, end: int) -> Iterator[re.Match[str]]:
    """All tags of a part of the text. Raises TooMuch."""
    for number, tag in enumerate(_TAG.finditer(text, start, end)):
        if number >= _MOST_TAGS:
            raise TooMuch(Bound.MATCHES)
        yield tag


def _joined(text: str, documents: list[Span]) -> list[Span]:
    """Joins neighbours that are numbered parts of one source (part="2" behind part="1") to one piece, so that a text
    stays whole and in order. Excerpts that a retriever ranked are not numbered like this."""
    attributes = [_attributes(text, document) for document in documents]
    runs = [documents[:1]]
    for document, before, now in zip(documents[1:], attributes, attributes[1:], strict=False):
        if _follows(before, now):
            runs[-1].append(document)
        else:
            runs.append([document])
    return [run[0] if len(run) == 1 else _as_one(text, run[0][0], run[-1][1]) for run in runs]


def _as_one(text: str, start: int, end: int) -> Span:
    return start, end, f"documents:{_body(text, start, end)}", PieceKind.DOCUMENT


def _attributes(text: str, document: Span) -> dict[str, str]:
    opening = text[document[0] : text.index(">", document[0])]
    pairs = (attribute.split("=", 1) for attribute in _ATTRIBUTE.findall(opening))
    return {name.strip(): value.strip()[1:-1] for name, value in pairs}


def _follows(before: dict[str, str], now: dict[str, str]) -> bool:
    """Whether two documents differ only in one number, which goes on, and something names their common source."""
    differing = [name for name in before if before[name] != now.get(name)]
    if before.keys() != now.keys() or len(before) < 2 or len(differing) != 1:
        return False
    first, second = before[differing[0]], now[differing[0]]
    return (
        first.isascii() and first.isdigit() and second.isascii() and second.isdigit() and int(second) == int(first) + 1
    )


def _opening_line(text: str, tag: str, before: int) -> int | None:
    """The start of the line with the opening tag whose element encloses the text behind ``before``. None if there is no
    such tag."""
    opening = f"\n<{tag}"
    at = before
    for _ in range(_MOST_TAGS):
        at = text.rfind(opening, 0, at)
        if at < 0:
            is_first = text.startswith(opening[1:]) and len(opening) - 1 <= before
            return 0 if is_first and _ends_name(text, len(opening) - 1) else None
        if _ends_name(text, at + len(opening)):
            return at + 1
    raise TooMuch(Bound.MATCHES)


def _ends_name(text: str, position: int) -> bool:
    """Whether a tag's name ends here."""
    return text[position : position + 1] in (">", " ", "\t")


def _apart(spans: list[Span]) -> Iterator[Span]:
    """The spans without overlaps. The earlier span wins: a clock within a document is part of the document."""
    position = 0
    for span in spans:
        if span[0] >= position:
            yield span
            position = span[1]


def _with_breaks(text: str, spans: list[Span]) -> Iterable[Span]:
    """The spans with line breaks, so that each document is on its own lines at every place.

    If the text ends in a line break, each document takes the breaks behind it: then everything that a document can
    follow ends in a line break. Else it takes the breaks in front of it. So one template gives a document the same
    bytes in every place.
    """
    documents = [span for span in spans if span[3] is not PieceKind.VOLATILE]
    if not documents:
        return spans
    if text.endswith("\n") or documents[0][0] == 0:
        return _with_breaks_behind(text, spans)
    return _with_breaks_before(text, spans, [0, *(end for _, end, _, _ in documents)])


def _with_breaks_before(text: str, spans: list[Span], floors: list[int]) -> list[Span]:
    """Every document with one line break in front of it, and with the blank lines behind it. One break stays with the
    following text.

    At the end of a text, blank lines belong to the document behind them. ``floors`` are the earliest positions at which
    the breaks of each document may begin, and the end of the last document.
    """
    at_end = not text[floors.pop() :].strip()
    found: list[Span] = []
    limit = len(text)
    for start, end, key, kind in reversed(spans):
        if kind is PieceKind.VOLATILE:
            start, end = lines_before(text, (start, end), limit)
        elif at_end:
            start = break_before(text, start, floors.pop())
        else:
            is_last = not found or found[-1][3] is PieceKind.VOLATILE
            end = max(end, _behind_breaks(text, end) - 1) if is_last else limit
            start = one_break_before(text, start)
        found.append((start, end, key, kind))
        limit = start
    return found[::-1]


def _with_breaks_behind(text: str, spans: list[Span]) -> Iterator[Span]:
    """Every document with everything between it and the next one. The last document takes the line breaks behind it."""
    for (start, end, key, kind), following in zip(spans, [*spans[1:], None], strict=True):
        if kind is not PieceKind.VOLATILE:
            if following is not None and following[3] is not PieceKind.VOLATILE:
                end = following[0]
            else:
                end = _behind_breaks(text, end)
        yield start, end, key, kind


def _behind_breaks(text: str, end: int) -> int:
    found = _LINE_ENDS.match(text, end)
    return end if found is None else found.end()


def _cover(spans: Iterable[Span], length: int) -> Iterator[Cut]:
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
