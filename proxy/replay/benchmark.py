"""The comparison of many traces by kind, and its picture (``plot.svg``).

Means are geometric, so that a long session counts no more than a short one.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from proxy.core.value import dataclass
from proxy.replay.baselines import SYSTEM_LAST
from proxy.replay.comparison import BEST, ECONOMIC, POLICIES, Comparison, Kind
from proxy.replay.templates import templates_in
from proxy.replay.totals import geometric_mean

FIXED, FREE = "fixed limit", "free limit"
COLUMNS = (*POLICIES, FIXED, BEST, FREE)
"""The policies and bounds that a trace is priced under. The bounds come last."""


@dataclass(frozen=True, slots=True)
class Mean:
    """The traces of one kind, summed up in one line. Shares are geometric means. Hit rates and waste are means over
    traces. A gain is computed from the mean shares (None: there was nothing to save)."""

    name: str
    traces: int
    requests: int
    shares: Mapping[str, float]
    hit_rates: Mapping[str, float]
    waste: Mapping[str, float | None]
    gains: Mapping[str, float | None]


def shares(one: Comparison) -> dict[str, float]:
    """Input cost as a share of no caching, by column."""
    costs = {name: score.cost for name, score in one.scores.items()} | {FIXED: one.fixed, FREE: one.free}
    return {name: one.share_of(cost) for name, cost in costs.items()}


def gains(costs: Mapping[str, float]) -> dict[str, float | None]:
    """Our saving as a share of the saving at each limit."""
    return {
        limit: (1 - costs[ECONOMIC]) / (1 - costs[limit]) if costs[limit] < 1 else None for limit in (FIXED, BEST, FREE)
    }


def by_kind(found: Sequence[Comparison]) -> list[tuple[Kind, list[Comparison]]]:
    """The traces of each kind. Kinds without a trace are left out."""
    return [(kind, some) for kind in Kind if (some := [one for one in found if one.kind is kind])]


def means(found: Sequence[Comparison]) -> list[Mean]:
    """One line for each kind. If there are several kinds, one more line covers all of them."""
    kinds = by_kind(found)
    lines = [_mean(str(kind), some) for kind, some in kinds]
    return [*lines, _mean("all", found)] if len(kinds) > 1 else lines


def _mean(name: str, found: Sequence[Comparison]) -> Mean:
    every = [shares(one) for one in found]
    together = {column: geometric_mean(each[column] for each in every) for column in COLUMNS}
    scores = (*POLICIES, BEST)
    return Mean(
        name=name,
        traces=len(found),
        requests=sum(one.requests for one in found),
        shares=together,
        hit_rates={p: sum(one.scores[p].hit_rate for one in found) / len(found) for p in scores},
        waste={p: _average([one.scores[p].waste for one in found]) for p in scores},
        gains=gains(together),
    )


def _average(values: Sequence[float | None]) -> float | None:
    given = [value for value in values if value is not None]
    return sum(given) / len(given) if given else None


_STEP = 0.25
# Drawn in this order.
_LEGEND: Mapping[str, str] = MappingProxyType(
    {
        FREE: "limit of any order",
        FIXED: "limit of the client's order",
        SYSTEM_LAST: "markers on system + last",
        BEST: "best found in hindsight",
        ECONOMIC: "Stratiform (economic)",
    }
)


def plot(found: Sequence[Comparison], profile: str) -> str:
    """The SVG document."""
    by_name = {mean.name: mean.shares for mean in means(found)}
    kinds = [
        {"name": str(kind), "traces": [(one.trace, shares(one)) for one in some], "mean": by_name[kind]}
        for kind, some in by_kind(found)
    ]
    most = max((max(shares(one).values()) for one in found), default=1.0)
    return (
        templates_in(Path(__file__).parent)
        .get_template("plot.svg")
        .render(
            title=f"Input cost as a share of no caching, cache rules: {profile}",
            kinds=kinds,
            most=max(1.0, -(-most // _STEP) * _STEP),
            legend=list(_LEGEND.items()),
            **{"free": FREE, "fixed": FIXED, "best": BEST, "ours": ECONOMIC},
        )
    )
