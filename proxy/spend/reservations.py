"""What requests may spend, and the ledger of what they did spend (the money half of the Admission port).

Before a request is sent its cost is reserved with every rule that holds for it, in one step: hard limits by the most
that it can cost, soft limits by what it will probably cost. When it has ended, the entry is written to the ledger and
the counters move from reserved to spent, in one step again, before the client gets the last bytes of the answer.

While the store is away, traffic goes on: nothing is reserved, and settlements are spooled. ``on_store_error`` decides
whether requests that a budget holds for may be sent meanwhile (``allow``) or not (``deny``: then a limit holds even so,
because what was reserved stays reserved until it is settled).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from re import ASCII, compile
from typing import Any, Literal

from proxy.core.money.budget import Estimate, Rule, amount_text, nanos, refusal
from proxy.core.request.demand import Demand
from proxy.core.secrets.redaction import without_keys, without_shapes
from proxy.engine.exchange import Exchange, ExchangeOutcome
from proxy.errors import BudgetExceeded, BudgetUnavailable, RateLimited
from proxy.ports import Deployment, Reservation, Rules
from proxy.spend.counters import account_of, charge_of, counter_of
from proxy.spend.epochs import Epochs
from proxy.spend.estimates import Estimates, PriceOf
from proxy.spend.output_estimates import OutputEstimates
from proxy.spend.rate_limit_headers import rate_headers
from proxy.spend.store_guard import StoreClient
from proxy.spend.webhooks import Notice, WebhookSender
from proxy.spend.windows import Window, window_at
from proxy.storage.port import NANOS_PER_USD, Balance, Charge, Granted, LedgerEntry, Refused, Reserve, Settle
from proxy.telemetry.metrics import Metrics, mode_label

LOST = "lost"
"""The ending of an exchange whose worker died."""
DEFERRED = "deferred"
"""The ending of an exchange on which the provider went on working, and which nobody asked about again."""
DEFERRED_S = 3600.0

_UNSAFE = compile(r"[^\w.@+/-]", ASCII)
_TOLD_S = 400 * 86400.0
_NOTHING = {"usd": Estimate(0, 0), "tokens": Estimate(0, 0), "requests": Estimate(0, 0)}
_MOST_TOLD = 10_000
_MOST_CHARS = 256


@dataclass(frozen=True, slots=True)
class _Booking:
    """A rule, and the charge that stands for it."""

    rule: Rule
    window: Window
    charge: Charge


@dataclass(slots=True)
class BudgetReservation(Reservation):
    """A reservation as it was asked for. ``is_asked``: the store may know of it."""

    bookings: Sequence[_Booking] = ()
    is_asked: bool = False
    entry: LedgerEntry | None = None
    """What is written if nobody settles."""


class BudgetReservations:
    """Reserves and settles. Rules say what holds; notices of limits go to their webhooks."""

    def __init__(
        self,
        rules: Rules,
        books: StoreClient,
        price_of: PriceOf,
        metrics: Metrics,
        notices: WebhookSender | None = None,
        on_store_error: Literal["allow", "deny"] = "allow",
        on_unknown_price: Literal["allow", "refuse"] = "refuse",
        epochs: Epochs | None = None,
    ) -> None:
        self._rules = rules
        self._books = books
        self._epochs = epochs
        self._metrics = metrics
        self._notices = notices
        self._denies = on_store_error == "deny"
        self._output_estimates = OutputEstimates()
        self._estimates = Estimates(price_of, self._output_estimates, allows_unknown=on_unknown_price == "allow")
        self._told: dict[tuple[str, str], None] = {}
        self._remaining: dict[tuple[str, str], float] = {}

    @property
    def is_durable(self) -> bool:
        """Whether what is written outlives the process."""
        return self._books.is_durable

    @property
    def troubles(self) -> Mapping[str, str]:
        """What does not work by now, the "store" or the "spool", and why."""
        return self._books.troubles

    async def start(self) -> None:
        """Begin to look after reservations, and to deliver notices."""
        await self._books.start()
        if self._notices is not None:
            self._notices.start()

    async def aclose(self) -> None:
        """Deliver and write what is left, and release the store."""
        if self._notices is not None:
            await self._notices.aclose()
        await self._books.aclose()

    def remaining(self) -> dict[str, float]:
        """USD left to each team with a hard limit of its own, as far as it was seen: the least of its budgets."""
        least: dict[str, float] = {}
        for (team, _), usd in self._remaining.items():
            least[team] = min(usd, least.get(team, usd))
        return least

    async def look(self, team: str, rules: Sequence[Rule], now: float) -> None:
        """Read what is left of budgets ahead of the first request. A store that is away is not waited for."""
        bookings = [_booking(rule, _NOTHING, now) for rule in rules]
        for booking in bookings:
            balance = await self._books.balance(team, booking.charge)
            if balance is not None:
                self._see(team, booking.rule, balance)

    async def reserve(self, exchange: Exchange, deployment: Deployment, demand: Demand) -> Reservation:
        """Set aside the most that this request can cost, and leave a notice on the exchange where a soft limit is
        passed. Raises BudgetExceeded, RateLimited, BudgetUnavailable,
        Forbidden, InvalidRequest."""
        assert exchange.principal is not None
        rules = self._rules.rules(exchange.principal, deployment)
        is_hard = any(rule.hard is not None and not rule.is_rate for rule in rules)
        held = BudgetReservation(exchange.id, exchange.principal.team, is_limited=bool(rules), is_hard=is_hard)
        if not rules and not self._books.is_durable:
            return held
        amounts = self._estimates.amounts(exchange, deployment, rules, demand)
        held.bookings = [_booking(rule, amounts, exchange.now) for rule in rules]
        entry = held.entry = _lost_entry(exchange, deployment, amounts)
        ask = Reserve(held.exchange_id, held.team, [b.charge for b in held.bookings], self._books.lease(), entry)
        if not self._books.is_away:
            await self._check_store(held, None)
        held.is_asked = not self._books.is_away
        # From here on the exchange's end gives it back, even where this does not come to its own.
        exchange.reservation = held
        answer = await self._books.reserve(ask)
        match answer:
            case Refused():
                held.is_asked = False
                await self._refuse(exchange, held, answer)
            case Granted():
                await self._check_store(held, answer.epoch)
                self._warn(exchange, held, answer.balances)
                exchange.rates = rate_headers(_standing(held, answer.balances), exchange.now)
                await self._tell(held, answer.balances)
            case None:
                await self._unheld(held, ask)
        return held

    async def defer(self, exchange: Exchange) -> None:
        """Keep what is reserved for an exchange that the provider still works on, for ``DEFERRED_S``: then it is billed
        as it stands, unless ``settle_later`` came first. Where the store is away, it is billed so at once."""
        held, deployment = exchange.reservation, exchange.deployment
        if not isinstance(held, BudgetReservation) or deployment is None:
            return
        amounts = self._estimates.amounts(exchange, deployment, (), exchange.demand)
        entry = replace(
            held.entry or _lost_entry(exchange, deployment, amounts), status=exchange.status, ending=DEFERRED
        )
        # A limit that held when the exchange was reserved is not asked again.
        charges = [replace(b.charge, limit=None) for b in held.bookings]
        ask = Reserve(held.exchange_id, held.team, charges, self._books.now() + DEFERRED_S, entry)
        if not await self._books.defer(ask):
            await self._books.settle(Settle(replace(entry, estimated=True), [replace(c, expected=0) for c in charges]))

    async def settle_later(self, exchange: Exchange) -> None:
        """Write a deferred exchange into the ledger with what it did cost, by the rules that hold for it now."""
        assert exchange.principal is not None
        assert exchange.deployment is not None
        rules = self._rules.rules(exchange.principal, exchange.deployment)
        bookings = [_booking(rule, _NOTHING, exchange.now) for rule in rules]
        held = BudgetReservation(exchange.id, exchange.principal.team, bookings=bookings, is_asked=True)
        await self._write(exchange, held)

    async def settle(self, exchange: Exchange) -> None:
        """Write the exchange into the ledger, and replace its reservation by what it did cost. When it returns, that is
        durable: in the store, or in the spool. What was never sent upstream leaves no trace."""
        held = exchange.reservation
        if not isinstance(held, BudgetReservation):
            return
        if exchange.attempts == 0:
            if held.is_asked:
                await self._books.release(held.exchange_id, held.team)
            return
        self._note_overrun(held, await self._write(exchange, held))

    async def _write(self, exchange: Exchange, held: BudgetReservation) -> Sequence[Charge]:
        """Write the entry, and replace what is reserved; the charges that replace it."""
        self._output_estimates.learn(exchange)
        entry = _entry(exchange)
        final = [
            replace(b.charge, amount=_spent(b.rule, exchange, entry), limit=None, expected=0) for b in held.bookings
        ]
        balances = await self._books.settle(Settle(entry, final))
        if balances is not None:
            await self._tell(held, balances)
        return final

    async def _refuse(self, exchange: Exchange, held: BudgetReservation, answer: Refused) -> None:
        booking = next(b for b in held.bookings if b.charge.account == answer.charge.account)
        rule, balance, now = booking.rule, answer.balance, exchange.now
        again = "" if booking.window.resets_at is None else _time_text(booking.window.resets_at)
        text = refusal(rule, balance.spent, balance.reserved, booking.charge.amount, again)
        if rule.is_rate:
            self._metrics.rate_limited(held.team, rule.unit)
            wait_s = max(1, int((booking.window.resets_at or now) - now + 0.999))
            error = RateLimited(text, kind=rule.unit, retry_after_s=wait_s)
            error.headers.update(rate_headers([(rule, booking.window.resets_at, balance)], now))
            if booking.charge.amount > (rule.hard or 0):
                # It would never fit: to try again is in vain.
                error.headers["x-should-retry"] = "false"
            raise error
        await self._notify("budget.hard_limit", held, booking, balance)
        headers = {"x-stratiform-budget": _safe(rule.id)}
        if again:
            headers["x-stratiform-budget-reset"] = again
        raise BudgetExceeded(text, headers=headers)

    async def _check_store(self, held: BudgetReservation, granted_by: str | None) -> None:
        """Refuse where the store does not hold the counters that were known, and budgets say no to that."""
        limits = [b.rule for b in held.bookings if b.rule.hard is not None and not b.rule.is_rate]
        is_strict = self._denies and bool(limits)
        # Who is not refused asks only for the sake of the news.
        if self._epochs is None or (self._epochs.trouble and not is_strict):
            return
        is_trusted = await self._epochs.trusts(granted_by, [counter_of(held.team, rule) for rule in limits])
        if is_trusted or not is_strict:
            return
        await self._give_back(held)
        raise BudgetUnavailable(
            f"The budgets of team '{held.team}' cannot be checked: the store was emptied or exchanged. An operator "
            "must restore its counters or accept it first."
        )

    async def _give_back(self, held: BudgetReservation) -> None:
        """What is reserved is not used; it may have been granted, and the answer lost."""
        if held.is_asked:
            held.is_asked = False
            await self._books.release(held.exchange_id, held.team)

    async def _unheld(self, held: BudgetReservation, ask: Reserve) -> None:
        """The store is away. A rate limit lets traffic pass meanwhile; of a budget the configuration says, and of what
        cannot even be written down."""
        why = f"The budgets of team '{held.team}' cannot be checked: the store does not answer."
        if not (self._denies and (held.is_hard or not self._rules.are_known)):
            held.is_asked = True
            if await self._books.intend(ask) or not self._denies:
                return
            why = f"What team '{held.team}' spends cannot be written down: neither the store nor the spool takes it."
        await self._give_back(held)
        raise BudgetUnavailable(why)

    def _warn(self, exchange: Exchange, held: BudgetReservation, balances: Sequence[Balance]) -> None:
        """A header for the client where a soft limit is passed, or will probably be."""
        for booking, balance in zip(held.bookings, balances, strict=True):
            rule = booking.rule
            self._see(held.team, rule, balance)
            if rule.soft is not None and balance.spent + balance.expected > rule.soft:
                self._metrics.soft_limit_passed(held.team)
                spent, soft = amount_text(rule.unit, balance.spent), amount_text(rule.unit, rule.soft)
                exchange.notice = f"{_safe(rule.id)}; spent={spent}; soft={soft}"

    async def _tell(self, held: BudgetReservation, balances: Sequence[Balance]) -> None:
        """Notices of soft limits that are reached."""
        for booking, balance in zip(held.bookings, balances, strict=True):
            self._see(held.team, booking.rule, balance)
            soft = booking.rule.soft
            if soft is not None and balance.spent >= soft:
                await self._notify("budget.soft_limit", held, booking, balance)

    async def _notify(self, event: str, held: BudgetReservation, booking: _Booking, balance: Balance) -> None:
        """Send a notice, once per window by all workers together."""
        rule = booking.rule
        if self._notices is None or not rule.webhook:
            return
        name = f"{event}:{booking.charge.account}"
        if booking.window.within:  # a rolling window has no end: once per length of it
            name = f"{event}:{account_of(rule, Window(rule.window, None, None))}"
        if (held.team, name) in self._told:
            return
        if len(self._told) >= _MOST_TOLD:
            self._told.clear()
        self._told[held.team, name] = None
        if await self._books.claim(held.team, name, booking.window.keep_s or _TOLD_S):
            self._notices.send(_notice(event, held.team, booking, balance))

    def _see(self, team: str, rule: Rule, balance: Balance) -> None:
        if rule.unit == "usd" and rule.hard is not None and not rule.whom:
            self._remaining[team, rule.id] = (rule.hard - balance.spent) / NANOS_PER_USD

    def _note_overrun(self, held: BudgetReservation, final: Sequence[Charge]) -> None:
        for booking, charge in zip(held.bookings, final, strict=True):
            over = charge.amount - booking.charge.amount
            if over > 0 and booking.rule.unit == "usd" and booking.rule.hard is not None:
                self._metrics.overran(held.team, over / NANOS_PER_USD)
                return


def _standing(held: BudgetReservation, balances: Sequence[Balance]) -> list[tuple[Rule, float | None, Balance]]:
    return [(b.rule, b.window.resets_at, balance) for b, balance in zip(held.bookings, balances, strict=True)]


def _booking(rule: Rule, amounts: dict[str, Estimate], now: float) -> _Booking:
    window = window_at(rule.window, rule.timezone, now)
    estimate = amounts[rule.unit]
    # A rate limit is about what flows: a generous output limit that nobody reaches must not hold others up.
    amount = estimate.expected if rule.is_rate else estimate.most
    return _Booking(rule, window, charge_of(rule, window, amount, estimate.expected, rule.hard))


def _spent(rule: Rule, exchange: Exchange, entry: LedgerEntry) -> int:
    match rule.unit:
        case "usd":
            return entry.cost
        case "tokens":
            usage = exchange.billed_usage
            return usage.prompt + usage.output if usage is not None else 0
        case "requests":
            return 1


def _entry(exchange: Exchange) -> LedgerEntry:
    usage = exchange.billed_usage
    return _entry_of(
        exchange,
        exchange.deployment,
        status=exchange.status,
        ending=(exchange.ending or ExchangeOutcome.HUNG_UP).value,
        read_tokens=usage.read if usage is not None else 0,
        write_5m_tokens=usage.write_5m if usage is not None else 0,
        write_1h_tokens=usage.write_1h if usage is not None else 0,
        plain_tokens=usage.plain if usage is not None else 0,
        output_tokens=usage.output if usage is not None else 0,
        cost=nanos(exchange.cost_usd),
        saved=nanos(exchange.saved_usd),
        latency_ms=round(exchange.elapsed_s() * 1000),
        estimated=usage is not None and usage.estimated,
    )


def _lost_entry(exchange: Exchange, deployment: Deployment, amounts: dict[str, Estimate]) -> LedgerEntry:
    """What is written where this process dies before it settles: the reservation is the bill."""
    return _entry_of(
        exchange,
        deployment,
        ending=LOST,
        plain_tokens=amounts["tokens"].expected,
        cost=amounts["usd"].most,
        estimated=True,
    )


def _entry_of(exchange: Exchange, deployment: Deployment | None, **of_its_end: Any) -> LedgerEntry:
    """Who asked for what, when, in which mode; and how it ended."""
    principal = exchange.principal
    assert principal is not None
    return LedgerEntry(
        exchange_id=exchange.id,
        at=exchange.now,
        team=principal.team,
        key_id=principal.key_id,
        user=_kept(principal.user),
        model=_kept(without_keys(deployment.name)) if deployment is not None else "",
        mode=mode_label(exchange.mode),
        reason=exchange.reason,
        **of_its_end,
    )


def _notice(event: str, team: str, booking: _Booking, balance: Balance) -> Notice:
    rule = booking.rule
    unit = NANOS_PER_USD if rule.unit == "usd" else 1
    return Notice(
        rule.webhook,
        event,
        {
            "team": team,
            "budget": rule.id,
            "whom": rule.whom,
            "unit": rule.unit,
            "window": rule.window,
            "spent": balance.spent / unit,
            "soft": None if rule.soft is None else rule.soft / unit,
            "hard": None if rule.hard is None else rule.hard / unit,
            "resets_at": None if booking.window.resets_at is None else _time_text(booking.window.resets_at),
        },
    )


def _time_text(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _kept(text: str) -> str:
    """A text that a client may have chosen, as the ledger can keep it: half of a surrogate pair is no text, and a key
    is not kept."""
    return without_shapes(text[:_MOST_CHARS]).encode("utf-8", "replace").decode()


def _safe(text: str) -> str:
    return _UNSAFE.sub("?", text)
