"""The conversations with structured context that this process remembers in memory, bounded and separate by scope."""

from collections.abc import Mapping, Sequence

from proxy.core.digest import digest
from proxy.core.layout.tiers import Change, ClassicPolicy
from proxy.core.lru import Bounded
from proxy.core.money.prices import Price
from proxy.core.providers import CacheProfile
from proxy.core.request.tokens import TokenCounter
from proxy.core.response.usage import Usage
from proxy.core.structured.chat import AssembledChat
from proxy.core.structured.history.compaction import WINDOW_SHARE
from proxy.core.structured.history.rules import DetachTerms
from proxy.core.structured.panels.board import Board
from proxy.core.structured.panels.costs import EmittedPanel, counted
from proxy.core.structured.panels.pairs import is_known, iso_time, panel_text
from proxy.core.structured.panels.panel import Panel
from proxy.core.structured.panels.placing import UNKNOWN_LIFE_S, CacheTerms
from proxy.core.structured.placement.tracking import ContextTracker
from proxy.core.structured.session.session import ContextSession
from proxy.core.structured.session.uploads import UPLOAD_BYTES
from proxy.core.value import dataclass, replace
from proxy.core.wire.surrogates import printable, utf8

MOST_UNFOLDED_CHARS = 16 << 20
"""More than any model reads. To assemble this much takes a third of a second."""


@dataclass(frozen=True, slots=True)
class AssemblyOptions:
    """``policy`` is ``economic`` or ``classic``. ``classic`` are the flags of the classic policy; its target follows
    the model's minimum unless ``has_target``. ``text_bytes`` bounds the texts, ``session_bytes`` all other state, and
    ``most_chars`` all texts together that one request shows. ``detach`` are the minimums by which the oldest part of a
    conversation is frozen; None: only what a client asks for is frozen. ``repeats_for`` names the cache profiles whose
    models read the system text again behind the panels. ``keep_exchanges`` is the number of the newest user exchanges
    that a compaction never leaves out. ``keeps_alive``: a prefix may be kept alive beyond its life."""

    policy: str = "economic"
    classic: ClassicPolicy = ClassicPolicy()
    has_target: bool = False
    text_bytes: int = UPLOAD_BYTES
    session_bytes: int = 64 << 20
    most_chars: int = MOST_UNFOLDED_CHARS
    detach: DetachTerms | None = DetachTerms()
    keep_exchanges: int = 2
    repeats_for: frozenset[str] = frozenset()
    keeps_alive: bool = False

    @property
    def is_classic(self) -> bool:
        """Whether tiers decide the layout."""
        return self.policy == "classic"


_MILLION = 1_000_000


def panel_tokens(panel: Panel, counter: TokenCounter) -> int:
    """How many tokens of a panel the model reads."""
    text = panel_text(panel)
    return counter.count(digest(b"panel", utf8(text)), text)


@dataclass(frozen=True, slots=True)
class PanelBill:
    """``order`` are the panels in sending order, and ``tokens`` are their tokens by id. ``shown`` is the board by which
    they were placed. ``price`` is the model's price in USD per token; None: it is unknown, and nothing is charged."""

    order: tuple[Panel, ...]
    tokens: Mapping[str, int]
    shown: Board
    price: Price | None

    def charged(self, board: Board) -> Board:
        """The session's board after the request has counted. A panel that is not read from the cache counts as
        written."""
        emitted = [
            EmittedPanel(panel.id, self.shown.memory(panel).digest, self.tokens.get(panel.id, 0))
            for panel in self.order
        ]
        read, written = (0.0, 0.0) if self.price is None else (self.price.read, self.price.write_5m)
        return replace(board, costs=counted(board.costs, emitted, read * _MILLION, written * _MILLION))

    def value(self) -> Sequence[dict[str, object]]:
        """The cost that the request would add for each panel, as a value for JSON. ``place`` is the index of the
        client's message that the panel stands in front of; system messages are not counted. None: the panel stands in
        front of all messages."""
        costs = self.charged(self.shown).costs.last
        unknown = {"cost_usd": None, "total_usd": None} if self.price is None else {}
        return [
            {
                "id": cost.id,
                "tokens": cost.tokens,
                "hit": cost.is_hit,
                "cost_usd": cost.cost_usd,
                "total_usd": cost.total_usd,
                **unknown,
                **self._standing(panel),
            }
            for panel, cost in zip(self.order, costs, strict=True)
        ]

    def _standing(self, panel: Panel) -> dict[str, object]:
        memory = self.shown.memory(panel)
        return {
            "kind": printable(panel.kind),
            "header": printable(panel.header),
            "changed_at": iso_time(memory.stamp_s) if is_known(memory.stamp_s) else None,
            "place": None if memory.place is None else memory.place.index,
            "requests": memory.seen,
            "changes": memory.changes,
        }


class ContextSessions:
    """The state of conversations by scope and name. It is called only on the event loop."""

    def __init__(self, counter: TokenCounter, options: AssemblyOptions) -> None:
        """``counter`` counts the items of all conversations."""
        self.counter = counter
        self._policy = options.classic if options.is_classic else replace(options.classic, promotion="count")
        self._options = options
        self._held: Bounded[tuple[str, str], ContextSession] = Bounded(options.session_bytes, lambda held: held.bytes)

    def session(self, scope: str, name: str) -> ContextSession:
        """The state of a conversation. A new state is begun if there is none."""
        key = (scope, name)
        if key not in self._held:
            self._held[key] = ContextSession(ContextTracker(self.counter, self._policy))
        self._held.used(key)
        return self._held[key]

    def begun(self, scope: str, name: str) -> ContextSession:
        """The same for a new request. A conversation whose state takes more than half of the memory for all
        conversations begins anew."""
        found = self.session(scope, name)
        if self._held.weight_of((scope, name)) > self._options.session_bytes // 2:
            self._held.drop((scope, name))
            found = self.session(scope, name)
        return found

    def known(self, scope: str, name: str) -> ContextSession | None:
        """The state of a conversation. None if there is none any more."""
        return self._held.get((scope, name))

    def grown(self, scope: str, name: str) -> None:
        """Note that the state of an existing conversation has grown."""
        self._held.used((scope, name))

    def go_on(self, scope: str, name: str, session: ContextSession, board: Board) -> None:
        """Let the conversation go on with this board. It may have been forgotten while its request was read."""
        self._held.setdefault((scope, name), session).board = board
        self.grown(scope, name)

    def counted(
        self,
        chat: AssembledChat,
        bill: PanelBill | None,
        profile: CacheProfile,
        most_input: int | None,
        usage: Usage | None,
    ) -> Sequence[Change]:
        """The exchange counts: what was sent is aged once. A retry of the same conversation does not count again.
        ``profile`` has the cache rules of the upstream. ``most_input`` is the most tokens that its model
        reads; None: unknown."""
        session = self.session(chat.scope, chat.session)
        session.spent(usage)
        life_s = profile.long_life_s if session.total.write_1h and profile.long_life_s else profile.life_s
        life_s = UNKNOWN_LIFE_S if self._options.keeps_alive else life_s
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
