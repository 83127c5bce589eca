"""Keep-alive in a replay: refreshes between the recorded requests, in virtual time."""

from collections.abc import Callable
from dataclasses import dataclass

from proxy.core.caches.prompt import Bill
from proxy.core.planner.keep_alive import RefreshPlan
from proxy.core.planner.plan import Plan
from proxy.core.planner.planner import TierPlanner

Send = Callable[[bytes, float], Bill | None]


@dataclass(slots=True)
class _Series:
    """Refreshes of one session that are still to come."""

    work: RefreshPlan
    next_at: float
    left: int


class PrefixRefreshes:
    """The sessions whose prefixes are kept alive. ``send`` makes a provider answer a refresh; it returns None where the
    provider refuses."""

    def __init__(self, planner: TierPlanner, send: Send) -> None:
        self._planner = planner
        self._send = send
        self._series: dict[str, _Series] = {}

    def begin(self, plan: Plan, now: float) -> None:
        """The request of a plan has ended. From now on its prefix is kept alive, where that pays."""
        work = self._planner.refresh_plan(plan, now)
        if work is not None:
            self._series[plan.session] = _Series(work, now + work.period_s, work.times)

    def end(self, session: str) -> None:
        """The client has returned."""
        self._series.pop(session, None)

    def run(self, until: float) -> None:
        """Send the refreshes that are due before a time, in the order in which they are due."""
        while self._series:
            session, series = min(self._series.items(), key=lambda pair: pair[1].next_at)
            if series.next_at >= until:
                return
            if not self._refresh(series):
                del self._series[session]

    def _refresh(self, series: _Series) -> bool:
        """Send one refresh. Returns whether another one follows."""
        work, at = series.work, series.next_at
        bill = self._send(work.body, at)
        if bill is None or bill.read < bill.total / 2:
            return False  # it is gone already: what was sent wrote it anew, and the client may not come
        self._planner.kept(work, at)
        series.next_at += work.period_s
        series.left -= 1
        return series.left > 0
