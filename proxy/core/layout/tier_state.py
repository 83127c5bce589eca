"""The values of policy ``classic``, and its state: the pieces with their tiers and counts, and the tiers that are
broken."""

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Literal

from proxy.core.value import dataclass, replace

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

Piece = tuple[bytes, int, int, int, int, int]
"""A piece's digest, tokens, tier and N, and the rising numbers of when it was first seen and when it entered its
tier."""


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


_MOST_N = (None, *(ENTRY_N[Tier(tier - 1)] for tier in (Tier.L1, Tier.L2, Tier.L3)), None)
"""The count that moves a piece up, by its tier. There is no tier above L0, and the count of active pieces is not
capped."""


@dataclass(slots=True)
class Item:
    """A tracked piece. ``n`` counts its unchanged responses. ``seen`` and ``entered`` are rising numbers: when it was
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
        """The tier's pieces in sending order. They stand in the order in which they entered the tier, so that a new
        piece never stands before an old one."""
        found = [(item.entered, key) for key, item in self.items.items() if item.tier is tier]
        return [key for _, key in sorted(found)]

    def tokens(self) -> dict[Tier, int]:
        found = dict.fromkeys(Tier, 0)
        for item in self.items.values():
            found[item.tier] += item.tokens
        return found

    def state(self) -> tuple[dict[str, Piece], int]:
        """All pieces, and how many of the rising numbers were given out."""
        pieces = {
            key: (item.digest, item.tokens, int(item.tier), item.n, item.seen, item.entered)
            for key, item in self.items.items()
        }
        return pieces, self._sequence

    def restore(self, pieces: Mapping[str, Piece], sequence: int) -> None:
        """Continue from these pieces. Raises ValueError for a tier that does not exist."""
        self.items = {
            key: Item(digest, tokens, Tier(tier), n, seen, entered)
            for key, (digest, tokens, tier, n, seen, entered) in pieces.items()
        }
        self._sequence = sequence

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
    """The next N of an unchanged piece. While the tier above is closed, N stops at the count that would move the piece
    there. In L0 it has no limit."""
    most = _MOST_N[tier] if policy.is_capped else None
    return n + 1 if most is None else min(n + 1, most)
