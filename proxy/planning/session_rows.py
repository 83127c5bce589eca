"""The values that are kept of one request of a session. They are made from the exchange when it has ended."""

from dataclasses import replace

from msgspec import structs

from proxy.core.caches.prompt import Bill
from proxy.core.diagnosis.record import TURN
from proxy.core.modes import Mode
from proxy.core.money.prices import saved_as_reported, saved_on_shadow, scaled
from proxy.core.planner.plan import CONTROL, Plan
from proxy.core.reasons import Reason
from proxy.core.response.usage import Usage
from proxy.core.sessions.session_record import SessionRequest, SessionSums
from proxy.engine.access_log import shown_piece
from proxy.engine.exchange import Exchange, Settlement


def sums_of(exchange: Exchange, one: SessionRequest | None = None) -> SessionSums:
    """The sums that an exchange adds to its session. ``one`` is its row."""
    settled, assembled, at = exchange.settlement or Settlement(), exchange.planned.assembled, exchange.arrival.now
    usage = settled.usage or Usage(0, 0)
    sums = SessionSums(
        at,
        0 if one is not None and one.is_refresh else 1,
        usage.read,
        usage.write_5m,
        usage.write_1h,
        usage.plain,
        usage.output,
        settled.cost_usd,
        settled.saved_usd,
        assembled.assembly.empty_tiers if assembled is not None else 0,
    )
    return sums if one is None else _with_modes(sums, exchange, usage, one)


def _with_modes(sums: SessionSums, exchange: Exchange, usage: Usage, one: SessionRequest) -> SessionSums:
    """The sums, with what a request read and cost, or would have read and cost, in three layouts: the client's own,
    the one with added markers, and the planned one. One of these was sent. If nothing could be marked, the second
    layout has the client's own markers."""
    plan, marked = exchange.planned.plan, exchange.planned.result.marked
    client, planned = (one.read, one.cost_usd), (one.other_read, one.cost_usd - one.saved_usd)
    if not one.is_observed:
        client, planned = (0 if one.is_refresh else one.other_read, one.cost_usd + one.saved_usd), client
    in_order = client
    if plan is not None and plan.mode is Mode.MARK:
        in_order = planned
    elif plan is not None and plan.price is not None and marked is not None and usage.prompt:
        in_order = scaled(marked, usage.prompt).read, one.cost_usd + saved_as_reported(marked, usage, plan.price)
    return structs.replace(
        sums,
        client_read_tokens=client[0],
        client_usd=client[1],
        marked_read_tokens=in_order[0],
        marked_usd=in_order[1],
        planned_read_tokens=planned[0],
        planned_usd=planned[1],
    )


def request_of(exchange: Exchange, plan: Plan, number: int) -> SessionRequest:
    """The figures of one request, and those of the layout that was not sent."""
    settled, broke = exchange.settlement or Settlement(), exchange.planned.result.broke
    is_refresh = plan.reason == Reason.KEEP_ALIVE
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
