"""The benchmark: a recorded session under every policy, compared with the best possible results.

``compare`` prices one session. ``means`` sums up many sessions by their kind, and ``plot`` draws them (``plot.svg``).
Means are geometric, so that a long session counts no more than a short one.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType

from proxy.core.planner.plan import Plan
from proxy.core.providers import CacheProfile
from proxy.core.shadow import most_regret
from proxy.core.value import dataclass, field, replace
from proxy.errors import UpstreamRejected
from proxy.replay.fidelity import violations
from proxy.replay.limits import Bag, Bagger, Timed, fixed_limit, free_limit, prefix_share
from proxy.replay.runner import Setting, replay
from proxy.replay.search import find_layouts
from proxy.replay.templates import templates_in
from proxy.replay.totals import (
    AS_SENT,
    CLIENT,
    COMPARED,
    SYSTEM_LAST,
    TOOLS_SYSTEM_LAST_TWO,
    Total,
    as_sent,
    geometric_mean,
    sent_by,
)
from proxy.replay.trace import Step, Trace
from proxy.upstream.embedded import TAIL_TOKENS, PromptReader

CLASSIC, ECONOMIC, BEST = "classic", "economic", "best found"
POLICIES = (AS_SENT, CLIENT, SYSTEM_LAST, TOOLS_SYSTEM_LAST_TWO, CLASSIC, ECONOMIC)

# In an append-only session, the client's own order lets a cache keep at least this share of the repeated tokens.
_APPENDS = 0.8


class Kind(StrEnum):
    """The kind of a session, by its own content."""

    APPEND_ONLY = "append-only"
    MUTABLE = "mutable"


def kind_of(shared: float) -> Kind:
    """The kind of a session whose own order lets a cache keep this share of the repeated tokens (``prefix_share``)."""
    return Kind.APPEND_ONLY if shared >= _APPENDS else Kind.MUTABLE


@dataclass(frozen=True, slots=True)
class Score:
    """The result of one policy on one trace.

    ``cost`` is in tokens at the plain price. ``waste`` is the share of the written tokens that was never read (None:
    nothing was written). ``has_long`` says that some tokens were written with the longer TTL.
    """

    cost: float
    hit_rate: float
    waste: float | None
    refused: int = 0
    has_long: bool = False


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of one trace. ``plain`` is the cost without any cache. ``fixed`` is a lower bound for the client's
    own order, and ``free`` is a lower bound for any order.

    ``allowance`` is how much more than the client's own request ``economic`` may cost while it learns a session. It is
    the tokens of the largest request times a factor (``ShadowCaches.regret_budget``). ``found_by`` names the source of
    the best feasible layout: the search, or the policy that the search did not beat.
    ``violations`` are violations of fidelity under ``economic``, and surprises of the planner.
    """

    trace: str
    requests: int
    kind: Kind
    prefix_share: float
    plain: float
    scores: dict[str, Score]
    fixed: float
    free: float
    allowance: float
    found_by: str
    violations: list[str] = field(default_factory=list)

    def share_of(self, cost: float) -> float:
        """A cost as a share of no caching."""
        return cost / self.plain if self.plain else 1.0


def compare(trace: Trace, setting: Setting) -> Comparison:
    """Price one trace under every policy, the bounds and the search."""
    steps: list[Step] = []

    def note(step: Step, plan: Plan) -> None:
        """Structured context is compared in the form that the planner gets."""
        steps.append(replace(step, body=plan.original))

    economic = replay(trace, replace(setting, policy=ECONOMIC, baselines=COMPARED, on_sent=note))
    classic = replay(trace, replace(setting, policy=CLASSIC, baselines={}, on_sent=None))
    totals = economic.totals | {CLASSIC: classic.ours, ECONOMIC: economic.ours}
    scores = {name: _score(totals[name], setting.profile) for name in POLICIES}
    # The bounds may choose the longer TTL only if some policy has used it.
    with_long = any(score.has_long for score in scores.values())
    scores[BEST], found_by = _best(steps, setting, scores)
    prompts, bags = own_order(steps, PromptReader(setting.rules, setting.encode))
    tails = TAIL_TOKENS * len(prompts)
    shared = prefix_share(prompts, bags)
    return Comparison(
        trace=trace.name,
        requests=len(trace.steps),
        kind=kind_of(shared),
        prefix_share=shared,
        plain=economic.plain,
        scores=scores,
        fixed=fixed_limit(prompts, setting.rules, with_long=with_long) + tails,
        free=free_limit(bags, setting.rules, with_long=with_long) + tails,
        allowance=most_regret(ECONOMIC) * max((prompt.total for _, prompt in prompts), default=0),
        found_by=found_by,
        violations=[*economic.violations, *economic.surprises],
    )


def own_order(steps: Sequence[Step], reader: PromptReader) -> tuple[list[Timed], list[Bag]]:
    """The client's requests without markers: their prompts, and their segments. Requests that the provider refuses are
    left out."""
    bagger = Bagger(reader)
    prompts: list[Timed] = []
    bags: list[Bag] = []
    for step in steps:
        body = sent_by(as_sent, step.body, reader.profile.dialect)
        with suppress(UpstreamRejected):
            prompts.append((step.at, reader.prompt(body)))
            bags.append(bagger.bag(body, step.at))
    return prompts, bags


def _score(total: Total, profile: CacheProfile) -> Score:
    return Score(
        cost=total.cost(profile),
        hit_rate=total.hit_rate,
        waste=total.waste.share,
        refused=total.refused,
        has_long=total.write_1h > 0,
    )


def _best(steps: Sequence[Step], setting: Setting, scores: Mapping[str, Score]) -> tuple[Score, str]:
    """The cheapest feasible layout that is known. It is the search's layout if the provider accepts it, no content is
    harmed, and it beats every policy."""
    cheapest = min(scores, key=lambda name: (scores[name].refused, scores[name].cost))
    account, profile, is_harmed = setting.account(), setting.profile, False
    found = find_layouts(steps, setting.rules, setting.encode, setting.recognisers)
    for step, (body, _) in zip(steps, found or (), strict=found is not None):
        account.send(body, step.at)
        is_harmed |= bool(violations(step.body, body, setting.recognisers, profile.max_marks))
    score = _score(account.total, profile)
    if found is None or is_harmed or score.refused or score.cost >= scores[cheapest].cost:
        return scores[cheapest], cheapest
    return score, "search"


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
    together = {column: geometric_mean(shares(one)[column] for one in found) for column in COLUMNS}
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
