"""Cost of panels, by the rule of the original: a panel is read from the cache as far as the list of panels begins as
the list of the request before did.

It is an estimate for people to compare panels by. It knows no lives of caches and counts no messages; what a request
has cost is what the provider reports.
"""

from collections.abc import Mapping, Sequence
from itertools import takewhile
from sys import getsizeof

from msgspec import Struct

from proxy.core.structured.panels.placing import Count, PanelId, Usd
from proxy.core.value import dataclass, field

MOST_GONE = 500
"""Totals that are kept of panels that a session no longer shows."""
_MILLION = 1_000_000
_SLOT_BYTES = 150


@dataclass(frozen=True, slots=True)
class EmittedPanel:
    """A panel as it was sent: its id, the digest of what is shown, and its tokens."""

    id: str
    digest: bytes
    tokens: int


class PanelCost(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One panel of the last counted request: its tokens, whether it was a hit, what it cost then, and what it has cost
    since the session began, in USD."""

    id: PanelId
    tokens: Count
    is_hit: bool
    cost_usd: Usd
    total_usd: Usd


@dataclass(frozen=True, slots=True)
class PanelCosts:
    """Memory of a session. ``entries`` are those of the last counted request in sending order, ``last`` their
    costs, and ``totals`` the running totals in USD by panel id, those that were counted last behind the others."""

    entries: tuple[str, ...] = ()
    last: tuple[PanelCost, ...] = ()
    totals: Mapping[str, float] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        """About what it takes in memory."""
        texts = sum(map(getsizeof, self.entries)) + sum(map(getsizeof, self.totals))
        return texts + _SLOT_BYTES * (len(self.entries) + len(self.last) + len(self.totals))


def counted(costs: PanelCosts, panels: Sequence[EmittedPanel], hit_usd: float, miss_usd: float) -> PanelCosts:
    """The costs after a request that was settled. ``panels`` are in sending order. Prices are USD per million tokens,
    of a token that is read from the cache and of one that is not. It is called once for a request: a second time
    everything would be a hit."""
    # The id belongs to an entry: panels of equal content are not the same panel.
    entries = tuple([f"{panel.id}:{panel.digest.hex()}" for panel in panels])
    hits = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(entries, costs.entries, strict=False)))
    totals = dict(costs.totals)
    last: list[PanelCost] = []
    for index, panel in enumerate(panels):
        is_hit = index < hits
        cost = panel.tokens * (hit_usd if is_hit else miss_usd) / _MILLION
        total = totals.pop(panel.id, 0.0) + cost
        totals[panel.id] = total
        last.append(PanelCost(panel.id, panel.tokens, is_hit, cost, total))
    # Those that are shown stand last.
    for gone in list(totals)[: max(0, len(totals) - len({panel.id for panel in panels}) - MOST_GONE)]:
        del totals[gone]
    return PanelCosts(entries, tuple(last), totals)
