"""The benchmark: one recorded session under every policy, compared with the best possible results."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from enum import StrEnum

from proxy.core.planner.plan import Plan
from proxy.core.providers import CacheProfile
from proxy.core.shadow.shadow_caches import most_regret
from proxy.core.value import dataclass, field, replace
from proxy.errors import UpstreamRejected
from proxy.replay.baselines import AS_SENT, CLIENT, COMPARED, SYSTEM_LAST, TOOLS_SYSTEM_LAST_TWO, as_sent, sent_by
from proxy.replay.fidelity import violations
from proxy.replay.limits import Timed, fixed_limit, free_limit, prefix_share
from proxy.replay.runner import Setting, counted_once, replay
from proxy.replay.search import find_layouts
from proxy.replay.segments import Bag, Bagger
from proxy.replay.totals import Total
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
    setting = replace(setting, encode=counted_once(setting.encode))
    steps: list[Step] = []

    def note(step: Step, plan: Plan) -> None:
        """Structured context is compared in the form that the planner gets."""
        steps.append(replace(step, body=plan.original))

    economic = replay(trace, replace(setting, policy=ECONOMIC, baselines=COMPARED, on_sent=note))
    classic = replay(trace, replace(setting, policy=CLASSIC, baselines={}, on_sent=None))
    totals = {**economic.totals, CLASSIC: classic.ours, ECONOMIC: economic.ours}
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
