"""The ripple of policy ``classic``: who climbs into a tier that is broken or empty anyway, and who is anchored."""

from collections.abc import Sequence

from proxy.core.layout.tier_history import movable
from proxy.core.layout.tier_state import TierState, next_n
from proxy.core.layout.tier_values import CACHED, ENTRY_N, Change, ClassicPolicy, Tier

_MAX_PASSES = 10


class Cascade:
    """One update's promotions: passes from L3 to L0 until none promotes. A tier is open if it was empty before the
    update (``empty``) or is broken by now. Each tier's veterans are asked once."""

    def __init__(self, state: TierState, policy: ClassicPolicy, empty: frozenset[Tier]) -> None:
        self._state = state
        self._policy = policy
        self._empty = empty
        self._processed: set[Tier] = set()
        self._queued: dict[Tier, list[str]] = {tier: [] for tier in CACHED}
        self._changes: list[Change] = []

    def run(self, graduates: Sequence[str]) -> list[Change]:
        """Let ``graduates`` into L3, and on from there whoever may climb. Returns the moves in their order."""
        self._queued[Tier.L3] = list(graduates)
        for _ in range(_MAX_PASSES):
            promoted = False
            for tier in CACHED:
                entering, self._queued[tier] = self._queued[tier], []
                promoted |= self._process(tier, entering)
            if not promoted:
                break
        return self._changes

    def _process(self, tier: Tier, entering: list[str]) -> bool:
        above = Tier(tier - 1) if tier is not Tier.L0 else None
        broken = self._state.broken
        wakes = tier not in self._processed and (tier in broken or above in broken)
        if not entering and not wakes:
            return False
        arrivals = set(entering)
        veterans = [] if tier in self._processed else [k for k in self._state.members(tier) if k not in arrivals]
        self._changes += [self._state.enter(key, tier) for key in entering]
        self._processed.add(tier)
        if above is None:
            return False
        leaving = self._leaving(tier, above, entering, veterans)
        self._queued[above] += leaving
        for key in leaving:
            self._state.mark_broken(tier, key)
        return bool(leaving)

    def _leaving(self, tier: Tier, above: Tier, entering: list[str], veterans: list[str]) -> list[str]:
        """The veterans that are not anchored and have counted to the entry of the tier above, if that is open."""
        items = self._state.items
        walk = sorted([*entering, *veterans], key=lambda k: (items[k].n, items[k].seen, k))
        free = self._not_anchored(walk) & set(veterans)
        if self._policy.count == "cascade":
            for key in free:
                items[key].n = next_n(self._policy, tier, items[key].n)
        if above not in self._state.broken and above not in self._empty:
            return []
        ready = [key for key in walk if key in free and items[key].n >= ENTRY_N[above]]
        return movable(self._state, walk, ready)

    def _not_anchored(self, walk: Sequence[str]) -> set[str]:
        """All of a tier's pieces, youngest first, but for those that the tier needs to stay above the target."""
        items, target, rule = self._state.items, self._policy.target_tokens, self._policy.anchoring
        is_above = rule == "always" or sum(items[key].tokens for key in walk) > target
        if target <= 0 or rule == "never" or not is_above:
            return set(walk)
        free, accumulated = set(), 0
        for key in walk:
            tokens = items[key].tokens
            is_anchored = accumulated + tokens <= target if rule == "within" else accumulated < target
            if not is_anchored:
                free.add(key)
            accumulated += tokens
        return free
