"""The cost of panels, by the rule of the original: panels are read from the cache as far as the list of panels has the
same beginning as the list of the request before.

It is an estimate by which people compare panels. It ignores how long caches live, and does not count messages. The real
cost of a request is what the provider reports.
"""

from collections.abc import Mapping, Sequence
from itertools import takewhile
from sys import getsizeof

from msgspec import Struct

from proxy.core.structured.panels.placing import Count, PanelId, Usd
from proxy.core.value import dataclass, field

MOST_GONE = 500
"""At most this many totals are kept for panels that a session no longer shows."""
_MILLION = 1_000_000
_SLOT_BYTES = 150


@dataclass(frozen=True, slots=True)
class EmittedPanel:
    """A panel as it was sent: its id, the digest of the shown text, and its tokens."""

    id: str
    digest: bytes
    tokens: int


class PanelCost(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One panel of the last counted request: its tokens, whether it was a hit, its cost in that request, and its total
    cost since the session began, in USD."""

    id: PanelId
    tokens: Count
    is_hit: bool
    cost_usd: Usd
    total_usd: Usd


@dataclass(frozen=True, slots=True)
class PanelCosts:
    """The panel costs of a session. ``entries`` are the panels of the last counted request in sending order, and
    ``last`` are their costs. ``totals`` are the running totals in USD by panel id; the panels that were counted last
    stand behind the others."""

    entries: tuple[str, ...] = ()
    last: tuple[PanelCost, ...] = ()
    totals: Mapping[str, float] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        """An estimate of its size in memory."""
        texts = sum(map(getsizeof, self.entries)) + sum(map(getsizeof, self.totals))
        return texts + _SLOT_BYTES * (len(self.entries) + len(self.last) + len(self.totals))


def counted(costs: PanelCosts, panels: Sequence[EmittedPanel], hit_usd: float, miss_usd: float) -> PanelCosts:
    """The costs after a request that was settled. ``panels`` are in sending order. The prices are in USD per million
    tokens: ``hit_usd`` for tokens that are read from the cache, ``miss_usd`` for others. It must be called only once
    for a request: the second time everything would be a hit."""
    # The id is part of an entry, because panels of equal content are not the same panel.
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
    # The totals of the shown panels stand last.
    for gone in list(totals)[: max(0, len(totals) - len({panel.id for panel in panels}) - MOST_GONE)]:
        del totals[gone]
    return PanelCosts(entries, tuple(last), totals)
