"""Keep-alive: reads prefixes once more before they expire, while their clients pause. Opt-in.

The planner decides whether and how often a prefix is refreshed (``proxy.core.planner.keep_alive``). This module runs
the timers. A refresh is an exchange of its own. It is reserved, sent, priced, written into the ledger (reason
``keep-alive``) and counted like any other exchange. The team that owns the prefix pays for it. A series ends when its
client is back, when a refresh found nothing to read, was refused or would pass the day's cap, and at shutdown.

The number of sessions and their bytes are bounded: the oldest series is dropped first. Bodies are kept in memory, and
are never written to disk.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final

from proxy.core.caches.prompt import Bill
from proxy.core.planner.keep_alive import RefreshPlan
from proxy.core.planner.plan import Plan
from proxy.core.planner.planner import TierPlanner
from proxy.core.reasons import Reason
from proxy.core.value import dataclass
from proxy.engine.exchange import Exchange
from proxy.engine.suppress import suppress_and_log
from proxy.planning.own_exchanges import Behind, DailyTerms, OwnEnding, OwnExchanges
from proxy.ports import Clock
from proxy.tasks import Tasks, end_within, spawn

_CLOSING_S = 5.0


READ: Final = "read"
MISSED: Final = "missed"
"""The outcome of a refresh that was answered, but found less than half of what it should read. It was paid as a cache
write. Other refreshes are described by their ending (``OwnEnding``)."""


@dataclass(frozen=True, slots=True)
class RefreshTerms(DailyTerms):
    """The operator's limits, and how many sessions and bytes are held."""

    max_sessions: int = 256
    max_bytes: int = 64 << 20


@dataclass(slots=True)
class _Series:
    """One session's refreshes that are still to come. It holds only what they need: no plan, and no headers that are
    not sent."""

    work: RefreshPlan
    behind: Behind
    began: float
    task: "asyncio.Task[None] | None" = None
    is_sending: bool = False
    is_over: bool = False


class KeepAlive:
    """Implements ``proxy.engine.ports.Follower``. ``wait`` sleeps for so many seconds of the clock;
    ``on_ended`` is told of each refresh that was settled."""

    def __init__(
        self,
        terms: RefreshTerms,
        own: OwnExchanges,
        planner: TierPlanner,
        clock: Clock,
        on_refresh: Callable[[str, str], None] = lambda team, outcome: None,
        wait: Callable[[float], Awaitable[None]] = asyncio.sleep,
        on_ended: Callable[[Exchange], None] = lambda exchange: None,
    ) -> None:
        self._terms = terms
        self._on_ended = on_ended
        self._own = own
        self._planner = planner
        self._clock = clock
        self._on_refresh = on_refresh
        self._wait = wait
        self._held: OrderedDict[str, _Series] = OrderedDict()
        self.held_bytes = 0
        self._tasks: Tasks = set()
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._held)

    def returned(self, session: str) -> None:
        """The client is back: refreshes that are still to come are not sent. A refresh that is under way is not cut
        off, because it is billed in any case."""
        series = self._held.get(session)
        if series is not None:
            self._drop(session, series)

    def ended(self, exchange: Exchange) -> None:
        """An exchange was settled. If it pays, its prefix is kept alive, counted from the exchange's start."""
        plan, began = exchange.planned.plan, exchange.arrival.now
        if plan is None or not plan.session or self._is_closed:
            return
        behind = self._own.behind(exchange)
        work = self._planner.refresh_plan(plan, began) if behind is not None else None
        if behind is None or work is None or len(work.body) > self._terms.max_bytes:
            return
        self.returned(plan.session)
        self._hold(plan.session, _Series(work, behind, began))

    async def aclose(self) -> None:
        """Send nothing more. A refresh that is under way may end."""
        self._is_closed = True
        for session, series in list(self._held.items()):
            self._drop(session, series)
        await end_within(self._tasks, _CLOSING_S)

    def _hold(self, session: str, series: _Series) -> None:
        self._held[session] = series
        self.held_bytes += len(series.work.body)
        while len(self._held) > self._terms.max_sessions or self.held_bytes > self._terms.max_bytes:
            self._drop(*next(iter(self._held.items())))
        if not series.is_over:
            series.task = spawn(self._run(session, series), self._tasks)

    def _drop(self, session: str, series: _Series) -> None:
        if series.is_over:
            return
        series.is_over = True
        if self._held.get(session) is series:
            del self._held[session]
        self.held_bytes -= len(series.work.body)
        if series.task is not None and not series.is_sending:
            series.task.cancel()

    async def _run(self, session: str, series: _Series) -> None:
        try:
            for number in range(1, series.work.times + 1):
                await self._wait(max(0.0, series.began + number * series.work.period_s - self._clock.now()))
                series.is_sending = True
                outcome = await self._refresh(session, series)
                series.is_sending = False
                self._on_refresh(series.behind.principal.team, outcome)
                if series.is_over or outcome != READ:
                    return
        finally:
            self._drop(session, series)

    async def _refresh(self, session: str, series: _Series) -> str:
        """Run one exchange from its reservation to its settlement. Returns its outcome."""
        work, behind = series.work, series.behind
        plan = Plan(
            work.body,
            work.body,
            behind.mode,
            Reason.KEEP_ALIVE,
            predicted=work.bill,
            own=Bill(0, 0, 0, work.bill.total),
            session=session,
        )
        exchange, call = behind.begun(plan, self._clock.now(), output_tokens=1)
        has_hour = "1h" in work.prompt.marks.values()
        ending, _ = await self._own.run(
            exchange, call, prompt_tokens=work.bill.total, output_tokens=1, has_hour=has_hour
        )
        with suppress_and_log("follower.ended"):
            self._on_ended(exchange)
        if ending is not OwnEnding.ANSWERED:
            return ending.value
        with suppress_and_log("planner.kept"):
            self._planner.kept(work, exchange.arrival.now)
        usage = exchange.answer.outcome.usage
        return MISSED if usage is not None and usage.read < usage.prompt / 2 else READ
