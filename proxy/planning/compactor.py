"""Compactions: behind an answer, a model is asked for a summary of the oldest part of its conversation. Opt-in.

Whether and about what is decided by ``proxy.planning.compactions``; this is the clockwork. The call is an exchange of
its own: reserved, sent, priced, written into the ledger (reason ``compaction``) and counted like any other, and paid by
the team whose conversation it is. It goes to the deployment and the model that have answered, with the same
credentials. No answer to a client waits for it, and a failure of any kind changes nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial

import orjson

from proxy.core.caches.prompt import Bill
from proxy.core.modes import Mode
from proxy.core.planner.plan import Plan
from proxy.core.reasons import Reason
from proxy.core.request.demand import Demand
from proxy.core.structured.chat import AssembledChat
from proxy.engine.exchange import Arrival, Exchange, ExchangeOutcome, Planned, Requested
from proxy.engine.suppress import suppress_and_log
from proxy.planning.caps import DailyTerms
from proxy.planning.compactions import CompactionOutcome, Compactions, CompactionWork, Key
from proxy.planning.own_exchanges import OwnEnding, OwnExchanges
from proxy.ports import Call, Clock, Principal
from proxy.tasks import Tasks, spawn

MOST_AT_ONCE = 8
"""More conversations than these wait until behind their next answers."""
_CLOSING_S = 5.0


@dataclass(frozen=True, slots=True)
class _Behind:
    """What is needed of the exchange behind which a call is made: no message of it is held while the call runs."""

    principal: Principal
    model: str
    mode: Mode
    call: Call

    def exchange(self, work: CompactionWork, now: float) -> Exchange:
        """The call's own exchange."""
        bill = Bill(0, 0, 0, work.prompt_tokens)
        plan = Plan(work.body, work.body, self.mode, Reason.COMPACTION, predicted=bill, own=bill)
        return Exchange(
            Arrival("POST", self.call.path, now, size=len(work.body), is_chat=True),
            self.principal,
            Requested(self.model, demand=Demand(max_output_tokens=work.output_tokens)),
            deployment=self.call.deployment,
            planned=Planned(self.mode, Reason.COMPACTION, plan),
        )


class Compactor:
    """Implements ``proxy.engine.ports.Follower``. ``on_outcome`` hears what became of each compaction."""

    def __init__(
        self,
        terms: DailyTerms,
        compactions: Compactions,
        own: OwnExchanges,
        clock: Clock,
        on_outcome: Callable[[str], None] = lambda outcome: None,
    ) -> None:
        self._terms = terms
        self._compactions = compactions
        self._own = own
        self._clock = clock
        self._on_outcome = on_outcome
        self._running: set[Key] = set()
        self._tasks: Tasks = set()
        self._is_closed = False

    def returned(self, session: str) -> None:
        """The client is back. What is under way goes on: it is for a later request."""

    def ended(self, exchange: Exchange) -> None:
        """An exchange was settled: its conversation may be compacted now."""
        planned, call, principal = exchange.planned, exchange.call, exchange.principal
        chat = planned.plan.source if planned.plan is not None else None
        if call is None or principal is None or not isinstance(chat, AssembledChat) or chat.uncompacted is None:
            return
        # A client that hung up, or whose rewritten request was refused, may not go on.
        is_complete = exchange.answer.is_accepted and exchange.ending is ExchangeOutcome.COMPLETED
        if self._is_closed or not is_complete or planned.was_retried:
            return
        key = (chat.scope, chat.session)
        if key in self._running or len(self._running) >= MOST_AT_ONCE:
            return
        if self._own.is_allowed(call, principal, own_keys=self._terms.own_keys):
            self._running.add(key)
            behind = _Behind(principal, exchange.requested.model, planned.mode, replace(call, body=b""))
            usage = exchange.answer.outcome.usage
            prompt_tokens = usage.prompt if usage is not None else 0
            planning = partial(self._compactions.plan, chat, call.deployment, prompt_tokens)
            spawn(self._run(key, behind, planning), self._tasks)

    async def aclose(self) -> None:
        """Begin nothing more. What is under way may end."""
        self._is_closed = True
        if self._tasks:
            _, late = await asyncio.wait(set(self._tasks), timeout=_CLOSING_S)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)

    async def _run(self, key: Key, behind: "_Behind", planning: Callable[[], Awaitable[CompactionWork | None]]) -> None:
        try:
            with suppress_and_log("compactor") as surprise:
                work = await planning()
                del planning  # it holds the whole conversation
                if work is not None and not self._is_closed:
                    self._on_outcome((await self._compact(behind, work)).value)
            if surprise.has_failed:
                self._compactions.failed(key)
        finally:
            self._running.discard(key)

    async def _compact(self, behind: "_Behind", work: CompactionWork) -> CompactionOutcome:
        now = self._clock.now()
        exchange = behind.exchange(work, now)
        ending, body = await self._own.run(
            exchange,
            replace(behind.call, body=work.body, stream=False, now=now),
            prompt_tokens=work.prompt_tokens,
            output_tokens=work.output_tokens,
        )
        match ending:
            case OwnEnding.ANSWERED:
                return self._compactions.answered(work, answer_text(body))
            case OwnEnding.REFUSED:
                self._compactions.failed(work.key, work.tokens)
            case OwnEnding.DENIED | OwnEnding.CAPPED:
                self._compactions.put_off(work)
        return CompactionOutcome(ending.value)


def answer_text(body: bytes) -> str:
    """What a model says in a chat completion; empty where it says nothing, or the body is none."""
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        return ""
    for step in ("choices", 0, "message", "content"):
        try:
            found = found[step]
        except (KeyError, IndexError, TypeError):
            return ""
    return found if isinstance(found, str) else ""
