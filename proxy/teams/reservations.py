"""Reserves the possible cost of requests, and settles their actual cost (the port Admission).

Before a request is sent, its cost is reserved with every rule that holds for it, in one step. A hard limit counts the
highest possible cost of the request, and a soft limit the probable cost. When the exchange has ended, its entry is
written to the ledger and the counters move from reserved to spent. This is also one step, and it happens before the
client gets the last bytes of the answer.

While the store is away, traffic goes on: nothing is reserved, and settlements are spooled. ``on_store_error`` decides
whether requests under a budget are sent meanwhile (``allow``) or refused (``deny``). Under ``deny`` a limit holds even
then, because a reserved amount stays reserved until it is settled.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Literal

from proxy.engine.exchange import Exchange, ExchangeOutcome, Principal, Settlement
from proxy.kit.errors import BudgetExceeded, BudgetUnavailable, Forbidden, RateLimited
from proxy.models import Deployment, Headers, Transport
from proxy.models.bound import InputBound
from proxy.models.charges import Estimate, Rule, nanos_at_most, refusal
from proxy.protocol.request.demand import BillingKind
from proxy.protocol.response.usage import Usage
from proxy.storage import Balance, Charge, Granted, Refused, Reserve, Settle
from proxy.teams.alerts import BudgetAlerts, header_text, time_text
from proxy.teams.bookings import (
    DEFERRED,
    NOTHING,
    ONE,
    Booking,
    BudgetReservation,
    LimitResolver,
    booked,
    counter_of,
    deployment_rules,
    lost_entry,
    rate_headers,
    refusing,
    settled_entry,
)
from proxy.teams.estimates import Amounts, Estimates
from proxy.teams.store_client import Epochs, StoreClient

DEFERRED_S = 3600.0


class BudgetReservations:
    """Reserves and settles, as ``proxy.engine.ports.Admission`` promises. ``admit`` finds the sender of a request, and
    ``rules`` finds the limits that hold for it."""

    def __init__(
        self,
        admit: Callable[[Headers, float], Principal],
        rules: LimitResolver,
        store_client: StoreClient,
        alerts: BudgetAlerts,
        estimates: Estimates,
        on_store_error: Literal["allow", "deny"],
        epochs: Epochs | None,
    ) -> None:
        self.admit, self.limits = admit, rules.may_hold
        self.store_client = store_client
        self.alerts = alerts
        self._rules = rules
        self._epochs = epochs
        self._denies = on_store_error == "deny"
        self._estimates = estimates
        self._estimated: dict[str, float] = {}
        """The counters of limits on which a call is counted by an estimate, and until when; infinite while the call
        lasts."""

    async def start(self) -> None:
        """Begin to look after reservations, and to deliver notices."""
        await self.store_client.start()
        self.alerts.start()

    async def aclose(self) -> None:
        """Deliver the notices and write the calls that are left, and release the store."""
        await self.alerts.aclose()
        await self.store_client.aclose()

    async def reserve(self, exchange: Exchange, others: Sequence[Deployment] = ()) -> None:
        """Set aside the most that this request can cost at its deployment, or at one of the ``others`` that may serve
        it instead. Raises BudgetExceeded, RateLimited, BudgetUnavailable, Forbidden, InvalidRequest."""
        deployment = exchange.deployment
        assert deployment is not None
        if exchange.principal.virtual:
            _check_upstream_keys((deployment, *others))
        rules = self._rules.rules(exchange.principal, deployment, *exchange.requested.further)
        reservation = BudgetReservation(
            exchange.arrival.id,
            exchange.principal.team,
            is_limited=bool(rules),
            is_hard=bool(rules) and _is_hard(rules),
            deployments=(deployment, *others),
        )
        # From here on, the end of the exchange gives the reservation back, even if this call does not return.
        exchange.reservation = reservation
        if not rules and not self.store_client.is_durable:
            return
        is_held = any(_bounds_prompt(one) for one in rules)
        bound = await self._estimates.bounds.bound(exchange, counts=False) if is_held else None
        ask = self._ask(exchange, reservation, rules, bound)
        if not self.store_client.is_away:
            await self._check_store(reservation, None)
        reservation.is_asked = not self.store_client.is_away
        answer = await self.store_client.reserve(_cautious(ask, reservation.bookings) if is_held else ask)
        is_repeated = isinstance(answer, Refused) and answer.is_repeated
        if isinstance(answer, Refused) and _bounds_prompt(refusing(reservation.bookings, answer).rule):
            bound = await self._estimates.bounds.bound(exchange, counts=True)
            ask = self._ask(exchange, reservation, rules, bound, counts=True)
            answer = await self.store_client.reserve(ask)
        match answer:
            case Refused():
                reservation.is_asked = is_repeated or answer.is_repeated
                await self._refuse(exchange, refusing(reservation.bookings, answer), answer.balance, bound)
            case Granted():
                await self._check_store(reservation, answer.epoch)
                reservation.rates = rate_headers(
                    zip(reservation.bookings, answer.balances, strict=True), exchange.arrival.now
                )
                await self.alerts.tell(reservation, answer.balances, is_new=True)
            case None:
                await self._go_without_store(reservation, ask)

    async def extend(self, exchange: Exchange, spent: Settlement, further_tokens: int = 0) -> bool:
        held = exchange.reservation
        if not isinstance(held, BudgetReservation) or not held.is_hard or held.entry is None:
            return True
        needed = self._needed(exchange, held, [one.rule for one in held.bookings], spent, further_tokens)
        short = [
            replace(one.charge, amount=needed[one.rule.unit].most - held.held(one), expected=0)
            for one in held.bookings
            if one.rule.hard is not None and not one.rule.is_rate and needed[one.rule.unit].most > held.held(one)
        ]
        if not short:
            return True
        further = [held.entry, *(one.entry for one in held.further)]
        taken = {"usd": sum(one.cost for one in further), "tokens": sum(one.plain_tokens for one in further)}
        more = {unit: replace(needed[unit], most=max(0, needed[unit].most - taken[unit])) for unit in taken}
        answer = await self._reserve_further(exchange, held, short, more)
        return not self._denies if answer is None else isinstance(answer, Granted)

    def _needed(
        self,
        exchange: Exchange,
        held: BudgetReservation,
        rules: Sequence[Rule],
        spent: Settlement,
        further_tokens: int = 0,
    ) -> Amounts:
        """What the calls of an exchange have ``spent``, together with what a further call can use."""
        amounts = self._estimates.amounts(
            exchange,
            held.deployments,
            rules,
            held.bound,
            estimates=bool(held.estimated),
            further_tokens=further_tokens,
        )
        usage = spent.usage or Usage(0, 0)
        before = {"usd": nanos_at_most(spent.cost_usd), "tokens": usage.prompt + usage.output, "requests": 0}
        return {unit: replace(one, most=before[unit] + one.most) for unit, one in amounts.items()}

    async def take_turn(self, exchange: Exchange, deployment: Deployment) -> None:
        """Set aside what a call can cost in the budgets of another model than the first one. Count the call of a
        deployment that has its own limits, in the minute in which the call goes out. As in LiteLLM, the call goes out
        if fewer tokens than the limit were used, and its own tokens are counted when it has ended. Raises RateLimited,
        BudgetExceeded, BudgetUnavailable, InvalidRequest, Forbidden."""
        held = exchange.reservation
        rules = deployment_rules(deployment) if deployment.rates is not None else ()
        if not isinstance(held, BudgetReservation):
            return
        held.passes_limits = self._estimates.habits(deployment).passes_limits
        if held.deployments and deployment.name != held.deployments[0].name:
            await self._join(exchange, held, deployment)
        if not rules:
            return
        now = exchange.time()
        turn = [booked(rule, ONE, now) for rule in rules]
        answer = await self._reserve_further(exchange, held, [one.charge for one in turn])
        if isinstance(answer, Refused):
            raise self._rate_refusal(held.team, refusing(turn, answer), answer.balance, now)
        held.took_turn(turn)

    async def _join(self, exchange: Exchange, held: BudgetReservation, deployment: Deployment) -> None:
        """Set aside what the exchange can cost in the budgets that hold for a model and did not hold for the models
        before."""
        known = {(one.rule.id, one.rule.whom) for one in held.bookings}
        rules = [one for one in self._rules.rules(exchange.principal, deployment) if (one.id, one.whom) not in known]
        if not rules:
            return
        held.bound = await self._estimates.bounds.bound(exchange, counts=True)
        amounts = self._needed(exchange, held, rules, exchange.lost)
        joined = [booked(rule, amounts, exchange.arrival.now) for rule in rules]
        answer = await self._reserve_further(exchange, held, [one.charge for one in joined])
        if isinstance(answer, Refused):
            await self._refuse(exchange, refusing(joined, answer), answer.balance, held.bound)
        if answer is None and self._denies and _is_hard(rules):
            raise _unavailable(held.team, "the store does not answer.")
        held.is_limited, held.is_hard = True, held.is_hard or _is_hard(rules)
        held.bookings = [*held.bookings, *(replace(one, charge=replace(one.charge, amount=0)) for one in joined)]

    async def _reserve_further(
        self,
        exchange: Exchange,
        held: BudgetReservation,
        charges: Sequence[Charge],
        amounts: Mapping[str, Estimate] = NOTHING,
    ) -> Granted | Refused | None:
        assert exchange.deployment is not None
        own_id = f"{held.exchange_id}+{len(held.further) + 1}"
        entry = replace(lost_entry(exchange, exchange.deployment, amounts), exchange_id=own_id)
        ask = Reserve(own_id, held.team, charges, self.store_client.lease(), entry)
        held.further.append(ask)
        answer = await self.store_client.reserve(ask)
        if isinstance(answer, Refused):
            # A call that was repeated holds nothing, and is released in case it still arrives.
            held.further[-1:] = [replace(ask, charges=())] if answer.is_repeated else []
        return answer

    def _ask(
        self,
        exchange: Exchange,
        reservation: BudgetReservation,
        rules: Sequence[Rule],
        bound: InputBound | None,
        *,
        counts: bool = False,
    ) -> Reserve:
        """The reservation that the store is asked for. Its parts are also noted in ``reservation``.

        If the model's tokenizer is not known, a token count is only an estimate, and the client may have made it wrong.
        Under each limit, only one call at a time may be reserved by such an estimate, so that no limit is exceeded by
        more than the error of one estimate. All other calls are reserved by their bytes.
        """
        now, estimates, deployments = exchange.arrival.now, False, reservation.deployments
        reservation.bound = bound
        if counts and bound is not None and bound.counted is not None:
            exchange.counted_tokens = 0 if bound.beyond or bound.pictures else bound.counted
            is_exact = all(self._estimates.bounds.is_exact(one.model) for one in deployments)
            accounts = {booked(rule, NOTHING, now).charge.account for rule in rules if _bounds_prompt(rule)}
            estimates = not is_exact and all(self._estimated.get(one, 0.0) <= now for one in accounts)
            reservation.estimated = accounts if estimates else set()
            self._estimated |= dict.fromkeys(reservation.estimated, inf)
        amounts = self._estimates.amounts(exchange, deployments, rules, bound, estimates=estimates)
        reservation.bookings = [booked(rule, amounts, now) for rule in rules]
        entry = reservation.entry = lost_entry(exchange, deployments[0], amounts)
        charges = [booking.charge for booking in reservation.bookings]
        return Reserve(reservation.exchange_id, reservation.team, charges, self.store_client.lease(), entry)

    async def weigh(self, exchange: Exchange) -> None:
        """Count the prompt of an exchange if the provider reported no usage, so that it is not booked by its bytes."""
        held, deployment = exchange.reservation, exchange.deployment
        is_text = exchange.requested.demand.kind in (BillingKind.TEXT, BillingKind.PROMPT)
        if not isinstance(held, BudgetReservation) or not held.is_hard or deployment is None or not is_text:
            return
        if not held.prompt_tokens:
            bound = await self._estimates.bounds.bound(exchange, counts=True)
            held.prompt_tokens = self._estimates.booked_prompt(exchange, deployment, bound)

    async def defer(self, exchange: Exchange) -> None:
        """Keep the reservation of an exchange on which the provider still works, for ``DEFERRED_S``. After that time it
        is billed as it stands, unless ``settle_later`` was called before. If neither the store nor the spool keeps it,
        it is billed as it stands at once."""
        reservation, deployment = exchange.reservation, exchange.deployment
        if not isinstance(reservation, BudgetReservation) or deployment is None:
            return
        # The estimated counters stay so until the exchange is billed. Entries whose time is over are removed.
        now, until = exchange.arrival.now, dict.fromkeys(reservation.estimated, exchange.arrival.now + DEFERRED_S)
        self._estimated = {one: last for one, last in {**self._estimated, **until}.items() if last > now}
        entry = reservation.entry or lost_entry(
            exchange, deployment, self._estimates.amounts(exchange, (deployment,), ())
        )
        if exchange.lost.usage is not None:
            # Calls that were lost before this one are settled now, by an entry of their own.
            lost = replace(exchange, settlement=exchange.lost, ending=ExchangeOutcome.BROKEN)
            own = replace(settled_entry(lost), exchange_id=f"{exchange.arrival.id}+0")
            bookings = [one for one in reservation.bookings if one.rule.unit != "requests"]
            await self.store_client.settle(Settle(own, _final(reservation, bookings, lost, own.cost)))
        await self._release_further(reservation)
        entry = replace(entry, model=settled_entry(exchange).model, status=exchange.answer.status, ending=DEFERRED)
        # The limits were checked when the exchange was reserved, and are not checked again.
        charges = [replace(booking.charge, limit=None) for booking in reservation.bookings]
        ask = Reserve(reservation.exchange_id, reservation.team, charges, self.store_client.lease(DEFERRED_S), entry)
        if not await self.store_client.defer(ask):
            await self.store_client.settle(Settle(replace(entry, estimated=True), charges))

    async def settle_later(self, exchange: Exchange) -> None:
        """Write a deferred exchange into the ledger with its actual cost, by the rules that hold for it now."""
        assert exchange.deployment is not None
        rules = self._rules.rules(exchange.principal, exchange.deployment, *exchange.requested.further)
        bookings = [booked(rule, NOTHING, exchange.arrival.now) for rule in rules]
        for account in {one.charge.account for one in bookings}:
            if self._estimated.get(account, inf) < inf:
                del self._estimated[account]
        await self._write(exchange, BudgetReservation(exchange.arrival.id, exchange.principal.team, bookings=bookings))

    async def settle(self, exchange: Exchange) -> None:
        """Write the exchange into the ledger, and replace its reservation by its actual cost. On return, this is
        durable: in the store, or in the spool. A request that was never sent upstream leaves no trace."""
        reservation = exchange.reservation
        if not isinstance(reservation, BudgetReservation):
            return
        for account in reservation.estimated:
            self._estimated.pop(account, None)
        if exchange.attempts == 0:
            await self._give_back(reservation)
        elif charges := await self._write(exchange, reservation):
            self.alerts.note_overrun(reservation, charges)
        if reservation.further:
            await self._release_further(reservation)

    async def _write(self, exchange: Exchange, reservation: BudgetReservation) -> Sequence[Charge]:
        """Write the entry, and replace the reservation. Returns the charges that replace it."""
        self._estimates.learn(exchange)
        entry = settled_entry(exchange)
        final = _final(reservation, reservation.bookings, exchange, entry.cost)
        if balances := await self.store_client.settle(Settle(entry, final)):
            await self.alerts.tell(reservation, balances)
        return final

    async def _release_further(self, reservation: BudgetReservation) -> None:
        for ask in reservation.further:
            await self.store_client.release(ask.exchange_id, ask.team)

    async def _refuse(self, exchange: Exchange, booking: Booking, balance: Balance, bound: InputBound | None) -> None:
        team, why = exchange.principal.team, bound.words() if bound is not None else ""
        if booking.rule.is_rate:
            raise self._rate_refusal(team, booking, balance, exchange.arrival.now, why)
        await self.alerts.notify("budget.hard_limit", team, booking, balance)
        headers = {"x-stratiform-budget": header_text(booking.rule.id)}
        if again := time_text(booking.window.resets_at):
            headers["x-stratiform-budget-reset"] = again
        raise BudgetExceeded(_refusal_text(booking, balance, why), headers=headers)

    def _rate_refusal(self, team: str, booking: Booking, balance: Balance, now: float, why: str = "") -> RateLimited:
        rule, resets_at = booking.rule, booking.window.resets_at or now
        self.alerts.metrics.rate_limited(team, rule.unit)
        text = _refusal_text(booking, balance, why)
        error = RateLimited(text, kind=rule.unit, retry_after_s=max(1, int(resets_at - now + 0.999)))
        error.headers.update(rate_headers([(booking, balance)], now))
        if booking.charge.amount > (rule.hard or 0):
            # The request can never fit into the limit, so a retry is useless.
            error.headers["x-should-retry"] = "false"
        return error

    async def _check_store(self, reservation: BudgetReservation, granted_by: str | None) -> None:
        """Refuse the request if the store has lost the known counters and ``on_store_error`` denies it."""
        limits = [one.rule for one in reservation.bookings if one.rule.hard is not None and not one.rule.is_rate]
        is_strict = self._denies and bool(limits)
        # For a request that is sent in any case, the store is asked only to notice a loss. A known loss needs no
        # question.
        if self._epochs is None or (self._epochs.trouble and not is_strict):
            return
        counters = [counter_of(reservation.team, rule) for rule in limits]
        if not await self._epochs.trusts(granted_by, counters) and is_strict:
            await self._refuse_unchecked(
                reservation,
                "the store was emptied or exchanged. An operator must restore its counters or accept it first.",
            )

    async def _go_without_store(self, reservation: BudgetReservation, ask: Reserve) -> None:
        """Handle a request while the store is away. A rate limit lets traffic pass meanwhile. For a budget,
        ``on_store_error`` decides, also if the intent to spend cannot be written down."""
        if self._denies and (reservation.is_hard or not self._rules.are_known):
            await self._refuse_unchecked(reservation, "the store does not answer.")
        reservation.is_asked = True
        if not await self.store_client.intend(ask) and self._denies:
            await self._refuse_unchecked(reservation, "what it spends cannot be written down.")

    async def _refuse_unchecked(self, reservation: BudgetReservation, why: str) -> None:
        await self._give_back(reservation)
        raise _unavailable(reservation.team, why)

    async def _give_back(self, reservation: BudgetReservation) -> None:
        """Release a reservation that is not used. The store may have granted it although the answer was lost."""
        if reservation.is_asked:
            reservation.is_asked = False
            await self.store_client.release(reservation.exchange_id, reservation.team)


def _refusal_text(booking: Booking, balance: Balance, why: str) -> str:
    again = time_text(booking.window.resets_at) or ""
    return refusal(booking.rule, balance.spent, balance.reserved, booking.charge.amount, again, why)


def _final(
    reservation: BudgetReservation, bookings: Sequence[Booking], exchange: Exchange, cost: int
) -> Sequence[Charge]:
    """The charges of an exchange that has ended. ``cost`` is in nano-dollars."""
    return [replace(one.charge, amount=reservation.taken(one, exchange, cost), limit=None) for one in bookings]


def _unavailable(team: str, why: str) -> BudgetUnavailable:
    return BudgetUnavailable(f"The budgets of team '{team}' cannot be checked: {why}")


def _is_hard(rules: Sequence[Rule]) -> bool:
    """Whether one of these is a hard budget."""
    return any(rule.hard is not None and not rule.is_rate for rule in rules)


def _bounds_prompt(rule: Rule) -> bool:
    """Whether a limit counts the most that a prompt can use."""
    return rule.hard is not None and rule.unit != "requests" and not rule.is_rate


def _cautious(ask: Reserve, bookings: Sequence[Booking]) -> Reserve:
    """The same reservation, with limits of half the size. The number of bytes is several times the number of tokens. A
    request that is reserved by its bytes needs no counting, but the second half of a limit is only for requests whose
    tokens were counted."""
    charges = [
        replace(one.charge, limit=one.rule.hard // 2) if _bounds_prompt(one.rule) and one.rule.hard else one.charge
        for one in bookings
    ]
    return replace(ask, charges=charges)


def _check_upstream_keys(deployments: Sequence[Deployment]) -> None:
    """Raises Forbidden if a deployment needs the client's own key, and the request has a key of the proxy, which would
    be disclosed upstream."""
    for one in deployments:
        if one.transport is Transport.HTTP and not one.uses_operators_key:
            raise Forbidden(
                f"Model '{one.name}' has no api_key in the proxy's configuration, and the key of this request "
                "is the proxy's own, which is never sent upstream. Set litellm_params.api_key for the model. Any "
                "text will do where the server needs no key.",
                code="upstream_key_missing",
            )
