"""The tier of each item of a structured context, and the item's place within the tier."""

from collections.abc import Mapping

from proxy.core.layout.tiers import Tier
from proxy.core.value import dataclass, field

FILE, SYMBOL = "file:", "symbol:"
"""The prefixes of the items' keys: ``file:src/a.py``, ``symbol:src/a.py``."""


@dataclass(frozen=True, slots=True)
class TierItems:
    """The items of one tier in sending order. ``symbols`` and ``files`` are paths; ``history`` are indices of the
    messages between the system messages and the prompt, in rising order."""

    symbols: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    history: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Placement:
    """The tiers of one request. ``tiers`` has an entry for each tier, and each item of the request stands in one of
    them. No turn stands in a more stable tier than an older one, and results stand with their calls. The tiers in
    ``unmarked`` are too small for a breakpoint of their own. ``counts`` is the number of unchanged responses (N) by
    key, for items that are tracked. ``tokens`` gives the tokens of all items of each tier."""

    tiers: Mapping[Tier, TierItems]
    unmarked: frozenset[Tier] = frozenset()
    counts: Mapping[str, int] = field(default_factory=dict)
    tokens: Mapping[Tier, int] = field(default_factory=dict)

    def tier_of(self) -> dict[str, Tier]:
        """The tier of each path's file or symbols, by key."""
        found: dict[str, Tier] = {}
        for tier, items in self.tiers.items():
            found.update((FILE + path, tier) for path in items.files)
            found.update((SYMBOL + path, tier) for path in items.symbols)
        return found
