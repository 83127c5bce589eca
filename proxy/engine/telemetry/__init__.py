"""Prices and counts exchanges: their usage, cost and saving, and all metrics about them. ``metrics`` exports them for
Prometheus, summed over all workers, and ``spans`` sends a trace of each exchange. Labels have bounded values, and no
text of a prompt and no key is exported.

The meter is called at the start and at the end of an exchange. It never suspends, and takes tens of microseconds.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from proxy.engine.exchange import Exchange, ExchangeOutcome, Settlement
from proxy.engine.telemetry.metrics import NO_PROFILE, UNRECOGNISED, Metrics
from proxy.kit.modes import Mode, Reason
from proxy.models import Deployment
from proxy.models.charges import Heard, Speeds, bill, unanswered
from proxy.models.deployments import PriceOf
from proxy.planner.plan import CONTROL, Plan
from proxy.protocol.caches import Bill
from proxy.protocol.prices import (
    Cost,
    Price,
    input_cost,
    saved_as_reported,
    saved_on_shadow,
    uncached_cost,
)
from proxy.protocol.request.demand import UNIT_KINDS, BillingKind
from proxy.protocol.response.outcome import CHANGES, Outcome
from proxy.protocol.response.usage import Usage, merged, summed

NONE = "none"
"""The label of an exchange that ended before it had a model, a team or a transport."""

_BYTES_PER_TOKEN = 4
_ERROR_KINDS = {"upstream_timeout": "timeout", "circuit_open": "circuit-open", "upstream_loading": "loading"}
_STATUS_KINDS = {429: "rate-limited", 401: "unauthorized", 403: "unauthorized"}


class MetricsMeter:
    """Prices and counts exchanges. ``proxy.engine.ports.Meter`` describes what its methods promise."""

    def __init__(
        self, metrics: Metrics, price_of: PriceOf, on_settled: Callable[[Exchange], None] | None = None
    ) -> None:
        """``on_settled`` is called with each exchange that was counted."""
        self._metrics = metrics
        self.began = metrics.began
        self._price_of = price_of
        self._on_settled = on_settled
        self._speeds = Speeds()

    def failed(self, exchange: Exchange, kind: str) -> None:
        model = exchange.deployment.name if exchange.deployment else NONE
        self._metrics.upstream_error(model, kind)
        self._metrics.retried(model, kind)

    def lose(self, exchange: Exchange) -> Settlement:
        deployment, lost = exchange.deployment, exchange.lost
        outcome = self._answered(exchange, is_billed=True)
        if deployment is None or (outcome.usage is None and exchange.requested.demand.kind not in UNIT_KINDS):
            return lost
        gone = self._unplanned(exchange, deployment, (outcome, *exchange.answer.further), has_use=False)
        return Settlement(both(lost.usage, gone.usage), lost.cost_usd + gone.cost_usd)

    def price(self, exchange: Exchange) -> Settlement:
        own, lost, deployment = self._priced(exchange), exchange.lost, exchange.deployment
        if exchange.answer.further and deployment is not None:
            more = self._unplanned(exchange, deployment, exchange.answer.further, has_use=True)
            own = Settlement(summed(own.usage, more.usage), own.cost_usd + more.cost_usd, own.saved_usd)
        if lost.usage is None and not lost.cost_usd:
            return own
        return Settlement(both(own.usage, lost.usage), lost.cost_usd + own.cost_usd, own.saved_usd)

    def spent(self, exchange: Exchange, outcomes: Sequence[Outcome]) -> Settlement:
        deployment, usage, cost_usd = exchange.deployment, exchange.lost.usage, exchange.lost.cost_usd
        price = self._price_of(deployment) if deployment is not None else None
        for one in outcomes:
            usage = summed(usage, one.usage)
            if deployment is not None and price is not None and one.usage is not None:
                cost = bill(price, exchange.requested.demand, one.usage, one.reported, deployment.model)
                cost_usd += cost.total_usd if cost is not None else 0.0
        return Settlement(usage, cost_usd)

    def booked(self, exchange: Exchange, outcome: Outcome, further_tokens: int, silent_s: float) -> Outcome:
        if _is_reported(exchange, outcome):
            return outcome
        return self._booked(exchange, outcome, prompt_tokens(exchange) + further_tokens, silent_s)

    def settle(self, exchange: Exchange) -> None:
        metrics, answer, deployment = self._metrics, exchange.answer, exchange.deployment
        model, mode = _model(exchange), exchange.planned.mode.name.lower()
        metrics.ended()
        metrics.requests(model, mode, str(exchange.status), deployment.transport.value if deployment else NONE)
        if answer.first_byte_s is not None:
            metrics.first_byte.child(model).observe(answer.first_byte_s)
        if exchange.overhead_s > 0:
            metrics.overhead(exchange.overhead_s)
        if exchange.planned.was_retried:
            metrics.retried_original()
        match exchange.ending:
            case ExchangeOutcome.HUNG_UP:
                metrics.disconnected()
            case ExchangeOutcome.BROKEN | ExchangeOutcome.REJECTED:
                metrics.upstream_error(model, error_kind(exchange))
            case ExchangeOutcome.REFUSED if answer.error_code == "insufficient_quota":
                metrics.budget_rejected(_team(exchange))
        self._count_plan(exchange, model, mode)
        if (broke := exchange.planned.result.broke) is not None:
            metrics.broke(model, broke.kind)
            metrics.break_cost(model, broke.kind, by=broke.usd)
        is_diagnosed = exchange.planned.plan is not None or exchange.inquiry is not None
        if is_diagnosed and (cause := answer.outcome.cache_cause) in CHANGES:  # the provider's cause, beside ours
            metrics.break_agreed(model, "same" if broke is not None and broke.expected_cause == cause else "other")
        for outcome, calls in answer.panel_calls.items():
            metrics.panel_calls(outcome, by=calls)
        for refusal, count in answer.context_refusals.items():
            metrics.context_refused(exchange.window.name if exchange.window else NO_PROFILE, refusal, by=count)
        if self._on_settled is not None:
            self._on_settled(exchange)

    def _priced(self, exchange: Exchange) -> Settlement:
        """The usage and the cost of the exchange, without ``exchange.lost``."""
        deployment, plan = exchange.deployment, exchange.planned.plan
        if deployment is None or not exchange.objects.operation.bills:
            # An object's usage was billed when it was made. Reading the object bills nothing.
            return Settlement(exchange.answer.outcome.usage)
        answer = self._answered(exchange, is_billed=exchange.is_billed)
        usage = answer.usage
        if usage is None and not (exchange.is_billed and exchange.requested.demand.kind in UNIT_KINDS):
            return Settlement()
        price = self._price_of(deployment)
        # No client asked for a refresh, so without a cache there would be no refresh.
        is_refresh = plan is not None and plan.reason == Reason.KEEP_ALIVE
        spent, uncached_usd = self._spent(exchange, deployment, answer, price, has_use=not is_refresh)
        if price is None or spent is None:
            return Settlement(usage)
        model, team = deployment.name, _team(exchange)
        if is_refresh:
            self._metrics.refresh_cost(model, team, by=spent.total_usd)
        if plan is not None and plan.arm:
            self._metrics.arm_cost(model, plan.arm, by=spent.input_usd)
            self._metrics.arm_uncached_cost(model, plan.arm, by=uncached_usd)
        saved = savings(exchange, price)
        for basis, usd in saved.items():
            self._metrics.saved(model, team, basis, usd)
        return Settlement(usage, spent.total_usd, saved.get("reported", saved.get("shadow", 0.0)))

    def _unplanned(
        self, exchange: Exchange, deployment: Deployment, answers: Sequence[Outcome], *, has_use: bool
    ) -> Settlement:
        """The usage and the cost of answers that belong to no plan, each at the price of its own length. Both are
        counted. ``has_use``: the client gets them, and would also get them without any cache."""
        usage, cost_usd, price = None, 0.0, self._price_of(deployment)
        for answer in answers:
            spent, _ = self._spent(exchange, deployment, answer, price, has_use=has_use)
            cost_usd += spent.total_usd if spent is not None else 0.0
            usage = summed(usage, answer.usage)
        return Settlement(usage, cost_usd)

    def _spent(
        self, exchange: Exchange, deployment: Deployment, answer: Outcome, price: Price | None, *, has_use: bool
    ) -> tuple[Cost | None, float]:
        """The cost of an answer (None if the price is unknown), and the USD that its prompt would have cost without a
        cache. Both are counted, and so is the usage. ``has_use``: the call would also be made without a cache."""
        usage, spent, uncached_usd, plan = answer.usage, None, 0.0, exchange.planned.plan
        client = (plan.client if plan is not None else "") or UNRECOGNISED  # as a recogniser knows its texts
        if usage is not None:
            self._metrics.tokens(deployment.name, usage, client)
        if price is not None:
            spent = bill(price, exchange.requested.demand, usage, answer.reported, deployment.model)
            uncached_usd = uncached_cost(usage, price) if has_use and usage is not None else 0.0
        if spent is None:
            self._metrics.unpriced(deployment.name)
        else:
            model, team = deployment.name, _team(exchange)
            self._metrics.cost(model, team, client, by=spent.total_usd)
            self._metrics.input_cost(model, team, by=spent.input_usd)
            self._metrics.uncached_cost(model, team, by=uncached_usd)
        return spent, uncached_usd

    def _answered(self, exchange: Exchange, *, is_billed: bool) -> Outcome:
        """The answer with its usage: the provider's, or our own estimate if the provider reported none or only a
        part."""
        answer, outcome, asks = exchange.answer, exchange.answer.outcome, exchange.requested
        if outcome.usage is not None and _is_reported(exchange, outcome):
            if exchange.deployment is not None and answer.is_accepted:
                output, took_s = outcome.usage.output / asks.demand.answers, exchange.elapsed_s() - answer.asked_s
                self._speeds.learn(exchange.deployment.name, output, took_s)
            return outcome
        has_tokens = (exchange.arrival.is_chat or exchange.asks_model) and asks.demand.kind is not BillingKind.FREE
        if exchange.deployment is None or not is_billed or not has_tokens:
            return outcome
        # An answer that does not stream arrives when the provider has written all of it.
        is_whole = not asks.stream and answer.first_byte_s is not None
        silent_s = 0.0 if is_whole else answer.silence_s(exchange.elapsed_s())
        self._metrics.usage_missing(exchange.deployment.name)
        return self._booked(exchange, outcome, prompt_tokens(exchange), silent_s)

    def _booked(self, exchange: Exchange, outcome: Outcome, prompt: int, silent_s: float) -> Outcome:
        """The answer as it is booked for a call whose usage is unknown or only partly known."""
        deployment, answer = exchange.deployment, exchange.answer
        assert deployment is not None
        price, took_s = self._price_of(deployment), exchange.elapsed_s() - answer.asked_s
        goes_on = answer.runs_on and (outcome.is_open or not answer.is_accepted)  # not if it has come to its end
        # Almost every event has at least one token, with any content.
        heard = Heard(max(outcome.tokens, outcome.events), silent_s, took_s, goes_on)
        speed = self._speeds.tokens_per_s(deployment.name, deployment.server)
        passes = exchange.reservation is not None and exchange.reservation.passes_limits
        usage, ran = unanswered(exchange.requested.demand, prompt, heard, speed, price, passes_limits=passes)
        if (told := outcome.usage) is not None:
            output = max(told.output, usage.output)
            usage = replace(told, prompt=told.prompt or usage.prompt, output=output, estimated=True)
        return replace(outcome, usage=usage, reported=merged(outcome.reported, ran))

    def _count_plan(self, exchange: Exchange, model: str, mode: str) -> None:
        metrics, answer, result = self._metrics, exchange.answer, exchange.planned.result
        if (plan := exchange.planned.plan) is None or exchange.ending is ExchangeOutcome.REFUSED:
            return
        metrics.plan(mode, exchange.planned.reason, plan.tier_tokens, plan.segment_tokens)
        for edit, count in plan.edits.items():
            metrics.edited(edit.value, by=count)
        for move in result.moves:
            metrics.moved(move.source.label, "removed" if move.target is None else move.target.label)
        if result.deviation:
            metrics.deviation(model, result.deviation, answer.outcome.cache_cause)
        sent, usage = sent_bill(exchange, plan), exchange.settlement.usage if exchange.settlement is not None else None
        if answer.further:
            usage = answer.outcome.usage  # the plan was made only for the first call
        if sent is not None and usage is not None and not usage.estimated and answer.is_accepted:
            error = sent.scaled(usage.prompt).read - usage.read
            metrics.prediction.child("over" if error >= 0 else "under").observe(abs(error))


def savings(exchange: Exchange, price: Price) -> dict[str, float]:
    """USD saved compared with the cost of the client's own layout, signed, by basis.

    ``shadow``: both costs are those of the shadow caches. ``reported``: our cost is what the provider billed.
    ``observed``: what mode observe would have saved. A request that goes out as it came may still cost more or less
    than without this proxy, because the provider's cache holds what was sent before. If the shadow caches bill both
    alike, nothing was saved. An error of the shadow cache is no saving either.
    """
    plan, answer, usage = exchange.planned.plan, exchange.answer, exchange.answer.outcome.usage
    if plan is None or plan.own is None or plan.predicted is None or plan.arm == CONTROL or not answer.is_accepted:
        return {}
    if plan.reason == Reason.KEEP_ALIVE:
        # A refresh is only a cost; its saving is counted when its client returns.
        spent = {"shadow": -input_cost(plan.predicted, price)}
        if usage is not None:
            spent["reported"] = -input_cost(usage, price)
        return spent
    if plan.mode is Mode.OBSERVE:
        return {"observed": saved_on_shadow(plan.own, plan.predicted, price)}
    if not plan.rewritten and plan.predicted == plan.own:
        return {}
    saved = {}
    if not exchange.planned.was_retried:  # after a retry, the shadow cache has no bill for what was sent
        saved["shadow"] = saved_on_shadow(plan.own, plan.predicted, price)
    if usage is not None:
        saved["reported"] = saved_as_reported(plan.own, usage, price)
    return saved


def sent_bill(exchange: Exchange, plan: Plan) -> Bill | None:
    """The bill that the shadow cache expected for the body that was finally sent; None if it was not asked for this
    body."""
    if exchange.planned.was_retried:
        return None
    return plan.own if plan.mode is Mode.OBSERVE and plan.arm != CONTROL else plan.predicted


def prompt_tokens(exchange: Exchange) -> int:
    """The tokens of a prompt if the provider reports none: the reserved number, or else our own count, or else an
    estimate from its bytes."""
    held, plan = exchange.reservation, exchange.planned.plan
    if held is not None and held.prompt_tokens:
        return held.prompt_tokens
    count = (sent_bill(exchange, plan) or plan.own) if plan else None
    return count.total if count is not None else exchange.arrival.size // _BYTES_PER_TOKEN


def both(one: Usage | None, other: Usage | None) -> Usage | None:
    """The summed usage of two answers to one request. If both have usage, the sum is an estimate. None if neither has
    any."""
    total = summed(one, other)
    return replace(total, estimated=True) if total and one and other else total


def _is_reported(exchange: Exchange, outcome: Outcome) -> bool:
    """Whether the provider reports the whole usage of an answer. An answer that broke off may have been longer."""
    usage, is_text = outcome.usage, exchange.requested.demand.kind is BillingKind.TEXT
    return (
        usage is not None
        and not outcome.is_open
        and outcome.error is None
        and (usage.is_whole and (usage.output > 0 or not outcome.tokens) if is_text else usage.prompt > 0)
    )


def error_kind(exchange: Exchange) -> str:
    """The kind of an upstream failure, one of the fixed values of ``upstream_errors_total``."""
    answer = exchange.answer
    if exchange.ending is ExchangeOutcome.BROKEN:
        return _ERROR_KINDS.get(answer.error_code, "unavailable" if answer.first_byte_s is None else "broken-off")
    return _STATUS_KINDS.get(answer.status, "rejected" if answer.status < 500 else "server-error")


def _model(exchange: Exchange) -> str:
    """The label of the exchange's model. Clients choose the names behind a wildcard, also those that they may not use:
    if no upstream was called, the wildcard itself is the label."""
    name = exchange.deployment.name if exchange.deployment else NONE
    return name if exchange.attempts or exchange.deployment is None else exchange.deployment.entry or name


def _team(exchange: Exchange) -> str:
    return exchange.principal.team or NONE
