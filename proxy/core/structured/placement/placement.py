"""Where each item of a structured context stands: its tier, and its place within the tier."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from proxy.core.layout.tiers import Tier

FILE, SYMBOL, HISTORY = "file:", "symbol:", "history:"
"""The beginnings of the items' keys: ``file:src/a.py``, ``symbol:src/a.py``, ``history:3``."""


@dataclass(frozen=True, slots=True)
class TierItems:
    """The items of one tier in sending order. ``symbols`` and ``files`` are paths; ``history`` are indices of the
    messages between the system messages and the prompt, in rising order."""

    symbols: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    history: tuple[int, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing stands in the tier."""
        return not (self.symbols or self.files or self.history)


@dataclass(frozen=True, slots=True)
class Placement:
    """The tiers of one request. ``tiers`` has an entry for each tier. The tiers in ``unmarked`` are too small for a
    breakpoint of their own. ``counts`` is the number of unchanged responses (N) by key, for items that are tracked.
    ``tokens`` are those of all items of a tier."""

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
