"""The conversations with structured context that this process remembers: in memory, bounded, apart by scope."""

from collections.abc import Sequence
from dataclasses import replace

from proxy.core.layout.tiers import Change
from proxy.core.lru import Bounded
from proxy.core.providers import CacheProfile
from proxy.core.request.tokens import TokenCounter
from proxy.core.response.usage import Usage
from proxy.core.structured.blocks.breakdown import Circumstances
from proxy.core.structured.cache_terms import UNKNOWN_LIFE_S, CacheTerms
from proxy.core.structured.chat import AssembledChat
from proxy.core.structured.history.compaction_gain import WINDOW_SHARE
from proxy.core.structured.panels.board import Board
from proxy.core.structured.placement.tracking import ContextTracker
from proxy.core.structured.session.live_state import LiveState
from proxy.core.structured.session.session import ContextSession
from proxy.planning.assembly_options import AssemblyOptions
from proxy.planning.panel_bill import PanelBill


class ContextSessions:
    """The state of conversations by scope and name. The event loop alone calls it."""

    def __init__(self, counter: TokenCounter, options: AssemblyOptions) -> None:
        """``counter`` counts the items of all conversations."""
        self.counter = counter
        self._policy = options.classic if options.is_classic else replace(options.classic, promotion="count")
        self._most_bytes = options.session_bytes
        self._keeps_alive = options.keeps_alive
        self._held: Bounded[tuple[str, str], ContextSession] = Bounded(self._most_bytes, lambda session: session.bytes)

    def session(self, scope: str, name: str) -> ContextSession:
        """The state of a conversation, begun where there is none."""
        key = (scope, name)
        if key not in self._held:
            self._held[key] = ContextSession(ContextTracker(self.counter, self._policy))
        self._held.used(key)
        return self._held[key]

    def begun(self, scope: str, name: str) -> ContextSession:
        """The same for a new request. A conversation that has outgrown half of the memory for all begins anew."""
        found = self.session(scope, name)
        if self._held.weight_of((scope, name)) > self._most_bytes // 2:
            self._held.drop((scope, name))
            found = self.session(scope, name)
        return found

    def known(self, scope: str, name: str) -> ContextSession | None:
        """The state of a conversation; None where there is none any more."""
        return self._held.get((scope, name))

    def grown(self, scope: str, name: str) -> None:
        """The state of a conversation that there is has grown."""
        self._held.used((scope, name))

    def adopt(self, scope: str, name: str, state: LiveState, now: float) -> None:
        """Take over what other processes know of a conversation."""
        self.session(scope, name).adopt(state, now)
        self.grown(scope, name)

    def go_on(self, scope: str, name: str, session: ContextSession, board: Board) -> None:
        """The conversation goes on with this board. It may have been forgotten while its request was read."""
        self._held.setdefault((scope, name), session).board = board
        self.grown(scope, name)

    def freezing_cost(self, chat: AssembledChat) -> float:
        """What freezing has cost the conversation so far, in tokens at the plain input price."""
        return self.session(chat.scope, chat.session).freezing_cost + chat.dialogue.freezing_cost

    def circumstances(self, chat: AssembledChat) -> Circumstances:
        """What a breakdown says of the conversation so far."""
        session = self.session(chat.scope, chat.session)
        return Circumstances(
            changes=session.changes,
            empty_tiers_total=session.empty_tiers,
            last=session.last,
            total=session.total,
        )

    def counted(
        self,
        chat: AssembledChat,
        bill: PanelBill | None,
        profile: CacheProfile,
        most_input: int | None,
        usage: Usage | None,
    ) -> Sequence[Change]:
        """The exchange counts: age what was sent once. A retry of the same conversation counts no second time. The
        upstream's cache has these rules, and its model reads ``most_input`` tokens; None: nobody knows."""
        session = self.session(chat.scope, chat.session)
        session.spent(usage)
        life_s = profile.long_life_s if session.total.write_1h and profile.long_life_s else profile.life_s
        life_s = UNKNOWN_LIFE_S if self._keeps_alive else life_s
        is_full = usage is not None and most_input is not None and usage.prompt >= WINDOW_SHARE * most_input
        session.terms = CacheTerms(
            profile.read, profile.write, life_s, is_full, profile.answer_mark or profile.stores_prefixes
        )
        if session.counted == chat.reading.digest:
            return ()
        session.counted = chat.reading.digest
        session.freezing_cost += chat.dialogue.freezing_cost
        session.empty_tiers += chat.assembly.empty_tiers
        if bill is not None:
            session.board = bill.charged(session.board)
        session.map = chat.map or session.map
        session.changes = session.tracker.settle(chat.context, chat.reading.history)
        self.grown(chat.scope, chat.session)
        return session.changes
