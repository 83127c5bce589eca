"""Finds the lines in which two versions of a text differ, also if the text is long and the differences are far apart.

Lines that occur once in each version, in the same order, are matched ("patience diff"). The lines between two matches
are compared again in the same way, so the time grows with the number of lines and not with its square.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

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
