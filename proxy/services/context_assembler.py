"""Turns structured context into the messages that are planned: reads, resolves, indexes, assembles, and arranges.

Every step is a plain function call. ``StructuredChats`` decides which of them run beside the event loop. A replay runs
them one after another (``chat_of``). The texts that clients send are kept in memory here, within a bound and separately
for each scope. ``StructuredChats`` may keep them in the store, too.

The assembled chat is the same for every upstream. ``arrange`` then decides which of its layouts is sent to one of them,
how the planner takes it, and what its panels cost.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TypeVar

import msgspec

from proxy.context import (
    SECTION,
    Conversation,
    StructuredContext,
    SymbolIndexer,
    SymbolMap,
    Turn,
    legend_for,
    marks_beside_messages,
    system_text,
)
from proxy.context.assembly import (
    MOST_MARKS,
    ContextTexts,
    front_of,
    in_tiers,
    tiered_assembly,
    untiered_assembly,
)
from proxy.context.blocks import Assembly, AssemblyKind, inventory_of
from proxy.context.form import StructuredForm, read_form
from proxy.context.panels import names_tool, panel_answer
from proxy.context.panels.board import Inlay, UpstreamNeeds, fitted, moving
from proxy.context.placement import Blocks, TierPlacement
from proxy.context.session import (
    AssembledChat,
    AssemblyOptions,
    ChatReading,
    ContextSession,
    Dialogue,
    Uploads,
    body_of,
    has_thinking,
)
from proxy.kit.errors import InvalidRequest, PayloadTooLarge
from proxy.kit.modes import Edit, Mode, Reason
from proxy.kit.tasks import place_of, suppress_and_log
from proxy.kit.value import dataclass, digest, field, replace
from proxy.planner.plan import Plan
from proxy.planner.session_record import Inventory
from proxy.planner.tiers import HISTORY, Change, Tracked, with_target
from proxy.protocol.prices import Price
from proxy.protocol.providers import CacheProfile, Dialect
from proxy.protocol.request import ParsedBody
from proxy.protocol.request.tokens import Encode, TokenCounter
from proxy.protocol.response.panel_answer import PANEL_TOOL
from proxy.protocol.response.usage import Usage
from proxy.services.context_sessions import ContextSessions, PanelBill, panel_tokens

# The reasons of layouts that the planner only observes.
_SETTLED: Mapping[AssemblyKind, Reason] = MappingProxyType(
    {AssemblyKind.TIERED: Reason.ASSEMBLED_TIERS, AssemblyKind.FLAT: Reason.ASSEMBLED_FLAT}
)


@dataclass(frozen=True, slots=True)
class Arrangement:
    """The body, and the ``mode`` in which the planner takes it. This mode is lower than the one that was asked for if
    the ``kind`` of the assembly settles the layout. ``fallback`` is the body that is sent if an upstream refuses the
    other one. ``edits`` counts the edits besides the layout, by their reason. ``counted`` is called when the exchange
    counts. ``moving`` are the messages that the proxy has put between the client's own, in the form of
    ``Route.moving``. ``bill`` says what the panels cost; None: there are no panels."""

    kind: AssemblyKind
    body: bytes
    fallback: bytes
    mode: Mode
    assembly: Assembly
    counted: Callable[[Usage | None], Sequence[Change]]
    edits: Mapping[Edit, int] = field(default_factory=dict)
    tier_tokens: Mapping[str, int] = field(default_factory=dict)
    moving: Mapping[int, float] = field(default_factory=dict)
    bill: PanelBill | None = None
    contents: Callable[[], Inventory] | None = None
    """Measures what is sent."""

    def concluded(self, plan: Plan, mode: Mode) -> Plan:
        """The planner's plan with the assembly's decisions added. ``mode`` is the one that was asked for."""
        plan = replace(
            plan, counted=self.counted, tier_tokens=self.tier_tokens, edits=self.edits, contents=self.contents
        )
        if mode is self.mode or plan.surprise is not None:
            return plan
        return replace(plan, mode=mode, reason=_SETTLED[self.kind], predicted=plan.own)

    def inventory(self, placement: TierPlacement | None, counter: TokenCounter, freezing_cost: float) -> Inventory:
        """The contents of the request. Items that are not ordered by tiers are shown in the tiers of the ``placement``.
        ``freezing_cost`` is what freezing has cost the session so far."""
        assembly, counts = self.assembly, placement.counts if placement is not None else {}
        if placement is not None and self.kind is AssemblyKind.ECONOMIC:
            assembly = in_tiers(assembly, placement)
        panels = self.bill.value() if self.bill is not None else ()
        found = inventory_of(assembly, counter, counts)
        return msgspec.structs.replace(found, panels=panels, freezing_cost=freezing_cost)


T = TypeVar("T")
_log = logging.getLogger("stratiform")


def tried(work: Callable[[], T]) -> T | None:
    """The result of the work. If the proxy itself has an error, the result is None, and the error is logged with its
    type and its place."""
    try:
        return work()
    except Exception as error:  # noqa: BLE001 - fidelity rule 7: a structured request falls back to flat assembly
        _log.error("assembly failed, context sent flat: %s", place_of(error))
        return None


def _with(chat: AssembledChat, assembly: Assembly, inlay: Inlay, profile: CacheProfile) -> AssembledChat:
    """The chat with this assembly. If panels are shown, the panels' tool is declared to an upstream that wants tools
    declared. Without a panel the tool is not declared, because nobody would answer a call of it."""
    body = body_of(chat.sent, assembly, declares_tool=profile.declares_tools and bool(inlay.order))
    return replace(chat, assembly=assembly, body=body, order=inlay.order)


@dataclass(frozen=True, slots=True)
class SentContext:
    """A request as it was read: its body, its section, its messages, and the name by which a session is known that
    nobody has named."""

    sent: ParsedBody
    form: StructuredForm
    conversation: Conversation
    opening: str


@dataclass(frozen=True, slots=True)
class Resolved(SentContext):
    """The same request with the form's texts loaded, and with the session that it belongs to. ``is_named``: the client
    has named the session. ``aliases`` are the short names of directories in this request."""

    scope: str
    name: str
    session: ContextSession
    is_named: bool
    aliases: Mapping[str, str]


class ContextAssembler:
    """Assembles structured context. Its state is in memory and bounded: the texts are in ``uploads``, all else is in
    ``sessions``."""

    def __init__(
        self,
        texts: ContextTexts,
        encode: Encode,
        indexer: SymbolIndexer | None = None,
        options: AssemblyOptions | None = None,
    ) -> None:
        self._options = options or AssemblyOptions()
        self._texts = texts
        self._indexer = indexer
        self.uploads = Uploads(self._options.text_bytes)
        self.sessions = ContextSessions(TokenCounter(encode, capacity=100_000), self._options)

    def chat_of(self, sent: ParsedBody, scope: str, hint: str = "", now: float = 0.0) -> AssembledChat:
        """A request with its context as messages, made by all steps one after another. Raises InvalidRequest,
        PayloadTooLarge, MissingContent, and Unreadable if the messages are no array."""
        resolved = self.with_aliases(self.resolve(self.read(sent), scope, hint))
        chat, counted, blocks = self.assembled(resolved, self.context(resolved, self.index(resolved)), now)
        self.know(resolved, counted, blocks)
        self.remember(resolved, chat)
        return chat

    def read(self, sent: ParsedBody, own: ParsedBody | None = None) -> SentContext:
        """The section and the conversation. ``own`` is the request without the operator's system text; None: there is
        no such text. Any thread may call this. Raises InvalidRequest, and Unreadable if the messages are no array."""
        if "messages" not in sent.members:
            raise InvalidRequest("the request has no 'messages'", param="messages", code="missing_messages")
        form = read_form(sent.members[SECTION]) or StructuredForm()
        talk = Conversation.of((own or sent).raws())
        conversation = talk if own is None else Conversation.of(sent.raws(), sum(1 for _ in talk))
        # A conversation that the client has not named is named by its own beginning, which stays the same. The client's
        # markers do not count, because they move from turn to turn.
        first = next((turn.bare for turn in talk.turns if turn.role == "user"), b"")
        return SentContext(sent, form, conversation, digest(*(turn.bare for turn in talk.system), first).hex())

    def resolve(self, request: SentContext, scope: str, hint: str) -> Resolved:
        """The form with its texts, and the session that it belongs to. Raises MissingContent, PayloadTooLarge."""
        form = self.uploads.resolve(request.form, scope)
        named = request.form.context.session or hint
        name = named or request.opening
        session = self.sessions.begun(scope, name)
        self._check_size(form.shown(session.review))
        return Resolved(
            request.sent,
            form,
            request.conversation,
            request.opening,
            scope,
            name,
            session,
            bool(named),
            session.aliases,
        )

    def _check_size(self, context: StructuredContext) -> None:
        """Raises PayloadTooLarge if the texts are too long for one request. The body alone does not show that: a short
        digest may stand for one long text under many paths."""
        chars, most = context.chars, self._options.most_chars
        if chars > most:
            message = (
                f"'{SECTION}' unfolds to {chars} characters of files, symbols, pages and review; at most {most} are "
                "assembled: select fewer files"
            )
            raise PayloadTooLarge(message, param=SECTION)

    def index(self, resolved: Resolved) -> SymbolMap:
        """The symbols of the files, if the client brings none and wants a map. A conversation that has never listed
        a file has no map, and needs no legend for it. Any thread may call this."""
        form, session = resolved.form, resolved.session
        has_files = bool(resolved.form.context.files or session.shown)
        if self._indexer is None or not form.has_repo_map or form.context.symbols or not has_files:
            return SymbolMap(form.context.symbols, form.context.legend)
        symbols = self._indexer.index(resolved.form.context.files, resolved.aliases)
        if not session.tracker.is_initialised:
            len(symbols.references)  # references are found at their first use: better here than on the event loop
        return symbols

    def with_aliases(self, resolved: Resolved) -> Resolved:
        """The request with short names for the directories that it shows for the first time."""
        session = resolved.session
        new = {file.path for file in resolved.form.context.files if file.path not in session.shown}
        if not new or self._indexer is None:
            return resolved
        return replace(resolved, aliases=legend_for(new, session.aliases, session.shown))

    def context(self, resolved: Resolved, symbols: SymbolMap) -> StructuredContext:
        """All that the request shows. Raises PayloadTooLarge."""
        context = resolved.form.shown(resolved.session.review)
        context = replace(context, symbols=symbols.blocks, legend=symbols.legend, references=symbols.references)
        self._check_size(context)
        return context

    def assembled(
        self, resolved: Resolved, context: StructuredContext, now: float
    ) -> tuple[AssembledChat, TokenCounter, Blocks]:
        """The request with its context as messages, flat or with the map in chunks. Panels stand in front of the
        conversation. ``now`` is when the request arrived, in unix seconds. Any thread may call this: the new counted
        texts and block digests are returned for ``know``. Raises InvalidRequest if the client describes messages
        that the request does not have. Raises it also if a tool of the client has the name of the tool that shows
        panels, because the proxy would answer the calls of that tool."""
        counter = self.sessions.counter.fork()
        dialogue = self._dialogue(resolved, counter, now)
        blocks: Blocks = {}
        with suppress_and_log("context.read_ahead"):
            blocks = resolved.session.tracker.read_ahead(context, counter)
        front, system, words, map_ = None, dialogue.conversation.system, self._texts.tiered, resolved.session.map
        kind = AssemblyKind.FLAT
        if self._options.is_classic and not resolved.form.is_flat:
            kind = AssemblyKind.TIERED
        elif not resolved.form.is_flat:
            map_ = map_.with_paths({path: len(context.symbols[path]) for path in context.mapped()})
            front = tried(lambda: front_of(context, system, words, map_.shown(context.mapped())))
            kind = AssemblyKind.ECONOMIC if front is not None else AssemblyKind.FLAT
        front = front or front_of(context, system, words)
        inlay = dialogue.inlay(self._texts.panels, is_chronological=False)
        assembly = untiered_assembly(front, dialogue.conversation, inlay, context.images)
        chat = AssembledChat(
            sent=resolved.sent,
            body=body_of(resolved.sent, assembly),
            kind=kind,
            front=front,
            assembly=assembly,
            context=context,
            dialogue=dialogue,
            scope=resolved.scope,
            session=resolved.name,
            map=map_ if kind is AssemblyKind.ECONOMIC else None,
            order=inlay.order,
            answers=partial(panel_answer, dialogue.panels) if dialogue.has_panels else None,
            reading=_reading(context, dialogue, counter),
        )
        return chat, counter, blocks

    def know(self, resolved: Resolved, counted: TokenCounter, blocks: Blocks) -> None:
        """Take over what was read."""
        self.sessions.counter.merge(counted)
        resolved.session.tracker.know(blocks)

    def remember(self, resolved: Resolved, chat: AssembledChat) -> None:
        """The session goes on from this request. It takes over the review only if the client has named the session:
        conversations that merely begin alike may belong to two people."""
        session, form, board = resolved.session, resolved.form, chat.dialogue.board
        if resolved.is_named and (form.review is not None or form.drops_review):
            session.review = chat.context.review
        if self._indexer is not None:
            session.shown.update(file.path for file in form.context.files)
            # Another request that runs at the same time may have given other names, which stay.
            if session.aliases.items() <= resolved.aliases.items():
                session.aliases = resolved.aliases
        if board is not None:
            self.sessions.go_on(resolved.scope, resolved.name, session, board)

    def place(self, chat: AssembledChat, profile: CacheProfile) -> TierPlacement | None:
        """The place of each item, as the conversation's tracker decides it. None if the proxy itself has an error."""

        def work() -> TierPlacement:
            tracker = self.sessions.session(chat.scope, chat.session).tracker
            if not self._options.has_target:
                tracker.policy = with_target(tracker.policy, profile.min_tokens)
            return tracker.placement(chat.context, chat.reading.history, chat.reading.head_tokens)

        return tried(work)

    def arrange(
        self,
        chat: AssembledChat,
        placement: TierPlacement | None,
        profile: CacheProfile,
        mode: Mode,
        price: Price | None,
        most_input: int | None = None,
    ) -> Arrangement:
        """The messages for an upstream with these cache rules. ``price`` is the model's price, and ``most_input`` the
        most tokens that it reads; None: unknown. Any thread may call this. If the proxy itself has an error, the error
        is logged and the flat assembly is used."""
        wants = UpstreamNeeds(
            begins_with_user=profile.begins_with_user,
            answers_results=profile.answers_results or (profile.thinks_in_calls and has_thinking(chat.sent.members)),
            plain_ids=profile.plain_call_ids,
        )
        if chat.dialogue.has_panels and (profile.declares_tools or profile.name in self._options.repeats_for or wants):
            chat = self._ordered(chat, profile, wants, is_chronological=False)
        kind, sent, planned = self._sent(chat, placement, profile, wants, mode)
        board = sent.dialogue.board
        bill = (
            PanelBill(sent.order, sent.reading.panel_tokens, board, price) if board is not None and sent.order else None
        )
        tokens = placement.tokens if placement is not None else {}
        return Arrangement(
            kind=kind,
            body=sent.body,
            fallback=chat.body,
            mode=planned,
            assembly=sent.assembly,
            counted=partial(self.sessions.counted, sent, bill, profile, most_input),
            edits=chat.dialogue.edits,
            bill=bill,
            tier_tokens={tier.label: count for tier, count in tokens.items() if count},
            moving={} if board is None else moving(sent.assembly, board, sent.order),
        )

    def _sent(
        self,
        chat: AssembledChat,
        placement: TierPlacement | None,
        profile: CacheProfile,
        wants: UpstreamNeeds,
        mode: Mode,
    ) -> tuple[AssemblyKind, AssembledChat, Mode]:
        """The chat as it is sent in this mode, and the mode in which the planner takes it. The planner only observes a
        layout that is settled here."""
        if chat.kind is AssemblyKind.ECONOMIC:
            moves = mode > Mode.OBSERVE and chat.dialogue.board is not None
            return chat.kind, self._ordered(chat, profile, wants, is_chronological=True) if moves else chat, mode
        if mode <= Mode.OBSERVE:
            return AssemblyKind.FLAT, chat, mode
        if chat.kind is AssemblyKind.TIERED:
            if mode is not Mode.TIER:
                # This mode does not order by tiers: the planner alone decides.
                return AssemblyKind.FLAT, chat, mode
            if placement is not None and (tiered := tried(partial(self._tiered, chat, placement, profile, wants))):
                return AssemblyKind.TIERED, tiered, Mode.OBSERVE
        return AssemblyKind.FLAT, chat, Mode.OBSERVE

    def _ordered(
        self, chat: AssembledChat, profile: CacheProfile, wants: UpstreamNeeds, *, is_chronological: bool
    ) -> AssembledChat:
        """The request with its panels in this order, and with what else this upstream needs. In chronological order
        each panel stands where the conversation was when the panel last changed; otherwise all panels stand in front.
        If the proxy itself has an error, the error is logged and the request stays as it is."""

        def work() -> AssembledChat:
            inlay = self._inlay(chat, profile, wants, is_chronological=is_chronological)
            assembly = untiered_assembly(chat.front, chat.dialogue.conversation, inlay, chat.context.images)
            return _with(chat, assembly, inlay, profile)

        return tried(work) or chat

    def _tiered(
        self, chat: AssembledChat, placement: TierPlacement, profile: CacheProfile, wants: UpstreamNeeds
    ) -> AssembledChat:
        slots = max(0, min(profile.max_marks, MOST_MARKS) - marks_beside_messages(chat.sent.members))
        inlay = self._inlay(chat, profile, wants, is_chronological=False)
        assembly = tiered_assembly(
            chat.context,
            chat.dialogue.conversation,
            placement,
            self._texts.tiered,
            profile.dialect if slots else Dialect.NONE,
            slots=max(1, slots),
            inlay=inlay,
        )
        return _with(chat, assembly, inlay, profile)

    def _inlay(
        self, chat: AssembledChat, profile: CacheProfile, wants: UpstreamNeeds, *, is_chronological: bool
    ) -> Inlay:
        texts, repeat = self._texts.panels, ""
        if profile.name in self._options.repeats_for:
            repeat = system_text(chat.dialogue.conversation)
        inlay = chat.dialogue.inlay(texts, is_chronological=is_chronological, repeat=repeat)
        return fitted(inlay, chat.dialogue.conversation.turns, wants, texts.ok)

    def _dialogue(self, resolved: Resolved, counter: TokenCounter, now: float) -> Dialogue:
        """The conversation as it is sent, and what the session will remember of it."""
        members = resolved.sent.members
        found = resolved.session.dialogue(
            resolved.conversation,
            resolved.form,
            self._options,
            self._texts.compaction,
            partial(Turn.tokens, counter=counter),
            now,
            has_thinking=has_thinking(members),
        )
        if found.has_panels and names_tool(members.get("tools")):
            message = f"a tool of the request is called '{PANEL_TOOL}', as the proxy's own that shows panels: rename it"
            raise InvalidRequest(message, param="tools", code="reserved_tool")
        return found


def _reading(context: StructuredContext, dialogue: Dialogue, counter: TokenCounter) -> ChatReading:
    conversation = dialogue.conversation
    head = b"".join(turn.raw for turn in conversation.system) + context.legend.encode("utf-8", "surrogatepass")
    history = [
        Tracked(f"{HISTORY}{index}", turn.digest, turn.tokens(counter), turn.has_results)
        for index, turn in enumerate(conversation.history)
    ]
    return ChatReading(
        digest=digest(*(turn.digest for turn in conversation)),
        history=history,
        head_tokens=counter.count(digest(head), head.decode("utf-8", "replace")),
        panel_tokens={panel.id: panel_tokens(panel, counter) for panel in dialogue.panels if panel.is_shown},
    )
