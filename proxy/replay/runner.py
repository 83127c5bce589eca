"""Runs a recorded session under several policies, each against a provider of its own, and adds up the bills."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from proxy.core.modes import Mode
from proxy.core.plan import Plan, Route
from proxy.core.planner import TierPlanner
from proxy.core.profiles import CacheProfile
from proxy.core.prompt import Bill
from proxy.core.recognition import Recogniser
from proxy.core.tokens import Encode
from proxy.errors import UpstreamRejected
from proxy.replay.baselines import BASELINES, Baseline
from proxy.replay.trace import Step, Trace
from proxy.upstream.embedded.provider import Provider

_ACCOUNT = "replay"
_TAIL_TOKENS = 3
_OUTPUT_TOKENS = 1


@dataclass(slots=True)
class Total:
    """Bills of one policy over one trace. ``refused`` counts requests that the provider answered with an error."""

    read: int = 0
    write_5m: int = 0
    write_1h: int = 0
    plain: int = 0
    refused: int = 0

    def add(self, bill: Bill) -> None:
        """Count one request."""
        self.read += bill.read
        self.write_5m += bill.write_5m
        self.write_1h += bill.write_1h
        self.plain += bill.plain

    @property
    def prompt(self) -> int:
        """Prompt tokens."""
        return self.read + self.write_5m + self.write_1h + self.plain

    @property
    def hit_rate(self) -> float:
        """Share of prompt tokens that were read from the cache."""
        return self.read / self.prompt if self.prompt else 0.0

    def cost(self, profile: CacheProfile) -> float:
        """Input cost in tokens at the plain price."""
        written = self.write_5m * profile.write + self.write_1h * profile.write_long
        return self.read * profile.read + written + self.plain


@dataclass(slots=True)
class Result:
    """One trace under every policy; ``ours`` is what the planner sent. ``plain`` is the cost of no caching at all:
    the client's prompts at the plain price."""

    trace: str
    profile: CacheProfile
    requests: int
    plain: float = 0.0
    totals: dict[str, Total] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)

    def share(self, policy: str) -> float:
        """Input cost as a share of no caching."""
        return self.totals[policy].cost(self.profile) / self.plain if self.plain else 1.0


OURS = "stratiform"


@dataclass(frozen=True, slots=True)
class Setting:
    """How to replay: provider rules, mode, policy; ``on_sent`` sees each planned request (``--out``, checks)."""

    profile: CacheProfile
    encode: Encode
    recognisers: Sequence[Recogniser]
    mode: Mode = Mode.TIER
    policy: str = "economic"
    baselines: Mapping[str, Baseline] = field(default_factory=lambda: BASELINES)
    on_sent: Callable[[Step, Plan], None] | None = None


def replay(trace: Trace, setting: Setting, on_step: Callable[[], None] = lambda: None) -> Result:
    """Run one trace; ``on_step`` is called once a request, for progress."""
    result = Result(trace.name, setting.profile, len(trace.steps))
    plain = Provider(setting.profile, setting.encode, _TAIL_TOKENS)
    providers = {name: Provider(setting.profile, setting.encode, _TAIL_TOKENS) for name in setting.baselines}
    ours = _Ours(setting)
    for name in (*setting.baselines, OURS):
        result.totals[name] = Total()
    for step in trace.steps:
        result.plain += _prompt_tokens(plain, BASELINES["as sent"](step.body), step.at)
        for name, baseline in setting.baselines.items():
            _send(providers[name], baseline(step.body), step.at, result.totals[name])
        plan = ours.send(step, result.totals[OURS])
        result.reasons[plan.reason] = result.reasons.get(plan.reason, 0) + 1
        if setting.on_sent is not None:
            setting.on_sent(step, plan)
        on_step()
    return result


class _Ours:
    """The planner and the provider that it talks to, in virtual time."""

    def __init__(self, setting: Setting) -> None:
        self._mode = setting.mode
        self._profile = setting.profile
        self._provider = Provider(setting.profile, setting.encode, _TAIL_TOKENS)
        self._planner = TierPlanner(setting.encode, setting.recognisers, setting.policy)

    def send(self, step: Step, total: Total) -> Plan:
        route = Route(scope="replay", name="replay", model="", profile=self._profile)
        plan = self._planner.plan(step.body, route, self._mode, step.at)
        if plan.surprise is not None:
            raise plan.surprise
        bill = _send(self._provider, plan.body, step.at, total)
        if bill is None and plan.rewritten:
            self._planner.refused(plan)
            bill = _send(self._provider, plan.original, step.at, total)
        if bill is not None:
            self._planner.began(plan, step.at)
            self._planner.settled(plan, None, step.at)
        return plan


def _send(provider: Provider, body: bytes, at: float, total: Total) -> Bill | None:
    try:
        reply = provider.chat(body, _ACCOUNT, at, _OUTPUT_TOKENS)
    except UpstreamRejected:
        total.refused += 1
        return None
    reply.store(at)
    total.add(reply.bill)
    return reply.bill


def _prompt_tokens(provider: Provider, body: bytes, at: float) -> int:
    """Tokens of the request as the provider counts them; nothing is stored."""
    try:
        return provider.chat(body, _ACCOUNT, at, _OUTPUT_TOKENS).bill.total
    except UpstreamRejected:
        return 0


def with_minimum(profile: CacheProfile, min_tokens: int | None) -> CacheProfile:
    """The profile with another minimum prefix, where one is given."""
    return profile if min_tokens is None else replace(profile, min_tokens=min_tokens)
