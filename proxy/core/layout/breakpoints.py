"""Finds the places where cache markers pay: at most ``max_marks``, by dynamic programming over the places where
survival drops.

An entry is worth the tokens that the next request is expected to read from it. A cache write costs its premium once.
Both are linear in tokens, so the best places solve a small shortest-path problem over the candidate positions.
Break-even: a written prefix pays if it is expected to be read more than (w - 1) / ``mark_gain`` times, where
``mark_gain`` is 0.82 * (0.8 * w + 0.2 - r). For a write at 1.25 this is about (w - 1) / (1 - r).
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence
from operator import mul, neg, sub
from typing import NamedTuple

from proxy.core.caches.prompt import Life
from proxy.core.layout.layout import Layout
from proxy.core.providers import CacheProfile, Family
from proxy.core.request.element import ElementKind
from proxy.core.request.message import PartKind
from proxy.core.value import dataclass

_MAX_STOPS = 16
# Survival must fall by this factor before a place is considered as a candidate. A panel that changes in one of two
# hundred requests is such a place, because the whole conversation may stand behind it.
_DROP = 0.995
# If an expected read fails, the tokens are mostly written again (w), and sometimes left unmarked (1).
_REWRITTEN_SHARE = 0.8
# The best of many places promises more than it delivers (measured: fewer of the least likely entries were read).
_CAUTION = 0.82
_NEVER = float("-inf")


@dataclass(frozen=True, slots=True)
class Placement:
    """Chosen positions, ascending, and what they promise: the next request is expected to read ``expected`` tokens.

    ``reached`` is the last position that is cached after this request (-1: none).
    """

    positions: tuple[int, ...]
    expected: float
    reached: int


class _Stop(NamedTuple):
    position: int
    tokens: int
    survival: float
    is_free: bool


def drops(survival: Sequence[float]) -> Iterator[int]:
    """The positions, ascending, behind which survival drops, and the last position. Small steps add up: survival is
    compared with its value behind the previous drop."""
    falling, drop = [*map(neg, survival)], -1
    while drop < len(falling) - 1:
        drop = bisect_right(falling, falling[drop + 1] * _DROP, lo=drop + 2) - 1
        yield drop


def read_gain(profile: CacheProfile) -> float:
    """What reading a token from the cache saves, in input prices."""
    return _REWRITTEN_SHARE * profile.write + (1 - _REWRITTEN_SHARE) - profile.read


def mark_gain(profile: CacheProfile) -> float:
    """What an expected read of a token is worth when markers are placed."""
    return _CAUTION * read_gain(profile)


def place(
    layout: Layout, survival: Sequence[float], live: Sequence[int], profile: CacheProfile, slots: int
) -> Placement:
    """The best markers for a layout. ``survival[i]`` is P(the next request comes in time and repeats everything up to
    position i); ``live`` are the positions, ascending, whose entries the provider still holds."""
    if profile.family is not Family.MARKER:
        return _automatic(layout, survival, profile)
    stops = _stops(layout, survival, live, profile)
    deepest = live[-1] if live else -1
    chosen = _best(stops, layout, deepest, profile, slots)
    if slots > 0 and deepest >= 0 and not _in_reach(chosen, deepest, profile.lookback):
        reaching = _markable_behind(layout, deepest, profile)
        if reaching is not None:
            chosen = (reaching, *_best(stops, layout, deepest, profile, slots - 1))
            if all(stop.position != reaching for stop in stops):
                insort(stops, _Stop(reaching, layout.ends[reaching], survival[reaching], False))
    chosen = _fill_with_heads(layout, tuple(sorted(set(chosen))), stops, profile, slots)
    return Placement(chosen, _expected(stops, chosen), max((*chosen, deepest)) if chosen or live else -1)


def place_given(
    layout: Layout, survival: Sequence[float], live: Sequence[int], profile: CacheProfile, positions: Sequence[int]
) -> Placement:
    """What given markers promise (the client's own markers, or those of a fixed policy)."""
    if profile.family is not Family.MARKER:
        return _automatic(layout, survival, profile)
    usable = sorted({p for p in positions if layout.ends[p] >= profile.min_tokens})
    deepest = live[-1] if live else -1
    reached = deepest if usable and _in_reach(usable, deepest, profile.lookback) else -1
    kept = set(live[: bisect_right(live, reached)])
    stops = [_Stop(p, layout.ends[p], survival[p], p in kept) for p in sorted({*usable, *kept})]
    return Placement(tuple(usable), _expected(stops, usable), max((*usable, reached), default=-1))


def _automatic(layout: Layout, survival: Sequence[float], profile: CacheProfile) -> Placement:
    """For a cache that stores every position there is nothing to choose."""
    if profile.family is Family.NONE or layout.total < profile.min_tokens:
        return Placement((), 0.0, -1)
    first = bisect_left(layout.ends, profile.min_tokens)
    ends = layout.ends[first:]
    expected = sum(map(mul, map(sub, ends, (0, *ends)), survival[first:]))
    return Placement((), expected, len(layout.ends) - 1)


def _stops(layout: Layout, survival: Sequence[float], live: Sequence[int], profile: CacheProfile) -> list[_Stop]:
    """The candidate positions, found where survival drops: the last live entry in front of a drop, and the last
    markable position behind that entry."""
    found: list[_Stop] = []
    ends, markable = layout.ends, layout.markable
    # From ``first`` on, the positions are looked at for the next drop, each of them only once.
    first = max(_first_markable(layout, profile), bisect_left(ends, profile.least_marked))
    begin = 0
    for drop in drops(survival):
        held = bisect_right(live, drop, lo=begin) - 1
        if held >= begin:
            stop, begin = live[held], held + 1
            found.append(_Stop(stop, ends[stop], survival[stop], True))
            first = max(first, stop + 1)
        waiting = next((p for p in range(drop, first - 1, -1) if markable[p]), None)
        first = max(first, drop + 1)
        if waiting is not None:
            found.append(_Stop(waiting, ends[waiting], survival[waiting], False))
    return _thin(found) if len(found) > _MAX_STOPS else found


def _thin(stops: list[_Stop]) -> list[_Stop]:
    """The stops that matter most, by the tokens since the previous stop times the fall of survival behind the stop. The
    deepest live entry and the last stop are always kept."""
    befores = (0, *(stop.tokens for stop in stops))
    afters = (*(stop.survival for stop in stops[1:]), 0.0)
    rows = enumerate(zip(stops, befores, afters, strict=False))
    worth = [((stop.tokens - before) * (stop.survival - after), index) for index, (stop, before, after) in rows]
    last = len(stops) - 1
    always = {last, next((index for index in range(last, -1, -1) if stops[index].is_free), last)}
    ranked = [index for _, index in sorted(worth, reverse=True) if index not in always]
    return [stops[i] for i in sorted([*always, *ranked[: _MAX_STOPS - len(always)]])]


def _best(stops: Sequence[_Stop], layout: Layout, deepest: int, profile: CacheProfile, slots: int) -> tuple[int, ...]:
    """The marker positions of the greatest value; empty if no marker pays."""
    if slots <= 0 or not stops:
        return ()
    gain, premium = mark_gain(profile), profile.write - 1.0
    held = layout.ends[deepest] if deepest >= 0 else 0
    # rows[k] are the states with k markers used: value, tokens up to the last stop, the positions marked.
    rows: list[list[tuple[float, int, tuple[int, ...]]]] = [[] for _ in range(slots + 1)]
    answer: tuple[float, tuple[int, ...]] = (0.0, ())
    for position, tokens, survival, is_free in stops:
        written = max(0, tokens - held) * premium if not is_free else 0.0
        added: list[tuple[int, float, tuple[int, ...]]] = []
        for used in range(0 if is_free else 1, slots + 1):
            row = rows[used if is_free else used - 1]
            found, best = (tokens * survival * gain if row is rows[0] else _NEVER), -1
            for index, (value, reached, _) in enumerate(row):
                worth = value + (tokens - reached) * survival * gain
                if worth > found:
                    found, best = worth, index
            if found > _NEVER:
                chain = row[best][2] if best >= 0 else ()
                added.append((used, found, chain if is_free else (*chain, position)))
            if best > 0 and gain > 0:
                # Survival never rises: a state that is worth less than a later one is worth less at every further stop.
                del row[:best]
        for used, value, chain in added:
            if is_free:
                # All later stops are best reached from here.
                rows[used].clear()
            rows[used].append((value, tokens, chain))
            if value - written > answer[0] + 1e-9:
                answer = (value - written, chain)
    return answer[1]


def _in_reach(marks: Sequence[int], entry: int, lookback: int) -> bool:
    """Whether some marker finds the entry. Positions are counted singly, which is also safe if a provider counts a run
    as one position."""
    return any(0 <= mark - entry < lookback for mark in marks)


def honoured(layout: Layout, profile: CacheProfile) -> dict[int, Life]:
    """The client's own markers that this provider reads."""
    first, parts = _first_markable(layout, profile), layout.parts
    own = {p: life for p, life in layout.own_marks().items() if p >= first}
    if profile.message_mark:
        return own
    return {p: life for p, life in own.items() if parts[p].index >= 0 and parts[p].kind is not PartKind.CALL}


def _first_markable(layout: Layout, profile: CacheProfile) -> int:
    """The first position that may carry a marker: not every provider accepts a marker on tools."""
    elements = layout.elements
    if not profile.tool_mark and elements and elements[0].kind is ElementKind.TOOLS:
        return len(elements[0].parts)
    return 0


def _markable_behind(layout: Layout, entry: int, profile: CacheProfile) -> int | None:
    """The nearest place for a marker that finds the entry. The client's own markers may have made entries at places
    where the proxy sets no markers (tool calls)."""
    first = max(entry, _first_markable(layout, profile))
    last = min(entry + profile.lookback, len(layout.parts))
    return next((p for p in range(first, last) if layout.markable[p]), None)


def _fill_with_heads(
    layout: Layout, chosen: tuple[int, ...], stops: Sequence[_Stop], profile: CacheProfile, slots: int
) -> tuple[int, ...]:
    """Put spare markers on the most stable stops before the last chosen position: they cost nothing there."""
    spare = slots - len(chosen)
    if not chosen or spare <= 0:
        return chosen
    first, markable = _first_markable(layout, profile), layout.markable
    free = (s for s in stops if first <= s.position < chosen[-1] and s.position not in chosen and markable[s.position])
    steadiest = sorted(free, key=lambda s: (-s.survival, s.position))[:spare]
    return tuple(sorted([*chosen, *(s.position for s in steadiest)]))


def _expected(stops: Sequence[_Stop], chosen: Sequence[int]) -> float:
    marked = set(chosen)
    expected, previous = 0.0, 0
    for stop in stops:
        if stop.is_free or stop.position in marked:
            expected += (stop.tokens - previous) * stop.survival
            previous = stop.tokens
    return expected
