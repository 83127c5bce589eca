"""What is kept of one request of a session, made from the exchange when it has ended."""

from dataclasses import replace

from proxy.core.caches.prompt import Bill
from proxy.core.diagnosis.record import TURN
from proxy.core.modes import Mode
from proxy.core.money.prices import saved_on_shadow, scaled
from proxy.core.planner.plan import CONTROL, Plan
from proxy.core.response.usage import Usage
from proxy.core.sessions.session_requests import SessionRequest
from proxy.engine.access_log import shown_piece
from proxy.engine.exchange import Exchange, Settlement


def request_of(exchange: Exchange, plan: Plan, number: int, *, is_refresh: bool) -> SessionRequest:
    """The figures of one request, beside those of the layout that was not sent."""
    settled, broke = exchange.settlement or Settlement(), exchange.planned.result.broke
    usage = settled.usage or Usage(0, 0)
    is_observed, saved_usd = plan.mode is Mode.OBSERVE and plan.arm != CONTROL, settled.saved_usd
    other: Usage | Bill = usage
    if plan.own is not None and plan.predicted is not None and not is_refresh:
        if is_observed:
            other = scaled(plan.predicted, usage.prompt)
            saved_usd = saved_on_shadow(plan.own, plan.predicted, plan.price) if plan.price is not None else 0.0
        elif plan.arm != CONTROL and (plan.rewritten or plan.predicted != plan.own):
            other = scaled(plan.own, usage.prompt)
    found = SessionRequest(
        at=exchange.arrival.now,
        number=number,
        prompt=usage.prompt,
        read=usage.read,
        written=usage.write,
        other_read=other.read,
        other_written=other.write,
        cost_usd=settled.cost_usd,
        saved_usd=saved_usd,
        is_refresh=is_refresh,
        is_observed=is_observed,
    )
    if broke is None:
        return found
    ratio = usage.prompt / max(1, broke.before + broke.tokens + broke.behind)
    name = f"{TURN}:{broke.culprit}" if broke.culprit_kind == TURN else broke.culprit
    return replace(
        found,
        kind=broke.kind,
        culprit=shown_piece(name, exchange.arrival.keys),
        line=broke.line,
        before=round(broke.before * ratio),
        tokens=round(broke.tokens * ratio),
        lost=broke.lost,
        lost_usd=broke.usd,
        is_waste=broke.is_waste,
    )
