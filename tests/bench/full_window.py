"""What a full context window costs: ``python -m tests.bench.full_window``.

A session of 300 turns of a hundredth of the window each goes through the planner to a provider that caches by the rules
of a real one: once its client drops its oldest turn whenever the next one does not fit, and once the proxy fits the
requests to the window of a capability profile. The table is about the requests from the first one on that did not fit.
"""

import sys

from proxy.protocol.prices import Price, input_cost, uncached_cost
from proxy.protocol.providers import ANTHROPIC, OPENAI, CacheProfile
from tests.window_replay import BY_TOKENS, TURNS, WINDOW, Replay


def shares(cache: CacheProfile, *, is_fitted: bool) -> tuple[float, float]:
    """Of the requests at the full window: the share of prompt tokens that were read from the cache, and the input cost
    as a share of the cost without a cache."""
    replay = Replay(cache, BY_TOKENS if is_fitted else None)
    replay.run()
    price = Price.relative(cache.read, cache.write, cache.write_long)
    bills = [row.bill for row in replay.rows[replay.first_cut :]]
    cost = sum(input_cost(bill, price) for bill in bills) / sum(uncached_cost(bill, price) for bill in bills)
    return replay.hit_rate(replay.first_cut, TURNS), cost


def main() -> int:
    """Measure and print."""
    print(f"{TURNS} turns, a window of {WINDOW:,} tokens; requests at the full window")
    print(f"{'rules of':10} {'who leaves turns out':22} {'read from the cache':>20} {'input cost':>11}")
    for cache in (ANTHROPIC, OPENAI):
        for who, is_fitted in (("the client, one a turn", False), ("stratiform.window", True)):
            read, cost = shares(cache, is_fitted=is_fitted)
            print(f"{cache.name:10} {who:22} {read:20.1%} {cost:11.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
