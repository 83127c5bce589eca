"""Decides which conversations are compacted, what a model is asked about them, and what happens with the answers.

The state is that of the sessions with structured context. It is read and changed only on the event loop. Work that
takes long with a large conversation is done in a thread beside the event loop, on values that nobody changes.
"""

from collections.abc import Awaitable, Callable
from enum import StrEnum
from functools import partial

import orjson

from proxy.core.caches.cache import Bill
from proxy.core.planner.plan import Plan
from proxy.core.reasons import Reason
from proxy.core.structured.chat import AssembledChat
from proxy.core.structured.history.compaction import (
    MOST_FAILURES,
    Compaction,
    CompactionAttempts,
    CompactionPrices,
    CompactionProposal,
    CompactionRules,
    call_body,
    compacted,
    proposal_of,
    read_finding,
)
from proxy.core.structured.history.rules import RuledHistory
from proxy.core.structured.messages import Turn
from proxy.core.value import dataclass, replace
from proxy.engine.exchange import Exchange
from proxy.engine.suppress import suppress_and_log
from proxy.planning.context_sessions import ContextSessions
from proxy.planning.keep_alive import Behind, OwnEnding, OwnExchanges
from proxy.planning.tokenizers import ModelFacts
from proxy.ports import Clock, Deployment
from proxy.tasks import Aside, Tasks, end_within, spawn

Tokens = Callable[[Turn], int]
Key = tuple[str, str]
"""The scope and the name of a session."""

# With few exceptions, output costs five times as much as input at every provider with a listed price.
_OUTPUT_PRICE = 5.0


class CompactionOutcome(StrEnum):
    """Outcome of a compaction whose call was answered, or never made. All outcomes but the first two change nothing.
    The outcome of other calls is their ending (``OwnEnding``)."""

    SUMMARIZED = "summarized"
    TRUNCATED = "truncated"
    """The conversation goes on from its newest topic, without a summary."""
    UNREADABLE = "unreadable"
    """The answer did not have the form that was asked for, or nothing followed from it."""
    OUTDATED = "outdated"
    """The session was forgotten or compacted meanwhile."""
    DISALLOWED = "disallowed"
    """A client asked for it, and the operator does not allow it."""


@dataclass(frozen=True, slots=True)
class CompactionWork:
    """A call that shall be made. ``key`` names the session, and ``former`` is the session's compaction so far. The
    conversation as it is sent now has ``tokens``."""

    key: Key
    former: Compaction | None
    proposal: CompactionProposal
    tokens: int
    body: bytes


class Compactions:
    """Decides which conversations are compacted, and remembers what came of it."""

    def __init__(
        self,
        sessions: ContextSessions,
        rules: CompactionRules,
        facts: ModelFacts,
        aside: Aside | None = None,
        compacted: Callable[[str, str], None] | None = None,
    ) -> None:
        """``compacted`` is told the scope and the name of each session that was compacted."""
        self._sessions = sessions
        self._rules = rules
        self._facts = facts
        self._aside = aside or Aside()
        self._compacted = compacted

    async def plan(self, chat: AssembledChat, deployment: Deployment, prompt_tokens: int) -> CompactionWork | None:
        """The call that shall be made for a conversation after its last answer. The request of that answer had
        ``prompt_tokens``. None: no call shall be made."""
        key, history = (chat.scope, chat.session), chat.dialogue.uncompacted
        session = self._sessions.known(*key)
        if session is None or history is None or session.attempts.failures >= MOST_FAILURES:
            return None
        size = sum(len(turn.raw) for turn in history.conversation.turns)
        # A token has at least one byte.
        if size < self._rules.terms.min_history_tokens:
            return None
        former, prices = session.compaction, self._prices(deployment, session.requests, prompt_tokens)
        tokens = partial(Turn.tokens, counter=self._sessions.counter.fork())
        work = partial(_looked, history, former, session.attempts, tokens, self._rules, prices)
        look = await self._aside.run_large(size, work)
        if look is None:
            return None
        length, proposal = look
        if proposal is None:
            session.attempts = replace(session.attempts, declined_tokens=length)
            return None
        body = call_body(chat.sent.members, deployment.model, proposal.question, deployment.profile.name)
        return CompactionWork(key, former, proposal, length, body)

    def answered(self, work: CompactionWork, answer: str) -> CompactionOutcome:
        """Take over a model's answer: the conversation is compacted from now on, or nothing changes."""
        proposal = work.proposal
        finding = read_finding(answer, len(proposal.question.starts))
        made = proposal.outcome(finding) if finding is not None else None
        session = self._sessions.known(*work.key)
        if session is None or session.compaction != work.former:
            return CompactionOutcome.OUTDATED
        if made is None:
            session.attempts = session.attempts.failed(work.tokens)
            return CompactionOutcome.UNREADABLE
        session.compaction = made
        session.attempts = CompactionAttempts(tried_tokens=proposal.left_tokens(made))
        session.rewritten()
        self._sessions.grown(*work.key)
        if self._compacted is not None:
            self._compacted(*work.key)
        return CompactionOutcome.SUMMARIZED if made.summary else CompactionOutcome.TRUNCATED

    def failed(self, key: Key, tokens: int = 0) -> None:
        """Note that a look at a conversation with this many tokens, or the call for it, has failed."""
        session = self._sessions.known(*key)
        if session is not None:
            session.attempts = session.attempts.failed(tokens)

    def put_off(self, work: CompactionWork) -> None:
        """Note that the call was not made because it was not allowed to cost anything."""
        session = self._sessions.known(*work.key)
        if session is not None:
            session.attempts = replace(session.attempts, tried_tokens=work.tokens)

    def _prices(self, deployment: Deployment, requests: int, prompt_tokens: int) -> CompactionPrices:
        profile, price = deployment.profile, self._facts.price(deployment)
        output = price.output / price.input if price is not None and price.input else _OUTPUT_PRICE
        most, _ = self._facts.limits(deployment)
        return CompactionPrices(profile.read, profile.write, output, requests, prompt_tokens, most)


def _looked(
    history: RuledHistory,
    former: Compaction | None,
    attempts: CompactionAttempts,
    tokens: Tokens,
    rules: CompactionRules,
    prices: CompactionPrices,
) -> tuple[int, CompactionProposal | None] | None:
    """How many tokens the conversation has, and the proposal for it if one pays. The result is None if the conversation
    is too short, or has grown too little since it was last looked at."""
    terms = rules.terms
    total = sum(map(tokens, compacted(history, former, rules.texts, terms.keep_exchanges).conversation.turns))
    if total < terms.min_history_tokens or not attempts.allow(total, is_full=prices.is_full):
        return None
    return total, proposal_of(history, former, tokens, rules, prices)


MOST_AT_ONCE = 8
"""More conversations than these wait until behind their next answers."""
_CLOSING_S = 5.0


class Compactor:
    """Implements ``proxy.engine.ports.Follower``. ``on_outcome`` is called with the outcome of each compaction."""

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
        """The client is back. Compactions that are under way go on, because they are for a later request."""

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
            usage = exchange.answer.outcome.usage
            prompt_tokens = usage.prompt if usage is not None else 0
            planning = partial(self._compactions.plan, chat, behind.call.deployment, prompt_tokens)
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
