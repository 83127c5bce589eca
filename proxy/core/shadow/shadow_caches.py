"""Two models of a provider's cache: one after the requests that were sent, one after the client's own requests.

The difference between their costs is the realised regret. It bounds the risk that the next plan may take. The sums of
both costs from other processes count, too.

"""

from dataclasses import dataclass, field
from types import MappingProxyType

from msgspec import DecodeError, msgpack

from proxy.core.caches import Cache, make_cache
from proxy.core.caches.prompt import Bill, BillSum, Prompt
from proxy.core.providers import CacheProfile
from proxy.core.response.usage import Usage
from proxy.core.shadow.deviations import LOST, ProviderObservations, missing, observed
from proxy.core.wire.json_body import Unreadable

_MOST_PROCESSES = 16


@dataclass(slots=True)
class Costs:
    """The costs of the requests that other processes sent, and what these requests would have cost as their clients
    wrote them. Only the latest sums of each process are kept. If there are too many processes, the oldest sums are
    forgotten."""

    by_process: dict[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def sent(self) -> float:
        return sum(sent for sent, _ in self.by_process.values())

    @property
    def own(self) -> float:
        return sum(own for _, own in self.by_process.values())

    def packed(self, process: str, sent: float, own: float) -> bytes:
        """The sums of all processes, with this process's own sums, as bytes."""
        return msgpack.encode({**self.by_process, process: (sent, own)})

    def adopt(self, blob: bytes, process: str) -> None:
        """Take over the sums that are later than the known ones. Raises Unreadable."""
        try:
            found = msgpack.decode(blob, type=dict[str, tuple[float, float]])
        except (DecodeError, UnicodeDecodeError) as error:
            raise Unreadable("no sums") from error
        for name, sums in found.items():
            if name != process and sums[1] > self.by_process.get(name, (0.0, 0.0))[1]:
                self.by_process.pop(name, None)
                self.by_process[name] = sums
        while len(self.by_process) > _MOST_PROCESSES:
            del self.by_process[next(iter(self.by_process))]


_REGRET_SHARE = 0.005
# The part of one request that a policy may lose to learning, and how many times this part is added if the client is
# sure to come back in time. The classic policy orders by age alone and wins back less.
_REGRET_REQUESTS = MappingProxyType({"economic": 0.3, "classic": 0.27})
_RETURN_BONUS = MappingProxyType({"economic": 4.8, "classic": 0.0})
# Up to this P(the client comes back in time) there is no bonus. From here to 1 the bonus grows linearly.
_BONUS_FROM = 0.6


@dataclass(slots=True)
class ShadowCaches:
    """Models of the provider's cache. ``sent`` is what we believe the provider holds. ``own`` is what it would hold if
    the client's own requests had been sent, ``marked`` if these had been sent with markers (empty if this is not asked
    for). ``sent_cost`` and ``own_cost`` are the input costs of the first two so far, in tokens at the plain price."""

    sent: Cache
    own: Cache
    marked: Cache
    profile: CacheProfile
    observations: ProviderObservations = field(default_factory=ProviderObservations)
    sent_cost: float = 0.0
    own_cost: float = 0.0
    others: Costs = field(default_factory=Costs)

    def believed(self, base: CacheProfile, now: float) -> CacheProfile:
        """The provider's rules, corrected by the lessons from its reports. All models follow these rules."""
        profile = self.observations.profile(base, now)
        if profile is not self.profile:
            self.profile = profile
            self.sent.follow(profile)
            self.own.follow(profile)
            self.marked.follow(profile)
        return profile

    def regret_budget(self, own_now: float, policy: str, returns: float) -> float:
        """How much more the next request may cost than the client's own request. Realised regret is bounded by a share
        of the cost and a part of one request. That part is the cost of learning a new session."""
        bonus = _RETURN_BONUS[policy] * max(0.0, returns - _BONUS_FROM) / (1 - _BONUS_FROM)
        bound = _REGRET_SHARE * (self.own_cost + self.others.own) + _REGRET_REQUESTS[policy] * (1 + bonus) * own_now
        return bound - (self.sent_cost + self.others.sent - self.own_cost - self.others.own)

    @classmethod
    def of(cls, profile: CacheProfile) -> "ShadowCaches":
        sent, own, marked = (make_cache(profile, is_forecast=True) for _ in range(3))
        return cls(sent, own, marked, profile)

    @property
    def bytes(self) -> int:
        return 6_000 + 400 * (len(self.sent) + len(self.own) + len(self.marked))

    def compared(
        self,
        prompt: Prompt,
        bill: Bill,
        usage: Usage,
        last_use: tuple[float, float] | None,
        profile: CacheProfile,
        now: float,
        elsewhere: Bill | None = None,
    ) -> str:
        """Compare the provider's report with the shadow's expectation, and return the kind of deviation. Entries that
        the provider evidently does not hold are dropped. ``elsewhere`` is the bill if system messages within the
        conversation are put elsewhere than is believed."""
        kind = self.observations.observe(observed(prompt, bill, usage, last_use, elsewhere), profile, now)
        if kind in LOST:
            self.sent.forget(prompt, missing(prompt, bill, usage))
        return kind


def most_regret(policy: str) -> float:
    """The most that a policy may lose to learning, as a multiple of one request without a cache. The share of the cost
    (``_REGRET_SHARE``) comes in addition."""
    return _REGRET_REQUESTS[policy] * (1 + _RETURN_BONUS[policy])


def cost_of(profile: CacheProfile, bill: Bill | BillSum) -> float:
    """A bill, or a sum of bills, in tokens at the plain price."""
    return bill.read * profile.read + bill.write_5m * profile.write + bill.write_1h * profile.write_long + bill.plain


def unpredicted_cost(profile: CacheProfile, predicted: Bill | None, usage: Usage) -> float:
    """The cost of the request beyond the shadow's bill, by the provider's own report. With it, regret is bounded as it
    is realised, even if entries were lost early or markers are ignored. The cost is in our tokens, because the provider
    counts tokens in another way."""
    if predicted is None or usage.estimated or usage.prompt <= 0:
        return 0.0
    reported = Bill(usage.read, usage.write_5m, usage.write_1h, usage.plain)
    return cost_of(profile, reported) * predicted.total / usage.prompt - cost_of(profile, predicted)
