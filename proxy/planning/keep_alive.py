"""Keep-alive: prefixes are read once more before they run out, while their clients think. Opt-in.

Whether and how often is the planner's decision (``proxy.core.planner.keep_alive``); this is the clockwork. A refresh is
an exchange of its own: reserved, sent, priced, written into the ledger (reason ``keep-alive``) and counted like any
other, and paid by the team whose prefix it is. A series ends when its client is back, when a refresh found nothing to
read, was refused or would pass the day's cap, and at shutdown.

What is held is bounded by sessions and by bytes: the oldest series gives way. Bodies are kept in memory, never written.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol

from proxy.core.caches.prompt import Bill
from proxy.core.money.prices import Price
from proxy.core.planner.keep_alive import RefreshPlan
from proxy.core.planner.plan import Plan
from proxy.core.reasons import Reason
from proxy.core.request.demand import Demand
from proxy.engine.conclusion import Conclusion
from proxy.engine.exchange import Arrival, Exchange, ExchangeOutcome, Planned, Requested
from proxy.engine.ports import Ports
from proxy.engine.suppress import suppress_and_log
from proxy.planning.caps import Caps, DailyTerms
from proxy.planning.own_exchanges import OwnEnding, OwnExchanges
from proxy.ports import Call, Deployment, Principal
from proxy.tasks import Tasks, spawn

_CLOSING_S = 5.0


class RefreshOutcome(StrEnum):
    """What became of a refresh. All but the first end the series."""

    READ = "read"
    MISSED = "missed"
    """It found less than half of what it should read: it was paid as a write."""
    REFUSED = "refused"
    """The upstream refused it, or did not answer."""
    DENIED = "denied"
    """The team's budget or rate limit leaves no room for it."""
    CAPPED = "capped"
    """It could have passed the team's cap of the day."""


@dataclass(frozen=True, slots=True)
class RefreshTerms(DailyTerms):
    """What the operator allows, and how many sessions and bytes are held."""

    max_sessions: int = 256
    max_bytes: int = 64 << 20


class Upkeeper(Protocol):
    """The part of the planner that decides."""

    def refresh_plan(self, plan: Plan, now: float) -> RefreshPlan | None:
        """How to keep alive what a request that was sent at ``now`` has cached."""
        ...

    def kept(self, work: RefreshPlan, now: float) -> None:
        """The upstream accepted a refresh."""
        ...


@dataclass(slots=True)
class _Series:
    """One session's refreshes that are still to come. Only what they need: no plan, no headers that are not sent."""

    work: RefreshPlan
    call: Call
    principal: Principal
    model: str
    mode_of: Plan
    began: float
    task: "asyncio.Task[None] | None" = None
    is_sending: bool = False
    is_over: bool = False

    @property
    def size(self) -> int:
        """Bytes that it holds."""
        return len(self.work.body)


class KeepAlive:
    """Implements ``proxy.engine.ports.Follower``. ``wait`` sleeps for so many seconds of the clock."""

    def __init__(
        self,
        terms: RefreshTerms,
        ports: Ports,
        planner: Upkeeper,
        conclusion: Conclusion,
        price_of: Callable[[Deployment], Price | None],
        on_refresh: Callable[[str, str], None] = lambda team, outcome: None,
        wait: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._terms = terms
        self._ports = ports
        self._planner = planner
        self._own = OwnExchanges(ports, conclusion, price_of, Caps(terms))
        self._on_refresh = on_refresh
        self._wait = wait
        self._held: OrderedDict[str, _Series] = OrderedDict()
        self.held_bytes = 0
        self._tasks: Tasks = set()
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._held)

    def returned(self, session: str) -> None:
        """The client is back: what is still to come is not sent. What is under way is not cut off: it is billed."""
        series = self._held.get(session)
        if series is not None:
            self._drop(session, series)

    def ended(self, exchange: Exchange) -> None:
        """An exchange was settled: from its start on its prefix is kept alive, where that pays."""
        planned, call, principal = exchange.planned, exchange.call, exchange.principal
        plan = planned.plan
        if plan is None or call is None or principal is None or not plan.session or self._is_closed:
            return
        # A client that hung up, or whose rewritten request was refused, is not waited for.
        is_complete = exchange.answer.is_accepted and exchange.ending is ExchangeOutcome.COMPLETED
        if not is_complete or planned.was_retried:
            return
        if not self._own.is_allowed(call, principal, own_keys=self._terms.own_keys):
            return
        work = self._planner.refresh_plan(plan, exchange.arrival.now)
        if work is None or len(work.body) > self._terms.max_bytes:
            return
        self.returned(plan.session)
        bare = Plan(b"", b"", plan.mode, Reason.KEEP_ALIVE, session=plan.session)
        model, began = exchange.requested.model, exchange.arrival.now
        self._hold(plan.session, _Series(work, replace(call, body=b""), principal, model, bare, began))

    async def aclose(self) -> None:
        """Send nothing more. What is under way may end."""
        self._is_closed = True
        for session, series in list(self._held.items()):
            self._drop(session, series)
        if self._tasks:
            _, late = await asyncio.wait(set(self._tasks), timeout=_CLOSING_S)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)

    def _hold(self, session: str, series: _Series) -> None:
        self._held[session] = series
        self.held_bytes += series.size
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
        self.held_bytes -= series.size
        if series.task is not None and not series.is_sending:
            series.task.cancel()

    async def _run(self, session: str, series: _Series) -> None:
        try:
            for number in range(1, series.work.times + 1):
                await self._wait(max(0.0, series.began + number * series.work.period_s - self._ports.clock.now()))
                series.is_sending = True
                outcome = await self._refresh(series)
                series.is_sending = False
                self._on_refresh(series.principal.team, outcome.value)
                if series.is_over or outcome is not RefreshOutcome.READ:
                    return
        finally:
            self._drop(session, series)

    async def _refresh(self, series: _Series) -> RefreshOutcome:
        """One exchange, from its reservation to its settlement."""
        work, now = series.work, self._ports.clock.now()
        exchange = _exchange(series, now)
        call = replace(series.call, body=work.body, stream=False, now=now)
        has_hour = "1h" in work.prompt.marks.values()
        ending, _ = await self._own.run(
            exchange, call, prompt_tokens=work.bill.total, output_tokens=1, has_hour=has_hour
        )
        if ending is not OwnEnding.ANSWERED:
            return RefreshOutcome(ending.value)
        with suppress_and_log("planner.kept"):
            self._planner.kept(work, exchange.arrival.now)
        usage = exchange.answer.outcome.usage
        return RefreshOutcome.MISSED if usage is not None and usage.read < usage.prompt / 2 else RefreshOutcome.READ


def _exchange(series: _Series, now: float) -> Exchange:
    work, plan = series.work, series.mode_of
    total = Bill(0, 0, 0, work.bill.total)
    sent = replace(plan, body=work.body, original=work.body, predicted=work.bill, own=total)
    return Exchange(
        Arrival("POST", series.call.path, now, size=len(work.body), is_chat=True),
        series.principal,
        Requested(series.model, demand=Demand(max_output_tokens=1)),
        deployment=series.call.deployment,
        planned=Planned(plan.mode, Reason.KEEP_ALIVE, sent),
    )
