"""Exchanges that the proxy begins itself: refreshes of prefixes, and compactions. Opt-in.

Such an exchange is reserved, sent, priced, written into the ledger and counted like any other. The team for which it is
made pays for it, within the team's cap for the day.

``KeepAlive`` reads prefixes once more before they expire, while their clients pause. The planner decides whether and
how often a prefix is refreshed (``proxy.planner.keep_alive``); this module runs the timers. In the ledger, a
refresh has the reason ``keep-alive``. A series ends when its client is back, when a refresh found nothing to read, was
refused or would pass the day's cap, and at shutdown. The number of sessions and their bytes are bounded: the oldest
series is dropped first. Bodies are kept in memory, and are never written to disk.

``Compactor`` has summaries of long conversations written. ``proxy.services.context_sessions`` decides of which ones.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from functools import partial
from typing import Final

import orjson

from proxy.engine.conclusion import Conclusion
from proxy.engine.exchange import Arrival, Call, Exchange, ExchangeOutcome, Planned, Principal, Requested
from proxy.engine.ports import Follower, Ports
from proxy.kit.clock import Clock
from proxy.kit.errors import ProxyError, UpstreamError, UpstreamRejected, UpstreamTimeout
from proxy.kit.modes import Mode, Reason
from proxy.kit.tasks import Tasks, end_within, spawn, suppress_and_log
from proxy.kit.value import dataclass, field, replace
from proxy.models import Deployment, Transport
from proxy.models.charges import most_cost, nanos, runs_on
from proxy.planner import TierPlanner
from proxy.planner.keep_alive import RefreshPlan
from proxy.planner.plan import Plan
from proxy.protocol.caches import Bill
from proxy.protocol.prices import Price
from proxy.protocol.request.demand import PLAIN, Demand, Wants
from proxy.protocol.response import MAX_BODY_BYTES, BodyFold
from proxy.protocol.response.outcome import Outcome
from proxy.services.context_sessions import Compactions, CompactionWork
from proxy.services.layout_state import Key

_DAY_S = 86_400.0
_CLOSING_S = 5.0


@dataclass(frozen=True, slots=True)
class DailyTerms:
    """The operator's limits. ``teams`` are the teams with a cap of their own, in USD a day (UTC); 0: never.
    ``own_keys``: such exchanges are also allowed for clients that bring the provider's key and pay for them
    themselves."""

    usd_per_day: float = 1.0
    teams: Mapping[str, float] = field(default_factory=dict)
    own_keys: bool = False


class Caps:
    """The amounts that each team has spent today, and its caps. They hold for this process: each process has its own
    share."""

    def __init__(self, terms: DailyTerms) -> None:
        self._terms = terms
        self._day = -1
        self._spent: dict[str, int] = {}

    def limit(self, team: str) -> int:
        """The team's cap in nano-dollars a day."""
        return nanos(self._terms.teams.get(team, self._terms.usd_per_day))

    def take(self, team: str, most: int, now: float) -> bool:
        """Set aside the most that a call can cost, if it fits into the cap. Returns whether it fits."""
        day = int(now // _DAY_S)
        if day != self._day:
            self._day, self._spent = day, {}
        spent = self._spent.get(team, 0)
        if spent + most > self.limit(team):
            return False
        self._spent[team] = spent + most
        return True

    def settle(self, team: str, most: int, cost: int) -> None:
        """Replace the amount that was set aside by what the call did cost."""
        self._spent[team] = max(0, self._spent.get(team, 0) - most) + cost


# The provider may count more tokens than the proxy does.
_COUNTED_MORE = 1.3


class OwnEnding(StrEnum):
    """How an exchange of the proxy's own ended. What each ending means stands in ``grafana/METRICS.md``."""

    ANSWERED = "answered"
    REFUSED = "refused"
    DENIED = "denied"
    CAPPED = "capped"


@dataclass(frozen=True, slots=True)
class Behind:
    """The values that an exchange of the proxy's own takes from the client's exchange before it. It has no message of
    the client's exchange."""

    principal: Principal
    model: str
    mode: Mode
    call: Call
    wants: Wants = PLAIN
    """The call keeps the client's service tier and tools."""

    def begun(self, plan: Plan, now: float, output_tokens: int) -> tuple[Exchange, Call]:
        """The exchange that sends the body of this plan, and its call."""
        exchange = Exchange(
            Arrival("POST", self.call.path, now, size=len(plan.body), is_chat=True),
            self.principal,
            Requested(self.model, demand=Demand(max_output_tokens=output_tokens, wants=self.wants)),
            deployment=self.call.deployment,
            planned=Planned(plan.mode, plan.reason, plan),
        )
        return exchange, replace(self.call, body=plan.body, stream=False, now=now)


class OwnExchanges:
    """Runs exchanges of the proxy's own, within the teams' caps that the ``terms`` set."""

    def __init__(
        self, ports: Ports, conclusion: Conclusion, price_of: Callable[[Deployment], Price | None], terms: DailyTerms
    ) -> None:
        self._ports = ports
        self._conclusion = conclusion
        self._price_of = price_of
        self._terms = terms
        self._caps = Caps(terms)

    def behind(self, exchange: Exchange) -> Behind | None:
        """The values that a call after this exchange takes from it. None if no call may be made: the client hung up, or
        its rewritten request was refused, or nobody would pay."""
        call, principal = exchange.call, exchange.principal
        is_complete = exchange.answer.is_accepted and exchange.ending is ExchangeOutcome.COMPLETED
        if call is None or not is_complete or exchange.planned.was_retried:
            return None
        if not self.is_allowed(call, principal):
            return None
        requested, mode = exchange.requested, exchange.planned.mode
        return Behind(principal, requested.model, mode, replace(call, body=b""), requested.demand.wants)

    def is_allowed(self, call: Call, principal: Principal) -> bool:
        """Whether any such call may be made for this client. Its team needs a cap, the price must be known, and either
        the operator pays or clients' own keys are allowed."""
        deployment = call.deployment
        # The operator pays with a key of his own. litellm takes the operator's keys from the environment.
        has_own = deployment.uses_operators_key or deployment.transport is Transport.LITELLM
        is_operators = not (principal.forwards_key or call.forwards_key) and (principal.virtual or has_own)
        return (
            self._caps.limit(principal.team) > 0
            and (self._terms.own_keys or is_operators)
            and self._price_of(deployment) is not None
        )

    async def run(
        self, exchange: Exchange, call: Call, *, prompt_tokens: int, output_tokens: int, has_hour: bool = False
    ) -> tuple[OwnEnding, bytes]:
        """Run one exchange from its reservation to its settlement. Returns its ending and the body of the answer (only
        the beginning of a very long body). ``prompt_tokens`` and ``output_tokens`` are the most that it can take, by
        the proxy's own count. ``has_hour``: some tokens may be written with the longer TTL."""
        team, price = exchange.principal.team, self._price_of(call.deployment)
        demand, prompt, most = exchange.requested.demand, int(prompt_tokens * _COUNTED_MORE), None
        if price is not None:
            most = most_cost(price, demand, prompt, output_tokens, long_life=has_hour, model=call.deployment.model)
        if most is None or not self._caps.take(team, most, exchange.arrival.now):
            return OwnEnding.CAPPED, b""
        self._ports.meter.began()
        try:
            return await self._reserved(exchange, call)
        finally:
            exchange.ending = exchange.ending or ExchangeOutcome.HUNG_UP
            await self._conclusion.end(exchange)
            cost_usd = exchange.settlement.cost_usd if exchange.settlement is not None else 0.0
            self._caps.settle(team, most, nanos(cost_usd))

    async def _reserved(self, exchange: Exchange, call: Call) -> tuple[OwnEnding, bytes]:
        try:
            await self._ports.admission.reserve(exchange)
            await self._ports.admission.take_turn(exchange, call.deployment)
        except ProxyError as error:
            _note_error(exchange, ExchangeOutcome.REFUSED, error)
            return OwnEnding.DENIED, b""
        try:
            exchange.attempts, exchange.call = 1, call
            exchange.answer.asked(exchange.elapsed_s(), runs_on=runs_on(call.deployment.server, is_stream=call.stream))
            body = await self._sent(exchange, call)
        except ProxyError as error:
            is_rejected = isinstance(error, UpstreamRejected)
            exchange.answer.runs_on &= isinstance(error, UpstreamTimeout)
            may_bill = isinstance(error, UpstreamError) and error.may_bill
            if exchange.answer.is_accepted or (may_bill and exchange.answer.status < 300):
                await self._conclusion.lose(exchange)
            _note_error(exchange, ExchangeOutcome.REJECTED if is_rejected else ExchangeOutcome.BROKEN, error)
            return OwnEnding.REFUSED, b""
        if exchange.ending is not ExchangeOutcome.COMPLETED:
            return OwnEnding.REFUSED, b""
        return OwnEnding.ANSWERED, body

    async def _sent(self, exchange: Exchange, call: Call) -> bytes:
        answer, known = await self._ports.upstreams[call.deployment.transport].open(call), exchange.answer
        fold, body = BodyFold(), bytearray()
        try:
            known.status = answer.status
            async for chunk in answer.chunks():
                if known.first_byte_s is None:
                    known.first_byte_s = exchange.elapsed_s()
                fold.feed(chunk)
                known.sent_bytes += len(chunk)
                body += chunk[: MAX_BODY_BYTES - len(body)]
            fold.close()
            exchange.ending = ExchangeOutcome.COMPLETED if known.is_accepted else ExchangeOutcome.REJECTED
        finally:
            read = fold.outcome()
            known.outcome = Outcome(usage=read.usage, tokens=read.tokens)
            await answer.aclose()
        return bytes(body)


def _note_error(exchange: Exchange, ending: ExchangeOutcome, error: ProxyError) -> None:
    exchange.ending = ending
    exchange.answer.status, exchange.answer.error_code = error.status, error.code or ""


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
        series = self._held[plan.session] = _Series(work, behind, began)
        self.held_bytes += len(work.body)
        while len(self._held) > self._terms.max_sessions or self.held_bytes > self._terms.max_bytes:
            self._drop(*next(iter(self._held.items())))
        if not series.is_over:
            series.task = spawn(self._run(plan.session, series), self._tasks)

    async def aclose(self) -> None:
        """Send nothing more. A refresh that is under way may end."""
        self._is_closed = True
        for session, series in list(self._held.items()):
            self._drop(session, series)
        await end_within(self._tasks, _CLOSING_S)

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


MOST_AT_ONCE = 8
"""More conversations than these wait until behind their next answers."""


class Compactor(Follower):
    """Has conversations compacted. ``on_outcome`` is called with the outcome of each compaction. Compactions that are
    under way when the client returns go on, because they are for a later request."""

    def __init__(
        self,
        compactions: Compactions,
        own: OwnExchanges,
        clock: Clock,
        on_outcome: Callable[[str], None] = lambda outcome: None,
    ) -> None:
        self._compactions = compactions
        self._own = own
        self._clock = clock
        self._on_outcome = on_outcome
        self._running: set[Key] = set()
        self._tasks: Tasks = set()
        self._is_closed = False

    def ended(self, exchange: Exchange) -> None:
        """An exchange was settled: its conversation may be compacted now."""
        chat = exchange.planned.assembled
        if self._is_closed or chat is None or chat.dialogue.uncompacted is None:
            return
        key = (chat.scope, chat.session)
        if key in self._running or len(self._running) >= MOST_AT_ONCE:
            return
        behind = self._own.behind(exchange)
        if behind is not None:
            self._running.add(key)
            planning = partial(self._compactions.plan, chat, behind.call.deployment)
            spawn(self._run(key, behind, planning), self._tasks)

    async def aclose(self) -> None:
        """Begin nothing more. Work that is under way may end."""
        self._is_closed = True
        await end_within(self._tasks, _CLOSING_S)

    async def _run(self, key: Key, behind: Behind, planning: Callable[[], Awaitable[CompactionWork | None]]) -> None:
        try:
            with suppress_and_log("compactor") as surprise:
                work = await planning()
                del planning  # the task holds the whole conversation
                if work is not None and not self._is_closed:
                    self._on_outcome(await self._compact(behind, work))
            if surprise.has_failed:
                self._compactions.failed(key)
        finally:
            self._running.discard(key)

    async def _compact(self, behind: Behind, work: CompactionWork) -> str:
        question = work.proposal.question
        bill = Bill(0, 0, 0, question.prompt_tokens)
        plan = Plan(work.body, work.body, behind.mode, Reason.COMPACTION, predicted=bill, own=bill)
        exchange, call = behind.begun(plan, self._clock.now(), question.output_tokens)
        ending, body = await self._own.run(
            exchange, call, prompt_tokens=question.prompt_tokens, output_tokens=question.output_tokens
        )
        match ending:
            case OwnEnding.ANSWERED:
                return self._compactions.answered(work, answer_text(body)).value
            case OwnEnding.REFUSED:
                self._compactions.failed(work.key, work.tokens)
            case OwnEnding.DENIED | OwnEnding.CAPPED:
                self._compactions.put_off(work)
        return ending.value


def answer_text(body: bytes) -> str:
    """The model's text in a chat completion. It is empty if the model says nothing or the body is no chat
    completion."""
    try:
        found = orjson.loads(body)["choices"][0]["message"]["content"]
    except (orjson.JSONDecodeError, LookupError, TypeError):
        return ""
    return found if isinstance(found, str) else ""
