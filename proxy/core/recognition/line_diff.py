"""Finds in which lines two versions of a text differ, also where the text is long and the differences are far apart.

Lines that stand once in each version, in the same order, belong together ("patience diff"). Between two of them the
same is asked again of what stands there, so that the time grows with the lines and not with their square.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence

# So often is asked again: what is still apart then differs as a whole.
_MOST_ROUNDS = 4

Difference = tuple[int, int, int, int]
"""The lines of the earlier version, from and to, and those that stand there in the later one."""


def differences(before: Sequence[int], after: Sequence[int]) -> list[Difference]:
    """All differences, in order. Lines are compared as hashes."""
    return list(_differences(before, after, (0, len(before), 0, len(after)), _MOST_ROUNDS))


def _differences(before: Sequence[int], after: Sequence[int], span: Difference, rounds: int) -> Iterator[Difference]:
    low, high, first, last = span
    while low < high and first < last and before[low] == after[first]:
        low, first = low + 1, first + 1
    while low < high and first < last and before[high - 1] == after[last - 1]:
        high, last = high - 1, last - 1
    same = _anchors(before[low:high], after[first:last]) if rounds else []
    if not same:
        if low < high or first < last:
            yield low, high, first, last
        return
    old, new = low, first
    for at, place in (*same, (high - low, last - first)):
        yield from _differences(before, after, (old, low + at, new, first + place), rounds - 1)
        old, new = low + at + 1, first + place + 1


def _anchors(before: Sequence[int], after: Sequence[int]) -> list[tuple[int, int]]:
    """Lines that stand once in each version, in the same order in both: as many as there are."""
    counts, others = Counter(before), Counter(after)
    places = {line: index for index, line in enumerate(after) if others[line] == 1}
    pairs = [(index, places[line]) for index, line in enumerate(before) if counts[line] == 1 and line in places]
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
