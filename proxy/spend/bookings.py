"""The limits that count an exchange: rules with their windows, counters and charges, and the headers about them."""

import math
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from hashlib import blake2b
from re import ASCII, compile

from proxy.core.money.bound import InputBound
from proxy.core.money.budget import Estimate, Rule
from proxy.core.money.charges import unit_tokens
from proxy.core.value import dataclass, field, replace
from proxy.engine.exchange import Exchange
from proxy.ports import Deployment, Headers, Reservation
from proxy.spend.rules import DEPLOYMENT_REQUESTS_ID, DEPLOYMENT_TOKENS_ID
from proxy.spend.windows import Window, window_at
from proxy.storage.port import Balance, Charge, LedgerEntry, Refused, Reserve

NOTHING: Mapping[str, Estimate] = {unit: Estimate(0, 0) for unit in ("usd", "tokens", "requests")}
ONE: Mapping[str, Estimate] = {unit: Estimate(1, 1) for unit in NOTHING}

_SIMPLE = compile(r"[\w.@+/-]{1,64}", ASCII)


@dataclass(frozen=True, slots=True)
class Booking:
    """A rule, the window that it counts in, and the charge on the counter of both."""

    rule: Rule
    window: Window
    charge: Charge


@dataclass(slots=True)
class BudgetReservation(Reservation):
    """A reservation as it was asked for. ``is_asked``: the store may know of the reservation."""

    bookings: Sequence[Booking] = ()
    is_asked: bool = False
    estimated: AbstractSet[str] = frozenset()
    """The counters of limits on which only this call may be counted by an estimate of its tokens."""
    entry: LedgerEntry | None = None
    """The entry that the ledger gets if nobody settles the exchange."""
    bound: InputBound | None = None
    """The bound of the prompt's tokens."""
    deployments: Sequence[Deployment] = ()
    """The deployments that may serve the exchange."""
    further: list[Reserve] = field(default_factory=list)
    """Amounts that were set aside later, for further calls."""

    def held(self, booking: Booking) -> int:
        """All that is set aside on the counter of a booking."""
        more = (charge for ask in self.further for charge in ask.charges)
        return booking.charge.amount + sum(one.amount for one in more if one.account == booking.charge.account)

    def took_turn(self, turn: Sequence[Booking]) -> None:
        """A call of a deployment goes out. For deployments that were called before, only the calls count. The tokens
        count for the deployment that answers."""
        accounts = {one.charge.account for one in turn}
        earlier = (one for one in self.bookings if one.rule.id != DEPLOYMENT_TOKENS_ID)
        self.bookings = [
            *(one for one in earlier if one.charge.account not in accounts),
            *(replace(one, charge=replace(one.charge, amount=0)) for one in turn),
        ]

    def taken(self, booking: Booking, exchange: Exchange, cost: int) -> int:
        """The amount that the ended exchange used of a booking, in the unit of its rule. ``cost`` is in
        nano-dollars."""
        match booking.rule.unit:
            case "usd":
                return cost
            case "tokens":
                usage = exchange.billed_usage
                return usage.prompt + usage.output if usage is not None else unit_tokens(exchange.requested.demand)
            case "requests":
                return self.held(booking) if booking.rule.id == DEPLOYMENT_REQUESTS_ID else 1


def account_of(rule: Rule, window: str) -> str:
    """The counter of a rule in the window of that name."""
    whom = rule.whom or "-"
    if not _SIMPLE.fullmatch(whom) or rule.whom == "-":
        whom = "~" + blake2b(whom.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
    return f"{'r' if rule.is_rate else 'b'}:{rule.id}:{whom}:{window}"


def counter_of(team: str, rule: Rule) -> str:
    """The name of a rule's counter among the counters of all teams, without the window."""
    return f"{team}:{account_of(rule, '')}"


def booked(rule: Rule, amounts: Mapping[str, Estimate], now: float) -> Booking:
    """The booking of a rule for a request that arrives now and takes these amounts."""
    window = window_at(rule.window, rule.timezone, now)
    estimate = amounts[rule.unit]
    # A rate limit counts the expected amount: a high output limit that no answer reaches must not block other requests.
    amount = estimate.expected if rule.is_rate else estimate.most
    within = tuple(account_of(rule, name) for name in window.within)
    account = account_of(rule, window.name)
    return Booking(rule, window, Charge(account, amount, rule.hard, window.keep_s, estimate.expected, within))


def refusing(bookings: Iterable[Booking], answer: Refused) -> Booking:
    """The booking whose limit refuses a reservation."""
    return next(one for one in bookings if one.charge.account == answer.charge.account)


PREFIX = "x-ratelimit-"


def rate_headers(limits: Iterable[tuple[Booking, Balance]], now: float) -> Headers:
    """The headers of rate limits in the form that OpenAI's clients read
    (https://platform.openai.com/docs/guides/rate-limits#rate-limits-in-headers). If there are several limits in one
    unit, they show the limit with the least left. Rules that are no rate limits are left out."""
    tightest: dict[str, tuple[int, int, float]] = {}
    for booking, balance in limits:
        rule = booking.rule
        if rule.is_rate and rule.hard is not None:
            left = max(0, rule.hard - balance.spent - balance.reserved)
            told = (left, rule.hard, max(0.0, (booking.window.resets_at or now) - now))
            tightest[rule.unit] = min(told, tightest.get(rule.unit, told))
    headers = []
    for unit, (left, limit, reset_s) in tightest.items():
        headers += [
            (f"{PREFIX}limit-{unit}", str(limit)),
            (f"{PREFIX}remaining-{unit}", str(left)),
            (f"{PREFIX}reset-{unit}", f"{math.ceil(reset_s)}s"),
        ]
    return headers
