"""The comparison as a picture (``plot.svg``): one line a trace, a dot for each policy, the limits as ticks."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from proxy.replay.baselines import SYSTEM_LAST
from proxy.replay.benchmark import FIXED, FREE, by_kind, means, shares
from proxy.replay.comparison import BEST, ECONOMIC, Comparison
from proxy.replay.templates import templates_in

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
