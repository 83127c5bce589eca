"""The benchmark: a recorded session under every policy, compared with the best possible results.

``compare`` prices one session. ``means`` sums up many sessions by their kind, and ``plot`` draws them (``plot.svg``).
Means are geometric, so that a long session counts no more than a short one.

The limits are lower bounds for the cost of a session: no policy can be cheaper, even if it knows the future.
``free_limit`` <= ``fixed_limit`` and ``free_limit`` <= what the search finds. Nothing here plans a request.

*One piece of cached content* (``node_cost``): each use is billed plain (1), written (w), or, while an earlier write
still lives, read (r). A read or a write begins a new life. Pieces are independent: the sum over a trie's nodes of
tokens x the least cost is a bound for any markers. The bound is reached if markers and look-back do not run out,
because a descendant is never used without its ancestors.

*The client's own order* (``fixed_limit``): every byte stays where it is, and markers are free to choose. It is exact if
entries are bought with markers, and four markers and the look-back suffice. If a provider stores every prefix for free,
there is nothing to choose, and the limit is the cost of the order.

*Every order of the same content* (``free_limit``): the larger of two bounds. By segments: a segment is read only if it
was processed before, in time, at any place. By predecessors: a request's hit is one prefix of one earlier request, so
everything that it reads was in that request. The limit is not reachable in general, because both bounds let the
paragraphs of different files interleave. It holds for layouts that send each piece once. If a cache looks inside
blocks, each request may read the beginning of one more segment, as far as an earlier segment begins alike.

For the bounds that hold for every order, a request is a ``Bag`` of segments. A segment is a paragraph, together with
the role of its message. A paragraph ends at a blank line behind which the next text begins at the margin. Each item
that is not text (a tool definition, a call, an image, a thinking block) is one segment. The second copy of a segment
within one request counts as a different segment: copies can be read only as often as one earlier request held them. The
text that the provider adds around messages is not a segment.

A cache that looks inside blocks tells smaller units apart. For such a cache a segment is a step of a paragraph with
everything in front of it in that paragraph. Within the next step a little more may be equal.
"""

import re
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any

import orjson

from proxy.kit import templates_in
from proxy.kit.errors import UpstreamRejected
from proxy.kit.value import chain, dataclass, digest, field, replace
from proxy.lab import Step, Trace
from proxy.lab.replay import (
    AS_SENT,
    CLIENT,
    COMPARED,
    SYSTEM_LAST,
    TOOLS_SYSTEM_LAST_TWO,
    Setting,
    Total,
    as_sent,
    geometric_mean,
    replay,
    sent_by,
)
from proxy.lab.replay.fidelity import violations
from proxy.lab.replay.search import find_layouts
from proxy.planner.plan import Plan
from proxy.planner.record import spread
from proxy.planner.shadow import cost_of, most_regret
from proxy.protocol.caches import PromptPositions, make_cache
from proxy.protocol.providers import CacheProfile, Family
from proxy.upstream.embedded.provider import TAIL_TOKENS, PromptReader

# As files are written: a paragraph begins at the margin behind a blank line.
_PARAGRAPH = re.compile(r"(?<=\n\n)(?=\S)")

# How finely beginnings are compared. The step is smaller than the slices that the embedded provider cuts a text into.
_STEP_CHARS = 64

Segment = bytes


@dataclass(frozen=True, slots=True)
class Bag:
    """One request: its time, its tokens by segment, and ``total`` prompt tokens as the provider counts.
    ``is_inside``: the provider may read a part of a segment."""

    at: float
    scope: bytes
    total: int
    segments: Mapping[Segment, int]
    is_inside: bool = False

    def partial(self, whole: Container[Segment]) -> int:
        """The most tokens at the beginning of one segment that is not read as a whole."""
        if not self.is_inside:
            return 0
        return max((tokens for one, tokens in self.segments.items() if one not in whole), default=0)


class Bagger:
    """Cuts bodies into segments, each distinct message once."""

    def __init__(self, reader: PromptReader) -> None:
        self._reader = reader
        self._looks_inside = reader.profile.stores_prefixes
        self._known: dict[bytes, tuple[tuple[Segment, int], ...]] = {}

    def bag(self, body: bytes, at: float) -> Bag:
        """The segments of a request that the provider accepts."""
        prompt = self._reader.prompt(body)
        members = orjson.loads(body)
        segments: dict[Segment, int] = {}
        copies: Counter[Segment] = Counter()
        for part in [*(members.get("tools") or ()), *members["messages"]]:
            for own, tokens in self._segments(part):
                copies[own] += 1
                segments[own if copies[own] == 1 else digest(own, b"%d" % copies[own])] = tokens
        return Bag(at, prompt.scope, prompt.total, segments, self._looks_inside)

    def _segments(self, part: dict[str, Any]) -> tuple[tuple[Segment, int], ...]:
        key = digest(orjson.dumps(part, option=orjson.OPT_SORT_KEYS))
        known = self._known.get(key)
        if known is None:
            known = tuple(found for label, text in _texts(part) for found in self._steps(label, text))
            self._known[key] = known
        return known

    def _steps(self, label: bytes, text: str) -> Iterator[tuple[Segment, int]]:
        """One paragraph, or its steps; its tokens are spread by their lengths."""
        tokens, state = self._reader.maker.count(text), digest(label)
        size = _STEP_CHARS if self._looks_inside else len(text)
        steps = [text[start : start + size] for start in range(0, len(text) if tokens else 0, size)]
        for step, own in zip(steps, spread(tokens, map(len, steps)), strict=True):
            state = chain(state, digest(step.encode("utf-8", "surrogatepass")))
            yield state, own


def _texts(part: dict[str, Any]) -> Iterator[tuple[bytes, str]]:
    """The paragraphs and other segments of a message or tool. Each comes with a label, so that different kinds are not
    mixed."""
    role = part.get("role")
    if not isinstance(role, str):
        yield b"tool definition", _json(part)
        return
    label = role.encode()
    content = part.get("content")
    if isinstance(content, str):
        yield from ((label, text) for text in paragraphs(content))
    for item in content if isinstance(content, list) else ():
        if isinstance(item, dict) and isinstance(item.get("text"), str):
            yield from ((label, text) for text in paragraphs(item["text"]))
    for name in ("tool_calls", "thinking_blocks"):
        items = part.get(name)
        for item in items if isinstance(items, list) else ():
            yield label + name.encode(), _json(item)


def paragraphs(text: str) -> Sequence[str]:
    """The text, cut after each blank line that is followed by text at the margin."""
    return _PARAGRAPH.split(text) if text else ()


def _json(value: object) -> str:
    if isinstance(value, dict):
        value = {k: v for k, v in value.items() if k not in ("cache_control", "prompt_cache_breakpoint")}
    return orjson.dumps(value).decode()


Timed = tuple[float, PromptPositions]
# The shortest TTL on sale: content that comes back later is no longer in the cache, in any order.
_LIFE_S = 300.0


@dataclass(frozen=True, slots=True)
class Rates:
    """Prices as multiples of the input price. ``lives`` are the TTLs on sale, each with its write price and seconds."""

    read: float
    lives: tuple[tuple[float, float], ...]

    @classmethod
    def of(cls, profile: CacheProfile, *, with_long: bool) -> "Rates":
        """A profile's rates. They include the longer TTL only if it is asked for and sold."""
        lives = [(profile.write, profile.life_s + profile.slack_s)]
        if with_long and profile.family is Family.MARKER and profile.long_life_s > 0:
            lives.append((profile.write_long, profile.long_life_s + profile.slack_s))
        return cls(profile.read, tuple(lives))


def node_cost(times: Sequence[float], rates: Rates) -> float:
    """The least cost per token of uses at these times, which ascend. A state is the time until which the content is
    held.

    A read may prolong by the longest TTL at no price of its own: behind the hit a descendant may be written with that
    TTL, and this keeps its ancestors alive, too. So the bound stays below every marker set.
    """
    longest = max(life_s for _, life_s in rates.lives)
    states: dict[float, float] = {float("-inf"): 0.0}
    for now in times:
        following: dict[float, float] = {}
        for expiry, cost in states.items():
            reads = [(max(expiry, now + longest), rates.read)] if now < expiry else []
            writes = [(max(expiry, now + life_s), write) for write, life_s in rates.lives]
            for until, price in ((expiry, 1.0), *reads, *writes):
                following[until] = min(cost + price, following.get(until, float("inf")))
        states = _undominated(following)
    return min(states.values())


def _undominated(states: dict[float, float]) -> dict[float, float]:
    """The states without those that die sooner than another one and cost no less."""
    kept: dict[float, float] = {}
    cheapest = float("inf")
    for expiry in sorted(states, reverse=True):
        if states[expiry] < cheapest:
            cheapest = kept[expiry] = states[expiry]
    return kept


def fixed_limit(prompts: Sequence[Timed], profile: CacheProfile, *, with_long: bool = False) -> float:
    """Input cost in tokens at the plain price. ``prompts`` are in the order of time; their markers are ignored."""
    cost = 0.0
    if profile.family is not Family.MARKER:
        cache = make_cache(profile)
        for at, prompt in prompts:
            cost += cost_of(profile, cache.bill(prompt, at))
            cache.store(prompt, at, at)
        return cost
    rates = Rates.of(profile, with_long=with_long)
    tokens: dict[tuple[bytes, bytes], int] = {}
    uses: dict[tuple[bytes, bytes], list[float]] = {}
    for at, prompt in prompts:
        if prompt.total < profile.min_tokens or not prompt.scope:
            cost += prompt.total
            continue
        before = 0
        for name, end in zip(prompt.hashes, prompt.ends, strict=True):
            if end < profile.min_tokens:
                # This prefix is too short to be cached by itself: it belongs to the first one that is long enough.
                continue
            node = (prompt.scope, name)
            tokens[node] = end - before
            uses.setdefault(node, []).append(at)
            before = end
    return cost + sum(tokens[node] * node_cost(times, rates) for node, times in uses.items())


def free_limit(bags: Sequence[Bag], profile: CacheProfile, *, with_long: bool = False) -> float:
    """Input cost in tokens at the plain price. ``bags`` are in the order of time."""
    if profile.family is Family.NONE:
        return float(sum(bag.total for bag in bags))
    # The framing's tokens belong to no segment. They are negative if the segments count more than the provider's total.
    left = [bag.total - sum(bag.segments.values()) for bag in bags]
    rest = sum(tokens * (profile.read if tokens > 0 else 1.0) for tokens in left)
    by_predecessors = sum(
        sum(bag.segments.values()) - (1 - profile.read) * shared for bag, shared in most_in_common(bags)
    )
    return max(_by_segments(bags, profile, with_long), by_predecessors) + rest


def most_in_common(bags: Sequence[Bag]) -> Iterator[tuple[Bag, float]]:
    """For each request: the most tokens that it has in common with one earlier request."""
    for index, bag in enumerate(bags):
        earlier = (bag.segments.keys() & one.segments.keys() for one in bags[:index] if one.scope == bag.scope)
        shared = (sum(bag.segments[one] for one in common) + bag.partial(common) for common in earlier)
        yield bag, max(shared, default=0.0)


def _by_segments(bags: Sequence[Bag], profile: CacheProfile, with_long: bool) -> float:
    rates = Rates.of(profile, with_long=with_long)
    life_s = max(life_s for _, life_s in rates.lives)
    tokens: dict[tuple[bytes, Segment], int] = {}
    uses: dict[tuple[bytes, Segment], list[float]] = {}
    partly = 0.0
    for bag in bags:
        alive = {s for s in bag.segments if (at := uses.get((bag.scope, s))) and bag.at - at[-1] < life_s}
        partly += bag.partial(alive)
        for segment, count in bag.segments.items():
            tokens[bag.scope, segment] = count
            uses.setdefault((bag.scope, segment), []).append(bag.at)
    whole = sum(tokens[key] * node_cost(times, rates) for key, times in uses.items())
    return whole - max(1.0, profile.write) * partly + profile.read * partly


def prefix_share(prompts: Sequence[Timed], bags: Sequence[Bag]) -> float:
    """The share of the repeated tokens that are in a prefix which was sent within the last five minutes.

    If it is near 1, the client only appends, and markers are all that is needed. It is 1 if nothing is repeated.
    """
    passed: dict[tuple[bytes, bytes], float] = {}
    kept = 0
    for at, prompt in prompts:
        end = 0
        for name, own_end in zip(prompt.hashes, prompt.ends, strict=True):
            before = passed.get((prompt.scope, name))
            if before is None or at - before >= _LIFE_S:
                break
            end = own_end
        kept += end
        passed.update(dict.fromkeys(((prompt.scope, digest) for digest in prompt.hashes), at))
    repeated = sum(tokens for _, tokens in most_in_common(bags))
    return kept / repeated if repeated else 1.0


CLASSIC, ECONOMIC, BEST = "classic", "economic", "best found"
POLICIES = (AS_SENT, CLIENT, SYSTEM_LAST, TOOLS_SYSTEM_LAST_TWO, CLASSIC, ECONOMIC)

# In an append-only session, the client's own order lets a cache keep at least this share of the repeated tokens.
_APPENDS = 0.8


class SessionKind(StrEnum):
    """The kind of a session, by its own content."""

    APPEND_ONLY = "append-only"
    MUTABLE = "mutable"


def kind_of(shared: float) -> SessionKind:
    """The kind of a session whose own order lets a cache keep this share of the repeated tokens (``prefix_share``)."""
    return SessionKind.APPEND_ONLY if shared >= _APPENDS else SessionKind.MUTABLE


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
class TraceComparison:
    """The comparison of one trace. ``plain`` is the cost without any cache. ``fixed`` is a lower bound for the client's
    own order, and ``free`` is a lower bound for any order.

    ``allowance`` is how much more than the client's own request ``economic`` may cost while it learns a session. It is
    the tokens of the largest request times a factor (``ShadowCaches.regret_budget``). ``found_by`` names the source of
    the best feasible layout: the search, or the policy that the search did not beat.
    ``violations`` are violations of fidelity under ``economic``, and surprises of the planner.
    """

    trace: str
    requests: int
    kind: SessionKind
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


def compare(trace: Trace, setting: Setting) -> TraceComparison:
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
    return TraceComparison(
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


def shares(one: TraceComparison) -> dict[str, float]:
    """Input cost as a share of no caching, by column."""
    costs = {name: score.cost for name, score in one.scores.items()} | {FIXED: one.fixed, FREE: one.free}
    return {name: one.share_of(cost) for name, cost in costs.items()}


def gains(costs: Mapping[str, float]) -> dict[str, float | None]:
    """Our saving as a share of the saving at each limit."""
    return {
        limit: (1 - costs[ECONOMIC]) / (1 - costs[limit]) if costs[limit] < 1 else None for limit in (FIXED, BEST, FREE)
    }


def by_kind(found: Sequence[TraceComparison]) -> list[tuple[SessionKind, list[TraceComparison]]]:
    """The traces of each kind. Kinds without a trace are left out."""
    return [(kind, some) for kind in SessionKind if (some := [one for one in found if one.kind is kind])]


def means(found: Sequence[TraceComparison]) -> list[Mean]:
    """One line for each kind. If there are several kinds, one more line covers all of them."""
    kinds = by_kind(found)
    lines = [_mean(str(kind), some) for kind, some in kinds]
    return [*lines, _mean("all", found)] if len(kinds) > 1 else lines


def _mean(name: str, found: Sequence[TraceComparison]) -> Mean:
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


def plot(found: Sequence[TraceComparison], profile: str) -> str:
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
