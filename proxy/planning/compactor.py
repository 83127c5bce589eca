"""Compactions: behind an answer, a model is asked for a summary of the oldest part of its conversation. Opt-in.

Whether and about what is decided by ``proxy.planning.compactions``; this is the clockwork. The call is an exchange of
its own: reserved, sent, priced, written into the ledger (reason ``compaction``) and counted like any other, and paid by
the team whose conversation it is. It goes to the deployment and the model that have answered, with the same
credentials. No answer to a client waits for it, and a failure of any kind changes nothing.
"""

from collections.abc import Awaitable, Callable
from functools import partial

import orjson

from proxy.core.caches.prompt import Bill
from proxy.core.planner.plan import Plan
from proxy.core.reasons import Reason
from proxy.engine.exchange import Exchange
from proxy.engine.suppress import suppress_and_log
from proxy.planning.compactions import CompactionOutcome, Compactions, CompactionWork, Key
from proxy.planning.own_exchanges import Behind, OwnEnding, OwnExchanges
from proxy.ports import Clock
from proxy.tasks import Tasks, end_within, spawn

MOST_AT_ONCE = 8
"""More conversations than these wait until behind their next answers."""
_CLOSING_S = 5.0


class Compactor:
    """Implements ``proxy.engine.ports.Follower``. ``on_outcome`` hears what became of each compaction."""

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

    def returned(self, session: str) -> None:
        """The client is back. What is under way goes on: it is for a later request."""

    def ended(self, exchange: Exchange) -> None:
        """An exchange was settled: its conversation may be compacted now."""
        chat = exchange.planned.assembled
        if self._is_closed or chat is None or chat.uncompacted is None:
            return
        key = (chat.scope, chat.session)
        if key in self._running or len(self._running) >= MOST_AT_ONCE:
            return
        behind = self._own.behind(exchange)
        if behind is not None:
            self._running.add(key)
            usage = exchange.answer.outcome.usage
            prompt_tokens = usage.prompt if usage is not None else 0
            planning = partial(self._compactions.plan, chat, behind.call.deployment, prompt_tokens)
            spawn(self._run(key, behind, planning), self._tasks)

    async def aclose(self) -> None:
        """Begin nothing more. What is under way may end."""
        self._is_closed = True
        await end_within(self._tasks, _CLOSING_S)

    async def _run(self, key: Key, behind: Behind, planning: Callable[[], Awaitable[CompactionWork | None]]) -> None:
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

    async def _compact(self, behind: Behind, work: CompactionWork) -> CompactionOutcome:
        question = work.proposal.question
        bill = Bill(0, 0, 0, question.prompt_tokens)
        plan = Plan(work.body, work.body, behind.mode, Reason.COMPACTION, predicted=bill, own=bill)
        exchange, call = behind.begun(plan, self._clock.now(), question.output_tokens)
        ending, body = await self._own.run(
            exchange, call, prompt_tokens=question.prompt_tokens, output_tokens=question.output_tokens
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
