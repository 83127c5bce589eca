"""A bound from below for every order of the same content: no layout of it, with any markers, costs less.

The larger of two bounds. By segments: each segment is read only where it was processed before, in time, wherever it
stood. By predecessors: a request's hit is one prefix of one earlier request, so all that it reads stood in that one.
Not reachable in general: both let the paragraphs of different files interleave. It holds for layouts that send each
piece once (no copy left out, nothing padded).
"""

from collections.abc import Sequence

from proxy.core.profiles import CacheProfile, Family
from proxy.replay.limits.nodes import Rates, node_cost
from proxy.replay.limits.segments import Bag, Segment


def free_limit(bags: Sequence[Bag], profile: CacheProfile, *, with_long: bool = False) -> float:
    """Input cost in tokens at the plain price; ``bags`` in the order of time."""
    if profile.family is Family.NONE:
        return float(sum(bag.total for bag in bags))
    rest = sum(bag.rest * (profile.read if bag.rest > 0 else 1.0) for bag in bags)
    return max(_by_segments(bags, Rates.of(profile, with_long=with_long)), _by_predecessors(bags, profile)) + rest


def _by_segments(bags: Sequence[Bag], rates: Rates) -> float:
    tokens: dict[tuple[bytes, Segment], int] = {}
    uses: dict[tuple[bytes, Segment], list[float]] = {}
    for bag in bags:
        for segment, count in bag.segments.items():
            tokens[bag.scope, segment] = count
            uses.setdefault((bag.scope, segment), []).append(bag.at)
    return sum(tokens[key] * node_cost(times, rates) for key, times in uses.items())


def _by_predecessors(bags: Sequence[Bag], profile: CacheProfile) -> float:
    return sum(sum(bag.segments.values()) - (1 - profile.read) * shared for bag, shared in shares(bags))


def shares(bags: Sequence[Bag]) -> list[tuple[Bag, int]]:
    """For each request: the most tokens that it has in common with one earlier request."""
    found = []
    for index, bag in enumerate(bags):
        best = 0
        for earlier in reversed(bags[:index]):
            if earlier.scope == bag.scope:
                common = bag.segments.keys() & earlier.segments.keys()
                best = max(best, sum(bag.segments[segment] for segment in common))
        found.append((bag, best))
    return found
