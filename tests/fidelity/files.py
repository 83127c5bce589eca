"""Where the files of a context message begin and end, read from the text alone.

A message of files is an opening, then entries. An entry is a path line, an opening fence, the content and the closing
fence; or a fence line that carries the path; or a tagged block. Between entries stand blank lines.

The content of a file may itself hold fences. So an end is accepted only where the text goes on as a message of files
must: with a gap and the start of another entry, or not at all. A closing fence at the beginning of a line goes before
one that is glued to a last line without a newline, and that before one that leaves fence lines inside the content.
Entries whose content has such lines are *unclean*. In aider's messages two of them and all between are kept as one
entry, because nobody can tell from the text whether the inner borders are borders of files or lines of one file. In any
other message a fence ends where Markdown says it does, so that what follows it is prose: that is no message of files.

Several entries of one source (excerpts of a file, numbered parts of a document) and all between them are one entry:
they are read in their order.
"""

import re
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice

LONGEST_OPENING = 1500
_CLOSERS = {f"<{tag}>": f"</{tag}>" for tag in ("source", "code", "pre", "codeblock", "sourcecode")}
_TAGS = r"(?:file|document|doc|source|context|item|snippet|page|attachment)"

# How an entry begins: in a message that keeps to one fence (filled in later), and in any other message.
_ONE_FENCE_START = r"(?!{opener}|{closer})[^\n]+\n{opener}\n"
_ANY_START = (
    r"(?:(?!`{3}|~{3}|<)(?=[^\n]{0,240}[./])[^\n]{1,240}\n(?P<run>`{3,}|~{3,})[^\n`]*\n"
    r"|(?P<named>`{3,})[^\n`]*[./][^\n`]*\n"
    rf"|<(?P<tag>{_TAGS})\b[^>\n]*>)"
)
_ANY = re.compile(_ANY_START)
_ANY_AHEAD = re.sub(r"\?P<\w+>", "?:", _ANY_START)
_FIRST_ANY = re.compile(rf"^{_ANY_START}", re.MULTILINE)
_FIRST_FENCED = re.compile(r"(?<=\n)[^\n]+\n(?P<opener>`{3,}|" + "|".join(_CLOSERS) + r")\n")
_NAMED = re.compile(r"\b(?:path|name|source|src|filename|title|url)=[\"'](?P<name>[^\"'\n]+)")
_PIECE = re.compile(
    r"(?:[#?&:,(\[\s]\s*(?:(?:part|chunk|page|section|lines?|excerpt)\b[ =_-]*)?"
    r"L?\d+(?:\s*(?:-|/|:|,|of)\s*L?\d+)?[)\]]?)$",
    re.IGNORECASE,
)
_PARAGRAPH = re.compile(r"[^\n]+(?:\n[^\n]+)*")


@dataclass(frozen=True, slots=True)
class Entries:
    """A message of files taken apart: the opening, the entries' own bytes, and the gaps that stood between them."""

    opening: str
    cores: tuple[str, ...]
    gaps: frozenset[str]


@dataclass(frozen=True, slots=True)
class _End:
    """A place where an entry may end: the closing fence stands from ``content`` to ``close``, ``next`` follows.

    ``likely``: what follows looks like a path, or is the end of the text.
    """

    content: int
    close: int
    next: int
    at_line: bool
    likely: bool


@dataclass(frozen=True, slots=True)
class _Fence:
    """All possible ends under one fence, and the places where a line begins with it."""

    ends: list[_End]
    lines: list[int]

    def first_line(self, start: int) -> int:
        """Where the first line from ``start`` on begins that begins with the fence."""
        at = bisect_left(self.lines, start)
        return self.lines[at] if at < len(self.lines) else sys.maxsize

    def clean(self, start: int, end: _End) -> bool:
        """Whether no line between begins with the fence."""
        return end.content <= self.first_line(start)

    def candidates(self, start: int) -> Iterator[_End]:
        """Ends of the entry whose content begins at ``start``, the likeliest first."""
        index, first_line = bisect_left(self.ends, start, key=lambda end: end.content), self.first_line(start)
        clean = []
        while index < len(self.ends) and self.ends[index].content <= first_line:
            clean.append(self.ends[index])
            index += 1
        yield from sorted(clean, key=lambda end: (not end.likely, end.content != first_line))
        yield from islice(self.ends, index, None)


@lru_cache(maxsize=64)
def _end_pattern(closer: str, gap: str, start: str) -> re.Pattern[str]:
    return re.compile(rf"(?P<close>{closer})(?:{gap}(?={start})|\n*\Z)")


@lru_cache(maxsize=64)
def _line_pattern(opener: str, closer: str) -> re.Pattern[str]:
    return re.compile(rf"^(?:{opener}|{closer})", re.MULTILINE)


def _is_likely(text: str, at: int) -> bool:
    line = text[at : text.find("\n", at)]
    return at == len(text) or line.startswith(("<", "`")) or "/" in line or "." in line


def _ends(text: str, pattern: re.Pattern[str], glued: bool) -> list[_End]:
    ends = []
    for found in pattern.finditer(text):
        at_line = found.start() == 0 or text[found.start() - 1] == "\n"
        if at_line or glued:
            after = found.end()
            ends.append(_End(found.start(), found.end("close"), after, at_line, _is_likely(text, after)))
    return ends


def _lines(text: str, opener: str, closer: str) -> list[int]:
    return [found.start() for found in _line_pattern(opener, closer).finditer(text)]


def _one_fence(text: str, opener: str) -> tuple[re.Pattern[str], _Fence]:
    """aider: one fence, one blank line between files; the closing fence is glued where a last newline is missing."""
    own, closer = re.escape(opener), re.escape(_CLOSERS.get(opener, opener))
    start = _ONE_FENCE_START.format(opener=own, closer=closer)
    ends = _ends(text, _end_pattern(closer, r"\n\n", start), glued=True)
    return re.compile(start), _Fence(ends, _lines(text, own, closer))


def _any_fence(text: str, opener: str) -> _Fence:
    own, closer, glued = re.escape(opener), re.escape(opener), False
    if opener.startswith("<"):
        own, closer, glued = own + r"\b", re.escape(f"</{opener[1:]}>"), True
    return _Fence(_ends(text, _end_pattern(closer, r"\n+", _ANY_AHEAD), glued), _lines(text, own, closer))


@dataclass(slots=True)
class _Step:
    """One entry on the way through the text, and the ends that were not tried yet."""

    at: int
    body: int
    fence: _Fence
    rest: Iterator[_End]
    end: _End | None = None

    def take(self, failed: set[int]) -> bool:
        """Goes on to the next end that may lead somewhere."""
        self.end = next((end for end in self.rest if end.next not in failed), None)
        return self.end is not None

    @property
    def span(self) -> tuple[int, int, bool]:
        assert self.end is not None
        return self.at, self.end.close, self.fence.clean(self.body, self.end)


@dataclass(slots=True)
class _Reader:
    """Reads a text as entries. ``opener`` is the one fence of the message, or None where each entry has its own."""

    text: str
    opener: str | None
    fences: dict[str, _Fence] = field(default_factory=dict)
    failed: set[int] = field(default_factory=set)
    pattern: re.Pattern[str] = _ANY

    def __post_init__(self) -> None:
        if self.opener is not None:
            self.pattern, self.fences[self.opener] = _one_fence(self.text, self.opener)

    def _open(self, at: int) -> _Step | None:
        found = self.pattern.match(self.text, at)
        if found is None or at in self.failed:
            return None
        opener = self.opener or found.group("run") or found.group("named") or "<" + found.group("tag")
        if opener not in self.fences:
            self.fences[opener] = _any_fence(self.text, opener)
        fence = self.fences[opener]
        return _Step(at, found.end(), fence, fence.candidates(found.end()))

    def read(self, start: int) -> list[tuple[int, int, bool]] | None:
        """Start, end and cleanness of each entry from ``start`` to the end of the text; None if it is no such text."""
        path: list[_Step] = []
        at = start
        while at != len(self.text):
            step = self._open(at)
            if step is None:
                self.failed.add(at)
            else:
                path.append(step)
            while path and not path[-1].take(self.failed):
                self.failed.add(path.pop().at)
            if not path or path[-1].end is None:
                return None
            at = path[-1].end.next
        return [step.span for step in path]


def _glued_together(
    text: str, spans: list[tuple[int, int, bool]], source: Callable[[str], str]
) -> list[tuple[int, int]]:
    """The spans, with everything from the first unclean one to the last in one; so, too, the pieces of one source."""
    names = [source(text[start:end]) for start, end, _ in spans]
    unclean = [i for i, (_, _, clean) in enumerate(spans) if not clean]
    last = {name: index for index, name in enumerate(names)}
    reach = [max(last[name], unclean[-1] if i in unclean else 0) for i, name in enumerate(names)]
    whole: list[tuple[int, int]] = []
    index = 0
    while index < len(spans):
        first = end = index
        while index <= end:
            end = max(end, reach[index])
            index += 1
        whole.append((spans[first][0], spans[end][1]))
    return whole


def _first_line(core: str) -> str:
    return core.partition("\n")[0]


def _source(core: str) -> str:
    """What an entry is a piece of, as it says itself: its path without the words that tell which piece."""
    line = _first_line(core)
    named = _NAMED.search(line) if line.startswith("<") else None
    path = named.group("name") if named else line.strip("`~*#: ")
    return re.sub(_PIECE, "", path).strip() or path


def _entries(text: str, first: int, opener: str | None) -> Entries | None:
    opening = text[:first].rstrip("\n")
    spans = _Reader(text, opener).read(first) if first <= LONGEST_OPENING else None
    if (
        not spans
        or (opener is not None and not opening.strip())
        or (opener is None and not all(clean for _, _, clean in spans))
    ):
        return None
    whole = _glued_together(text, spans, _source if opener is None else _first_line)
    gaps = [text[end:start] for (_, end), (start, _) in zip(whole, whole[1:], strict=False)]
    cores = tuple(text[start:end] for start, end in whole)
    return Entries(opening, cores, frozenset([text[len(opening) : first], *gaps]))


def fenced(text: str) -> Entries | None:
    """A message that keeps to one fence, as aider's do: path line, fence, content, fence."""
    found = _FIRST_FENCED.search(text)
    return None if found is None else _entries(text, found.start(), found.group("opener"))


def fenced_or_tagged(text: str) -> Entries | None:
    """A message of files in any of the usual forms; each entry may have its own fence."""
    found = _FIRST_ANY.search(text, 0, LONGEST_OPENING + 400)
    return None if found is None else _entries(text, found.start(), None)


def blocks(text: str) -> Entries | None:
    """A message whose entries are paragraphs (aider's repository map: a path line, then lines of the outline)."""
    paragraphs = [(found.start(), found.end()) for found in _PARAGRAPH.finditer(text)]
    if len(paragraphs) < 2 or paragraphs[0][0] != 0:
        return None
    gaps = [text[end:start] for (_, end), (start, _) in zip(paragraphs, paragraphs[1:], strict=False)]
    return Entries(text[: paragraphs[0][1]], tuple(text[s:e] for s, e in paragraphs[1:]), frozenset(gaps))
