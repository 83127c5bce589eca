"""The parts of a preamble that change: volatile lines, tools and system messages.

Volatile lines are found by evidence: they changed from one request to the next while their neighbours did not. Only
hashes of the lines of a system text are remembered. A volatile region is the text between two runs of fixed lines.
These runs are found again, whatever the region says next time, in this session or in the client's next one. The regions
are laid over the cuts of a recogniser (``overlaid``).

``PreambleChanges`` counts how often the tools and the system messages of a client change. A sketch says to which
conversation a preamble belongs: side calls (a title, a summary, a commit message) often begin with the very same user
turn as their conversation, under other instructions. A sketch is the smallest checksums of the preamble's lines, or of
its words if there are few lines. Two sketches have about the same share in common as the whole texts (Broder 1997, "On
the resemblance and containment of documents").
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from heapq import nsmallest
from itertools import accumulate, islice, pairwise
from typing import Annotated
from zlib import crc32

from msgspec import Meta, Struct
from msgspec.structs import replace

from proxy.kit.value import dataclass, field
from proxy.planner.change_rates import fixed_hazard, read_text
from proxy.protocol.recognition import Cut, MessageKind, PieceKind, Recognition
from proxy.protocol.recognition.lines import MAX_LINES, Lines, Range, block_of, differences, fits, lines_before
from proxy.protocol.request.message import Message, piece_digest, sections_digest
from proxy.protocol.request.transcript import texts_of


def overlaid(base: Sequence[Cut], spans: Iterable[Range], parts: Sequence[Range], text: str) -> tuple[Cut, ...]:
    """The cuts, with volatile spans laid over fixed sections and over cuts that are volatile already. A span that
    touches any other cut is left out."""
    apart = [cut for cut in base if cut.kind not in (PieceKind.SECTION, PieceKind.VOLATILE)]
    wanted = [s for s in spans if not any(_touches(s, cut, text) for cut in apart)]
    if not wanted:
        return tuple(base)
    wanted += [(cut.start, cut.end) for cut in base if cut.kind is PieceKind.VOLATILE]
    lines = _before(_joined(wanted), [cut.start for cut in apart], text)
    joined = _whole_parts(list(_in_parts(lines, parts)), parts, text)
    borders = sorted({cut.start for cut in apart} | {cut.end for cut in apart} | {start for start, _ in parts})
    result: list[Cut] = []
    position = 0
    for start, end in (*joined, (len(text), len(text))):
        for border in (*borders[bisect_right(borders, position) : bisect_left(borders, start)], start):
            if border > position:
                result.append(_same(base, position, border))
                position = border
        if end > start:
            result.append(Cut(f"volatile:seen#{start}", PieceKind.VOLATILE, start, end))
            position = end
    return tuple(result)


def _touches(span: Range, cut: Cut, text: str) -> bool:
    """Whether a span holds more of a cut than the line break in front of the cut."""
    has_break_only = span[0] < cut.start and not text[cut.start : span[1]].strip()
    return cut.start < span[1] and span[0] < cut.end and not has_break_only


def _before(spans: Sequence[Range], starts: Sequence[int], text: str) -> list[Range]:
    """The spans as whole lines. A span leaves out the line break that belongs to the next piece: to a document, or to
    other lines that have left out theirs."""
    found: list[Range] = []
    limit = len(text)
    for start, end in reversed(spans):
        at = bisect_right(starts, start)
        limit = min(limit, starts[at]) if at < len(starts) else limit
        found.append(lines_before(text, (start, end), limit))
        limit = found[-1][0]
    return found[::-1]


def _same(base: Sequence[Cut], start: int, end: int) -> Cut:
    """The cut at a place over which no span was laid."""
    at = bisect_right(base, start, key=lambda cut: cut.start) - 1
    if at >= 0 and start < base[at].end and base[at].kind is not PieceKind.SECTION:
        return Cut(base[at].key, base[at].kind, start, end)
    return Cut(f"section:{start}", PieceKind.SECTION, start, end)


def _joined(spans: Iterable[Range]) -> list[Range]:
    found: list[Range] = []
    for start, end in sorted(spans):
        if found and start < found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def _in_parts(spans: Iterable[Range], parts: Sequence[Range]) -> Iterator[Range]:
    """The spans, divided where a part ends."""
    for start, end in spans:
        for begin, stop in parts[bisect_right(parts, start, key=lambda part: part[1]) :]:
            if begin >= end:
                break
            if max(start, begin) < min(end, stop):
                yield max(start, begin), min(end, stop)


def _whole_parts(spans: Sequence[Range], parts: Iterable[Range], text: str) -> list[Range]:
    """The spans. If only blank space would stay of a part, the whole part becomes a span."""
    wholes: list[Range] = []
    for begin, end in parts:
        inside = islice(spans, bisect_left(spans, begin, key=lambda span: span[0]), None)
        left: list[str] = []
        position = begin
        for start, stop in inside:
            if stop > end:
                break
            left.append(text[position:start])
            position = stop
        left.append(text[position:end])
        if position > begin and any(left) and not any(piece.strip() for piece in left):
            wholes.append((begin, end))
    return _joined([*spans, *wholes]) if wholes else list(spans)


_EDGE = 0
_MAX_CHANGED = 12
_MAX_WINDOW = 8
_MAX_REGIONS = 6
_MAX_FOUND = 3
_MAX_TEXT_LINES = 5_000
# If more places than this change, or move already, the text does not count as the same text.
_MAX_PLACES = 64


_Edge = Annotated[tuple[int, ...], Meta(min_length=1)]


class VolatileRegion(Struct, frozen=True, array_like=True):
    """A region that changes: in the system message in this ``place``, between the lines ``before`` and the lines
    ``after`` (hashes; 0 is the text's edge). ``lines`` is the number of lines that it had."""

    place: int
    before: _Edge
    after: _Edge
    lines: int = 0


Regions = tuple[VolatileRegion, ...]
"""The regions in which a client's system messages were seen to change."""


def joined_regions(known: Regions, more: Iterable[VolatileRegion]) -> Regions:
    """The ``known`` regions with those that were seen elsewhere."""
    places = {(region.place, region.before, region.after) for region in known}
    found = [region for region in more if (region.place, region.before, region.after) not in places]
    return (*known, *found)[-_MAX_REGIONS:] if found else known


LineHashes = tuple[int, ...]
"""The lines of a text, each as a hash."""


def learnt_lines(
    before: Sequence[LineHashes], head: Sequence[Message], regions: Regions
) -> tuple[list[LineHashes], Regions]:
    """The lines of a request's system messages, which the session remembers, and the ``regions`` with those in which
    they have changed since the previous request, whose lines are ``before``."""
    now = _lines_of(head)
    if len(before) == len(now):
        for place, (lines, message) in enumerate(zip(before, head, strict=True)):
            if lines != now[place] and _is_one_text(lines, now[place]):
                known = [region for region in regions if region.place == place]
                regions = joined_regions(regions, _changed(place, lines, message, known))
    return now, regions


def replaced_texts(before: Sequence[LineHashes], head: Sequence[Message]) -> frozenset[int]:
    """The places that now hold another text, not the same text with a few lines changed."""
    if len(before) != len(head):
        return frozenset(range(max(len(before), len(head))))
    pairs = enumerate(zip(before, _lines_of(head), strict=True))
    return frozenset(i for i, (old, new) in pairs if old != new and not _is_one_text(old, new))


def _lines_of(head: Sequence[Message]) -> list[LineHashes]:
    """The lines of the system messages, as hashes. None of a message that goes beyond the most lines of all of them, or
    stands behind such a message."""
    found: list[LineHashes] = []
    left = _MAX_TEXT_LINES
    for message in head:
        lines = message.derived(line_hashes) if left >= 0 else ()
        left -= len(lines)
        found.append(lines if left >= 0 else ())
    return found


def _is_one_text(before: Sequence[int], after: Sequence[int]) -> bool:
    """Whether most of a text stayed as it was. If not, another text has replaced it, for instance because a client
    changed to another mode and back. Such instructions do not count as volatile lines."""
    same = (Counter(before) & Counter(after)).elements()
    return 2 * _chars(same) >= max(_chars(before), _chars(after))


def _chars(lines: Iterable[int]) -> int:
    """The length of the lines, with their line ends. A hash begins with its line's length."""
    return sum((line >> 32) + 1 for line in lines)


@dataclass(frozen=True, slots=True)
class _Lines:
    """A message's lines, and the places where each begins and ends in the text. Between two parts of a content list
    there is an empty line of no length."""

    texts: Lines
    spans: tuple[Range, ...]
    parts: tuple[Range, ...]

    @classmethod
    def of(cls, texts: Sequence[str]) -> "_Lines":
        spans: list[Range] = []
        parts: list[Range] = []
        at = 0
        for text in texts:
            if parts:
                spans.append((at, at))
            starts = list(accumulate((len(line) + 1 for line in text.split("\n")), initial=at))
            starts[-1] = at + len(text)
            spans += pairwise(starts)
            parts.append((at, starts[-1]))
            at = starts[-1]
        return cls(Lines(_split(texts)), tuple(spans), tuple(parts))

    def span(self, first: int, last: int) -> Range:
        return self.spans[first][0], self.spans[last - 1][1]


def _split(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple("\n\n".join(texts).split("\n"))


@dataclass(frozen=True, slots=True)
class _Moving:
    """Lines that are known to move, either because they are volatile (``is_volatile``) or with a document."""

    first: int
    last: int
    is_volatile: bool


def line_hashes(message: Message) -> tuple[int, ...]:
    """One hash for each line of the message's text. Empty if there is no text, or if it is too long."""
    texts = texts_of(message)
    lines = _split(texts) if texts is not None else ()
    return tuple(map(_line_hash, lines)) if len(lines) <= _MAX_TEXT_LINES else ()


def _line_hash(line: str) -> int:
    """A hash that is the same in every process. It is never 0, which stands for the text's edge."""
    data = line.encode("utf-8", "surrogatepass")
    return (len(data) << 32 | crc32(data)) or 1


_BLANK = _line_hash("")


def with_evidence(message: Message, place: int, known_regions: Regions) -> Message:
    """The message in this ``place`` with its volatile regions cut out as volatile pieces."""
    regions = tuple(region for region in known_regions if region.place == place)
    return message.derived(_cut, regions) if regions else message


def _changed(
    place: int, before: Sequence[int], message: Message, known: Sequence[VolatileRegion]
) -> list[VolatileRegion]:
    """The regions in which two versions differ. None are returned if they differ too much to count as the same text."""
    texts, after = texts_of(message), message.derived(line_hashes)
    if texts is None or not after:
        return []
    changes: list[Range] = []
    for low, high, first, last in differences(before, after):
        if max(high - low, last - first) > _MAX_CHANGED:
            return []
        changes.append((first, last))
    lines = _Lines.of(texts)
    cuts = message.recognition.cuts if message.recognition is not None else ()
    # Lines of no length only separate two parts.
    whole = [(index, start, end) for index, (start, end) in enumerate(lines.spans) if start < end]
    moving = [*_half_found(after, known)]
    for cut in cuts:
        first = bisect_left(whole, cut.start, key=lambda line: line[1])
        last = bisect_left(whole, cut.end, key=lambda line: line[1])
        if cut.kind is not PieceKind.SECTION and first < last:
            moving.append(_Moving(whole[first][0], whole[last - 1][0] + 1, cut.kind is PieceKind.VOLATILE))
    if max(len(changes), sum(one.is_volatile for one in moving)) > _MAX_PLACES:
        return []
    found = list(_regions(place, lines, after, changes, moving))
    is_whole = any(region.before == region.after == (_EDGE,) for region in found)
    return [] if len(found) > _MAX_FOUND or (is_whole and place == 0) else found


def _half_found(hashes: Sequence[int], known: Iterable[VolatileRegion]) -> Iterator[_Moving]:
    """The known regions of which only the lines on one side are still there: those on the other side move, too."""
    padded = (_EDGE, *hashes, _EDGE)
    for region in known:
        above, below = _places(padded, region.before), _places(padded, region.after)
        if len(above) == 1:
            first = above[0] + len(region.before) - 1
            yield _Moving(first, min(first + region.lines, len(hashes)), True)
        elif len(below) == 1:
            yield _Moving(max(0, below[0] - 1 - region.lines), below[0] - 1, True)


def _regions(
    place: int, lines: _Lines, hashes: Sequence[int], changes: Sequence[Range], moving: Sequence[_Moving]
) -> Iterator[VolatileRegion]:
    """The changed lines, each with the whole block that it belongs to, between lines that have not changed. Two regions
    are joined if no line between them identifies the place."""
    fresh = [one for one in changes if not any(m.first <= one[0] and one[1] <= m.last for m in moving)]
    blocks = [block for one in fresh if (block := block_of(lines.texts, *one)) is not None]
    loose = [*changes, *blocks, *((m.first, m.last) for m in moving)]
    ground = _Ground(
        (_EDGE, *hashes, _EDGE),
        {first for first, last in changes if first == last},
        {line for first, last in loose for line in range(first + 1, last + 1)},
    )
    groups: list[Range] = []
    for first, last in sorted({*blocks, *((m.first, m.last) for m in moving if m.is_volatile)}):
        if groups and (first <= groups[-1][1] or not ground.window(groups[-1][1], 1)):
            joined = groups[-1][0], max(last, groups[-1][1])
            if fits(lines.texts, *joined):
                groups[-1] = joined
                continue
        groups.append((first, last))
    for first, last in groups:
        above, below = ground.window(first, -1), ground.window(last, 1)
        if above and below and any(first <= block[0] and block[1] <= last for block in blocks):
            yield VolatileRegion(place, above, below, last - first)


@dataclass(slots=True)
class _Ground:
    """The lines of a text that do not change. ``borders`` are the places where lines were removed: the lines behind
    such a place are not its old neighbours. ``loose`` are the lines that are volatile."""

    padded: tuple[int, ...]
    borders: set[int]
    loose: set[int]
    counts: dict[int, Counter[tuple[int, ...]]] = field(default_factory=dict)

    def window(self, at: int, step: int) -> tuple[int, ...]:
        """The nearest lines on one side that identify the place: as few as are needed to occur only once. Empty if
        there are none."""
        found: list[int] = []
        index = at if step < 0 else at + 1
        tells = False
        while 0 <= index < len(self.padded) and index not in self.loose and len(found) < _MAX_WINDOW:
            if found and (index if step < 0 else index - 1) in self.borders:
                break
            found.append(self.padded[index])
            tells = tells or self.padded[index] != _BLANK
            size = len(found)
            if tells and size not in self.counts:
                # All runs of one length are counted at once.
                self.counts[size] = Counter(zip(*(self.padded[start:] for start in range(size)), strict=False))
            if tells and self.counts[size][tuple(found[::step])] == 1:
                break
            index += step
        return tuple(found[::step]) if tells else ()


def _places(padded: Sequence[int], window: Sequence[int]) -> list[int]:
    """The places where these lines occur, each as the index of the first line."""
    found: list[int] = []
    at = -1
    size = len(window)
    while True:
        try:
            at = padded.index(window[0], at + 1)
        except ValueError:
            return found
        if tuple(padded[at : at + size]) == tuple(window):
            found.append(at)


def _cut(message: Message, regions: Sequence[VolatileRegion]) -> Message:
    texts = texts_of(message)
    known = message.recognition
    if texts is None or (known is not None and known.form is not MessageKind.SYSTEM):
        return message
    text = "".join(texts)
    lines, hashes = _Lines.of(texts), message.derived(line_hashes)
    base = known.cuts if known is not None else (Cut("section:0", PieceKind.SECTION, 0, len(text)),)
    spans = [span for region in regions if (span := _span(lines, hashes, region)) is not None]
    cuts = overlaid(base, spans, lines.parts, text)
    if [(c.kind, c.start, c.end) for c in cuts] == [(c.kind, c.start, c.end) for c in base]:
        return message
    digests = tuple(piece_digest(text[c.start : c.end]) for c in cuts)
    recognition = Recognition("system", MessageKind.SYSTEM, cuts)
    return replace(
        message,
        fixed=sections_digest(text, cuts),
        recognition=recognition,
        text=text,
        cut_digests=digests,
        memo={(line_hashes,): hashes},
    )


def _span(lines: _Lines, hashes: Sequence[int], region: VolatileRegion) -> Range | None:
    """The place of the region in this text: whole lines, with their line ends."""
    padded = (_EDGE, *hashes, _EDGE)
    ends = _places(padded, region.after)
    most = min(MAX_LINES, region.lines + _MAX_CHANGED)
    found: dict[int, int] = {}
    for at in _places(padded, region.before):
        first = at + len(region.before)
        nearest = bisect_left(ends, first)
        last = ends[nearest] if nearest < len(ends) and ends[nearest] <= first + most else None
        if last is not None and any(line.strip() for line in lines.texts[first - 1 : last - 1]):
            # If two candidates end in the same place, the nearer one is meant.
            found[last - 1] = first - 1
    if len(found) != 1:
        return None
    ((last, first),) = found.items()
    block = block_of(lines.texts, first, last)
    return lines.span(*block) if block is not None and block[0] < block[1] else None


def changed_places(before: tuple[bytes, ...], after: tuple[bytes, ...]) -> frozenset[int]:
    """The places at which two heads differ."""
    return frozenset(i for i in range(max(len(before), len(after))) if before[i : i + 1] != after[i : i + 1])


Sketch = frozenset[int]

_SIZE = 64
_FEW_LINES = 8
_ALIKE = 0.4
_MAX_CHARS = 200_000
_MOST_BYTES = 1 << 20


def sketch_of(preamble: Iterable[Message]) -> Sketch:
    """The sketch of a request's system messages, as far as they are read; each message is read once."""
    found: set[int] = set()
    left = _MAX_CHARS
    for message in preamble:
        if left <= 0:
            break
        found |= message.derived(_sketch)
        left -= len(message.raw)
    return frozenset(nsmallest(_SIZE, found))


def are_alike(one: Sketch, other: Sketch) -> bool:
    """Whether two heads have much in common. Two requests without a head are alike, too."""
    if one == other:
        return True
    smallest = nsmallest(_SIZE, one | other)
    return len(one & other & set(smallest)) >= _ALIKE * len(smallest)


def _sketch(message: Message) -> Sketch:
    text = message.text
    if text is None:
        # Reading all of a larger message would hold up all other requests.
        text = message.lead if len(message.raw) > _MOST_BYTES else read_text(message)
    text = text[:_MAX_CHARS]
    pieces = [line for line in text.split("\n") if line.strip()]
    if len(pieces) < _FEW_LINES:
        pieces = text.split()
    return frozenset(nsmallest(_SIZE, {crc32(piece.encode("utf-8", "surrogatepass")) for piece in pieces}))


# P(the next request has yet another text in a place whose text has just been replaced), before anything was seen. Most
# new texts stay for one request only.
_FRESH_CHANGE = 0.6


_Count = Annotated[int, Meta(ge=0)]


class PlaceChanges(Struct, array_like=True):
    """How often the next request had another text in one place.

    ``seen`` and ``changes`` count texts that had been in their place for at least one request. ``fresh_seen`` and
    ``fresh_changes`` count texts that had just replaced another text: some of them stay for one request only (a
    question asked in another mode), some change with every request.
    """

    seen: _Count = 0
    changes: _Count = 0
    fresh_seen: _Count = 0
    fresh_changes: _Count = 0


class PreambleChanges(Struct, array_like=True):
    """How often tools and system messages changed from one request of a session to the next, by their place, and the
    regions that were seen to be volatile."""

    places: list[PlaceChanges] = []
    regions: Regions = ()

    def add(self, before: tuple[bytes, ...], after: tuple[bytes, ...], fresh: frozenset[int] = frozenset()) -> None:
        """Count one pair of consecutive requests. ``fresh`` are the places where the first of them had a new text."""
        for place in range(max(len(before), len(after))):
            if place == len(self.places):
                self.places.append(PlaceChanges())
            counts, is_changed = self.places[place], before[place : place + 1] != after[place : place + 1]
            if place in fresh:
                counts.fresh_seen += 1
                counts.fresh_changes += is_changed
            else:
                counts.seen += 1
                counts.changes += is_changed

    def of(self, place: int) -> tuple[int, int]:
        """How many requests had this place, and how many of them had changed it."""
        counts = self.places[place] if place < len(self.places) else PlaceChanges()
        return counts.seen + counts.fresh_seen, counts.changes + counts.fresh_changes

    def requests(self) -> int:
        return sum(place.seen + place.fresh_seen for place in self.places)

    def hazard(self, place: int, prior: float, *, is_fresh: bool = False, is_edited: bool = False) -> float:
        """-ln P(unchanged in the next request); ``prior`` is the probability of a change before anything was seen.

        ``is_fresh``: another text has just come to this place. ``is_edited``: the same text has just changed in part.
        This change counts already: a date or a setting changes rarely, a counter changes each time.
        """
        counts = self.places[place] if place < len(self.places) else PlaceChanges()
        if is_fresh:
            prior = max(prior, _FRESH_CHANGE)
            return fixed_hazard(counts.fresh_seen + is_edited, counts.fresh_changes + is_edited, prior)
        return fixed_hazard(counts.seen + is_edited, counts.changes + is_edited, prior)
