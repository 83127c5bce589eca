"""What a session costs as the planner sends it, beside the best fixed markers on the client's own order.

The bills are those of a provider that is written from the published rules (``tests.economics.billing``) or, for other
kinds of caches, of the embedded one.
"""

from collections.abc import Callable
from dataclasses import replace

from proxy.hookspecs import build_plugin_manager, recognisers
from proxy.kit.modes import Mode
from proxy.lab.replay import CLIENT, COMPARED, Account
from proxy.planner import TierPlanner
from proxy.planner.shadow import most_regret
from proxy.protocol.providers import ANTHROPIC, EMBEDDED, CacheProfile, Family
from proxy.protocol.request.reader import Route
from proxy.protocol.request.tokens import Encode, quick
from proxy.protocol.response.usage import Usage
from proxy.upstream.embedded.provider import PromptReader
from tests.append_only import Sent
from tests.economics import billing
from tests.economics.measure import encode

# How many requests without a cache learning a session may cost.
ALLOWANCE = most_regret("economic")
TOLERANCE = 1.01


class Provider:
    """What any kind of cache makes of one policy: the sum of its bills."""

    def __init__(self, profile: CacheProfile, *, hoists: bool) -> None:
        self._markers = None
        if profile is ANTHROPIC:
            self._markers = billing.Provider(profile, encode(), hoists, frame_tokens=4)
        self._account = Account(PromptReader(profile, encode()))
        self._profile = profile

    @property
    def cost(self) -> float:
        return self._markers.cost if self._markers is not None else self._account.total.cost(self._profile)

    def send(self, body: bytes, at: float) -> Usage:
        if self._markers is not None:
            return self._markers.send(body, at)
        bill = self._account.send(body, at)
        assert bill is not None, "the provider refuses the request"
        return Usage(bill.total, 1, bill.read, bill.write_5m, bill.write_1h, writes_told=True, lives_told=True)


def cost_of_ours(
    sent: list[Sent],
    profile: CacheProfile,
    *,
    hoists: bool = False,
    hint: Callable[[int], str] = lambda number: "",
    mode: Mode = Mode.TIER,
) -> float:
    """``hint`` is the session id that the client gives with a request, by the request's number."""
    planner = TierPlanner(quick(encode()), recognisers(build_plugin_manager()))
    provider = Provider(profile, hoists=hoists)
    route = Route("scope", "model", "model", profile, server=EMBEDDED)
    for number, one in enumerate(sent):
        plan = planner.plan(one.body, replace(route, hint=hint(number)), mode, one.at)
        assert plan.surprise is None
        usage = provider.send(plan.body, one.at)
        planner.on_accepted(plan, one.at)
        planner.on_completed(plan, usage, one.at)
    return provider.cost


def cost_of_best(sent: list[Sent], profile: CacheProfile, *, hoists: bool = False) -> float:
    costs = []
    for name, policy in COMPARED.items():
        if name == CLIENT or (profile.family is not Family.MARKER and costs):
            continue  # the clients mark nothing; where nothing is marked, all policies send the same
        provider = Provider(profile, hoists=hoists)
        for one in sent:
            provider.send(policy(one.body, profile.dialect), one.at)
        costs.append(provider.cost)
    return min(costs)


def cost_as_sent(sent: list[Sent], profile: CacheProfile) -> float:
    """With the client's own markers."""
    provider = Provider(profile, hoists=False)
    for one in sent:
        provider.send(one.body, one.at)
    return provider.cost


def excess(sent: list[Sent], profile: CacheProfile = ANTHROPIC, *, hoists: bool = False) -> float:
    """How many of the session's largest requests it costs more than the best fixed policy and the tolerance."""
    ours, best = (cost(sent, profile, hoists=hoists) for cost in (cost_of_ours, cost_of_best))
    return _in_requests(ours - TOLERANCE * best, sent)


def excess_over_own(sent: list[Sent], mode: Mode) -> float:
    """The same, beside the client's own markers."""
    return _in_requests(cost_of_ours(sent, ANTHROPIC, mode=mode) - TOLERANCE * cost_as_sent(sent, ANTHROPIC), sent)


def _in_requests(cost: float, sent: list[Sent]) -> float:
    count: Encode = encode()
    return cost / max(count(one.body.decode()) for one in sent)
