"""In what two versions of a text differ, line by line, also where the text is long and the places are far apart."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

# What is compared line with line: the time that it takes grows with the square.
_MAX_LINES = 480

Difference = tuple[int, int, int, int]
"""The lines of the earlier version, from and to, and those that stand there in the later one."""


def differences(before: Sequence[int], after: Sequence[int]) -> list[Difference] | None:
    """All of them, in order; None where too much differs to say what stands for what. Lines are compared as hashes."""
    found: list[Difference] = []
    low = first = 0
    start, stop, end = _trimmed(before, after, 0, len(before), 0, len(after))
    anchors = _anchors(before, after, start, stop, end) if max(stop, end) - start > _MAX_LINES else []
    for high, last in (*anchors, (len(before), len(after))):
        begin, low_end, last_end = _trimmed(before, after, low, high, first, last)
        first += begin - low
        if max(low_end - begin, last_end - first) > _MAX_LINES:
            return None
        found += _compared(before, after, (begin, low_end, first, last_end))
        low, first = high + 1, last + 1
    return found


def _trimmed(
    before: Sequence[int], after: Sequence[int], low: int, high: int, first: int, last: int
) -> tuple[int, int, int]:
    """Where the first difference begins in the earlier version, and where the last one ends in both."""
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


def _compared(before: Sequence[int], after: Sequence[int], span: Difference) -> Iterator[Difference]:
    low, high, first, last = span
    matcher = SequenceMatcher(None, before[low:high], after[first:last], autojunk=False)
    for tag, old, old_end, new, new_end in matcher.get_opcodes():
        if tag != "equal":
            yield low + old, low + old_end, first + new, first + new_end
