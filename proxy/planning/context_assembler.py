"""From structured context to the messages that are planned: reads, resolves, indexes, assembles, and counts.

Every step is a plain function call. ``StructuredChats`` decides which of them run beside the event loop; a replay runs
them one after another. The texts that clients send are kept in memory here, within a bound, apart by scope;
``StructuredChats`` may keep them in the store, too.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from proxy.core.digest import digest
from proxy.core.layout.tiers import Change, ClassicPolicy, with_target
from proxy.core.lru import Bounded
from proxy.core.modes import Mode
from proxy.core.money.prices import Price
from proxy.core.planner.analysis import tier_name
from proxy.core.planner.in_flight import Moved
from proxy.core.providers import CacheProfile, Dialect
from proxy.core.reasons import Reason
from proxy.core.request.parsed_body import ParsedBody
from proxy.core.request.tokens import Encode, TokenCounter
from proxy.core.response.panel_calls import PANEL_TOOL
from proxy.core.response.usage import Usage
from proxy.core.structured.assembly.economic import economic_assembly, in_tiers
from proxy.core.structured.assembly.flat import flat_assembly
from proxy.core.structured.assembly.texts import ContextTexts
from proxy.core.structured.assembly.tiered import MOST_MARKS, tiered_assembly
from proxy.core.structured.blocks.blocks import Assembly
from proxy.core.structured.blocks.breakdown import Circumstances, Measure, breakdown
from proxy.core.structured.chat import SECTION, AssembledChat, ChatReading
from proxy.core.structured.context import StructuredContext
from proxy.core.structured.dialogue import Before, Dialogue, DialogueRules, Moment, dialogue_of
from proxy.core.structured.form.form import StructuredForm, read_form
from proxy.core.structured.history.metas import DetachTerms
from proxy.core.structured.messages.conversation import Conversation, Turn, system_text
from proxy.core.structured.messages.markers import marks_beside_messages, unmarked, without_marks
from proxy.core.structured.panels.fitting import Wants, fitted
from proxy.core.structured.panels.inlay import Inlay
from proxy.core.structured.panels.moving import moving
from proxy.core.structured.panels.tool import names_tool, panel_answer, with_declaration
from proxy.core.structured.placement.placement import Placement
from proxy.core.structured.placement.tracking import ContextTracker, HistoryItem
from proxy.core.structured.session.gathering import gathered
from proxy.core.structured.session.live_state import LiveState
from proxy.core.structured.session.session import ContextSession
from proxy.core.structured.session.uploads import UPLOAD_BYTES, Uploads
from proxy.core.structured.symbols.map_chunks import MapChunks
from proxy.core.structured.symbols.path_aliases import legend_for
from proxy.core.structured.symbols.symbol_index import SymbolIndexer, SymbolMap
from proxy.core.wire.json_body import splice
from proxy.engine.suppress import place_of
from proxy.errors import InvalidRequest, PayloadTooLarge
from proxy.planning.arrangement import Arrangement
from proxy.planning.panel_bill import PanelBill, panel_tokens
from proxy.planning.resolved import ReadAhead, Resolved

_THINKING = ("thinking", "reasoning_effort", "reasoning")
_NO_THINKING = frozenset({b"null", b'{"type":"disabled"}', b'"none"', b'{"effort":"none"}', b'{"enabled":false}'})
_SPACES = b" \t\r\n"
_log = logging.getLogger("stratiform")
_FELL_BACK = "assembly failed, context sent flat: %s"


@dataclass(frozen=True, slots=True)
class AssemblyOptions:
    """``policy`` is ``economic`` or ``classic``; ``classic`` are the flags of the latter, whose target follows the
    model's minimum unless ``has_target``. ``text_bytes`` bounds the texts, ``session_bytes`` all other state, and
    ``most_chars`` the texts of one request's selected files together. ``detach`` are the minimums by which the oldest
    part of a conversation is frozen; None: only what a client asks for is. ``repeats_for`` names the cache profiles
    whose models read the system text again behind the panels. ``keep_exchanges`` are the newest user exchanges that a
    compaction never leaves out."""

    policy: str = "economic"
    classic: ClassicPolicy = ClassicPolicy()
    has_target: bool = False
    text_bytes: int = UPLOAD_BYTES
    session_bytes: int = 64 << 20
    most_chars: int = 64 << 20
    detach: DetachTerms | None = DetachTerms()
    keep_exchanges: int = 2
    repeats_for: frozenset[str] = frozenset()


class ContextAssembler:
    """Assembles structured context. Its state is in memory and bounded."""

    def __init__(
        self,
        texts: ContextTexts,
        encode: Encode,
        indexer: SymbolIndexer | None = None,
        options: AssemblyOptions | None = None,
    ) -> None:
        self.texts = texts
        self._options = options or AssemblyOptions()
        self._counter = TokenCounter(encode, capacity=100_000)
        self._indexer = indexer
        self.uploads = Uploads(self._options.text_bytes)
        self._sessions: Bounded[tuple[str, str], ContextSession] = Bounded(
            self._options.session_bytes, lambda session: session.bytes
        )

    def read(self, sent: ParsedBody) -> tuple[StructuredForm, Conversation]:
        """The section and the conversation. Any thread may call this. Raises InvalidRequest, and Unreadable where the
        messages are no array."""
        if "messages" not in sent.members:
            raise InvalidRequest("the request has no 'messages'", param="messages", code="missing_messages")
        form = read_form(sent.members[SECTION]) or StructuredForm()
        return form, Conversation.of(sent.raws())

    def resolve(self, form: StructuredForm, conversation: Conversation, scope: str, hint: str) -> Resolved:
        """The form with its texts, and the session that it belongs to. Raises MissingContent, and PayloadTooLarge where
        the texts have no room in a request: a digest is short, and may stand for one long text under many paths."""
        found, most = self.uploads.resolve(form, scope), self._options.most_chars
        chars = sum(len(file.text) for file in found.files if file.is_selected and file.text is not None)
        if chars > most:
            message = f"the selected files have {chars} characters; at most {most} are sent"
            raise PayloadTooLarge(message, param=f"{SECTION}.files")
        named = form.session or hint
        name = named or _name_of(conversation)
        return Resolved(found, conversation, scope, name, self._begun(scope, name), bool(named), chars)

    def _begun(self, scope: str, name: str) -> ContextSession:
        """The state of a conversation. One that has outgrown half of the memory for all of them begins anew."""
        found = self.session(scope, name)
        if self._sessions.weight_of((scope, name)) > self._options.session_bytes // 2:
            self._sessions.drop((scope, name))
            found = self.session(scope, name)
        return found

    def index(self, resolved: Resolved) -> SymbolMap:
        """The symbols of the files, where the client brings none and wants a map. A conversation that has never listed
        a file has no map, and needs no legend for it. Any thread may call this."""
        form, session = resolved.found.form, resolved.session
        has_files = bool(resolved.found.files or session.shown)
        if self._indexer is None or not form.has_repo_map or form.symbols or not has_files:
            return SymbolMap(form.symbols, form.legend)
        return self._indexer.index(resolved.found.files, session.aliases)

    def give_aliases(self, resolved: Resolved) -> None:
        """Give short names to the directories that this request shows for the first time."""
        session = resolved.session
        new = {file.path for file in resolved.found.files if file.path not in session.shown}
        if new and self._indexer is not None:
            session.aliases = legend_for(new, session.aliases, session.shown)
            session.shown |= new

    def context(self, resolved: Resolved, symbols: SymbolMap, *, keeps_state: bool = True) -> StructuredContext:
        """All that the request shows. Its review is the session's from now on, if it ``keeps_state`` and the client
        has named the session: conversations that merely begin alike may be of two people."""
        session = resolved.session
        context = gathered(resolved.found, session.review)
        if keeps_state and resolved.is_named:
            session.review = context.review
        return replace(context, symbols=symbols.blocks, legend=symbols.legend, references=symbols.references)

    def read_ahead(self, resolved: Resolved, context: StructuredContext, dialogue: Dialogue) -> ReadAhead:
        """Blocks and tokens of all that is not known, for ``merge``. Any thread may call this."""
        fork = self._counter.fork()
        blocks = resolved.session.tracker.read_ahead(context, fork)
        if dialogue.conversation is not resolved.conversation:
            _history(without_marks(resolved.conversation), fork)  # freezing counts what is not sent, too
        return ReadAhead(fork, blocks, _reading(context, dialogue, fork))

    def merge(self, resolved: Resolved, ahead: ReadAhead) -> None:
        """Take over what was read ahead."""
        self._counter.merge(ahead.counted)
        resolved.session.tracker.know(ahead.blocks)

    def chunks(self, resolved: Resolved, context: StructuredContext) -> MapChunks | None:
        """The chunks of the symbol map; None where the request goes flat or in tiers."""
        if self._options.policy == "classic" or resolved.found.form.assembly == "flat":
            return None
        symbols = context.symbols
        return resolved.session.map.with_paths({path: len(symbols[path]) for path in context.mapped()})

    def dialogue(self, resolved: Resolved, sent: ParsedBody, now: float) -> Dialogue:
        """The conversation as it is sent, and what the session remembers of it from then on. Any thread may call this.
        Raises InvalidRequest where the client describes messages that the request does not have, and where a tool of
        its own has the name of the tool that shows panels: the proxy would answer the calls of it."""
        session, form = resolved.session, resolved.found.form
        options = self._options
        rules = DialogueRules(self.texts.panels, self.texts.compaction, options.detach, options.keep_exchanges)
        before = Before(session.board, session.compaction)
        moment = Moment(now, _thinks(sent))
        tokens = partial(_unmarked_tokens, self._counter.fork())
        found = dialogue_of(resolved.conversation, form, before, rules, tokens, moment)
        if found.has_panels and names_tool(sent.members.get("tools")):
            message = f"a tool of the request is called '{PANEL_TOOL}', as the proxy's own that shows panels: rename it"
            raise InvalidRequest(message, param="tools", code="reserved_tool")
        return found

    def remember(self, resolved: Resolved, dialogue: Dialogue) -> None:
        """The session goes on from this dialogue. It may have been forgotten while the dialogue was made."""
        if dialogue.board is not None:
            key = (resolved.scope, resolved.name)
            self._sessions.setdefault(key, resolved.session).board = dialogue.board
            self._sessions.used(key)

    def adopt(self, scope: str, name: str, state: LiveState, now: float) -> None:
        """Take over what other processes know of a conversation."""
        self.session(scope, name).adopt(state, now)
        self._sessions.used((scope, name))

    def assembled(
        self,
        sent: ParsedBody,
        resolved: Resolved,
        context: StructuredContext,
        chunks: MapChunks | None,
        dialogue: Dialogue | None = None,
        reading: ChatReading | None = None,
    ) -> AssembledChat:
        """The request with its context as messages: flat, or with the map in chunks; panels stand in front of the
        conversation. Without a ``dialogue`` the conversation goes as it came; without a ``reading`` it is read here.
        Any thread may call this."""
        dialogue = dialogue or Dialogue(resolved.conversation)
        inlay = dialogue.inlay(self.texts.panels, is_chronological=False)
        try:
            assembly, is_flat = self._assembly(context, dialogue.conversation, chunks, inlay), chunks is None
        except Exception as error:  # noqa: BLE001 - fidelity rule 7: a structured request falls back to flat assembly
            _log.error(_FELL_BACK, place_of(error))
            assembly, is_flat = self._assembly(context, dialogue.conversation, None, inlay), True
        return AssembledChat(
            sent=sent,
            body=_body(sent, assembly),
            assembly=assembly,
            context=context,
            dialogue=dialogue,
            scope=resolved.scope,
            session=resolved.name,
            map=None if is_flat else chunks,
            order=inlay.order,
            is_flat=is_flat,
            wants_flat=resolved.found.form.assembly == "flat",
            answers=partial(panel_answer, dialogue.panels) if dialogue.has_panels else None,
            reading=reading or _reading(context, dialogue, self._counter.fork()),
        )

    def session(self, scope: str, name: str) -> ContextSession:
        """The state of a conversation, begun where there is none."""
        key = (scope, name)
        found = self._sessions.get(key)
        if found is None:
            is_classic = self._options.policy == "classic"
            policy = self._options.classic if is_classic else replace(self._options.classic, promotion="count")
            found = self._sessions[key] = ContextSession(ContextTracker(self._counter, policy))
        self._sessions.used(key)
        return found

    def known(self, scope: str, name: str) -> ContextSession | None:
        """The state of a conversation; None where there is none any more."""
        return self._sessions.get((scope, name))

    def grown(self, scope: str, name: str) -> None:
        """The state of a conversation that there is has grown."""
        self._sessions.used((scope, name))

    def token_counts(self) -> Callable[[Turn], int]:
        """A function that counts the tokens of a message; another thread may call it."""
        return partial(_tokens, self._counter.fork())

    def place(self, chat: AssembledChat, profile: CacheProfile) -> Placement | None:
        """Where the items stand; None where the proxy meets an error of its own, which is logged with its type and its
        place."""
        try:
            return self._placement(chat, self.session(chat.scope, chat.session), profile)
        except Exception as error:  # noqa: BLE001 - fidelity rule 7: a structured request falls back to flat assembly
            _log.error(_FELL_BACK, place_of(error))
            return None

    def arrange(
        self, chat: AssembledChat, placement: Placement | None, profile: CacheProfile, mode: Mode, price: Price | None
    ) -> Arrangement:
        """The messages for an upstream with these cache rules. ``price`` is the model's; None: nobody knows it. Any
        thread may call this. An error of the proxy's own leaves the flat assembly, and is logged."""
        chat = self._fitted(chat, profile)
        is_tiered = self._options.policy == "classic" and mode is Mode.TIER and not chat.wants_flat
        if is_tiered and placement is not None:
            try:
                return self._tiered(chat, placement, profile, price)
            except Exception as error:  # noqa: BLE001 - fidelity rule 7: a structured request falls back to flat assembly
                _log.error(_FELL_BACK, place_of(error))
        reason = None
        if chat.is_flat and mode > Mode.OBSERVE:
            # Where the policy has no order of its own for this mode, the planner decides alone.
            is_planned = self._options.policy == "classic" and not is_tiered and not chat.wants_flat
            mode, reason = (mode, None) if is_planned else (Mode.OBSERVE, Reason.ASSEMBLED_FLAT)
        sent = self._chronological(chat, profile) if not chat.is_flat and mode > Mode.OBSERVE else chat
        bill = PanelBill.of(sent, price)
        return Arrangement(
            kind="flat" if chat.is_flat else "economic",
            body=sent.body,
            fallback=chat.body,
            mode=mode,
            assembly=sent.assembly,
            counted=partial(self._counted, sent, bill),
            edits=chat.dialogue.edits,
            bill=bill,
            reason=reason,
            tier_tokens=_tier_tokens(placement),
            moving=_moving(sent),
        )

    def _fitted(self, chat: AssembledChat, profile: CacheProfile) -> AssembledChat:
        """The request with what this upstream needs besides: the declared tool of the panels, and the system text
        again behind them, and the order and the ids of messages."""
        is_other = profile.declares_tools or profile.name in self._options.repeats_for or _wants(chat.sent, profile)
        if not chat.dialogue.has_panels or not is_other:
            return chat
        return self._ordered_or_same(chat, profile, is_chronological=False)

    def _chronological(self, chat: AssembledChat, profile: CacheProfile) -> AssembledChat:
        """The request with each panel where the conversation stood when the panel last changed."""
        return chat if chat.dialogue.board is None else self._ordered_or_same(chat, profile, is_chronological=True)

    def _ordered_or_same(self, chat: AssembledChat, profile: CacheProfile, *, is_chronological: bool) -> AssembledChat:
        """The request with its panels in this order. An error of the proxy's own leaves them where they are, and is
        logged."""
        try:
            return self._ordered(chat, profile, is_chronological=is_chronological)
        except Exception as error:  # noqa: BLE001 - as above
            _log.error(_FELL_BACK, place_of(error))
            return chat

    def _ordered(self, chat: AssembledChat, profile: CacheProfile, *, is_chronological: bool) -> AssembledChat:
        inlay = self._inlay(chat, profile, is_chronological=is_chronological)
        assembly = self._assembly(chat.context, chat.conversation, chat.map, inlay)
        return replace(
            chat,
            assembly=assembly,
            body=_body(chat.sent, assembly, profile if inlay.order else None),
            order=inlay.order,
        )

    def _inlay(self, chat: AssembledChat, profile: CacheProfile, *, is_chronological: bool) -> Inlay:
        sent, texts = chat.conversation, self.texts.panels
        repeat = system_text(sent) if profile.name in self._options.repeats_for else ""
        inlay = chat.dialogue.inlay(texts, is_chronological=is_chronological, repeat=repeat)
        return fitted(inlay, (*sent.history, *sent.prompt), _wants(chat.sent, profile), texts.ok)

    def _assembly(
        self, context: StructuredContext, conversation: Conversation, chunks: MapChunks | None, inlay: Inlay
    ) -> Assembly:
        if chunks is None:
            return flat_assembly(context, conversation, self.texts.tiered, inlay)
        return economic_assembly(context, conversation, chunks.shown(context.mapped()), self.texts.tiered, inlay)

    def _tiered(
        self, chat: AssembledChat, placement: Placement, profile: CacheProfile, price: Price | None
    ) -> Arrangement:
        slots = max(0, min(profile.max_marks, MOST_MARKS) - marks_beside_messages(chat.sent.members))
        dialect = profile.dialect if slots else Dialect.NONE
        inlay = self._inlay(chat, profile, is_chronological=False)
        words = self.texts.tiered
        assembly = tiered_assembly(
            chat.context, chat.conversation, placement, words, dialect, slots=max(1, slots), inlay=inlay
        )
        sent = replace(
            chat,
            assembly=assembly,
            body=_body(chat.sent, assembly, profile if inlay.order else None),
            order=inlay.order,
        )
        bill = PanelBill.of(sent, price)
        return Arrangement(
            kind="tiered",
            body=sent.body,
            fallback=chat.body,
            mode=Mode.OBSERVE,
            assembly=assembly,
            counted=partial(self._counted, sent, bill),
            edits=chat.dialogue.edits,
            bill=bill,
            reason=Reason.ASSEMBLED_TIERS,
            tier_tokens=_tier_tokens(placement),
            moving=_moving(sent),
        )

    def _placement(self, chat: AssembledChat, session: ContextSession, profile: CacheProfile) -> Placement:
        """Where each item stands by the conversation's tracker."""
        tracker = session.tracker
        if not self._options.has_target:
            tracker.policy = with_target(tracker.policy, profile.min_tokens)
        return tracker.placement(chat.context, chat.reading.history, chat.reading.head_tokens)

    def circumstances(self, chat: AssembledChat, placement: Placement | None, model: str) -> Circumstances:
        """What a breakdown says of the conversation besides the blocks."""
        session = self.session(chat.scope, chat.session)
        return Circumstances(
            model=model,
            counts=placement.counts if placement is not None else {},
            changes=session.changes,
            empty_tiers_total=session.empty_tiers,
            last=session.last,
            total=session.total,
        )

    def breakdown(
        self, arranged: Arrangement, placement: Placement | None, about: Circumstances
    ) -> Mapping[str, object]:
        """The breakdown of what would be sent. Any thread may call this."""
        assembly = arranged.assembly
        if arranged.kind == "economic" and placement is not None:
            assembly = in_tiers(assembly, placement)
        counter = self._counter.fork()
        panels = arranged.bill.value() if arranged.bill is not None else ()
        return breakdown(assembly, Measure.of(counter), replace(about, panels=panels, edits=arranged.edits))

    def _counted(self, chat: AssembledChat, bill: PanelBill | None, usage: Usage | None) -> Sequence[Moved]:
        """The exchange counts: age what was sent once. A retry of the same conversation counts no second time."""
        session = self.session(chat.scope, chat.session)
        session.spent(usage)
        if session.counted == chat.reading.digest:
            return ()
        session.counted = chat.reading.digest
        session.empty_tiers += chat.assembly.empty_tiers
        if bill is not None:
            session.board = bill.charged(session.board)
        context = chat.context
        session.map = chat.map or session.map
        session.changes = session.tracker.settle(context, chat.reading.history)
        self._sessions.used((chat.scope, chat.session))
        return [_moved(change) for change in session.changes]


def _tokens(counter: TokenCounter, turn: Turn) -> int:
    return counter.count(digest(turn.raw), turn.raw.decode("utf-8", "replace"))


def _unmarked_tokens(counter: TokenCounter, turn: Turn) -> int:
    """The same with and without the client's markers, which move from turn to turn: what is frozen goes by it."""
    raw = unmarked(turn.raw)
    return counter.count(digest(raw), raw.decode("utf-8", "replace"))


def _thinks(sent: ParsedBody) -> bool:
    """Whether the request has thinking switched on, by any of the members in which clients say so."""
    members = sent.members
    said = [bytes(members[name]).translate(None, _SPACES) for name in _THINKING if name in members]
    return any(each not in _NO_THINKING for each in said)


def _wants(sent: ParsedBody, profile: CacheProfile) -> Wants:
    return Wants(
        begins_with_user=profile.begins_with_user,
        answers_results=profile.answers_results or (profile.thinks_in_calls and _thinks(sent)),
        plain_ids=profile.plain_call_ids,
    )


def _head_tokens(context: StructuredContext, conversation: Conversation, counter: TokenCounter) -> int:
    head = b"".join(turn.raw for turn in conversation.system) + context.legend.encode("utf-8", "surrogatepass")
    key = digest(head)
    return counter.count(key, head.decode("utf-8", "replace"))


def _reading(context: StructuredContext, dialogue: Dialogue, counter: TokenCounter) -> ChatReading:
    bare = without_marks(dialogue.conversation)
    return ChatReading(
        digest=digest(*(turn.raw for turn in bare)),
        history=_history(bare, counter),
        head_tokens=_head_tokens(context, dialogue.conversation, counter),
        panel_tokens={panel.id: panel_tokens(panel, counter) for panel in dialogue.panels if panel.is_shown},
    )


def _history(bare: Conversation, counter: TokenCounter) -> list[HistoryItem]:
    """The history of a conversation without markers."""
    found: list[HistoryItem] = []
    for turn in bare.history:
        found.append(HistoryItem(digest(turn.raw), _tokens(counter, turn), starts_group=not turn.is_result))
    return found


def _tier_tokens(placement: Placement | None) -> dict[str, int]:
    tokens = placement.tokens if placement is not None else {}
    return {tier_name(tier): count for tier, count in tokens.items() if count}


def _moving(chat: AssembledChat) -> dict[int, float]:
    board = chat.dialogue.board
    return {} if board is None else moving(chat.assembly.blocks, board, chat.order)


def _moved(change: Change) -> Moved:
    target = tier_name(change.target) if change.target is not None else "removed"
    return Moved(change.key, tier_name(change.source), target, change.reason)


def _name_of(conversation: Conversation) -> str:
    """A name for a conversation that the client gives none: what stays the same in it is how it begins. The client's
    markers do not count: they move from turn to turn."""
    first = next((turn.raw for turn in (*conversation.history, *conversation.prompt) if turn.role == "user"), b"")
    return digest(*(unmarked(turn.raw) for turn in conversation.system), unmarked(first)).hex()


def _body(sent: ParsedBody, assembly: Assembly, profile: CacheProfile | None = None) -> bytes:
    """The body with these messages. A ``profile`` is given where panels are shown: an upstream that wants tools
    declared gets the tool of the panels, too. Without a panel nobody would answer a call of it."""
    changes: dict[str, bytes | None] = {"messages": assembly.body(), SECTION: None}
    if profile is not None and profile.declares_tools:
        tools = with_declaration(sent.members.get("tools"))
        changes |= {"tools": tools} if tools is not None else {}
    return splice(sent.body, sent.members, changes, sent.span)
