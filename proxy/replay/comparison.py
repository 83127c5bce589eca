"""The benchmark: one recorded session under every policy, compared with the best possible results."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from enum import StrEnum

from proxy.core.shadow.shadow_caches import most_regret
from proxy.core.value import dataclass, field, replace
from proxy.errors import UpstreamRejected
from proxy.replay.baselines import AS_SENT, CLIENT, COMPARED, SYSTEM_LAST, TOOLS_SYSTEM_LAST_TWO, as_sent
from proxy.replay.fidelity import tools_of, violations
from proxy.replay.limits import Timed, fixed_limit, free_limit, prefix_share
from proxy.replay.runner import Ours, Setting, acceptable, counted_once
from proxy.replay.search import find_layouts
from proxy.replay.segments import Bagger
from proxy.replay.totals import Account
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
    ``violations`` are violations of fidelity under ``economic``.
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
    reader = PromptReader(setting.rules, setting.encode)
    recorded = [acceptable(step, setting.profile) for step in trace.steps]
    _, classic = _planned(recorded, replace(setting, policy=CLASSIC))
    steps, economic = _planned(recorded, replace(setting, policy=ECONOMIC))
    prompts, own = _client(steps, reader)
    dialect = setting.profile.dialect
    sent = {name: [(step.at, make(step.body, dialect)) for step in steps] for name, make in COMPARED.items()}
    sent |= {CLASSIC: classic, ECONOMIC: economic}
    scores = {name: _score(bodies, setting, reader) for name, bodies in sent.items()}
    # The bounds may choose the longer TTL only if some policy has used it.
    with_long = any(score.has_long for score in scores.values())
    scores[BEST], found_by = _best(steps, setting, reader, scores)
    bagger = Bagger(reader)
    bags = [bagger.bag(body, at) for at, body in own]
    tails = TAIL_TOKENS * len(prompts)
    shared = prefix_share(prompts, bags)
    return Comparison(
        trace=trace.name,
        requests=len(trace.steps),
        kind=kind_of(shared),
        prefix_share=shared,
        plain=float(sum(prompt.total for _, prompt in prompts) + tails),
        scores={name: scores[name] for name in (*POLICIES, BEST)},
        fixed=fixed_limit(prompts, setting.rules, with_long=with_long) + tails,
        free=free_limit(bags, setting.rules, with_long=with_long) + tails,
        allowance=most_regret(ECONOMIC) * max((prompt.total for _, prompt in prompts), default=0),
        found_by=found_by,
        violations=list(_violations(steps, sent[ECONOMIC], setting)),
    )


_Sent = list[tuple[float, bytes]]


def _client(steps: Sequence[Step], reader: PromptReader) -> tuple[list[Timed], list[tuple[float, bytes]]]:
    """The client's requests without markers. Requests that the provider refuses are left out."""
    prompts, bodies = [], []
    for step in steps:
        body = as_sent(step.body, reader.profile.dialect)
        with suppress(UpstreamRejected):
            prompts.append((step.at, reader.prompt(body)))
            bodies.append((step.at, body))
    return prompts, bodies


def _planned(steps: Sequence[Step], setting: Setting) -> tuple[list[Step], _Sent]:
    """The requests and what the planner sends for them. Requests with structured context are returned in the form that
    the planner gets. If the provider refuses a planned request, the request goes out as it came."""
    came: list[Step] = []
    sent: _Sent = []
    ours = Ours(replace(setting, on_sent=None))
    for step in steps:
        chat = ours.assembled(step)
        plan = ours.send(step, chat)
        sent.append((step.at, plan.body))
        came.append(step if chat is None else replace(step, body=plan.original))
    return came, sent


def _score(sent: _Sent, setting: Setting, reader: PromptReader) -> Score:
    account = Account(reader)
    for at, body in sent:
        account.send(body, at)
    total = account.total
    return Score(
        cost=total.cost(setting.profile),
        hit_rate=total.hit_rate,
        waste=account.waste.share,
        refused=total.refused,
        has_long=total.write_1h > 0,
    )


def _violations(steps: Sequence[Step], sent: _Sent, setting: Setting) -> Iterator[str]:
    tools: list[bytes] = []
    for number, (step, (_, body)) in enumerate(zip(steps, sent, strict=True), 1):
        wrong = violations(step.body, body, setting.recognisers, setting.profile.max_marks, tools)
        yield from (f"request {number}: {text}" for text in wrong)
        if (form := tools_of(step.body)) and form not in tools:
            tools.append(form)


def _best(steps: Sequence[Step], setting: Setting, reader: PromptReader, scores: dict[str, Score]) -> tuple[Score, str]:
    """The cheapest feasible layout that is known. It is the search's layout if the provider accepts it, no content is
    harmed, and it beats every policy."""
    cheapest = min(scores, key=lambda name: (scores[name].refused, scores[name].cost))
    found = find_layouts(steps, setting.rules, setting.encode, setting.recognisers)
    if found is not None:
        sent = [(step.at, body) for step, (body, _) in zip(steps, found, strict=True)]
        score = _score(sent, setting, reader)
        is_feasible = not score.refused and not any(_violations(steps, sent, setting))
        if is_feasible and score.cost < scores[cheapest].cost:
            return score, "search"
    return scores[cheapest], cheapest
