"""A bound from below for every order of the same content: no layout of it, with any markers, costs less.

The larger of two bounds. By segments: each segment is read only where it was processed before, in time, wherever it
stood. By predecessors: a request's hit is one prefix of one earlier request, so all that it reads stood in that one.
Not reachable in general: both let the paragraphs of different files interleave. It holds for layouts that send each
piece once (no copy left out, nothing padded). Where a cache looks inside blocks, each request may read the beginning
of one more segment, as far as an earlier one begins alike.
"""

from collections.abc import Mapping, Sequence

from proxy.core.providers import CacheProfile, Family
from proxy.replay.limits.nodes import Rates, node_cost
from proxy.replay.limits.segments import Bag, Segment


def free_limit(bags: Sequence[Bag], profile: CacheProfile, *, with_long: bool = False) -> float:
    """Input cost in tokens at the plain price; ``bags`` in the order of time."""
    if profile.family is Family.NONE:
        return float(sum(bag.total for bag in bags))
    rest = sum(bag.rest * (profile.read if bag.rest > 0 else 1.0) for bag in bags)
    return max(_by_segments(bags, profile, with_long), _by_predecessors(bags, profile)) + rest


def shares(bags: Sequence[Bag]) -> list[tuple[Bag, float]]:
    """For each request: the most tokens that it has in common with one earlier request."""
    begun = [{one for begins in bag.beginnings.values() for one in begins.digests} for bag in bags]
    found = []
    for index, bag in enumerate(bags):
        best = 0.0
        for before in range(index - 1, -1, -1):
            earlier = bags[before]
            if earlier.scope == bag.scope:
                common = bag.segments.keys() & earlier.segments.keys()
                whole = sum(bag.segments[segment] for segment in common)
                best = max(best, whole + _partial(bag, common, begun[before]))
        found.append((bag, best))
    return found


def _by_segments(bags: Sequence[Bag], profile: CacheProfile, with_long: bool) -> float:
    rates = Rates.of(profile, with_long=with_long)
    life_s = max(life_s for _, life_s in rates.lives)
    tokens: dict[tuple[bytes, Segment], int] = {}
    uses: dict[tuple[bytes, Segment], list[float]] = {}
    begun: dict[bytes, set[bytes]] = {}
    partly = 0.0
    for bag in bags:
        known = begun.setdefault(bag.scope, set())
        alive = {s for s in bag.segments if (at := uses.get((bag.scope, s))) and bag.at - at[-1] < life_s}
        partly += _partial(bag, alive, known)
        for segment, count in bag.segments.items():
            tokens[bag.scope, segment] = count
            uses.setdefault((bag.scope, segment), []).append(bag.at)
            known.update(bag.beginnings[segment].digests)
    whole = sum(tokens[key] * node_cost(times, rates) for key, times in uses.items())
    return whole - max(1.0, profile.write) * partly + profile.read * partly


def _by_predecessors(bags: Sequence[Bag], profile: CacheProfile) -> float:
    return sum(sum(bag.segments.values()) - (1 - profile.read) * shared for bag, shared in shares(bags))


def _partial(bag: Bag, whole: Mapping[Segment, int] | set[Segment], begun: set[bytes]) -> float:
    """Tokens at the beginning of one segment that is not read as a whole."""
    if not begun:
        return 0.0
    left = (segment for segment in bag.segments if segment not in whole)
    return max((bag.segments[one] * bag.beginnings[one].share(begun) for one in left), default=0.0)
