"""The limit of the client's own order: every byte stays where it is, the future is known, markers are free to choose.

Exact where entries are bought with markers and four markers and the look-back suffice; else a bound from below. Where a
provider stores every prefix for free there is nothing to choose, and the limit is what the order costs.
"""

from collections.abc import Sequence

from proxy.core.caches import make_cache
from proxy.core.caches.prompt import Prompt
from proxy.core.money.prices import Price, input_cost
from proxy.core.providers import CacheProfile, Family
from proxy.replay.limits.nodes import Rates, node_cost

Timed = tuple[float, Prompt]


def fixed_limit(prompts: Sequence[Timed], profile: CacheProfile, *, with_long: bool = False) -> float:
    """Input cost in tokens at the plain price; ``prompts`` in the order of time, markers are not looked at."""
    if profile.family is not Family.MARKER:
        return _as_sent(prompts, profile)
    rates = Rates.of(profile, with_long=with_long)
    cost = 0.0
    tokens: dict[tuple[bytes, bytes], int] = {}
    uses: dict[tuple[bytes, bytes], list[float]] = {}
    for at, prompt in prompts:
        if prompt.total < profile.min_tokens or not prompt.scope:
            cost += prompt.total
            continue
        before = 0
        for digest, end in zip(prompt.hashes, prompt.ends, strict=True):
            if end < profile.min_tokens:
                # Too short to be cached by itself: it belongs to the first prefix that is not.
                continue
            node = (prompt.scope, digest)
            tokens[node] = end - before
            uses.setdefault(node, []).append(at)
            before = end
    return cost + sum(tokens[node] * node_cost(times, rates) for node, times in uses.items())


def _as_sent(prompts: Sequence[Timed], profile: CacheProfile) -> float:
    cache, prices = make_cache(profile), Price.relative(profile.read, profile.write, profile.write_long)
    cost = 0.0
    for at, prompt in prompts:
        cost += input_cost(cache.bill(prompt, at), prices)
        cache.store(prompt, at, at)
    return cost
