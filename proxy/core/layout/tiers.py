"""Policy ``classic``: a deterministic state machine that ages pieces into tiers.

A piece that stays unchanged counts up; at 3 / 6 / 9 / 12 unchanged responses it moves to L3 / L2 / L1 / L0, but into a
tier above only while that tier is broken or empty anyway (ripple promotion), and never the youngest pieces that a tier
needs to stay above ``target_tokens`` (anchoring). A change sends it back to active. These are the rules of the tiered
assembly that this proxy grew from, merged to one profile.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from types import MappingProxyType
from typing import Literal

HISTORY = "history:"
_MAX_PASSES = 10


class Tier(IntEnum):
    """Most stable first."""

    L0 = 0
    L1 = 1
    L2 = 2
    L3 = 3
    ACTIVE = 4


# Unchanged responses with which a piece enters a tier; leaving it upwards takes the entry count of the tier above.
ENTRY_N = MappingProxyType({Tier.L0: 12, Tier.L1: 9, Tier.L2: 6, Tier.L3: 3, Tier.ACTIVE: 0})
_CACHED = (Tier.L3, Tier.L2, Tier.L1, Tier.L0)

Piece = tuple[bytes, int, int, int, int, int]
"""A piece's digest, tokens, tier, N, and when it was first seen and entered its tier."""


@dataclass(frozen=True, slots=True)
class Tracked:
    """A piece as it is listed in one request."""

    key: str
    digest: bytes
    tokens: int


@dataclass(frozen=True, slots=True)
class Change:
    """A piece that changed its tier; ``target`` is None where it was removed."""

    key: str
    source: Tier
    target: Tier | None
    reason: str


@dataclass(frozen=True, slots=True)
class ClassicPolicy:
    """Flags of the state machine. ``target_tokens`` 0 turns anchoring and under-fill off.

    ``underfill``: a tier below the target loses its marker (``unmark``), or its pieces go one tier down (``demote``).
    ``history``: turns stay active (``stay``), or move to L3 along with other pieces (``piggyback``).
    ``count``: N grows with each unchanged response (``response``), or only when its tier is processed (``cascade``).
    ``promotion``: into a tier above only while that is broken or empty (``ripple``), or as soon as N is reached
    (``count``), where the tiers only show how stable pieces are and order nothing.
    """

    target_tokens: int = 1126
    underfill: Literal["unmark", "demote"] = "unmark"
    history: Literal["stay", "piggyback"] = "stay"
    count: Literal["response", "cascade"] = "response"
    promotion: Literal["ripple", "count"] = "ripple"


@dataclass(slots=True)
class _Item:
    digest: bytes
    tokens: int
    tier: Tier
    n: int
    seen: int
    entered: int


class Classic:
    """The tracker. ``update`` is called once for each settled response."""

    def __init__(self, policy: ClassicPolicy | None = None) -> None:
        self.policy = policy or ClassicPolicy()
        self._items: dict[str, _Item] = {}
        self._broken: set[Tier] = set()
        self._broken_by_history: set[Tier] = set()
        self._sequence = 0

    def tier(self, key: str) -> Tier:
        """The piece's tier; an unknown piece is active."""
        item = self._items.get(key)
        return Tier.ACTIVE if item is None else item.tier

    def n(self, key: str) -> int:
        """Unchanged responses counted for the piece."""
        item = self._items.get(key)
        return 0 if item is None else item.n

    def entered(self, key: str) -> int:
        """When the piece entered its tier, as a rising number."""
        item = self._items.get(key)
        return 0 if item is None else item.entered

    def members(self, tier: Tier) -> list[str]:
        """The tier's pieces in sending order: as they entered it, so that a new one never stands before an old one."""
        found = [(item.entered, key) for key, item in self._items.items() if item.tier is tier]
        return [key for _, key in sorted(found)]

    def state(self) -> tuple[dict[str, Piece], int]:
        """All pieces, and how many numbers were given out."""
        pieces = {
            key: (item.digest, item.tokens, int(item.tier), item.n, item.seen, item.entered)
            for key, item in self._items.items()
        }
        return pieces, self._sequence

    def restore(self, pieces: Mapping[str, Piece], sequence: int) -> None:
        """Go on from a state. Raises ValueError for a tier that there is not."""
        self._items = {
            key: _Item(digest, tokens, Tier(tier), n, seen, entered)
            for key, (digest, tokens, tier, n, seen, entered) in pieces.items()
        }
        self._sequence = sequence

    def seed(self, tracked: Tracked, tier: Tier) -> None:
        """Place a piece before it was ever measured; an empty digest accepts the first real one."""
        self._sequence += 1
        self._items[tracked.key] = _Item(
            tracked.digest, tracked.tokens, tier, ENTRY_N[tier], self._sequence, self._sequence
        )

    def mark_broken(self, tier: Tier) -> None:
        """The tier's bytes changed for a reason of the caller's; kept until the next update."""
        self._break(tier)

    def update(self, items: Iterable[Tracked], present: Collection[str] | None = None) -> list[Change]:
        """One settled response in which ``items`` were sent. Tracked pieces not in ``present`` no longer exist.

        ``present`` None: exactly the listed pieces exist. Returns what moved, in the order in which it happened.
        """
        listed = list(items)
        existing = {t.key for t in listed} if present is None else set(present)
        changes: list[Change] = []
        empty = {tier for tier in _CACHED if not self.members(tier)}
        self._remove_missing(existing, changes)
        for tracked in listed:
            self._count(tracked, changes)
        if self.policy.promotion == "count":
            self._promote_by_count(listed, changes)
        else:
            self._cascade(self._graduates(listed), empty, changes)
        if self.policy.underfill == "demote":
            self._demote_underfilled(changes)
        self._keep_history_ordered(listed)
        self._broken.clear()
        self._broken_by_history.clear()
        return changes

    def _remove_missing(self, existing: set[str], changes: list[Change]) -> None:
        for key in [k for k in self._items if k not in existing]:
            item = self._items.pop(key)
            self._break(item.tier, key)
            changes.append(Change(key, item.tier, None, "removed"))

    def _count(self, tracked: Tracked, changes: list[Change]) -> None:
        item = self._items.get(tracked.key)
        if item is None:
            self._sequence += 1
            self._items[tracked.key] = _Item(
                tracked.digest, tracked.tokens, Tier.ACTIVE, 0, self._sequence, self._sequence
            )
            return
        item.tokens = tracked.tokens
        if not item.digest:
            item.digest = tracked.digest
        elif item.digest != tracked.digest:
            item.digest, item.n = tracked.digest, 0
            if item.tier is not Tier.ACTIVE:
                self._break(item.tier, tracked.key)
                changes.append(Change(tracked.key, item.tier, Tier.ACTIVE, "changed"))
                item.tier = Tier.ACTIVE
            return
        if self.policy.count == "response" or item.tier is Tier.ACTIVE:
            item.n = _next_n(item.tier, item.n)

    def _promote_by_count(self, listed: Iterable[Tracked], changes: list[Change]) -> None:
        for tracked in listed:
            item = self._items[tracked.key]
            if item.tier is Tier.L0 or tracked.key.startswith(HISTORY):
                continue
            above = Tier(item.tier - 1)
            if item.n >= ENTRY_N[above]:
                self._enter(tracked.key, above, changes)

    def _graduates(self, listed: Sequence[Tracked]) -> list[str]:
        """Active pieces that enter L3, history last."""
        active = [t for t in listed if self._items[t.key].tier is Tier.ACTIVE]
        found = [t.key for t in active if not t.key.startswith(HISTORY) and self._items[t.key].n >= ENTRY_N[Tier.L3]]
        if self.policy.history == "stay":
            return found
        history = [t for t in active if t.key.startswith(HISTORY)]
        # History moves along with other pieces, never for its own sake.
        if not found and Tier.L3 not in self._broken - self._broken_by_history:
            return found
        return found + [t.key for t in history[: self._history_boundary(history)]]

    def _history_boundary(self, history: Sequence[Tracked]) -> int:
        """How many of the oldest turns leave, so that the newest that stay hold at most ``target_tokens``.

        A single newest turn above the target stays.
        """
        kept = 0
        for index in range(len(history) - 1, -1, -1):
            kept += history[index].tokens
            if kept > self.policy.target_tokens:
                return index + 1 if index < len(history) - 1 else index
        return 0

    def _cascade(self, graduates: list[str], empty: set[Tier], changes: list[Change]) -> None:
        """Passes from L3 to L0 until none promotes. A tier is open if it was empty at the start or is broken by now."""
        queued: dict[Tier, list[str]] = {tier: [] for tier in _CACHED}
        queued[Tier.L3] = graduates
        processed: set[Tier] = set()
        for _ in range(_MAX_PASSES):
            promoted = False
            for tier in _CACHED:
                entering, queued[tier] = queued[tier], []
                promoted |= self._process(tier, entering, queued, processed, empty, changes)
            if not promoted and not any(queued.values()):
                return

    def _process(
        self,
        tier: Tier,
        entering: list[str],
        queued: dict[Tier, list[str]],
        processed: set[Tier],
        empty: set[Tier],
        changes: list[Change],
    ) -> bool:
        above = Tier(tier - 1) if tier is not Tier.L0 else None
        wakes = tier not in processed and (tier in self._broken or above in self._broken)
        if not entering and not wakes:
            return False
        veterans = [] if tier in processed else [k for k in self.members(tier) if k not in entering]
        for key in entering:
            self._enter(key, tier, changes)
        if veterans or wakes or entering:
            processed.add(tier)
        return self._promote_veterans(tier, above, entering, veterans, queued, empty)

    def _enter(self, key: str, tier: Tier, changes: list[Change]) -> None:
        item = self._items[key]
        changes.append(Change(key, item.tier, tier, "unchanged" if item.tier is Tier.ACTIVE else "promoted"))
        self._sequence += 1
        item.tier, item.n, item.entered = tier, ENTRY_N[tier], self._sequence
        self._break(tier)

    def _promote_veterans(
        self,
        tier: Tier,
        above: Tier | None,
        entering: list[str],
        veterans: list[str],
        queued: dict[Tier, list[str]],
        empty: set[Tier],
    ) -> bool:
        walk = sorted([*entering, *veterans], key=lambda k: (self._items[k].n, self._items[k].seen, k))
        anchoring = sum(self._items[k].tokens for k in walk) > self.policy.target_tokens > 0
        accumulated, promoted = 0, False
        for key in walk:
            item = self._items[key]
            anchored = anchoring and accumulated < self.policy.target_tokens
            accumulated += item.tokens
            if anchored or key not in veterans or above is None:
                continue
            if self.policy.count == "cascade":
                item.n = _next_n(tier, item.n)
            if item.n >= ENTRY_N[above] and (above in self._broken or above in empty):
                queued[above].append(key)
                self._break(tier)
                promoted = True
        return promoted

    def unmarked(self) -> frozenset[Tier]:
        """Tiers that are too small for a marker of their own."""
        if self.policy.underfill != "unmark":
            return frozenset()
        tokens = dict.fromkeys(_CACHED, 0)
        for item in self._items.values():
            if item.tier is not Tier.ACTIVE:
                tokens[item.tier] += item.tokens
        return frozenset(tier for tier, size in tokens.items() if size < self.policy.target_tokens)

    def _demote_underfilled(self, changes: list[Change]) -> None:
        for tier in _CACHED:
            keys = self.members(tier)
            if keys and sum(self._items[k].tokens for k in keys) < self.policy.target_tokens:
                below = Tier(tier + 1)
                for key in keys:
                    self._items[key].tier = below
                    changes.append(Change(key, tier, below, "underfilled"))

    def _keep_history_ordered(self, listed: Sequence[Tracked]) -> None:
        """No turn stands in a more stable tier than an older one."""
        least = Tier.L0
        for tracked in listed:
            if tracked.key.startswith(HISTORY):
                item = self._items[tracked.key]
                least = max(least, item.tier)
                item.tier = least

    def _break(self, tier: Tier, key: str = "") -> None:
        if tier is Tier.ACTIVE:
            return
        if not key.startswith(HISTORY):
            self._broken_by_history.discard(tier)
        elif tier not in self._broken:
            self._broken_by_history.add(tier)
        self._broken.add(tier)


def _next_n(tier: Tier, n: int) -> int:
    """While the tier above is closed a piece counts up to what would take it there; in the uppermost without end."""
    return n + 1 if tier in (Tier.L0, Tier.ACTIVE) else min(n + 1, ENTRY_N[Tier(tier - 1)])


def with_target(policy: ClassicPolicy, min_tokens: int) -> ClassicPolicy:
    """The policy for a model whose provider caches from ``min_tokens`` on: a tenth more, for the error of our count."""
    return replace(policy, target_tokens=int(max(1024, min_tokens) * 1.1))
