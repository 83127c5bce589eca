"""System messages: cut into parts, and lines taken out of them.

A system text may be cut anywhere as long as the parts, joined, are the same text and the client's own borders stay.
Lines may be missing when they stand in the tag, in the same order; a line moves with the newline behind it, or, at the
end of a text, with the one before it.

Code between fences is one thing, with its fences. Documents inside the last leading system message may stand as parts
of their own, in any order, behind the rest of that message, as far as ``sections`` lets them.
"""

from collections import Counter
from dataclasses import dataclass, replace

from .sections import fences, pieces
from .view import View


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


def without_lines(original: View, sent: View, moved: list[str], starts: set[int]) -> set[int]:
    """Where in ``moved`` we may stand after this system message, if ``sent`` is it without some of those lines."""
    if original.texts is None or sent.texts is None or original.rest != sent.rest or original.role != sent.role:
        return set()
    if original.is_list and not sent.is_list:
        return set()
    for lines in (_trailing(original.texts), _leading(original.texts)):
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

    Those that do not stand there stay where they were; the rest keeps its order; each document is there once, with the
    newlines behind it. Else empty.
    """
    if original.texts is None or sent.texts is None or len(original.texts) != 1:
        return set()
    spans = pieces(original.joined)
    wanted = Counter(original.joined[start:end] for start, end in spans)
    fixed, at = original.joined, len(sent.texts)
    taken: list[str] = []
    while at > 1 and wanted[sent.texts[at - 1]] > 0:
        at -= 1
        wanted[sent.texts[at]] -= 1
        taken.append(sent.texts[at])
    for start, end in reversed(spans):
        if original.joined[start:end] in taken:
            taken.remove(original.joined[start:end])
            fixed = fixed[:start] + fixed[end:]
    if at == len(sent.texts):
        return set()
    return without_lines(_saying(original, (fixed,)), _saying(sent, sent.texts[:at]), moved, starts)


def _saying(message: View, texts: tuple[str, ...]) -> View:
    return replace(message, texts=texts, joined="".join(texts))
