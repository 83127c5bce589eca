"""Policy ``classic``: a deterministic state machine that ages pieces into tiers.

A piece that stays unchanged counts up; at 3 / 6 / 9 / 12 unchanged responses it moves to L3 / L2 / L1 / L0, but into a
tier above only while that tier is broken or empty anyway (ripple promotion), and never the youngest pieces that a tier
needs to stay above ``target_tokens`` (anchoring). A change sends it back to active. These are the rules of the tiered
assembly that this proxy grew from, merged to one profile.
"""

from collections.abc import Collection, Iterable, KeysView, Mapping, Sequence

from proxy.core.layout.cascade import Cascade
from proxy.core.layout.tier_history import graduating, groups_of, in_order
from proxy.core.layout.tier_state import Item, TierState, next_n
from proxy.core.layout.tier_values import (
    CACHED,
    ENTRY_N,
    HISTORY,
    Change,
    ClassicPolicy,
    Piece,
    Tier,
    Tracked,
    with_target,
)

__all__ = [
    "CACHED",
    "ENTRY_N",
    "HISTORY",
    "Change",
    "Classic",
    "ClassicPolicy",
    "Item",
    "Piece",
    "Tier",
    "Tracked",
    "with_target",
]


class Classic(TierState):
    """The tracker: what is known of the pieces, and the rules. ``update`` is called once for each settled response."""

    def __init__(self, policy: ClassicPolicy | None = None) -> None:
        super().__init__()
        self.policy = policy or ClassicPolicy()
        self._last_listed: frozenset[str] = frozenset()

    def get(self, key: str) -> Item | None:
        """What is known of the piece, to be read only; None where it is not tracked."""
        return self.items.get(key)

    @property
    def tracked(self) -> KeysView[str]:
        """The keys of all tracked pieces in the order of first sight; a view, which changes with the tracker."""
        return self.items.keys()

    def tier(self, key: str) -> Tier:
        """The piece's tier; an unknown piece is active."""
        item = self.items.get(key)
        return Tier.ACTIVE if item is None else item.tier

    def n(self, key: str) -> int:
        """Unchanged responses counted for the piece."""
        item = self.items.get(key)
        return 0 if item is None else item.n

    def entered(self, key: str) -> int:
        """When the piece entered its tier, as a rising number."""
        item = self.items.get(key)
        return 0 if item is None else item.entered

    def place(self, tracked: Tracked, tier: Tier) -> Change:
        """Place a piece that is sent in ``tier`` at its first sight; the tier is broken until the next update."""
        self.seed(tracked, tier)
        self.mark_broken(tier, tracked.key)
        return Change(tracked.key, Tier.ACTIVE, tier, "placed")

    def remove(self, key: str, reason: str) -> Change | None:
        """Forget a piece; its tier is broken until the next update. None where the piece is not tracked."""
        return self.drop(key, reason) if key in self.items else None

    def purge_history(self, first: int = 0) -> list[Change]:
        """Forget the turns from the index ``first`` on, as after a compaction. Their tiers are broken by history, which
        takes no other turn along."""
        found = [key for key in self.items if key.startswith(HISTORY) and _index(key) >= first]
        return [self.drop(key, "purged") for key in found]

    def update(
        self, items: Iterable[Tracked], present: Collection[str] | None = None, modified: Collection[str] = ()
    ) -> list[Change]:
        """One settled response in which ``items`` were sent. Tracked pieces not in ``present`` no longer exist.

        ``present`` None: exactly the listed pieces exist. The pieces in ``modified`` count as changed even if their
        digest is the same. Returns what moved, in the order in which it happened.
        """
        listed = list(items)
        existing = {t.key for t in listed} if present is None else set(present)
        filled = {item.tier for item in self.items.values()}
        changes = [self.drop(key, "removed") for key in list(self.items) if key not in existing]
        for tracked in listed:
            self._count(tracked, tracked.key in modified, changes)
        groups = groups_of(listed)
        changes += in_order(self, groups)
        if self.policy.promotion == "count":
            self._promote_by_count(listed, changes)
        else:
            graduates = self._graduates(listed)
            graduates += graduating(self, self.policy, groups, others_leave=bool(graduates))
            empty = frozenset(CACHED) - filled
            changes += Cascade(self, self.policy, empty).run(graduates)
        changes += self._underfilled()
        self.mend()
        return changes

    def _count(self, tracked: Tracked, is_modified: bool, changes: list[Change]) -> None:
        item = self.items.get(tracked.key)
        if item is None:
            self.seed(tracked, Tier.ACTIVE)
            return
        item.tokens, item.is_joined = tracked.tokens, tracked.is_joined
        is_changed = item.digest != tracked.digest and bool(item.digest)
        item.digest = tracked.digest
        if is_changed or is_modified:
            item.n = 0
            if item.tier is not Tier.ACTIVE:
                changes.append(self.fall(tracked.key, Tier.ACTIVE, "changed" if is_changed else "modified"))
        elif self.policy.count == "response" or item.tier is Tier.ACTIVE:
            item.n = next_n(self.policy, item.tier, item.n)

    def _promote_by_count(self, listed: Iterable[Tracked], changes: list[Change]) -> None:
        for tracked in listed:
            item = self.items[tracked.key]
            if item.tier is Tier.L0 or tracked.key.startswith(HISTORY):
                continue
            above = Tier(item.tier - 1)
            if item.n >= ENTRY_N[above]:
                changes.append(self.enter(tracked.key, above))

    def _graduates(self, listed: Sequence[Tracked]) -> list[str]:
        """Active pieces but turns that enter L3."""
        items = self.items
        if self.policy.graduation == "count":
            found = [t.key for t in listed if items[t.key].tier is Tier.ACTIVE and items[t.key].n >= ENTRY_N[Tier.L3]]
        else:
            left, self._last_listed = self._last_listed, frozenset(t.key for t in listed)
            left -= self._last_listed
            found = [key for key, item in items.items() if item.tier is Tier.ACTIVE and key in left]
        return [key for key in found if not key.startswith(HISTORY)]

    def unmarked(self, tokens: Mapping[Tier, int]) -> frozenset[Tier]:
        """Tiers that are too small for a marker of their own, where they have so many tokens."""
        if self.policy.underfill != "unmark":
            return frozenset()
        return frozenset(tier for tier in CACHED if tokens[tier] < self.policy.target_tokens)

    def _underfilled(self) -> list[Change]:
        """What goes one tier down because its tier is below the target."""
        if self.policy.underfill == "unmark":
            return []
        changes: list[Change] = []
        broken, fallen = self.broken, set[str]()
        is_whole_only = self.policy.underfill == "demote_whole"
        for tier in (Tier.L0, Tier.L1, Tier.L2) if is_whole_only else CACHED:
            keys = self.members(tier)
            if is_whole_only and tier in broken:
                continue
            if sum(self.items[key].tokens for key in keys) < self.policy.target_tokens:
                moving = [key for key in keys if key not in fallen]
                changes += [self.fall(key, Tier(tier + 1), "underfilled") for key in moving]
                fallen.update(moving)
        return changes


def _index(key: str) -> int:
    """The index of a turn; a key that names none is behind all others."""
    number = key.removeprefix(HISTORY)
    return int(number) if number.isdecimal() and len(number) < 20 else 1 << 62
