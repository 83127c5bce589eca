"""The lines of a text: fenced code among them, the line breaks between pieces, and the lines that differ.

The lines in which blocks are searched come first, with their fenced code and their tags.

Then come line breaks. A provider joins the parts of a message with nothing between them. A piece that is moved takes
the line breaks in front of it along, so it begins a line of its own behind any other piece. The pieces that stay are
separated by the line breaks behind the moved piece. A carriage return belongs to the line that it ends.

At the end, the lines are found in which two versions of a text differ, also if the text is long and the differences are
far apart. Lines that occur once in each version, in the same order, are matched ("patience diff"). The lines between
two matches are compared again in the same way, so the time grows with the number of lines and not with its square.
"""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

MAX_LINES: Final = 48
MAX_CHARS: Final = 2_000
"""A block of lines that may be moved is not longer than this."""

OPEN = re.compile(r"^\s*+<([A-Za-z][\w.-]*+)(?:\s[^<>]*+)?>\s*+$")
CLOSE = re.compile(r"^\s*+</([A-Za-z][\w.-]*+)>\s*+$")

FENCE = re.compile(r"^\s*+(`{3,}+|~{3,}+)")
FENCE_LINE = re.compile(r"^(`{3,64}+|~{3,64}+)", re.MULTILINE)

Range = tuple[int, int]


class Lines(tuple[str, ...]):
    """The lines of a text. If a line is too long for any block, only its two ends are kept, which together are still
    too long."""

    _fenced: dict[bool, tuple[Range, ...]]

    def __new__(cls, lines: Iterable[str]) -> "Lines":
        """The lines, each without its line break."""
        found = super().__new__(
            cls, (line if len(line) <= 2 * MAX_CHARS else line[:MAX_CHARS] + line[-MAX_CHARS:] for line in lines)
        )
        found._fenced = {}
        return found

    def with_code(self, first: int, last: int, *, is_strict: bool) -> Range:
        """These lines, extended to both ends of all fenced code that contains any of them. ``is_strict``: a fence may
        be indented, and a closing fence stands alone on its line. Otherwise a closing fence may be followed by more
        text."""
        if is_strict not in self._fenced:
            self._fenced[is_strict] = tuple(self._pairs(is_strict))
        known = self._fenced[is_strict]
        at = bisect_left(known, first, key=lambda pair: pair[1])
        if at < len(known) and known[at][0] < last:
            first = min(first, known[at][0])
            end = bisect_left(known, last, key=lambda pair: pair[0])
            last = max(last, known[end - 1][1] + 1)
        return first, last

    def _pairs(self, is_strict: bool) -> Iterator[Range]:
        """The lines of the fences: each opening fence with its closing one.

        If fenced code and a pair of tags overlap, it is unclear which fence opens and which one closes. So everything
        from there on counts as code.
        """
        opens, closes = self._tags()
        for opened, closed in self._fences(is_strict):
            if self._crosses_tags(opened, closed, opens, closes):
                yield opened, opened + len(self) + MAX_LINES
                return
            yield opened, closed

    def _tags(self) -> tuple[dict[str, int], dict[str, int]]:
        """For each name of a tag, the first line that opens it, and the last line that closes it."""
        opens: dict[str, int] = {}
        closes: dict[str, int] = {}
        for index, line in enumerate(self):
            if "<" not in line:
                continue
            if found := OPEN.match(line):
                opens.setdefault(found[1], index)
            elif found := CLOSE.match(line):
                closes[found[1]] = index
        return opens, closes

    def _crosses_tags(self, first: int, last: int, opens: dict[str, int], closes: dict[str, int]) -> bool:
        """Whether a tag between these lines belongs together with a tag outside of them."""
        inside: list[str] = []
        for line in self[first + 1 : last]:
            if "<" not in line:
                continue
            if found := OPEN.match(line):
                inside.append(found[1])
            elif found := CLOSE.match(line):
                if not inside and opens.get(found[1], first) < first:
                    return True
                if inside:
                    inside.pop()
        return any(closes.get(name, last) > last for name in inside)

    def _fences(self, is_strict: bool) -> Iterator[Range]:
        opened, fence = -1, ""
        for index, line in enumerate(self):
            if "```" not in line and "~~~" not in line:
                continue
            found = (FENCE if is_strict else FENCE_LINE).match(line)
            if found is None:
                continue
            if not fence:
                opened, fence = index, found.group(1)
            elif line.strip() == fence if is_strict else line.startswith(fence):
                yield opened, index
                fence = ""


_BLANKS = " \t\r\n"


def break_before(text: str, position: int, floor: int = 0) -> int:
    """The position where the line breaks in front of ``position`` begin: the end of the last line that has text, but
    not before ``floor``. If no line ends there, it is ``position`` itself."""
    said = floor + len(text[floor:position].rstrip(_BLANKS))
    end = text.find("\n", said, position)
    return position if end < 0 else end


def one_break_before(text: str, position: int) -> int:
    """The position of the single line break directly in front of ``position``; ``position`` itself if there is none."""
    return position - text.endswith("\n", 0, position)


def lines_before(text: str, lines: Range, limit: int) -> Range:
    """Whole lines that end before ``limit``. If the line break behind them is beyond the limit, they get the line break
    in front of them instead."""
    start, end = lines
    if end <= limit or text.startswith("\n", start):
        return start, min(end, limit)
    return one_break_before(text, start), limit


def bare_lines(text: str, lines: Range) -> str:
    """Whole lines. If the line break behind them belongs to another piece, the line break in front of them is
    removed."""
    start, end = lines
    is_shifted = not text.endswith("\n", start, end) and text.startswith("\n", end)
    return text[start:end].removeprefix("\n") if is_shifted else text[start:end]


def stay_apart(before: str, texts: Iterable[str]) -> bool:
    """Whether the texts can follow ``before`` and each other in any order, so that none begins on another's last
    line."""
    found = list(texts)
    return all(text.startswith("\n") for text in found) or all(text.endswith("\n") for text in (before, *found))


def can_follow(before: str, texts: Iterable[str]) -> bool:
    """Whether each of the texts can stand alone behind ``before`` without beginning on its last line."""
    return not before or before.endswith("\n") or all(text.startswith("\n") for text in texts)


# The greatest number of such rounds. Ranges that are still unmatched then differ as a whole.
_MOST_ROUNDS = 4

_Chain = tuple[tuple[int, int], "_Chain | None"]
"""A pair, and the chain of the pairs in front of it."""

Difference = tuple[int, int, int, int]
"""A range of lines of the earlier version (start and end), and the range in its place in the later version."""


def differences(before: Sequence[int], after: Sequence[int]) -> list[Difference]:
    """All differences, in order. Lines are compared as hashes."""
    return list(_differences(before, after, (0, len(before), 0, len(after)), _MOST_ROUNDS))


def _differences(before: Sequence[int], after: Sequence[int], span: Difference, rounds: int) -> Iterator[Difference]:
    low, high, first, last = span
    while low < high and first < last and before[low] == after[first]:
        low, first = low + 1, first + 1
    while low < high and first < last and before[high - 1] == after[last - 1]:
        high, last = high - 1, last - 1
    same = _anchors(before[low:high], after[first:last]) if rounds and low < high and first < last else []
    if not same:
        if low < high or first < last:
            yield low, high, first, last
        return
    old, new = low, first
    for at, place in (*same, (high - low, last - first)):
        yield from _differences(before, after, (old, low + at, new, first + place), rounds - 1)
        old, new = low + at + 1, first + place + 1


def _anchors(before: Sequence[int], after: Sequence[int]) -> list[tuple[int, int]]:
    """The longest list of lines that occur once in each version and have the same order in both."""
    counts, others = Counter(before), Counter(after)
    places = {line: index for index, line in enumerate(after) if others[line] == 1}
    return in_order((index, places[line]) for index, line in enumerate(before) if counts[line] == 1 and line in places)


def in_order(pairs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The most of these pairs whose second numbers ascend. The second numbers differ. The time is n log n."""
    tails: list[int] = []
    ends: list[_Chain] = []
    for pair in pairs:
        at = bisect_left(tails, pair[1])
        tails[at : at + 1], ends[at : at + 1] = [pair[1]], [(pair, ends[at - 1] if at else None)]
    found: list[tuple[int, int]] = []
    chain = ends[-1] if ends else None
    while chain is not None:
        pair, chain = chain
        found.append(pair)
    return found[::-1]
