"""What a change of prompts would have done to the bill of the requests in the ledger: an estimate.

Each request pays for what the composed texts grow by. In the system text that is the price of a cache read where the
request found something in the cache, and that of a fresh prompt where it did not; around the newest user message it is
that of a fresh prompt. A fresh prompt is written to the cache where the traffic has cache writes, and costs the input
price elsewhere.

Once, each session that is open at the change has its prefix written again from the changed token on: what a request
usually finds in the cache, without what stands in front of that token, at the price of a fresh prompt in the place of a
read.

The ledger knows no sessions. A session is estimated to begin with a request of a user that is the first one, that comes
more than an hour after the one before, or that finds nothing in the cache.
"""

from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from proxy.cli.admin_client import Ask, ledger_entries, run_with
from proxy.cli.prompts.difference import Difference
from proxy.core.money.prices import Price
from proxy.prompting.rules import Whose

DAYS = 30
"""So much of the ledger is read."""
_PAUSE_S = 3600.0
_CACHE_LIFE_S = 300.0
_OK = 200
_PAGE = "10000"
_PERIOD_S = DAYS * 86400.0


@dataclass(slots=True)
class Traffic:
    """The requests of one model, team and key. ``warm`` ones found something in the cache, ``read_tokens`` altogether;
    ``open_s`` is how long the sessions were open, all together."""

    requests: int = 0
    warm: int = 0
    sessions: int = 0
    open_s: float = 0.0
    read_tokens: int = 0
    write_5m_tokens: int = 0
    write_1h_tokens: int = 0
    spent_usd: float = 0.0

    @property
    def read_per_warm_request(self) -> float:
        """How many tokens a request finds in the cache, if it finds any."""
        return self.read_tokens / self.warm if self.warm else 0.0


@dataclass(slots=True)
class LedgerTraffic:
    """Takes the entries of the ledger in their order."""

    by_whose: dict[Whose, Traffic] = field(default_factory=dict)
    _last: dict[tuple[str, ...], float] = field(default_factory=dict)

    def add(self, entry: Mapping[str, Any]) -> None:
        """Count an entry. One without an answer of a model, such as a refusal or an embedding, does not count."""
        if entry["status"] != _OK or not entry["output_tokens"]:
            return
        whose = Whose(entry["model"], entry["team"], entry["key_id"])
        traffic = self.by_whose.setdefault(whose, Traffic())
        at, last = entry["at"], self._last.get((*whose, entry["user"]))
        if last is None or at - last > _PAUSE_S or not entry["read_tokens"]:
            traffic.sessions += 1
            traffic.open_s += _CACHE_LIFE_S
        else:
            traffic.open_s += at - last
        self._last[(*whose, entry["user"])] = at
        traffic.requests += 1
        traffic.warm += entry["read_tokens"] > 0
        traffic.read_tokens += entry["read_tokens"]
        traffic.write_5m_tokens += entry["write_5m_tokens"]
        traffic.write_1h_tokens += entry["write_1h_tokens"]
        traffic.spent_usd += entry["cost_usd"]

    def __iter__(self) -> Iterator[tuple[Whose, Traffic]]:
        """The traffic by model, team and key, the dearest first."""
        return iter(sorted(self.by_whose.items(), key=lambda pair: (-pair[1].spent_usd, pair[0])))


def read_traffic(where: Namespace) -> LedgerTraffic:
    """The requests in the ledger of a store, or of a running proxy. Raises ConfigError."""
    traffic = LedgerTraffic()

    async def read(ask: Ask) -> None:
        async for entry in ledger_entries(ask, {"since": f"{DAYS}d", "limit": _PAGE}):
            traffic.add(entry)

    run_with(where, read)
    return traffic


@dataclass(frozen=True, slots=True)
class BillLineChange:
    """The change for one model, team and key, in USD. ``requests_usd`` is for the changed size of all requests,
    ``session_usd`` for one session that meets the change; both are None where the price is not known."""

    whose: Whose
    traffic: Traffic
    system_tokens: int
    user_tokens: int
    requests_usd: float | None
    session_usd: float | None

    @property
    def open_sessions(self) -> float:
        """How many sessions are open at a time."""
        return self.traffic.open_s / _PERIOD_S

    @property
    def once_usd(self) -> float:
        """What the change costs once, at a time of usual traffic."""
        return (self.session_usd or 0.0) * self.open_sessions

    @property
    def once_usd_at_most(self) -> float:
        """What it would cost once, if every session of the ledger met the change."""
        return (self.session_usd or 0.0) * self.traffic.sessions


@dataclass(frozen=True, slots=True)
class BillChange:
    """The change for all requests of the ledger."""

    lines: tuple[BillLineChange, ...]

    @property
    def requests_usd(self) -> float:
        """For the changed size of the requests."""
        return sum(line.requests_usd or 0.0 for line in self.lines)

    @property
    def once_usd(self) -> float:
        """Once, at a time of usual traffic."""
        return sum(line.once_usd for line in self.lines)

    @property
    def once_usd_at_most(self) -> float:
        """Once, if every session of the ledger met the change."""
        return sum(line.once_usd_at_most for line in self.lines)

    @property
    def requests_without_price(self) -> int:
        """Requests of models whose price is not known."""
        return sum(line.traffic.requests for line in self.lines if line.requests_usd is None)


def estimated(
    traffic: Iterable[tuple[Whose, Traffic]],
    change: Callable[[Whose], Difference],
    price_of: Callable[[str], Price | None],
) -> BillChange:
    """The bill of the change for this traffic. ``change`` says what it does to the requests of a model, team and key,
    and ``price_of`` what the tokens of a model cost."""
    return BillChange(tuple(_line(whose, one, change(whose), price_of(whose.model)) for whose, one in traffic))


def _line(whose: Whose, traffic: Traffic, change: Difference, price: Price | None) -> BillLineChange:
    system_tokens = change.new.sizes.system - change.old.sizes.system
    user_tokens = change.new.sizes.user - change.old.sizes.user
    if price is None:
        return BillLineChange(whose, traffic, system_tokens, user_tokens, None, None)
    fresh = _fresh(traffic, price)
    cold = traffic.requests - traffic.warm
    requests_usd = system_tokens * (traffic.warm * price.read + cold * fresh) + user_tokens * traffic.requests * fresh
    session_usd = 0.0
    if change.kept_tokens is not None:
        lost = max(0.0, traffic.read_per_warm_request - change.kept_tokens)
        session_usd = lost * max(0.0, fresh - price.read)
    return BillLineChange(whose, traffic, system_tokens, user_tokens, requests_usd, session_usd)


def _fresh(traffic: Traffic, price: Price) -> float:
    """What a token costs that is not in the cache, in USD."""
    if traffic.write_1h_tokens > traffic.write_5m_tokens:
        return price.write_1h
    return price.write_5m if traffic.write_5m_tokens else price.input
