"""What a change of prompts would have done to the bill of the requests in the ledger: an estimate.

Each request pays for what the composed texts grow by. In the system text that is the price of a cache read where the
request found something in the cache, and that of a fresh prompt where it did not; around the newest user message it is
that of a fresh prompt. A fresh prompt is written to the cache where the traffic has cache writes, and costs the input
price elsewhere.

Once, each session that is open at the change has its prefix written again from the changed token on: what a request
usually finds in the cache, without what stands in front of that token, at the price of a fresh prompt in the place of a
read.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from proxy.cli.prompts.difference import Difference
from proxy.cli.prompts.traffic import DAYS, Traffic
from proxy.core.money.prices import Price
from proxy.prompting.rules import Whose

_PERIOD_S = DAYS * 86400.0


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
