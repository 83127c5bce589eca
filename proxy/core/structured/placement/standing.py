"""Where each item really stands: a placement, held against what the request has.

Nothing appears twice and nothing is lost, whatever a placement says: a selected file stands where its text stands and
never in the map; what no tier names is placed by default, symbols in L3 and everything else in the active part.
"""

from collections.abc import Iterable, Mapping, Sequence

from proxy.core.layout.tiers import Tier
from proxy.core.structured.blocks.blocks import Skip, Skipped
from proxy.core.structured.context import StructuredContext
from proxy.core.structured.messages.turn import Turn
from proxy.core.structured.placement.placement import Placement, TierItems

_NOTHING = TierItems()


def standing(
    context: StructuredContext, history: Sequence[Turn], placement: Placement, skipped: Skipped
) -> Mapping[Tier, TierItems]:
    """The items of all five tiers. Paths that the request does not show are left out without a word."""
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
    """Selected files that cannot be read, and files without symbols where these would be shown."""
    selected = {file.path for file in context.files if file.is_selected}
    unreadable = sum(1 for file in context.files if file.is_selected and file.text is None)
    bare = sum(1 for path, block in context.symbols.items() if not block and path not in selected)
    return {skip: n for skip, n in ((Skip.UNREADABLE, unreadable), (Skip.NO_SYMBOLS, bare)) if n}


def _shared_out(placed: Sequence[Iterable[str]], shown: Iterable[str], default: Tier) -> Sequence[Sequence[str]]:
    """The paths of each tier, each path once: those that are placed in their order, and the others behind them."""
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
    calls: where a placement says otherwise, the turn goes down."""
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
        if history[index].is_result:
            tiers[index - 1] = tiers[index]
    found: list[list[int]] = [[] for _ in Tier]
    for index, tier in enumerate(tiers):
        found[tier].append(index)
    return found
