"""What a provider reports of a request: what was expected, or something else by a fault of its own."""

from random import Random

from proxy.planner.plan import Plan
from proxy.protocol.caches import Bill
from proxy.protocol.providers import Family
from proxy.protocol.response.usage import Usage

FAULTS = (
    "none", "none", "silent", "counts more", "forgets early", "loses some", "ignores markers", "has a larger minimum",
    "shortens lives", "holds more", "moves notices", "estimated", "counts less", "loses some",
)  # fmt: skip
_KEPT_S = 120


def reported(plan: Plan, fault: str, pause_s: float, chance: Random) -> Usage | None:
    """The usage that is reported of a plan whose request came ``pause_s`` seconds after the one before it."""
    if fault == "silent":
        return None
    bill, is_told = _expected(plan), chance.random() < 0.7
    match fault:
        case "forgets early" if pause_s > _KEPT_S:
            bill = _unread(plan, bill)
        case "loses some" if chance.random() < 0.4:
            bill = _unread(plan, bill)
        case "ignores markers":
            bill = Bill(0, 0, 0, bill.total)
        case "has a larger minimum" if bill.total < 2500:
            bill = Bill(0, 0, 0, bill.total)
        case "shortens lives":
            bill = Bill(bill.read, bill.write, 0, bill.plain)
        case "holds more" if chance.random() < 0.5:
            bill = Bill(bill.total - bill.plain // 2, 0, 0, bill.plain // 2)
        case "moves notices" if plan.in_flight is not None and plan.in_flight.accepted is not None:
            elsewhere = plan.in_flight.accepted.elsewhere
            bill = elsewhere[0] if elsewhere is not None else bill
    scale = {"counts more": 1.3, "counts less": 0.8}.get(fault, 1.0)
    read, short, long, plain = (int(tokens * scale) for tokens in (bill.read, bill.write_5m, bill.write_1h, bill.plain))
    return Usage(
        read + short + long + plain, 20, read, short, long,
        estimated=fault == "estimated", writes_told=is_told, lives_told=is_told,
    )  # fmt: skip


def _expected(plan: Plan) -> Bill:
    if plan.in_flight is not None and plan.in_flight.accepted is not None:
        return plan.in_flight.accepted.bill
    return plan.predicted or Bill(0, 0, 0, len(plan.body) // 4)


def _unread(plan: Plan, bill: Bill) -> Bill:
    """The bill if nothing of the request was stored any more."""
    if plan.in_flight is not None and plan.in_flight.analysis.profile.family is Family.MARKER:
        return Bill(0, bill.read + bill.write_5m, bill.write_1h, bill.plain)
    return Bill(0, 0, 0, bill.total)
