"""The limits that count an exchange: the rules that hold for it, their windows, counters and charges, the headers about
them, and the ledger's entries.

The rules are the budgets and rate limits in the directory. Each rule counts in windows: a window is the period that a
counter counts, and says when the counter begins again. Calendar windows begin at midnight in the rule's time zone, and
weeks on Monday. This also holds if the time zone has daylight saving time. Minutes and hours begin on the full minute
and hour. A rolling window is counted in parts, and each part has a counter of its own: the part in which the request
arrives, and as many earlier parts as the window needs to reach back far enough. Usage within the window always counts,
so that the limit holds for every period of that length. Usage that has left the window may count up to one part longer
(a 24th of the window, at least a second).

A rule in its window is booked as a charge on the counter of both. Last stand the entries of the ledger: who sent an
exchange, to which model, when and in which mode, how it ended, and what it cost.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from re import ASCII, compile
from typing import Any
from zoneinfo import ZoneInfo

from proxy.engine.exchange import Exchange, ExchangeOutcome, Principal, Reservation, Settlement
from proxy.kit.secrets import without_keys
from proxy.kit.value import dataclass, field, replace
from proxy.models import Deployment, Headers, RateLimit
from proxy.models.bound import InputBound
from proxy.models.charges import Estimate, Rule, Unit, nanos, unit_tokens
from proxy.protocol.access import matches
from proxy.protocol.response.outcome import UNTOLD
from proxy.protocol.response.usage import Usage
from proxy.storage import Balance, BudgetRecord, Charge, LedgerEntry, Refused, Reserve
from proxy.teams.authentication import Directory

# No budget has such an id, because names have no slash.
REQUESTS_ID = "rate/requests"
TOKENS_ID = "rate/tokens"
DEPLOYMENT_REQUESTS_ID = "rate/deployment/requests"
DEPLOYMENT_TOKENS_ID = "rate/deployment/tokens"


class LimitResolver:
    """Finds the rules for each request in the directory's snapshot, without waiting. ``webhook`` is the default for
    budgets without a webhook."""

    def __init__(self, directory: Directory, webhook: str) -> None:
        self._directory = directory
        self._webhook = webhook

    @property
    def are_known(self) -> bool:
        """Whether the store was read. Until then there may be more rules."""
        return self._directory.is_loaded

    def may_hold(self, principal: Principal) -> bool:
        """Whether ``rules`` may find any, for any deployments."""
        budgets = self._directory.snapshot.by_team.get(principal.team)
        return bool(principal.rates or budgets) or not self._directory.is_loaded

    def rules(self, principal: Principal, *deployments: Deployment) -> Sequence[Rule]:
        """The limits that hold for any of these deployments, each once: the rate limits of key and team, then every
        budget."""
        ids = (REQUESTS_ID, TOKENS_ID)
        rates = [
            rule
            for one in principal.rates
            for rule in _rules_of(
                one, f"key '{one.holder}'" if one.holder else f"team '{principal.team}'", one.holder, ids
            )
        ]
        budgets = self._directory.snapshot.by_team.get(principal.team, ())
        found = (budget_rule(budget, principal, one.name, self._webhook) for one in deployments for budget in budgets)
        return list({(rule.id, rule.whom): rule for rule in (*rates, *found) if rule is not None}.values())


def budget_rule(budget: BudgetRecord, principal: Principal, model: str, webhook: str) -> Rule | None:
    """A budget as the rule for a request; None if the budget is for another key, user or model.

    Under a budget for each user (or key), all requests that name no user (or key) share one counter, so that no request
    escapes the budget by naming nobody.
    """
    named = {"team": "", "key": principal.key_id, "user": principal.user, "model": model}[budget.scope]
    if budget.scope != "team" and not matches(budget.subject, named):
        return None
    # A pattern of models has one counter; "*" alone has a counter for each model.
    whom = named if budget.subject == "*" or budget.scope != "model" else budget.subject
    return rule_of(budget, whom, webhook)


def rule_of(budget: BudgetRecord, whom: str, webhook: str = "") -> Rule:
    """A budget as a rule, for the one key, user or model that ``whom`` names."""
    name = budget.id.removeprefix(f"{budget.team}/")
    whose = f" for {budget.scope} '{whom}'" if whom else f" for no {budget.scope}" if budget.scope != "team" else ""
    return Rule(
        # The unit is added if the name does not show it: a budget that was deleted and created again in another unit
        # must not find the old counters.
        id=name if name.endswith("tokens") == (budget.unit == "tokens") else f"{name}/{budget.unit}",
        title=f"the budget '{name}' of team '{budget.team}'{whose}",
        unit=budget.unit,
        hard=budget.hard,
        soft=budget.soft,
        window=budget.window,
        timezone=budget.timezone,
        whom=whom,
        models=whom if budget.scope == "model" else "",
        assumed_output_tokens=budget.assumed_output_tokens,
        webhook=budget.webhook or webhook,
    )


def deployment_rules(deployment: Deployment) -> Sequence[Rule]:
    """The limits of a deployment itself, for the requests of all senders together."""
    if deployment.rates is None:
        return ()
    holder = deployment.rates.holder or deployment.id
    ids = (DEPLOYMENT_REQUESTS_ID, DEPLOYMENT_TOKENS_ID)
    return list(_rules_of(deployment.rates, f"deployment '{holder}'", holder, ids))


def _rules_of(rate: RateLimit, whose: str, whom: str, ids: tuple[str, str]) -> Iterator[Rule]:
    limits: tuple[tuple[Unit, int | None], ...] = (("requests", rate.requests), ("tokens", rate.tokens))
    for rule_id, (unit, hard) in zip(ids, limits, strict=True):
        if hard is not None:
            yield Rule(rule_id, f"the rate limit of {whose}", unit, hard, window="minute", whom=whom, is_rate=True)


_PARTS = 24
_DAY_S = 86400.0
_FIXED_S = {"minute": 60, "hour": 3600}
# Counters of a window that is over are kept this long, so that people can still look at them.
_KEPT_S = {"minute": 60.0, "hour": 3600.0, "day": 7 * _DAY_S, "week": 14 * _DAY_S, "month": 62 * _DAY_S}
_ROLLING = "rolling:"


@dataclass(frozen=True, slots=True)
class BudgetWindow:
    """``name`` tells the counter of this window from the counters of other windows. ``within`` are the names of further
    counters that count towards the same limit. ``resets_at`` is when money is free again, or may be free; None for
    never. ``keep_s`` is how long the counter is needed after a change; None for ever."""

    name: str
    resets_at: float | None
    keep_s: float | None
    within: tuple[str, ...] = ()


def window_at(text: str, timezone: str, now: float) -> BudgetWindow:
    """The window of that kind at a time. Windows and time zones have passed the checks of ``proxy.teams.validation``.
    Raises ValueError for a window of another name."""
    if text == "total":
        return BudgetWindow("total", None, None)
    if text.startswith(_ROLLING):
        return _rolling(int(text.removeprefix(_ROLLING)), now)
    if text in _FIXED_S:
        length = _FIXED_S[text]
        index = math.floor(now / length)
        return BudgetWindow(f"{text}:{index}", (index + 1.0) * length, length + _KEPT_S[text])
    zone = UTC if timezone == "UTC" else ZoneInfo(timezone)  # UTC needs no time zone database
    start, end = _calendar(text, datetime.fromtimestamp(now, zone))
    resets_at = end.timestamp()
    return BudgetWindow(start.strftime("%Y-%m-%d"), resets_at, resets_at - now + _KEPT_S[text])


def _calendar(text: str, now: datetime) -> tuple[datetime, datetime]:
    """The local midnights between which the window lies. They follow the wall clock: a day may have 23 or 25 hours."""
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    match text:
        case "day":
            return today, today + timedelta(days=1)
        case "week":
            monday = today - timedelta(days=today.weekday())
            return monday, monday + timedelta(days=7)
        case "month":
            first = today.replace(day=1)
            return first, (first + timedelta(days=32)).replace(day=1)
        case _:
            raise ValueError(f"there is no window of the name {text!r}")


def _rolling(length_s: int, now: float) -> BudgetWindow:
    part_s = max(1.0, length_s / _PARTS)
    index = math.floor(now / part_s)
    back = math.ceil(length_s / part_s)
    # The next part also counts, because another host's clock may be ahead.
    within = tuple(f"r{length_s}:{i}" for i in (index + 1, *range(index - 1, index - back - 1, -1)))
    return BudgetWindow(f"r{length_s}:{index}", (index + 1) * part_s, length_s + 2 * part_s, within)


NOTHING: Mapping[str, Estimate] = {unit: Estimate(0, 0) for unit in ("usd", "tokens", "requests")}
ONE: Mapping[str, Estimate] = {unit: Estimate(1, 1) for unit in NOTHING}

_SIMPLE = compile(r"[\w.@+/-]{1,64}", ASCII)


@dataclass(frozen=True, slots=True)
class Booking:
    """A rule, the window that it counts in, and the charge on the counter of both."""

    rule: Rule
    window: BudgetWindow
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
        nano-dollars. Nothing, if the booking counts only a model that another one stood in for. If that model was
        called in vain, and bills it, the budgets of both count everything."""
        models = [one.name for one in (exchange.deployment, *exchange.requested.further) if one is not None]
        is_sole = booking.rule.models and exchange.lost == Settlement()
        if is_sole and not any(matches(booking.rule.models, name) for name in models):
            return 0
        match booking.rule.unit:
            case "usd":
                return cost
            case "tokens":
                if (usage := exchange.billed_usage) is not None:
                    return usage.prompt + usage.output
                return unit_tokens(exchange.requested.demand) if exchange.is_billed or exchange.lost.cost_usd else 0
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
            told = (
                max(0, rule.hard - balance.spent - balance.reserved),
                rule.hard,
                max(0.0, (booking.window.resets_at or now) - now),
            )
            tightest[rule.unit] = min(told, tightest.get(rule.unit, told))
    return [
        (f"{PREFIX}{name}-{unit}", value)
        for unit, (left, limit, reset_s) in tightest.items()
        for name, value in (
            ("limit", str(limit)),
            ("remaining", str(left)),
            ("reset", f"{math.ceil(reset_s)}s"),
        )
    ]


LOST = "lost"
"""The ending of an exchange whose worker died."""
DEFERRED = "deferred"
"""The ending of an exchange that the provider continued in the background, and about which nobody asked again."""

_MOST_CHARS = 256
_NO_USAGE = Usage(0, 0)


def settled_entry(exchange: Exchange) -> LedgerEntry:
    """The entry of an exchange that has ended."""
    usage, settled = exchange.billed_usage or _NO_USAGE, exchange.settlement or Settlement()
    broke = exchange.planned.result.broke
    return _entry(
        exchange,
        exchange.deployment,
        status=exchange.status,
        ending=(exchange.ending or ExchangeOutcome.HUNG_UP).value,
        read_tokens=usage.read,
        write_5m_tokens=usage.write_5m,
        write_1h_tokens=usage.write_1h,
        plain_tokens=usage.plain,
        output_tokens=usage.output,
        cost=nanos(settled.cost_usd),
        saved=nanos(settled.saved_usd),
        break_kind=broke.kind if broke is not None else "",
        break_cost=nanos(broke.usd) if broke is not None else 0,
        provider_cause=cause if (cause := exchange.answer.outcome.cache_cause) != UNTOLD else "",
        latency_ms=round(exchange.elapsed_s() * 1000),
        estimated=usage.estimated,
    )


def lost_entry(exchange: Exchange, deployment: Deployment, amounts: Mapping[str, Estimate]) -> LedgerEntry:
    """The entry of an exchange whose worker dies before it settles: the reservation is the bill."""
    return _entry(
        exchange,
        deployment,
        ending=LOST,
        plain_tokens=amounts["tokens"].most,
        cost=amounts["usd"].most,
        estimated=True,
    )


def _entry(exchange: Exchange, deployment: Deployment | None, **of_its_end: Any) -> LedgerEntry:
    principal = exchange.principal
    return LedgerEntry(
        exchange_id=exchange.arrival.id,
        at=exchange.arrival.now,
        team=principal.team,
        key_id=principal.key_id,
        user=_kept(principal.user, keeps_runs=True),
        model=_kept(deployment.name, exchange.arrival.keys) if deployment is not None else "",
        mode=exchange.planned.mode.name.lower(),
        reason=exchange.planned.reason,
        **of_its_end,
    )


def _kept(text: str, keys: Sequence[str] = (), *, keeps_runs: bool = False) -> str:
    """A text that a client may have chosen, in a form that the ledger can keep. Half of a surrogate pair is replaced,
    and everything that looks like a key is removed."""
    return without_keys(text, keys, keeps_runs=keeps_runs)[:_MOST_CHARS].encode("utf-8", "replace").decode()
