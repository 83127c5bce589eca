"""The cheapest way to serve one piece of cached content over all its uses: the dynamic program of one trie node.

Each use of a node is billed at one rate: plain (1), written (w), or read (r) where an earlier write still lives. What
is read or written lives on from that moment. Nodes are independent: the sum over a trie's nodes of tokens x the least
cost is a bound from below for any markers, and is reached where markers and look-back do not run out, for a
descendant is never used without its ancestors.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from proxy.core.providers import CacheProfile, Family


@dataclass(frozen=True, slots=True)
class Rates:
    """Prices in input prices; ``lives`` are the lives on sale, each with its write price and seconds."""

    read: float
    lives: tuple[tuple[float, float], ...]

    @classmethod
    def of(cls, profile: CacheProfile, *, with_long: bool) -> "Rates":
        """A profile's rates; the longer life only where it is asked for and sold."""
        lives = [(profile.write, profile.life_s + profile.slack_s)]
        if with_long and profile.family is Family.MARKER and profile.long_life_s > 0:
            lives.append((profile.write_long, profile.long_life_s + profile.slack_s))
        return cls(profile.read, tuple(lives))


def node_cost(times: Sequence[float], rates: Rates) -> float:
    """The least cost per token of uses at these times, which ascend. A state is the time until which the content is
    held.

    A read may prolong by the longest life at no price of its own: behind the hit a descendant may be written at that
    life, which holds its ancestors, too. That keeps the bound below every marker set.
    """
    longest = max(life_s for _, life_s in rates.lives)
    states: dict[float, float] = {float("-inf"): 0.0}
    for now in times:
        following: dict[float, float] = {}
        for expiry, cost in states.items():
            _least(following, expiry, cost + 1.0)
            if now < expiry:
                _least(following, max(expiry, now + longest), cost + rates.read)
            for write, life_s in rates.lives:
                _least(following, max(expiry, now + life_s), cost + write)
        states = _undominated(following)
    return min(states.values())


def _least(states: dict[float, float], expiry: float, cost: float) -> None:
    if cost < states.get(expiry, float("inf")):
        states[expiry] = cost


def _undominated(states: dict[float, float]) -> dict[float, float]:
    """The states that remain when those are left out that die sooner and cost no less than another."""
    kept: dict[float, float] = {}
    cheapest = float("inf")
    for expiry in sorted(states, reverse=True):
        if states[expiry] < cheapest:
            cheapest = kept[expiry] = states[expiry]
    return kept
