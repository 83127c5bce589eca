"""Prices and counts exchanges: what was used, what it cost, what it saved, and every metric of it.

Called once at the start and once at the end of an exchange; it never suspends. Tens of microseconds.
"""

from collections.abc import Callable
from math import isfinite

from proxy.core.caches.prompt import Bill
from proxy.core.modes import Mode
from proxy.core.money.charges import bill
from proxy.core.money.prices import (
    Price,
    PriceMap,
    input_cost,
    saved_as_reported,
    saved_on_shadow,
    scaled,
    uncached_cost,
)
from proxy.core.planner.plan import CONTROL, Plan
from proxy.core.reasons import Reason
from proxy.core.request.demand import UNIT_KINDS, Kind
from proxy.core.response.usage import Usage
from proxy.deployments.price_map import price_for
from proxy.engine.exchange import Exchange, ExchangeOutcome
from proxy.ports import Deployment
from proxy.telemetry.metrics import Metrics, mode_label

NONE = "none"
"""The label where an exchange never got so far as to have a model, a team or a transport."""

_BYTES_PER_TOKEN = 4
# Until its first word a model reads the prompt; who is silent for longer, thinks at about this speed.
_USUAL_SILENCE_S = 3.0
_THOUGHTS_PER_S = 60
_ERROR_KINDS = {"upstream_timeout": "timeout", "circuit_open": "circuit-open"}
_STATUS = {
    ExchangeOutcome.HUNG_UP: 499,
    ExchangeOutcome.BROKEN: 502,
    ExchangeOutcome.REFUSED: 400,
    ExchangeOutcome.FAILED: 500,
}


class Meter:
    """Settles exchanges (``proxy.engine.exchange.Meter``). ``on_settled`` hears of each when everything is known."""

    def __init__(
        self,
        metrics: Metrics,
        prices: PriceMap,
        on_settled: Callable[[Exchange], None] | None = None,
    ) -> None:
        self._metrics = metrics
        self._prices = prices
        self._on_settled = on_settled

    def began(self, exchange: Exchange) -> None:
        """An exchange was opened."""
        self._metrics.began()

    def failed(self, exchange: Exchange, kind: str) -> None:
        """An attempt failed, and another one follows."""
        model = exchange.deployment.name if exchange.deployment else NONE
        self._metrics.upstream_error(model, kind)
        self._metrics.retried(model, kind)

    def lose(self, exchange: Exchange) -> None:
        """The answer broke off, and nothing of it has reached the client: what it used and cost."""
        deployment = exchange.deployment
        if deployment is None or not (exchange.usage or is_unreported(exchange)):
            return
        usage = exchange.usage or self._estimated(exchange, deployment)
        self._metrics.tokens(deployment.name, usage)
        price = price_for(self._prices, deployment)
        spent = None
        if price is not None:
            spent = bill(price, exchange.demand, usage, exchange.reported, deployment.model)
        if spent is None:
            self._metrics.unpriced(deployment.name)
        else:
            exchange.cost_usd += spent.total_usd
            self._metrics.cost(deployment.name, _team(exchange), spent, 0.0)
        exchange.lost = usage if exchange.lost is None else both(exchange.lost, usage)

    def price(self, exchange: Exchange) -> None:
        """The exchange is about to end: what it used and cost."""
        if exchange.is_priced:
            return
        exchange.is_priced = True
        self._price(exchange)
        if exchange.lost is not None:
            exchange.usage = exchange.lost if exchange.usage is None else both(exchange.usage, exchange.lost)

    def settle(self, exchange: Exchange) -> None:
        """The exchange has ended: count it."""
        self.price(exchange)
        self._count_traffic(exchange)
        self._count_trouble(exchange)
        self._count_plan(exchange)
        if self._on_settled is not None:
            self._on_settled(exchange)

    def _price(self, exchange: Exchange) -> None:
        deployment = exchange.deployment
        if deployment is None:
            return
        if not exchange.operation.bills:
            # An object's usage was billed when it was made, however often it is read.
            return
        usage = exchange.usage
        if usage is None and is_unreported(exchange):
            usage = exchange.usage = self._estimated(exchange, deployment)
        if usage is None and not (exchange.is_billed and exchange.demand.kind in UNIT_KINDS):
            return
        if usage is not None:
            self._metrics.tokens(deployment.name, usage)
        price = price_for(self._prices, deployment)
        model = deployment.model
        spent = bill(price, exchange.demand, usage, exchange.reported, model) if price is not None else None
        if price is None or spent is None:
            self._metrics.unpriced(deployment.name)
            return
        exchange.cost_usd += spent.total_usd
        team = _team(exchange)
        # No client asked for a refresh: without a cache there would be none.
        uncached_usd = 0.0 if usage is None or is_refresh(exchange.plan) else uncached_cost(usage, price)
        self._metrics.cost(deployment.name, team, spent, uncached_usd)
        if is_refresh(exchange.plan):
            self._metrics.refresh_cost(deployment.name, team, spent.total_usd)
        if exchange.plan is not None and exchange.plan.arm:
            self._metrics.arm(deployment.name, exchange.plan.arm, spent.input_usd, uncached_usd)
        saved = savings(exchange, price)
        exchange.saved_usd = saved.get("reported", saved.get("shadow", 0.0))
        for basis, usd in saved.items():
            self._metrics.saved(deployment.name, team, basis, usd)

    def _estimated(self, exchange: Exchange, deployment: Deployment) -> Usage:
        self._metrics.usage_missing(deployment.name)
        price = price_for(self._prices, deployment)
        return estimated_usage(exchange, price.max_output_tokens if price is not None else None)

    def _count_traffic(self, exchange: Exchange) -> None:
        deployment = exchange.deployment
        model = deployment.name if deployment else NONE
        status = exchange.status or _STATUS.get(exchange.ending or ExchangeOutcome.FAILED, 500)
        transport = deployment.transport.value if deployment else NONE
        self._metrics.ended(model, mode_label(exchange.mode), status, transport)
        if exchange.first_byte_s is not None:
            self._metrics.first_byte(model, exchange.first_byte_s)
        if exchange.overhead_s > 0:
            self._metrics.overhead(exchange.overhead_s)

    def _count_trouble(self, exchange: Exchange) -> None:
        if exchange.was_retried:
            self._metrics.retried_original()
        match exchange.ending:
            case ExchangeOutcome.HUNG_UP:
                self._metrics.disconnected()
            case ExchangeOutcome.BROKEN | ExchangeOutcome.REJECTED:
                model = exchange.deployment.name if exchange.deployment else NONE
                self._metrics.upstream_error(model, error_kind(exchange))
            case ExchangeOutcome.REFUSED if exchange.error_code == "insufficient_quota":
                self._metrics.budget_rejected(_team(exchange))
            case _:
                pass

    def _count_plan(self, exchange: Exchange) -> None:
        plan = exchange.plan
        if plan is None or exchange.ending is ExchangeOutcome.REFUSED:
            return
        self._metrics.plan(mode_label(exchange.mode), exchange.reason, plan.tier_tokens, plan.segment_tokens)
        for move in plan.moves:
            self._metrics.moved(move.source, move.target)
        if plan.deviation:
            model = exchange.deployment.name if exchange.deployment else NONE
            self._metrics.deviation(model, plan.deviation, exchange.cache_cause)
        sent, usage = sent_bill(exchange, plan), exchange.usage
        if sent is not None and usage is not None and not usage.estimated and exchange.is_accepted:
            self._metrics.predicted(scaled(sent, usage.prompt).read, usage.read)


def savings(exchange: Exchange, price: Price) -> dict[str, float]:
    """USD saved against what the client's own layout would have cost, signed, by basis.

    ``shadow``: both as the shadow caches bill them. ``reported``: ours as the provider billed it. ``observed``: what
    mode observe would have saved. A request that goes out as it came may still cost more or less than in a world
    without us, because the provider holds what was sent before; where both worlds agree, nothing was saved, and what
    the shadow got wrong is no saving either.
    """
    plan = exchange.plan
    if plan is None or plan.own is None or plan.predicted is None or not exchange.is_accepted:
        return {}
    if plan.arm == CONTROL:
        return {}
    if is_refresh(plan):
        # It is only a cost; what it saves is seen when its client returns.
        spent = {"shadow": -input_cost(plan.predicted, price)}
        if exchange.usage is not None and not exchange.usage.estimated:
            spent["reported"] = -input_cost(exchange.usage, price)
        return _finite(spent)
    if plan.mode is Mode.OBSERVE:
        return _finite({"observed": saved_on_shadow(plan.own, plan.predicted, price)})
    if not plan.rewritten and plan.predicted == plan.own:
        return {}
    saved = {}
    if not exchange.was_retried:  # then the shadow has no bill for what was sent
        saved["shadow"] = saved_on_shadow(plan.own, plan.predicted, price)
    if exchange.usage is not None and not exchange.usage.estimated:
        saved["reported"] = saved_as_reported(plan.own, exchange.usage, price)
    return _finite(saved)


def is_refresh(plan: Plan | None) -> bool:
    """Whether the request only kept a prefix alive."""
    return plan is not None and plan.reason == Reason.KEEP_ALIVE


def sent_bill(exchange: Exchange, plan: Plan) -> Bill | None:
    """What the shadow cache expected for the body that was sent in the end; None where it was not asked."""
    if exchange.was_retried:
        return None
    return plan.own if plan.mode is Mode.OBSERVE and plan.arm != CONTROL else plan.predicted


def is_unreported(exchange: Exchange) -> bool:
    """The provider will bill the request, and said nothing of its tokens."""
    return exchange.usage is None and exchange.is_billed and (exchange.is_chat or exchange.asks_model)


def estimated_usage(exchange: Exchange, longest: int | None = None) -> Usage:
    """Our own count: the prompt as the shadow cache billed it, else by its bytes; the text that came, and what the
    model may have thought before. Never more output than the request allows, nor than the model can write
    (``longest``); so it is never above what was reserved for it."""
    demand = exchange.demand
    output = 0 if demand.kind is Kind.PROMPT else _visible_tokens(exchange) + _hidden_tokens(exchange)
    limit = demand.max_output_tokens if demand.max_output_tokens is not None else longest
    if limit is not None:
        output = min(output, limit * demand.answers)
    plan = exchange.plan
    bill = (sent_bill(exchange, plan) or plan.own) if plan else None
    if bill is None:
        return Usage(exchange.request_bytes // _BYTES_PER_TOKEN, output, estimated=True)
    return Usage(bill.total, output, bill.read, bill.write_5m, bill.write_1h, estimated=True)


def both(one: Usage, other: Usage) -> Usage:
    """The usage of two answers to one request, one of which is an estimate."""
    return Usage(
        one.prompt + other.prompt,
        one.output + other.output,
        one.read + other.read,
        one.write_5m + other.write_5m,
        one.write_1h + other.write_1h,
        estimated=True,
    )


def _visible_tokens(exchange: Exchange) -> int:
    if exchange.received_tokens:
        return exchange.received_tokens
    return exchange.events if exchange.stream else exchange.answer_bytes // _BYTES_PER_TOKEN


def _hidden_tokens(exchange: Exchange) -> int:
    """A model that is silent for long thinks, and its thoughts are billed."""
    if not exchange.stream and exchange.first_byte_s is not None:
        return 0
    silent_s = exchange.first_text_s if exchange.first_text_s is not None else exchange.elapsed_s()
    return max(0, int((silent_s - _USUAL_SILENCE_S) * _THOUGHTS_PER_S))


def error_kind(exchange: Exchange) -> str:
    """How an upstream call failed: the closed vocabulary of ``upstream_errors_total``."""
    if exchange.ending is ExchangeOutcome.BROKEN:
        if exchange.error_code in _ERROR_KINDS:
            return _ERROR_KINDS[exchange.error_code]
        return "unavailable" if exchange.first_byte_s is None else "broken-off"
    if exchange.status == 429:
        return "rate-limited"
    if exchange.status in (401, 403):
        return "unauthorized"
    return "rejected" if exchange.status < 500 else "server-error"


def _team(exchange: Exchange) -> str:
    return exchange.principal.team if exchange.principal else NONE


def _finite(saved: dict[str, float]) -> dict[str, float]:
    """A counter that once took a NaN never recovers."""
    return {basis: usd for basis, usd in saved.items() if isfinite(usd)}
