"""The tier of each item of a structured context, and the item's place within the tier."""

from collections.abc import Iterable, Mapping, Sequence

from proxy.core.layout.tiers import Tier
from proxy.core.structured.blocks.blocks import Skip, Skipped
from proxy.core.structured.context import StructuredContext
from proxy.core.structured.messages import Turn
from proxy.core.value import dataclass, field

FILE, SYMBOL, HISTORY = "file:", "symbol:", "history:"
"""The prefixes of the items' keys: ``file:src/a.py``, ``symbol:src/a.py``, ``history:3``."""


@dataclass(frozen=True, slots=True)
class TierItems:
    """The items of one tier in sending order. ``symbols`` and ``files`` are paths; ``history`` are indices of the
    messages between the system messages and the prompt, in rising order."""

    symbols: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    history: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Placement:
    """The tiers of one request. ``tiers`` has an entry for each tier. The tiers in ``unmarked`` are too small for a
    breakpoint of their own. ``counts`` is the number of unchanged responses (N) by key, for items that are tracked.
    ``tokens`` gives the tokens of all items of each tier."""

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


_NOTHING = TierItems()


def standing(
    context: StructuredContext, history: Sequence[Turn], placement: Placement, skipped: Skipped
) -> Mapping[Tier, TierItems]:
    """The items of all five tiers. Paths that the request does not show are silently left out."""
    tiers = [placement.tiers.get(tier, _NOTHING) for tier in Tier]
    symbols = _shared_out([tier.symbols for tier in tiers], context.mapped(), Tier.L3)
    files = _shared_out([tier.files for tier in tiers], (file.path for file in context.selected()), Tier.ACTIVE)
    turns = _turns([tier.history for tier in tiers], history, skipped)
    skipped.update(not_shown(context))
    return {
        tier: TierItems(symbols=tuple(symbols[tier]), files=tuple(files[tier]), history=tuple(turns[tier]))
        for tier in Tier
    }


def not_shown(context: StructuredContext) -> Mapping[Skip, int]:
    """How many selected files cannot be read, and how many files have no symbols although their symbols would be
    shown."""
    selected = {file.path for file in context.files if file.is_selected}
    unreadable = sum(1 for file in context.files if file.is_selected and file.text is None)
    bare = sum(1 for path, block in context.symbols.items() if not block and path not in selected)
    return {skip: n for skip, n in ((Skip.UNREADABLE, unreadable), (Skip.NO_SYMBOLS, bare)) if n}


def _shared_out(placed: Sequence[Iterable[str]], shown: Iterable[str], default: Tier) -> Sequence[Sequence[str]]:
    """The paths of each tier, each path once. Placed paths keep their order. The other paths stand behind them in the
    ``default`` tier."""
    left = dict.fromkeys(shown)
    found: list[list[str]] = []
    for paths in placed:
        here = dict.fromkeys([path for path in paths if path in left])
        for path in here:
            del left[path]
        found.append(list(here))
    found[default] += left
    return found


def _turns(placed: Sequence[Iterable[int]], history: Sequence[Turn], skipped: Skipped) -> Sequence[Sequence[int]]:
    """The turns of each tier. No turn stands in a more stable tier than an older one, and results stay with their
    calls. If a placement says otherwise, the turn moves down to the less stable tier."""
    tiers = [Tier.ACTIVE] * len(history)
    for tier, indices in zip(Tier, placed, strict=True):
        for index in indices:
            if 0 <= index < len(history):
                tiers[index] = min(tiers[index], tier)
            else:
                skipped[Skip.UNKNOWN_TURN] += 1
    least = Tier.L0
    for index, tier in enumerate(tiers):
        least = tiers[index] = max(least, tier)
    for index in range(len(history) - 1, 0, -1):
        if history[index].has_results:
            tiers[index - 1] = tiers[index]
    found: list[list[int]] = [[] for _ in Tier]
    for index, tier in enumerate(tiers):
        found[tier].append(index)
    return found
