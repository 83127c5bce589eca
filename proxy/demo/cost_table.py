"""The cost of a session as the provider reported it, and the cost of the same requests under other policies."""

from collections.abc import Sequence

from proxy.core.money.prices import Price, input_cost, uncached_cost
from proxy.core.response.usage import Usage
from proxy.core.value import dataclass
from proxy.demo.sample import Sample
from proxy.replay.baselines import AS_SENT, SYSTEM_LAST, as_sent, system_and_last
from proxy.replay.fidelity import violations
from proxy.replay.runner import Setting
from proxy.replay.totals import OURS, Result, Total

POLICIES = (AS_SENT, SYSTEM_LAST, OURS)
_BASELINES = {AS_SENT: as_sent, SYSTEM_LAST: system_and_last}


class Tally:
    """One session so far. ``usd`` is the cost of its prompts by policy, and ``uncached_usd`` is their cost without any
    cache."""

    def __init__(self, sample: Sample, setting: Setting, price: Price) -> None:
        self.sample, self.setting, self.price = sample, setting, price
        self.key, self.headers, self.sendings = f"demo-{sample.name}", dict[str, str](), sample.requests
        self.uncached_usd = 0.0
        self.requests = 0
        self._trace = sample.trace()
        self.accounts = {name: setting.account() for name in _BASELINES}
        totals = {**{name: account.total for name, account in self.accounts.items()}, OURS: Total()}
        self.result = Result(sample.name, setting.profile, len(sample.requests), totals=totals)
        self.usd = dict.fromkeys(totals, 0.0)

    def add(self, usage: Usage, sent: bytes) -> None:
        """Count the next answered request. ``usage`` is the reported usage; ``sent`` is the body that reached the
        provider."""
        step = self._trace.steps[self.requests]
        self.requests += 1
        dialect = self.setting.profile.dialect
        for name, baseline in _BASELINES.items():
            bill = self.accounts[name].send(baseline(step.body, dialect), step.at)
            if bill is None:
                raise ValueError(f"the provider refused request {self.requests} of {self.sample.name} as {name}")
            self.usd[name] += input_cost(bill, self.price)
            if name == AS_SENT:
                self.result.plain += bill.total
                self.uncached_usd += uncached_cost(bill, self.price)
        self.result.ours.add(usage)
        self.usd[OURS] += input_cost(usage, self.price)
        found = violations(step.body, sent, self.setting.recognisers, self.setting.profile.max_marks)
        self.result.violations += [f"request {self.requests}: {text}" for text in found]


@dataclass(frozen=True, slots=True)
class Sum:
    """All sessions. ``share`` is the cost of each policy as a share of no caching."""

    requests: int
    prompt_tokens: int
    tokens_read: int
    usd: dict[str, float]
    uncached_usd: float
    share: dict[str, float]
    violations: int

    def saved_usd(self, policy: str) -> float:
        """How much less the planner's requests cost than those of another policy."""
        return self.usd[policy] - self.usd[OURS]

    def saved_share(self, policy: str) -> float:
        """The saving as a share of the other policy's cost."""
        return self.saved_usd(policy) / self.usd[policy] if self.usd[policy] else 0.0


def added_up(tallies: Sequence[Tally]) -> Sum:
    """The sum over all sessions."""
    uncached = sum(tally.uncached_usd for tally in tallies)
    usd = {name: sum(tally.usd[name] for tally in tallies) for name in POLICIES}
    return Sum(
        requests=sum(tally.requests for tally in tallies),
        prompt_tokens=sum(tally.result.ours.prompt for tally in tallies),
        tokens_read=sum(tally.result.ours.read for tally in tallies),
        usd=usd,
        uncached_usd=uncached,
        share={name: cost / uncached if uncached else 1.0 for name, cost in usd.items()},
        violations=sum(len(tally.result.violations) for tally in tallies),
    )
