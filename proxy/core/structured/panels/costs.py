"""Cost of panels, by the rule of the original: a panel is read from the cache as far as the list of panels begins as
the list of the request before did.

It is an estimate for people to compare panels by. It knows no lives of caches and counts no messages; what a request
has cost is what the provider reports.
"""

from collections.abc import Mapping, Sequence
from sys import getsizeof

from msgspec import Struct

from proxy.core.structured.panels.panel import CONVERSATION
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

    @property
    def entry(self) -> str:
        """Name that must stand at the same position of both lists for the panel to be read from the cache. The id
        belongs to it: panels of equal content are not the same panel."""
        return f"{self.id}:{self.digest.hex()}"


class PanelCost(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One panel of the last counted request: its tokens, whether it was a hit, what it cost then, and what it has cost
    since the session began, in USD."""

    id: PanelId
    tokens: Count
    is_hit: bool
    cost_usd: Usd
    total_usd: Usd

    def value(self) -> dict[str, object]:
        """As a value that can be written as JSON."""
        return {
            "id": self.id,
            "tokens": self.tokens,
            "hit": self.is_hit,
            "cost_usd": self.cost_usd,
            "total_usd": self.total_usd,
        }


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


def prefix_length(entries: Sequence[str], before: Sequence[str]) -> int:
    """How many leading positions of both lists are equal."""
    pairs = enumerate(zip(entries, before, strict=False))
    return next((i for i, (new, old) in pairs if new != old), min(len(entries), len(before)))


def counted(costs: PanelCosts, panels: Sequence[EmittedPanel], hit_usd: float, miss_usd: float) -> PanelCosts:
    """The costs after a request that was settled. ``panels`` are in sending order; the panel that stands for the
    conversation does not count. Prices are USD per million tokens, of a token that is read from the cache and of one
    that is not. It is called once for a request: a second time everything would be a hit."""
    shown = [panel for panel in panels if panel.id != CONVERSATION]
    entries = tuple([panel.entry for panel in shown])
    hits = prefix_length(entries, costs.entries)
    totals = dict(costs.totals)
    last: list[PanelCost] = []
    for index, panel in enumerate(shown):
        is_hit = index < hits
        cost = panel.tokens * (hit_usd if is_hit else miss_usd) / _MILLION
        total = totals.pop(panel.id, 0.0) + cost
        totals[panel.id] = total
        last.append(PanelCost(panel.id, panel.tokens, is_hit, cost, total))
    # Those that are shown stand last.
    for gone in list(totals)[: max(0, len(totals) - len({panel.id for panel in shown}) - MOST_GONE)]:
        del totals[gone]
    return PanelCosts(entries, tuple(last), totals)
