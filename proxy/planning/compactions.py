"""Decides which conversations are compacted, what a model is asked about them, and what happens with the answers.

The state is that of the sessions with structured context. It is read and changed only on the event loop. Work that
takes long with a large conversation is done in a thread beside the event loop, on values that nobody changes.
"""

from collections.abc import Callable
from enum import StrEnum
from functools import partial

from proxy.core.structured.chat import AssembledChat
from proxy.core.structured.history.compaction import (
    MOST_FAILURES,
    Compaction,
    CompactionAttempts,
    CompactionPrices,
    CompactionProposal,
    CompactionRules,
    call_body,
    proposal_of,
    read_finding,
)
from proxy.core.structured.messages import Turn
from proxy.core.value import dataclass, replace
from proxy.planning.context_sessions import ContextSessions
from proxy.planning.tokenizers import ModelFacts
from proxy.ports import Deployment
from proxy.tasks import Aside

Tokens = Callable[[Turn], int]
Key = tuple[str, str]
"""The scope and the name of a session."""

# With few exceptions, output costs five times as much as input at every provider with a listed price.
_OUTPUT_PRICE = 5.0


class CompactionOutcome(StrEnum):
    """Outcome of a compaction whose call was answered, or never made. All outcomes but the first two change nothing.
    The outcome of other calls is their ending (``proxy.planning.own_exchanges.OwnEnding``)."""

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
        work = partial(proposal_of, history, former, session.attempts, tokens, self._rules, prices)
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
