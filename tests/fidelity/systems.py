"""System messages: cut into parts, and lines taken out of them.

A system text may be cut anywhere as long as the parts, joined, are the same text and the client's own borders stay.
Lines may be missing when they stand in the tag, in the same order; a line moves with the newline behind it, or, at the
end of a text, with the one before it.

Code between fences is one thing, with its fences. Documents inside the last leading system message may stand as parts
of their own, in any order, behind the rest of that message, as far as ``sections`` lets them.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from .sections import fences, pieces
from .view import View

_WHITE = " \t\r\n"


@dataclass(frozen=True, slots=True)
class _Line:
    """One line with the newline that moves with it. ``part`` is the text of the message that it stands in; ``code``:
    the fences it stands between, or which it is, by number; they move with all between them, or not at all."""

    text: str
    bare: str
    part: int
    code: int | None = None


def _trailing(texts: tuple[str, ...]) -> list[_Line]:
    """Lines that own the newline behind them."""
    lines = []
    for part, text in enumerate(texts):
        pieces = text.split("\n")
        lines += [_Line(piece + "\n", piece, part) for piece in pieces[:-1]]
        if pieces[-1]:
            lines.append(_Line(pieces[-1], pieces[-1], part))
    return lines


def _leading(texts: tuple[str, ...]) -> list[_Line]:
    """Lines that own the newline before them."""
    lines = []
    for part, text in enumerate(texts):
        first, *others = text.split("\n")
        lines += [_Line(first, first, part)] if first else []
        lines += [_Line("\n" + piece, piece, part) for piece in others]
    return lines


def _both(text: str) -> Iterator[list[_Line]]:
    """The lines in front of documents own the newline before them, those behind them the one behind: a text may begin
    with lines that move, where the newline behind them goes with a document, and end with such lines, too."""
    spans = pieces(text)
    if spans:
        yield _meeting_at(text, text.count("\n", 0, spans[0][0]))


def _meeting_at(text: str, number: int) -> list[_Line]:
    """Lines of which those before this one own the newline before them, and those behind it the one behind."""
    leading, trailing = _leading((text,)), _trailing((text,))
    bare = text.split("\n")
    if not 0 < number < len(bare) - 1:
        return trailing
    joint = _Line("\n" + bare[number] + "\n", bare[number], 0)
    return [*leading[: number - (not bare[0])], joint, *trailing[number + 1 :]]


def _moved_at_end(text: str, moved: Sequence[str]) -> Iterator[list[_Line]]:
    """Where a text ends with lines that move, these own the newline before them, and all others the one behind."""
    bare = text.split("\n")
    stop = len(bare)
    while stop > 1 and bare[stop - 1] in moved:
        stop -= 1
    if stop < len(bare) and bare[stop - 1]:
        last = _Line(bare[stop - 1], bare[stop - 1], 0)
        yield [*_trailing((text,))[: stop - 1], last, *_leading((text,))[stop - (not bare[0]) :]]


def _with_code(lines: list[_Line], texts: tuple[str, ...]) -> list[_Line]:
    """The same, those between fences marked as such. A part begins on a line of its own."""
    code, starts = fences("\n".join(texts)), _starts(texts)
    found, part, at = [], -1, 0
    for line in lines:
        if line.part != part:
            at, part = starts[line.part], line.part
        first = at if line.text == line.bare + "\n" else at + len(line.text) - len(line.bare)
        found.append(replace(line, code=next((i for i, (start, end) in enumerate(code) if start <= first < end), None)))
        at += len(line.text)
    return found


def _starts(texts: tuple[str, ...]) -> list[int]:
    """Where each part begins, where they are joined with a line's end."""
    return [sum(len(text) + 1 for text in texts[:part]) for part in range(len(texts))]


def _walk(lines: list[_Line], sent: View, moved: list[str], start: int) -> set[int]:
    """How many of the moved lines are used up once ``sent`` is read as ``lines`` without moved[start:...]. The client's
    borders must be where they were: of two ways to read the same text one may put them elsewhere."""
    text, cuts = sent.joined, sent.cuts
    reached: set[int] = set()
    seen: set[tuple[int, int, int, bool]] = set()
    pending = [(0, start, 0, False)]
    while pending:
        index, used, at, moves = pending.pop()
        if (index, used, at, moves) in seen:
            continue
        seen.add((index, used, at, moves))
        if index == len(lines):
            if at == len(text):
                reached.add(used)
            continue
        line = lines[index]
        is_border = index > 0 and line.part != lines[index - 1].part
        if is_border and 0 < at < len(text) and at not in cuts:
            continue
        within = index > 0 and line.code is not None and line.code == lines[index - 1].code
        if used < len(moved) and line.bare == moved[used] and (moves or not within):
            pending.append((index + 1, used + 1, at, True))
        if text.startswith(line.text, at) and not (moves and within):
            pending.append((index + 1, used, at + len(line.text), False))
    return reached


def without_lines(
    original: View, sent: View, moved: list[str], starts: set[int], more: Sequence[list[_Line]] = ()
) -> set[int]:
    """Where in ``moved`` we may stand after this system message, if ``sent`` is it without some of those lines.

    ``more`` are further ways to say which line owns which newline.
    """
    if original.texts is None or sent.texts is None or original.rest != sent.rest or original.role != sent.role:
        return set()
    if original.is_list and not sent.is_list:
        return set()
    single = (*_both(original.joined), *_moved_at_end(original.joined, moved)) if len(original.texts) == 1 else ()
    for lines in (_trailing(original.texts), _leading(original.texts), *single, *more):
        known = _with_code(lines, original.texts)
        reached = set().union(*(_walk(known, sent, moved, start) for start in starts))
        if reached:
            return reached
    return set()


def wholly_moved(original: View, moved: list[str], starts: set[int]) -> set[int]:
    """Where in ``moved`` we may stand if all lines of this system message were taken out and it is gone."""
    if original.texts is None or not original.joined:
        return set()
    bare = [line.bare for line in _trailing(original.texts)]
    return {start + len(bare) for start in starts if moved[start : start + len(bare)] == bare}


def with_documents_moved(original: View, sent: View, moved: list[str], starts: set[int]) -> set[int]:
    """As ``without_lines``, where its documents stand behind the rest of the text, parts of their own in any order.

    All of them stand there, once; the rest keeps its order. The white space around them is there as often as the client
    wrote it, and stays between what it stood between: with the documents, or where they were.
    """
    if original.texts is None or sent.texts is None or len(original.texts) != 1:
        return set()
    spans = pieces(original.joined)
    last = len(sent.texts) - len(spans)
    if not spans or last < 1:
        return set()
    text, behind = original.joined, sent.texts[last:]
    if sorted(text[start:end] for start, end in spans) != sorted(part.strip(_WHITE) for part in behind):
        return set()
    rest = _saying(sent, sent.texts[:last])
    number = text[: spans[0][0]].rstrip(_WHITE).count("\n") + 1
    readings = (
        without_lines(_saying(original, (each,)), rest, moved, starts, [_meeting_at(each, number)])
        for each in _rests(text, spans, behind)
    )
    return next((reached for reached in readings if reached), set())


def _rests(text: str, spans: list[tuple[int, int]], behind: tuple[str, ...]) -> Iterator[str]:
    """What may be left of a text whose documents went with some of the white space around them."""
    before, after = text[: spans[0][0]].rstrip(_WHITE), text[spans[-1][1] :].lstrip(_WHITE)
    white = text[len(before) : spans[0][0]]
    for (_, end), (start, _) in pairwise(spans):
        white += text[end:start]
    white += text[spans[-1][1] : len(text) - len(after)]
    edges = [part[: len(part) - len(part.lstrip(_WHITE))] + part[len(part.rstrip(_WHITE)) :] for part in behind]
    taken = Counter("".join(edges))
    left = len(white) - taken.total()
    for preamble in range(left + 1):
        hole = white[:preamble] + white[len(white) - (left - preamble) :]
        if Counter(hole) + taken == Counter(white):
            yield before + hole + after


def _saying(message: View, texts: tuple[str, ...]) -> View:
    return replace(message, texts=texts, joined="".join(texts))


def glued(original: View, sent: View, taken: Sequence[str] = ()) -> int:
    """How many lines of what is sent, its parts joined, are none of the client's: two that stood apart make one.

    What the client itself put into several parts may stand on one line where these are joined: the last line of a part,
    and the first one of another, or the first one that stays behind lines that were ``taken`` out.
    """
    texts = original.texts or ()
    own = {line.strip() for text in (original.joined, *texts) for line in text.split("\n")}
    gone = {line.strip() for line in taken}
    firsts, lasts = ({text.split("\n")[end].strip() for text in texts} for end in (0, -1))
    firsts |= {next((line for each in text.split("\n") if (line := each.strip()) not in gone), "") for text in texts}
    strange = [line for each in sent.joined.split("\n") if (line := each.strip()) and line not in own]
    return sum(1 for line in strange if len(texts) < 2 or not _is_joint(line, firsts, lasts))


def _is_joint(line: str, firsts: set[str], lasts: set[str]) -> bool:
    """Whether a line is the end of one part, and then beginnings of others."""
    reached = {len(last) for last in lasts if line.startswith(last)}
    pending = list(reached)
    while pending:
        at = pending.pop()
        for first in firsts:
            while line[at : at + 1] in (" ", "\t"):
                at += 1
            stop = at + len(first)
            if first and stop not in reached and line.startswith(first, at):
                reached.add(stop)
                pending.append(stop)
    return len(line) in reached
