"""Bills of a replay, added up, and what they come to beside each other."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from proxy.core.caches.prompt import BillSum, Parts
from proxy.core.providers import CacheProfile

OURS = "stratiform"


@dataclass(slots=True)
class Total(BillSum):
    """The bills of one policy over one trace.

    ``refused`` counts requests that the provider answered with an error. ``refreshes`` counts requests that only kept a
    prefix alive. Their ``refresh_bills`` are a part of the cost, and of no hit rate.
    """

    refused: int = 0
    refreshes: int = 0
    refresh_bills: "Total | None" = None

    def refreshed(self, bill: Parts) -> None:
        """Count a request that only kept a prefix alive."""
        self.refreshes += 1
        self.refresh_bills = self.refresh_bills or Total()
        self.refresh_bills.add(bill)

    @property
    def hit_rate(self) -> float:
        """Share of prompt tokens that were read from the cache."""
        return self.read / self.prompt if self.prompt else 0.0

    def cost(self, profile: CacheProfile) -> float:
        """Input cost in tokens at the plain price."""
        written = self.write_5m * profile.write + self.write_1h * profile.write_long
        refreshes_cost = self.refresh_bills.cost(profile) if self.refresh_bills is not None else 0.0
        return self.read * profile.read + written + self.plain + refreshes_cost


@dataclass(slots=True)
class Result:
    """One trace under every policy; ``ours`` is what the planner sent. ``plain`` is the cost of no caching at all:
    the client's prompts at the plain price. ``violations`` of fidelity and ``surprises`` of the planner name the
    request, counted from 1."""

    trace: str
    profile: CacheProfile
    requests: int
    plain: float = 0.0
    totals: dict[str, Total] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    surprises: list[str] = field(default_factory=list)

    @property
    def ours(self) -> Total:
        """What the planner sent."""
        return self.totals[OURS]

    def share(self, policy: str) -> float:
        """Input cost as a share of no caching."""
        return self.totals[policy].cost(self.profile) / self.plain if self.plain else 1.0

    def against_cheapest(self) -> float:
        """Our cost as a share of the cheapest other policy's."""
        others = [self.share(name) for name in self.totals if name != OURS]
        cheapest = min(others, default=1.0)
        return self.share(OURS) / cheapest if cheapest else 1.0


@dataclass(frozen=True, slots=True)
class Summary:
    """Several traces in one line. Shares are geometric means over traces, so that a long trace counts no more than a
    short one."""

    traces: int
    requests: int
    shares: dict[str, float]
    against_cheapest: float
    violations: int


def summary(results: Sequence[Result]) -> Summary:
    """The means of at least one result."""
    names = [name for name in results[0].totals if all(name in r.totals for r in results)]
    return Summary(
        traces=len(results),
        requests=sum(r.requests for r in results),
        shares={name: geometric_mean(r.share(name) for r in results) for name in names},
        against_cheapest=geometric_mean(r.against_cheapest() for r in results),
        violations=sum(len(r.violations) for r in results),
    )


def geometric_mean(values: Iterable[float]) -> float:
    """The geometric mean of positive values. It is 0 where a value is not positive."""
    given = list(values)
    if not given or min(given) <= 0:
        return 0.0
    return math.exp(math.fsum(map(math.log, given)) / len(given))
