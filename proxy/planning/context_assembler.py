"""From structured context to the messages that are planned: reads, resolves, indexes, assembles, and counts.

Every step is a plain function call. ``StructuredChats`` decides which of them run beside the event loop; a replay runs
them one after another. The texts that clients send are kept in memory here, within a bound, apart by scope;
``StructuredChats`` may keep them in the store, too.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from proxy.core.digest import digest
from proxy.core.layout.tiers import Change, ClassicPolicy, with_target
from proxy.core.lru import Bounded
from proxy.core.modes import Mode
from proxy.core.planner.analysis import tier_name
from proxy.core.planner.in_flight import Moved
from proxy.core.planner.plan import Plan
from proxy.core.providers import CacheProfile, Dialect
from proxy.core.reasons import Reason
from proxy.core.request.parsed_body import ParsedBody
from proxy.core.request.tokens import Encode, TokenCounter
from proxy.core.response.usage import Usage
from proxy.core.structured.assembly import Assembly
from proxy.core.structured.breakdown import Circumstances, Measure, breakdown
from proxy.core.structured.chat import SECTION, AssembledChat
from proxy.core.structured.context import StructuredContext
from proxy.core.structured.conversation import Conversation
from proxy.core.structured.economic import economic_assembly, in_tiers
from proxy.core.structured.flat import flat_assembly
from proxy.core.structured.form import StructuredForm, read_form
from proxy.core.structured.gathering import gathered
from proxy.core.structured.map_chunks import MapChunks
from proxy.core.structured.markers import marks_beside_messages, unmarked, without_marks
from proxy.core.structured.path_aliases import legend_for
from proxy.core.structured.placement import Placement
from proxy.core.structured.session import ContextSession
from proxy.core.structured.symbol_index import SymbolIndexer, SymbolMap
from proxy.core.structured.texts import AssemblyTexts
from proxy.core.structured.tiered import MOST_MARKS, tiered_assembly
from proxy.core.structured.tracking import Blocks, ContextTracker, HistoryItem
from proxy.core.structured.uploads import UPLOAD_BYTES, ResolvedForm, Uploads
from proxy.core.wire.json_body import splice
from proxy.engine.suppress import place_of
from proxy.errors import InvalidRequest, PayloadTooLarge

_log = logging.getLogger("stratiform")
_FELL_BACK = "assembly failed, context sent flat: %s"


@dataclass(frozen=True, slots=True)
class AssemblyOptions:
    """``policy`` is ``economic`` or ``classic``; ``classic`` are the flags of the latter, whose target follows the
    model's minimum unless ``has_target``. ``text_bytes`` bounds the texts, ``session_bytes`` all other state, and
    ``most_chars`` the texts of one request's selected files together."""

    policy: str = "economic"
    classic: ClassicPolicy = ClassicPolicy()
    has_target: bool = False
    text_bytes: int = UPLOAD_BYTES
    session_bytes: int = 64 << 20
    most_chars: int = 64 << 20


@dataclass(frozen=True, slots=True)
class Arrangement:
    """How an assembled chat is planned: the body, and the mode in which the planner takes it. ``kind`` is ``tiered``,
    ``economic`` or ``flat``. ``reason`` takes the place of the planner's where the layout is fixed; ``counted`` is what
    happens when the exchange counts."""

    kind: str
    body: bytes
    mode: Mode
    assembly: Assembly
    counted: Callable[[Usage | None], Sequence[Moved]]
    reason: Reason | None = None
    tier_tokens: Mapping[str, int] = field(default_factory=dict)

    def concluded(self, plan: Plan, mode: Mode) -> Plan:
        """The planner's plan with what the assembly has decided; ``mode`` is the one that was asked for."""
        plan = replace(plan, counted=self.counted, tier_tokens=self.tier_tokens)
        if self.reason is None or plan.surprise is not None:
            return plan
        return replace(plan, mode=mode, reason=self.reason, predicted=plan.own)


class ContextAssembler:
    """Assembles structured context. Its state is in memory and bounded."""

    def __init__(
        self,
        texts: AssemblyTexts,
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
        if form.has_history or form.compaction:
            message = f"'{SECTION}.panels', 'messages_meta' and 'compaction' are not available yet: leave them out"
            raise InvalidRequest(message, param=f"{SECTION}.panels", code="structured_field_unavailable")
        return form, Conversation.of(sent.raws())

    def resolve(self, form: StructuredForm, conversation: Conversation, scope: str, hint: str) -> "Resolved":
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

    def index(self, resolved: "Resolved") -> SymbolMap:
        """The symbols of the files, where the client brings none and wants a map. Any thread may call this."""
        form, session = resolved.found.form, resolved.session
        if self._indexer is None or not form.has_repo_map or form.symbols:
            return SymbolMap(form.symbols, form.legend)
        return self._indexer.index(resolved.found.files, session.aliases)

    def give_aliases(self, resolved: "Resolved") -> None:
        """Give short names to the directories that this request shows for the first time."""
        session = resolved.session
        new = {file.path for file in resolved.found.files if file.path not in session.shown}
        if new and self._indexer is not None:
            session.aliases = legend_for(new, session.aliases, session.shown)
            session.shown |= new

    def context(self, resolved: "Resolved", symbols: SymbolMap, *, keeps_review: bool = True) -> StructuredContext:
        """All that the request shows. Its review is the session's from now on, if it ``keeps_review`` and the client
        has named the session: conversations that merely begin alike may be of two people."""
        session = resolved.session
        context = gathered(resolved.found, session.review)
        if keeps_review and resolved.is_named:
            session.review = context.review
        return replace(context, symbols=symbols.blocks, legend=symbols.legend, references=symbols.references)

    def read_ahead(self, resolved: "Resolved", context: StructuredContext) -> "ReadAhead":
        """Blocks and tokens of all that the tracker does not know, for ``merge``. Any thread may call this."""
        fork = self._counter.fork()
        blocks = resolved.session.tracker.read_ahead(context, fork)
        _head_tokens(context, resolved.conversation, fork)
        _history(resolved.conversation, fork)
        return ReadAhead(fork, blocks)

    def merge(self, resolved: "Resolved", ahead: "ReadAhead") -> None:
        """Take over what was read ahead."""
        self._counter.merge(ahead.counted)
        resolved.session.tracker.know(ahead.blocks)

    def chunks(self, resolved: "Resolved", context: StructuredContext) -> MapChunks | None:
        """The chunks of the symbol map; None where the request goes flat or in tiers."""
        if self._options.policy == "classic" or resolved.found.form.assembly == "flat":
            return None
        symbols = context.symbols
        return resolved.session.map.with_paths({path: len(symbols[path]) for path in context.mapped()})

    def assembled(
        self, sent: ParsedBody, resolved: "Resolved", context: StructuredContext, chunks: MapChunks | None
    ) -> AssembledChat:
        """The request with its context as messages: flat, or with the map in chunks. Any thread may call this."""
        assembly, conversation = None, resolved.conversation
        if chunks is not None:
            try:
                assembly = economic_assembly(context, conversation, chunks.shown(context.mapped()), self.texts)
            except Exception as error:  # noqa: BLE001 - fidelity rule 7: a structured request falls back to flat assembly
                _log.error(_FELL_BACK, place_of(error))
        is_flat = assembly is None
        if assembly is None:
            assembly = flat_assembly(context, conversation, self.texts)
        return AssembledChat(
            sent=sent,
            body=_body(sent, assembly),
            assembly=assembly,
            context=context,
            conversation=conversation,
            scope=resolved.scope,
            session=resolved.name,
            map=chunks,
            is_flat=is_flat,
            wants_flat=resolved.found.form.assembly == "flat",
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

    def place(self, chat: AssembledChat, profile: CacheProfile) -> Placement | None:
        """Where the items stand; None where the proxy meets an error of its own, which is logged with its type and its
        place."""
        try:
            return self._placement(chat, self.session(chat.scope, chat.session), profile)
        except Exception as error:  # noqa: BLE001 - fidelity rule 7: a structured request falls back to flat assembly
            _log.error(_FELL_BACK, place_of(error))
            return None

    def arrange(
        self, chat: AssembledChat, placement: Placement | None, profile: CacheProfile, mode: Mode
    ) -> Arrangement:
        """The messages for an upstream with these cache rules. Any thread may call this. An error of the proxy's own
        leaves the flat assembly, and is logged likewise."""
        is_tiered = self._options.policy == "classic" and mode is Mode.TIER and not chat.wants_flat
        if is_tiered and placement is not None:
            try:
                return self._tiered(chat, placement, profile)
            except Exception as error:  # noqa: BLE001 - as above
                _log.error(_FELL_BACK, place_of(error))
        reason = None
        if chat.is_flat and mode > Mode.OBSERVE:
            # Where the policy has no order of its own for this mode, the planner decides alone.
            is_planned = self._options.policy == "classic" and not is_tiered and not chat.wants_flat
            mode, reason = (mode, None) if is_planned else (Mode.OBSERVE, Reason.ASSEMBLED_FLAT)
        return Arrangement(
            kind="flat" if chat.is_flat else "economic",
            body=chat.body,
            mode=mode,
            assembly=chat.assembly,
            counted=partial(self._counted, chat, chat.assembly),
            reason=reason,
            tier_tokens=_tier_tokens(placement),
        )

    def _tiered(self, chat: AssembledChat, placement: Placement, profile: CacheProfile) -> Arrangement:
        slots = max(0, min(profile.max_marks, MOST_MARKS) - marks_beside_messages(chat.sent.members))
        dialect = profile.dialect if slots else Dialect.NONE
        assembly = tiered_assembly(chat.context, chat.conversation, placement, self.texts, dialect, slots=max(1, slots))
        return Arrangement(
            kind="tiered",
            body=_body(chat.sent, assembly),
            mode=Mode.OBSERVE,
            assembly=assembly,
            counted=partial(self._counted, chat, assembly),
            reason=Reason.ASSEMBLED_TIERS,
            tier_tokens=_tier_tokens(placement),
        )

    def _placement(self, chat: AssembledChat, session: ContextSession, profile: CacheProfile) -> Placement:
        """Where each item stands by the conversation's tracker."""
        tracker = session.tracker
        if not self._options.has_target:
            tracker.policy = with_target(tracker.policy, profile.min_tokens)
        head_tokens = _head_tokens(chat.context, chat.conversation, self._counter)
        return tracker.placement(chat.context, _history(chat.conversation, self._counter), head_tokens)

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
        return breakdown(assembly, Measure.of(self._counter.fork()), about)

    def _counted(self, chat: AssembledChat, assembly: Assembly, usage: Usage | None) -> Sequence[Moved]:
        """The exchange counts: age what was sent once. A retry of the same conversation counts no second time."""
        session = self.session(chat.scope, chat.session)
        session.spent(usage)
        turn = digest(*(turn.raw for turn in without_marks(chat.conversation)))
        if session.counted == turn:
            return ()
        session.counted = turn
        session.empty_tiers += assembly.empty_tiers
        context = chat.context
        session.map = chat.map or session.map
        session.changes = session.tracker.settle(context, _history(chat.conversation, self._counter))
        self._sessions.used((chat.scope, chat.session))
        return [_moved(change) for change in session.changes]


@dataclass(frozen=True, slots=True)
class Resolved:
    """A form with its texts at hand, and the session that it belongs to; ``is_named``: the client has named it.
    ``chars`` are those of the selected files together."""

    found: ResolvedForm
    conversation: Conversation
    scope: str
    name: str
    session: ContextSession
    is_named: bool = False
    chars: int = 0


@dataclass(frozen=True, slots=True)
class ReadAhead:
    """What was read of a request beside the event loop: counted texts, and digests of blocks."""

    counted: TokenCounter
    blocks: Blocks


def _head_tokens(context: StructuredContext, conversation: Conversation, counter: TokenCounter) -> int:
    head = b"".join(turn.raw for turn in conversation.system) + context.legend.encode("utf-8", "surrogatepass")
    key = digest(head)
    return counter.count(key, head.decode("utf-8", "replace"))


def _history(conversation: Conversation, counter: TokenCounter) -> list[HistoryItem]:
    found: list[HistoryItem] = []
    for turn in without_marks(conversation).history:
        key = digest(turn.raw)
        tokens = counter.count(key, turn.raw.decode("utf-8", "replace"))
        found.append(HistoryItem(key, tokens, starts_group=not turn.is_result))
    return found


def _tier_tokens(placement: Placement | None) -> dict[str, int]:
    tokens = placement.tokens if placement is not None else {}
    return {tier_name(tier): count for tier, count in tokens.items() if count}


def _moved(change: Change) -> Moved:
    target = tier_name(change.target) if change.target is not None else "removed"
    return Moved(change.key, tier_name(change.source), target, change.reason)


def _name_of(conversation: Conversation) -> str:
    """A name for a conversation that the client gives none: what stays the same in it is how it begins. The client's
    markers do not count: they move from turn to turn."""
    first = next((turn.raw for turn in (*conversation.history, *conversation.prompt) if turn.role == "user"), b"")
    return digest(*(unmarked(turn.raw) for turn in conversation.system), unmarked(first)).hex()


def _body(sent: ParsedBody, assembly: Assembly) -> bytes:
    return splice(sent.body, sent.members, {"messages": assembly.body(), SECTION: None}, sent.span)
