"""What policy ``classic`` knows: the pieces with their tiers and counts, and which tiers are broken."""

from collections.abc import Mapping
from dataclasses import dataclass

from proxy.core.layout.tier_values import ENTRY_N, HISTORY, Change, ClassicPolicy, Piece, Tier, Tracked

_MOST_N = (None, *(ENTRY_N[Tier(tier - 1)] for tier in (Tier.L1, Tier.L2, Tier.L3)), None)
"""The count that takes a piece on, by tier; none leads out of L0, and into L3 the count has no end."""


@dataclass(slots=True)
class Item:
    """A tracked piece. ``n`` counts its unchanged responses; ``seen`` and ``entered`` are rising numbers: when it was
    first seen, and when it entered its tier."""

    digest: bytes
    tokens: int
    tier: Tier
    n: int
    seen: int
    entered: int
    is_joined: bool = False


class TierState:
    """The pieces by key, in the order of first sight, and the tiers whose bytes changed since the last update."""

    def __init__(self) -> None:
        self.items: dict[str, Item] = {}
        self._sequence = 0
        self._broken: set[Tier] = set()
        self._broken_by_history: set[Tier] = set()

    @property
    def broken(self) -> frozenset[Tier]:
        """The tiers that are broken by now."""
        return frozenset(self._broken)

    @property
    def is_l3_broken_by_others(self) -> bool:
        """Whether anything but turns broke L3."""
        return Tier.L3 in self._broken and Tier.L3 not in self._broken_by_history

    def members(self, tier: Tier) -> list[str]:
        """The tier's pieces in sending order: as they entered it, so that a new one never stands before an old one."""
        found = [(item.entered, key) for key, item in self.items.items() if item.tier is tier]
        return [key for _, key in sorted(found)]

    def tokens(self) -> dict[Tier, int]:
        """The tokens of each tier."""
        found = dict.fromkeys(Tier, 0)
        for item in self.items.values():
            found[item.tier] += item.tokens
        return found

    def state(self) -> tuple[dict[str, Piece], int]:
        """All pieces, and how many numbers were given out."""
        pieces = {
            key: (item.digest, item.tokens, int(item.tier), item.n, item.seen, item.entered)
            for key, item in self.items.items()
        }
        return pieces, self._sequence

    def restore(self, pieces: Mapping[str, Piece], sequence: int) -> None:
        """Go on from such pieces. Raises ValueError for a tier that there is not."""
        self.items = {
            key: Item(digest, tokens, Tier(tier), n, seen, entered)
            for key, (digest, tokens, tier, n, seen, entered) in pieces.items()
        }
        self._sequence = sequence

    def seed(self, tracked: Tracked, tier: Tier) -> None:
        """A piece at its first sight, with the entry count of the tier. An empty digest accepts the first real one."""
        number = self._next_number()
        self.items[tracked.key] = Item(
            tracked.digest, tracked.tokens, tier, ENTRY_N[tier], number, number, tracked.is_joined
        )

    def enter(self, key: str, tier: Tier) -> Change:
        """The piece climbs into a tier and takes its entry count; the tier is broken."""
        item = self.items[key]
        change = Change(key, item.tier, tier, "unchanged" if item.tier is Tier.ACTIVE else "promoted")
        item.tier, item.n, item.entered = tier, ENTRY_N[tier], self._next_number()
        self.mark_broken(tier, key)
        return change

    def fall(self, key: str, tier: Tier, reason: str) -> Change:
        """The piece goes down and keeps its count; the tier that it leaves is broken, and the one that it enters."""
        item = self.items[key]
        change = Change(key, item.tier, tier, reason)
        self.mark_broken(item.tier, key)
        item.tier, item.entered = tier, self._next_number()
        self.mark_broken(tier, key)
        return change

    def drop(self, key: str, reason: str) -> Change:
        """The piece no longer exists; its tier is broken."""
        item = self.items.pop(key)
        self.mark_broken(item.tier, key)
        return Change(key, item.tier, None, reason)

    def mark_broken(self, tier: Tier, key: str = "") -> None:
        """The tier's bytes changed: because of the piece ``key``, or by the caller's word. Active is never broken."""
        if tier is Tier.ACTIVE:
            return
        if not key.startswith(HISTORY):
            self._broken_by_history.discard(tier)
        elif tier not in self._broken:
            self._broken_by_history.add(tier)
        self._broken.add(tier)

    def mend(self) -> None:
        """No tier is broken any more."""
        self._broken.clear()
        self._broken_by_history.clear()

    def _next_number(self) -> int:
        self._sequence += 1
        return self._sequence


def next_n(policy: ClassicPolicy, tier: Tier, n: int) -> int:
    """While the tier above is closed a piece counts up to what would take it there; in the uppermost without end."""
    most = _MOST_N[tier] if policy.is_capped else None
    return n + 1 if most is None else min(n + 1, most)
