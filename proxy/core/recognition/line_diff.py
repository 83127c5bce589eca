"""Finds in which lines two versions of a text differ, also where the text is long and the differences are far apart."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import accumulate

# What is compared line with line: the time that it takes grows with the square, with many equal lines even faster. The
# steps are about a tenth of a second.
_MAX_LINES = 480
_MOST_STEPS = 1_000_000

Difference = tuple[int, int, int, int]
"""The lines of the earlier version, from and to, and those that stand there in the later one."""


def differences(before: Sequence[int], after: Sequence[int]) -> list[Difference] | None:
    """All differences, in order. None where the versions differ too much to say which lines stand for which. Lines are
    compared as hashes."""
    found: list[Difference] = []
    effort = _Effort(_MOST_STEPS)
    low = first = 0
    start, stop, end = _trimmed(before, after, 0, len(before), 0, len(after))
    anchors = _anchors(before, after, start, stop, end) if max(stop, end) - start > _MAX_LINES else []
    for high, last in (*anchors, (len(before), len(after))):
        begin, low_end, last_end = _trimmed(before, after, low, high, first, last)
        first += begin - low
        if max(low_end - begin, last_end - first) > _MAX_LINES:
            return None
        compared = _compared(before, after, (begin, low_end, first, last_end), effort)
        if compared is None:
            return None
        found += compared
        low, first = high + 1, last + 1
    return found


def _trimmed(
    before: Sequence[int], after: Sequence[int], low: int, high: int, first: int, last: int
) -> tuple[int, int, int]:
    """The start of the first difference in the earlier version, and the end of the last difference in both versions."""
    start = 0
    while start < min(high - low, last - first) and before[low + start] == after[first + start]:
        start += 1
    while high > low + start and last > first + start and before[high - 1] == after[last - 1]:
        high, last = high - 1, last - 1
    return low + start, high, last


def _anchors(before: Sequence[int], after: Sequence[int], start: int, stop: int, end: int) -> list[tuple[int, int]]:
    """Lines that stand once in each version, in the same order in both: as many as there are."""
    counts, others = Counter(before), Counter(after)
    places = {line: index for index, line in enumerate(after[:end]) if others[line] == 1}
    pairs = [
        (index, places[line])
        for index, line in enumerate(before[:stop])
        if index >= start and counts[line] == 1 and line in places
    ]
    tails: list[int] = []
    ends: list[int] = []
    previous: list[int] = []
    for number, (_, place) in enumerate(pairs):
        at = bisect_left(tails, place)
        previous.append(ends[at - 1] if at else -1)
        tails[at : at + 1], ends[at : at + 1] = [place], [number]
    chain: list[tuple[int, int]] = []
    number = ends[-1] if ends else -1
    while number >= 0:
        chain.append(pairs[number])
        number = previous[number]
    return chain[::-1]


@dataclass(slots=True)
class _Effort:
    """How much may still be compared: pairs of equal lines, and lines."""

    left: int

    def allows(self, steps: int) -> bool:
        self.left -= steps
        return self.left >= 0


def _compared(
    before: Sequence[int], after: Sequence[int], span: Difference, effort: _Effort
) -> list[Difference] | None:
    """The differences between two parts: around the longest run of lines that they share, and so on to both sides.

    None where that is too much work: where many lines are equal, each run is found among very many.
    """
    low, high, first, last = span
    matcher = SequenceMatcher(None, before[low:high], after[first:last], autojunk=False)
    counts = Counter(after[first:last])
    pairs = list(accumulate((1 + counts[line] for line in before[low:high]), initial=0))
    same: list[tuple[int, int, int]] = []
    waiting = [(0, high - low, 0, last - first)]
    while waiting:
        old, old_end, new, new_end = waiting.pop()
        if not effort.allows(pairs[old_end] - pairs[old]):
            return None
        at, place, size = matcher.find_longest_match(old, old_end, new, new_end)
        if size:
            same.append((at, place, size))
            if old < at and new < place:
                waiting.append((old, at, new, place))
            if at + size < old_end and place + size < new_end:
                waiting.append((at + size, old_end, place + size, new_end))
    found: list[Difference] = []
    old, new = low, first
    for at, place, size in (*sorted(same), (high - low, last - first, 0)):
        if old < low + at or new < first + place:
            found.append((old, low + at, new, first + place))
        old, new = low + at + size, first + place + size
    return found
