"""Lays spans of a text that were seen to change over the cuts of a recogniser."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from proxy.core.recognition.lines import Range, lines_before
from proxy.core.recognition.pieces import Cut, PieceKind


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
