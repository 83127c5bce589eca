"""A chat request whose context was assembled, and its conversation, edited by the rules of the history and with live
panels."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from proxy.core.layout.tiers import Tracked
from proxy.core.reasons import Edit
from proxy.core.request.parsed_body import ParsedBody
from proxy.core.response.panel_answer import PanelAnswers
from proxy.core.structured.blocks import Assembly, AssemblyKind
from proxy.core.structured.context import SECTION, MapChunks, StructuredContext
from proxy.core.structured.form import StructuredForm, detach_terms
from proxy.core.structured.history import DetachTerms, RuledHistory, frozen, ruled
from proxy.core.structured.history.compaction import Compaction, CompactionTexts, compacted
from proxy.core.structured.messages import Conversation, Turn
from proxy.core.structured.panels import FROZEN_PREFIX, CacheTerms, Panel, Progress
from proxy.core.structured.panels.board import Board, refreshed
from proxy.core.structured.panels.inlay import NO_INLAY, Inlay, PanelTexts, inlay_of, with_declaration
from proxy.core.value import dataclass, field
from proxy.core.wire.json_body import Members, splice

_THINKING = ("thinking", "reasoning_effort", "reasoning")
_NO_THINKING = frozenset({b"null", b'{"type":"disabled"}', b'"none"', b'{"effort":"none"}', b'{"enabled":false}'})


@dataclass(frozen=True, slots=True)
class DialogueRules:
    """The settings of the operator. ``detach`` has the minimums for freezing; None: a conversation is frozen only if
    its client asks for it. ``keep_exchanges`` is the number of the newest user exchanges that a compaction never leaves
    out. ``is_classic``: the rules of the original apply, whatever they cost."""

    compaction: CompactionTexts
    detach: DetachTerms | None = None
    keep_exchanges: int = 2
    is_classic: bool = False


@dataclass(frozen=True, slots=True)
class Before:
    """The state of the session from the requests before this one. ``terms`` are those of the cache that has served the
    last request; None: they are not known."""

    board: Board = Board()
    compaction: Compaction | None = None
    terms: CacheTerms | None = None


@dataclass(frozen=True, slots=True)
class Dialogue:
    """``conversation`` holds the client's messages that are sent. ``origins`` has, for each of them except the system
    messages, its index in the client's conversation (``RuledHistory``). ``panels`` are the client's own panels and the
    frozen parts of the conversation, in no order yet. ``board`` is the session's board from this request on, None if
    the request has no panels or metas. ``edits`` counts the messages and panels that were edited, by the reason.
    ``uncompacted`` is the conversation without a compaction, if the client wants compactions. ``freezing_cost`` is the
    cost of what is written anew because a part was frozen while the cache held it, in tokens at the plain input
    price."""

    conversation: Conversation
    origins: tuple[int, ...] = ()
    panels: tuple[Panel, ...] = ()
    board: Board | None = None
    edits: Mapping[Edit, int] = field(default_factory=dict)
    uncompacted: RuledHistory | None = None
    freezing_cost: float = 0.0

    @property
    def has_panels(self) -> bool:
        """Whether any panel is shown."""
        return Edit.PANELS_SHOWN in self.edits

    def inlay(self, texts: PanelTexts, *, is_chronological: bool, repeat: str = "") -> Inlay:
        """The panels and the times of the prompts in one of the two orders. ``repeat`` is the system text if it is
        repeated behind the panels, else empty."""
        if self.board is None:
            return NO_INLAY
        turns, origins = self.conversation.turns, self.origins
        return inlay_of(self.panels, self.board, turns, origins, texts, repeat, is_chronological=is_chronological)


def has_thinking(members: Members) -> bool:
    """Whether a request has thinking switched on, by any of the members that clients use for it."""
    said = [bytes(members[name]).translate(None, b" \t\r\n") for name in _THINKING if name in members]
    return any(each not in _NO_THINKING for each in said)


def dialogue_of(
    conversation: Conversation,
    form: StructuredForm,
    before: Before,
    rules: DialogueRules,
    tokens: Callable[[Turn], int],
    now_s: float,
    has_thinking: bool = False,
) -> Dialogue:
    """The dialogue of a request that has arrived at ``now_s``, in unix seconds. ``tokens`` counts a message.
    ``has_thinking``: thinking is switched on, so that providers accept no call of the proxy behind the newest results.
    Raises InvalidRequest if the form describes messages that the request does not have."""
    if not (form.has_history or form.compaction):
        return Dialogue(conversation)
    as_sent = RuledHistory(conversation, tuple(range(len(conversation.turns))), {})
    history = ruled(conversation, form.metas) if form.has_history else as_sent
    uncompacted = history if form.compaction else None
    if form.compaction:
        history = compacted(history, before.compaction, rules.compaction, rules.keep_exchanges)
    terms = detach_terms(form.detach, rules.detach) if form.has_history else None
    chunks: tuple[Panel, ...] = ()
    is_held, cost = _is_held(before, now_s), 0.0
    held = sum(name.startswith(FROZEN_PREFIX) for name in before.board.panels)
    if terms is not None:
        # Freezing makes no token cheaper, so its cost is what has to be written anew.
        is_priced = is_held and form.detach is None and not rules.is_classic
        whole = history
        history, chunks = frozen(whole, terms, tokens, held if is_priced else None)
        if is_held and len(chunks) > held and before.terms is not None:
            cost = before.terms.anew * _behind(whole, chunks[:held], tokens)
    edits = Counter({edit: history.edits.get(edit, 0) for edit in Edit})
    panels = (*chunks, *form.panels)
    edits[Edit.PANELS_SHOWN] = sum(panel.is_shown for panel in panels)
    board = None
    if form.has_history:
        progress = Progress.of(conversation, has_thinking=has_thinking)
        board = refreshed(before.board, panels, progress, now_s, before.terms)
    return Dialogue(history.conversation, history.origins, panels, board, +edits, uncompacted, cost)


def _is_held(before: Before, now_s: float) -> bool:
    """Whether the provider's cache may still hold the conversation, and the model's window has room for it. Then
    further parts are frozen only for a client that asks for it."""
    terms = before.terms
    return terms is None or not (terms.is_full or now_s - before.board.last_s > terms.life_s)


def _behind(whole: RuledHistory, held: Sequence[Panel], tokens: Callable[[Turn], int]) -> float:
    """About how many tokens of the conversation stand behind the parts that were frozen before, estimated from its
    bytes."""
    turns = whole.conversation.turns
    share = 1.0 - sum(len(chunk.content) for chunk in held) / max(1, sum(len(turn.bare) for turn in turns))
    return max(0.0, share) * sum(map(tokens, turns))


@dataclass(frozen=True, slots=True)
class ChatReading:
    """Facts that are read once from all texts of a conversation, beside the event loop if the texts are long.
    ``digest`` is that of all its messages, and ``history`` has the tracker's items for them, both without markers.
    ``head_tokens`` are the tokens in front of all items, and ``panel_tokens`` those of the shown panels, by id."""

    digest: bytes = b""
    history: Sequence[Tracked] = ()
    head_tokens: int = 0
    panel_tokens: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AssembledChat:
    """``sent`` is the client's body as it came. ``body`` is the same request with the context as messages (those of
    ``assembly``) and without the section: in the flat order, or with the ``map`` of symbols in chunks. ``kind`` is the
    kind of assembly for an upstream that caches. ``front`` has the blocks in front of the conversation. ``dialogue`` is
    the conversation with its panels; ``order`` has the shown panels in sending order. ``scope`` and ``session`` name
    the state that belongs to the conversation. ``answers`` answers the model's own calls for a panel; None if no panel
    is shown. ``reading`` has the facts that were read from the texts."""

    sent: ParsedBody
    body: bytes
    kind: AssemblyKind
    front: Assembly
    assembly: Assembly
    context: StructuredContext
    dialogue: Dialogue
    scope: str
    session: str
    map: MapChunks | None = None
    order: tuple[Panel, ...] = ()
    answers: PanelAnswers | None = None
    reading: ChatReading = ChatReading()


def body_of(sent: ParsedBody, assembly: Assembly, *, declares_tool: bool = False) -> bytes:
    """The client's body with the messages of the assembly in place of its own, and without the section.
    ``declares_tool``: the tool of the panels is added to its tools."""
    changes: dict[str, bytes | None] = {"messages": assembly.body(), SECTION: None}
    if declares_tool:
        tools = with_declaration(sent.members.get("tools"))
        changes |= {"tools": tools} if tools is not None else {}
    return splice(sent.body, sent.members, changes, sent.span)
