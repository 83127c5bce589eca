"""Policy ``classic``: a deterministic state machine that ages pieces into tiers.

A piece that stays unchanged counts up. At 3 / 6 / 9 / 12 unchanged responses it moves to L3 / L2 / L1 / L0. It moves
into a tier above only while that tier is broken or empty anyway (ripple promotion). The youngest pieces that a tier
needs to stay above ``target_tokens`` never move (anchoring). A change sends a piece back to active. These are the rules
of the tiered assembly from which this proxy developed, merged into one profile.

The state (``Classic``) is the pieces with their tiers and counts, and the tiers that are broken. A request goes through
the tiers from the lowest one up (``Cascade``).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import IntEnum
from types import MappingProxyType
from typing import Literal

from msgspec import Struct

from proxy.kit.value import dataclass, replace

HISTORY = "history:"
"""The beginning of the keys of turns. The rules for turns hold for these pieces only."""


class Tier(IntEnum):
    """Most stable first."""

    L0 = 0
    L1 = 1
    L2 = 2
    L3 = 3
    ACTIVE = 4

    @property
    def label(self) -> str:
        """The displayed name: ``L0`` to ``L3``, and ``active``."""
        return "active" if self is Tier.ACTIVE else self.name


# How many unchanged responses a piece needs to enter a tier. To move up, it needs the entry count of the tier above.
ENTRY_N = MappingProxyType({Tier.L0: 12, Tier.L1: 9, Tier.L2: 6, Tier.L3: 3, Tier.ACTIVE: 0})
CACHED = (Tier.L3, Tier.L2, Tier.L1, Tier.L0)
"""The tiers that are cached, in the order in which pieces climb them."""


@dataclass(frozen=True, slots=True)
class Tracked:
    """A piece as it is listed in one request. A joined turn always stands in the tier of the turn before it, as the
    result of a tool stands beside its call."""

    key: str
    digest: bytes
    tokens: int
    is_joined: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """A piece that changed its tier; ``target`` is None if it was removed."""

    key: str
    source: Tier
    target: Tier | None
    reason: str


@dataclass(frozen=True, slots=True)
class ClassicPolicy:
    """Flags of the state machine. The first value of each flag is that of the profile. The others reproduce single
    generations of the tiered assembly. ``target_tokens`` 0 turns anchoring and under-fill off, and keeps turns active.

    ``underfill``: a tier below the target loses its marker (``unmark``); or its pieces go one tier down, from the least
    stable tier on (``demote``), or from the most stable one on where this response left the tier whole, and never out
    of L3 (``demote_whole``).
    ``history``: turns stay active (``stay``); they move to L3 along with other pieces (``piggyback``), or as soon as
    they reach the target, too (``threshold``).
    ``history_window``: the newest turns that stay active hold at most the target (``newest``). Or none stays where
    turns move along with others, and those that move by themselves leave the same newest turns behind (``none``), or
    the fewest that hold the target or more (``remainder``).
    ``oversize_turn``: a newest turn that is larger than the target stays active (``stay``) or leaves (``move``).
    ``count``: N grows with each unchanged response (``response``), or only when its tier is processed (``cascade``).
    ``promotion``: into a tier above only while that is broken or empty (``ripple``), or as soon as N is reached
    (``count``), where the tiers only show how stable pieces are and order nothing.
    ``graduation``: an active piece enters L3 with an N of 3 (``count``), or with the first response that does not list
    it any more though it exists (``leave``).
    ``anchoring``: in a tier above the target the youngest pieces up to it stay, the one that reaches it included
    (``excess``) or excluded (``within``); the same in a tier of any size (``always``); none stays (``never``).
    ``is_capped``: N stops at the count that takes a piece on, while the tier above is closed.
    ``first_l0``: what is placed before the first response never stands in L0 (``empty``), or the most referenced pieces
    fill L0 up to the target (``referenced``).
    """

    target_tokens: int = 1126
    underfill: Literal["unmark", "demote", "demote_whole"] = "unmark"
    history: Literal["stay", "piggyback", "threshold"] = "stay"
    count: Literal["response", "cascade"] = "response"
    promotion: Literal["ripple", "count"] = "ripple"
    graduation: Literal["count", "leave"] = "count"
    anchoring: Literal["excess", "within", "always", "never"] = "excess"
    is_capped: bool = True
    history_window: Literal["newest", "remainder", "none"] = "newest"
    oversize_turn: Literal["stay", "move"] = "stay"
    first_l0: Literal["empty", "referenced"] = "empty"


def with_target(policy: ClassicPolicy, min_tokens: int) -> ClassicPolicy:
    """The policy for a model whose provider caches from ``min_tokens`` on. The target is a tenth more, to allow for the
    error of the proxy's count."""
    return replace(policy, target_tokens=int(max(1024, min_tokens) * 1.1))


# The count that moves a piece up, by its tier. There is no tier above L0, and the count of active pieces is not capped.
_MOST_N = (None, *(ENTRY_N[Tier(tier - 1)] for tier in (Tier.L1, Tier.L2, Tier.L3)), None)


class Item(Struct, array_like=True, gc=False):
    """A tracked piece. ``n`` counts its unchanged responses. ``seen`` and ``entered`` are rising numbers: when it was
    first seen, and when it entered its tier."""

    digest: bytes
    tokens: int
    tier: Tier
    n: int
    seen: int
    entered: int
    is_joined: bool = False


def next_n(policy: ClassicPolicy, tier: Tier, n: int) -> int:
    """The next N of an unchanged piece. While the tier above is closed, N stops at the count that would move the piece
    there. In L0 it has no limit."""
    most = _MOST_N[tier] if policy.is_capped else None
    return n + 1 if most is None else min(n + 1, most)


Group = list[Tracked]
"""Turns that stay together in one tier: one turn, and the turns that are joined to it."""


def groups_of(listed: Sequence[Tracked]) -> list[Group]:
    """The listed turns, oldest first, in groups."""
    groups: list[Group] = []
    for tracked in listed:
        if not tracked.key.startswith(HISTORY):
            continue
        if tracked.is_joined and groups:
            groups[-1].append(tracked)
        else:
            groups.append([tracked])
    return groups


def in_order(state: "Classic", groups: Sequence[Group]) -> list[Change]:
    """Move down the turns that stand in a more stable tier than an older turn, or than another turn of their group."""
    least, changes = Tier.L0, []
    for group in groups:
        least = max(least, *(state.items[turn.key].tier for turn in group))
        changes += [
            state.fall(turn.key, least, "behind an older turn")
            for turn in group
            if state.items[turn.key].tier is not least
        ]
    return changes


def graduating(state: "Classic", groups: Sequence[Group], *, others_leave: bool) -> list[str]:
    """The active turns that enter L3. ``others_leave``: other pieces leave the active tier for L3 with this
    response."""
    policy = state.policy
    if policy.history == "stay" or policy.target_tokens <= 0:
        return []
    active = [group for group in groups if state.items[group[0].key].tier is Tier.ACTIVE]
    sizes = [sum(turn.tokens for turn in group) for group in active]
    is_carried = others_leave or Tier.L3 in state.broken - state.broken_by_history
    if not is_carried and policy.history == "piggyback":
        # Turns move only along with other pieces, never by themselves.
        return []
    takes_all = is_carried and policy.history_window != "newest"
    number = len(active) if takes_all else window_start(sizes, policy)
    return [turn.key for group in active[:number] for turn in group]


def window_start(sizes: Sequence[int], policy: ClassicPolicy) -> int:
    """The index of the first group that stays active. ``sizes`` are the tokens of the groups, oldest first."""
    if policy.history_window == "remainder":
        # The oldest groups leave one by one as long as the target or more remains.
        rest = sum(sizes)
        for index, size in enumerate(sizes):
            if rest <= policy.target_tokens or rest - size < policy.target_tokens:
                return index
            rest -= size
        return len(sizes)
    kept = 0
    for index in range(len(sizes) - 1, -1, -1):
        kept += sizes[index]
        if kept > policy.target_tokens:
            is_newest = index == len(sizes) - 1
            return index if is_newest and policy.oversize_turn == "stay" else index + 1
    return 0


def movable(state: "Classic", members: Sequence[str], ready: list[str]) -> list[str]:
    """The pieces of ``ready`` that may move up from a tier. Turns may only move as the oldest turns of the tier, and in
    whole groups."""
    items = state.items
    turns = sorted((key for key in members if key.startswith(HISTORY)), key=lambda key: items[key].seen)
    if not turns:
        return ready
    wanted, leaves = set(ready), 0
    for index, key in enumerate(turns):
        if not items[key].is_joined:
            leaves = index
        if key not in wanted:
            break
    else:
        leaves = len(turns)
    held = set(turns[leaves:])
    return [key for key in ready if key not in held]


_MAX_PASSES = 10


class Cascade:
    """The promotions of one update: passes from L3 to L0 until a pass promotes nothing. A tier is open if it was empty
    before the update (``empty``) or is broken by now. The pieces that already stand in a tier (its veterans) are
    checked once."""

    def __init__(self, state: "Classic", empty: frozenset[Tier]) -> None:
        self._state = state
        self._empty = empty
        self._processed: set[Tier] = set()
        self._queued: dict[Tier, list[str]] = {tier: [] for tier in CACHED}
        self._changes: list[Change] = []

    def run(self, graduates: Sequence[str]) -> list[Change]:
        """Let ``graduates`` into L3, and promote from there every piece that may move up. Returns the moves in their
        order."""
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
        """The veterans that are not anchored and whose N has reached the entry count of the tier above, if that tier is
        open."""
        items = self._state.items
        walk = sorted([*entering, *veterans], key=lambda k: (items[k].n, items[k].seen, k))
        free = self._not_anchored(walk) & set(veterans)
        if self._state.policy.count == "cascade":
            for key in free:
                items[key].n = next_n(self._state.policy, tier, items[key].n)
        if above not in self._state.broken and above not in self._empty:
            return []
        ready = [key for key in walk if key in free and items[key].n >= ENTRY_N[above]]
        return movable(self._state, walk, ready)

    def _not_anchored(self, walk: Sequence[str]) -> set[str]:
        """All of a tier's pieces except the youngest ones, which the tier needs to stay above the target. ``walk`` is
        sorted, youngest first."""
        items, target, rule = self._state.items, self._state.policy.target_tokens, self._state.policy.anchoring
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


class Classic:
    """The tracker: the state of the pieces, and the rules. ``update`` is called once for each settled response.

    ``items`` are the tracked pieces by key, in the order in which they were first seen; only the tracker changes them.
    ``sequence`` counts the rising numbers that were given out. ``broken`` are the tiers that are broken by now, and
    ``broken_by_history`` those that nothing but turns broke.
    """

    def __init__(self, policy: ClassicPolicy | None = None) -> None:
        self.policy = policy or ClassicPolicy()
        self.items: dict[str, Item] = {}
        self.sequence = 0
        self._last_listed: frozenset[str] = frozenset()
        self.broken: set[Tier] = set()
        self.broken_by_history: set[Tier] = set()

    def members(self, tier: Tier) -> list[str]:
        """The tier's pieces in sending order. They stand in the order in which they entered the tier, so that a new
        piece never stands before an old one."""
        found = [(item.entered, key) for key, item in self.items.items() if item.tier is tier]
        return [key for _, key in sorted(found)]

    def tokens(self) -> dict[Tier, int]:
        found = dict.fromkeys(Tier, 0)
        for item in self.items.values():
            found[item.tier] += item.tokens
        return found

    def seed(self, tracked: Tracked, tier: Tier) -> None:
        """Add a piece when it is first seen, with the entry count of the tier. An empty digest accepts the first real
        digest."""
        number = self._next_number()
        self.items[tracked.key] = Item(
            tracked.digest, tracked.tokens, tier, ENTRY_N[tier], number, number, tracked.is_joined
        )

    def enter(self, key: str, tier: Tier) -> Change:
        """The piece moves up into a tier and takes the tier's entry count. The tier is then broken."""
        item = self.items[key]
        change = Change(key, item.tier, tier, "unchanged" if item.tier is Tier.ACTIVE else "promoted")
        item.tier, item.n, item.entered = tier, ENTRY_N[tier], self._next_number()
        self.mark_broken(tier, key)
        return change

    def fall(self, key: str, tier: Tier, reason: str) -> Change:
        """The piece moves down and keeps its count. The tier that it leaves and the tier that it enters are then
        broken."""
        item = self.items[key]
        change = Change(key, item.tier, tier, reason)
        self.mark_broken(item.tier, key)
        item.tier, item.entered = tier, self._next_number()
        self.mark_broken(tier, key)
        return change

    def drop(self, key: str, reason: str) -> Change:
        """The piece no longer exists. Its tier is then broken."""
        item = self.items.pop(key)
        self.mark_broken(item.tier, key)
        return Change(key, item.tier, None, reason)

    def mark_broken(self, tier: Tier, key: str = "") -> None:
        """The tier's bytes changed, because of the piece ``key`` or because the caller says so. The active tier is
        never broken."""
        if tier is Tier.ACTIVE:
            return
        if not key.startswith(HISTORY):
            self.broken_by_history.discard(tier)
        elif tier not in self.broken:
            self.broken_by_history.add(tier)
        self.broken.add(tier)

    def _next_number(self) -> int:
        self.sequence += 1
        return self.sequence

    def tier(self, key: str) -> Tier:
        """The piece's tier. An unknown piece is active."""
        return self.items[key].tier if key in self.items else Tier.ACTIVE

    def n(self, key: str) -> int:
        """The number of unchanged responses counted for the piece."""
        return self.items[key].n if key in self.items else 0

    def entered(self, key: str) -> int:
        """When the piece entered its tier, as a rising number."""
        return self.items[key].entered if key in self.items else 0

    def place(self, tracked: Tracked, tier: Tier) -> Change:
        """Place a piece that is sent in ``tier`` when it is first seen. The tier is broken until the next update."""
        self.seed(tracked, tier)
        self.mark_broken(tier, tracked.key)
        return Change(tracked.key, Tier.ACTIVE, tier, "placed")

    def remove(self, key: str, reason: str) -> Change | None:
        """Forget a piece. Its tier is broken until the next update. Returns None if the piece is not tracked."""
        return self.drop(key, reason) if key in self.items else None

    def purge_history(self, first: int = 0) -> list[Change]:
        """Forget the turns from the index ``first`` on, for example after a compaction. Their tiers count as broken by
        history, so that no other turn moves along."""
        found = [key for key in self.items if key.startswith(HISTORY) and _index(key) >= first]
        return [self.drop(key, "purged") for key in found]

    def update(
        self, items: Iterable[Tracked], present: Collection[str] | None = None, modified: Collection[str] = ()
    ) -> list[Change]:
        """Count one settled response in which ``items`` were sent. Tracked pieces that are not in ``present`` no longer
        exist.

        ``present`` None: exactly the listed pieces exist. The pieces in ``modified`` count as changed even if their
        digest is the same. Returns the moves in the order in which they happened.
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
            for tracked in listed:
                item = self.items[tracked.key]
                above = Tier(max(item.tier - 1, Tier.L0))
                if above is not item.tier and not tracked.key.startswith(HISTORY) and item.n >= ENTRY_N[above]:
                    changes.append(self.enter(tracked.key, above))
        else:
            graduates = self._graduates(listed)
            graduates += graduating(self, groups, others_leave=bool(graduates))
            changes += Cascade(self, frozenset(CACHED) - filled).run(graduates)
        changes += self._underfilled()
        self.broken.clear()
        self.broken_by_history.clear()
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

    def _graduates(self, listed: Sequence[Tracked]) -> list[str]:
        """The active pieces that enter L3, without turns."""
        items = self.items
        if self.policy.graduation == "count":
            found = [t.key for t in listed if items[t.key].tier is Tier.ACTIVE and items[t.key].n >= ENTRY_N[Tier.L3]]
        else:
            left, self._last_listed = self._last_listed, frozenset(t.key for t in listed)
            left -= self._last_listed
            found = [key for key, item in items.items() if item.tier is Tier.ACTIVE and key in left]
        return [key for key in found if not key.startswith(HISTORY)]

    def unmarked(self, tokens: Mapping[Tier, int]) -> frozenset[Tier]:
        """The tiers that are too small for a marker of their own, given the tokens of each tier."""
        if self.policy.underfill != "unmark":
            return frozenset()
        return frozenset(tier for tier in CACHED if tokens[tier] < self.policy.target_tokens)

    def _underfilled(self) -> list[Change]:
        """Move pieces one tier down if their tier is below the target."""
        if self.policy.underfill == "unmark":
            return []
        changes: list[Change] = []
        broken, fallen = frozenset(self.broken), set[str]()
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
    """The index of a turn. A key that names no index stands behind all others."""
    number = key.removeprefix(HISTORY)
    return int(number) if number.isdecimal() and len(number) < 20 else 1 << 62
