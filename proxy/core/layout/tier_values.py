"""The values of policy ``classic``: tiers, pieces as they are listed, changes, and the flags of the rules."""

from dataclasses import dataclass, replace
from enum import IntEnum
from types import MappingProxyType
from typing import Literal

HISTORY = "history:"
"""The beginning of the keys of turns. What is said of turns holds for these pieces, and for no others."""


class Tier(IntEnum):
    """Most stable first."""

    L0 = 0
    L1 = 1
    L2 = 2
    L3 = 3
    ACTIVE = 4

    @property
    def label(self) -> str:
        """The name as people see it: ``L0`` to ``L3``, and ``active``."""
        return "active" if self is Tier.ACTIVE else self.name


# Unchanged responses with which a piece enters a tier; leaving it upwards takes the entry count of the tier above.
ENTRY_N = MappingProxyType({Tier.L0: 12, Tier.L1: 9, Tier.L2: 6, Tier.L3: 3, Tier.ACTIVE: 0})
CACHED = (Tier.L3, Tier.L2, Tier.L1, Tier.L0)
"""The tiers that are cached, in the order in which pieces climb them."""

Piece = tuple[bytes, int, int, int, int, int]
"""A piece's digest, tokens, tier, N, and when it was first seen and entered its tier."""


@dataclass(frozen=True, slots=True)
class Tracked:
    """A piece as it is listed in one request. A turn that is joined stands in the tier of the turn before it, as the
    result of a tool stands beside the call."""

    key: str
    digest: bytes
    tokens: int
    is_joined: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """A piece that changed its tier; ``target`` is None where it was removed."""

    key: str
    source: Tier
    target: Tier | None
    reason: str


@dataclass(frozen=True, slots=True)
class ClassicPolicy:
    """Flags of the state machine. The first value of each is the profile; the others are what single generations of the
    tiered assembly did. ``target_tokens`` 0 turns anchoring and under-fill off, and keeps turns active.

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
    """The policy for a model whose provider caches from ``min_tokens`` on: a tenth more, for the error of our count."""
    return replace(policy, target_tokens=int(max(1024, min_tokens) * 1.1))
