"""The state that is kept between the requests of a conversation. All of it is bounded, and texts are never logged.

The file begins with the state of a conversation with live panels, its bytes in a store, and its merge from two
processes.

Then come files and reviews that clients have sent, so that later requests may name them by digest. Their memory belongs
to this process and is bounded by bytes; the least recently used content is dropped first. A digest is known only within
the scope (of a key, of a team) whose request has sent its content. So nobody can find out whether somebody else has a
text. The methods are called only by the thread of the event loop. Small texts may be kept in a store as well.

Then comes the state of one conversation with structured context. By this state and the rules of the history, the
conversation of a request is edited, and gets live panels. At the end stands a chat request whose context was assembled.
"""

import math
import struct
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from hashlib import sha256
from itertools import filterfalse
from sys import getsizeof
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, msgpack

from proxy.context import SECTION, ContextFile, Conversation, MapChunks, Review, StructuredContext, Turn
from proxy.context.blocks import Assembly, AssemblyKind
from proxy.context.form import StructuredForm, detach_terms, read_form
from proxy.context.history import DetachTerms, RuledHistory, frozen, ruled
from proxy.context.history.compaction import Compaction, CompactionAttempts, CompactionTerms, CompactionTexts, compacted
from proxy.context.panels import (
    FROZEN_PREFIX,
    CacheTerms,
    Count,
    Digest,
    Entry,
    Panel,
    PanelId,
    PanelMemory,
    PanelTexts,
    Progress,
    Time,
    Usd,
    with_declaration,
)
from proxy.context.panels.board import (
    MOST_PROMPTS,
    NO_INLAY,
    Board,
    Inlay,
    PanelCost,
    PanelCosts,
    inlay_of,
    refreshed,
)
from proxy.context.placement import ContextTracker
from proxy.kit.errors import InvalidRequest, MissingContent
from proxy.kit.lru import Bounded
from proxy.kit.modes import Edit
from proxy.kit.value import dataclass, field, replace
from proxy.planner.tiers import Change, ClassicPolicy, Tracked
from proxy.protocol.request import ParsedBody
from proxy.protocol.response.panel_answer import PanelAnswers
from proxy.protocol.response.usage import Usage, summed
from proxy.protocol.wire.json_body import Members, splice


@dataclass(frozen=True, slots=True)
class LiveState:
    """``board`` is the board of the panels, with the costs of all requests that were settled up to ``charged_s``.
    ``compaction`` leaves out the oldest part of the conversation since ``compacted_s``; None: nothing is left out.
    Times are in unix seconds, and 0 if there is nothing yet."""

    board: Board = Board()
    charged_s: float = 0.0
    compaction: Compaction | None = None
    compacted_s: float = 0.0


def merged(one: LiveState, two: LiveState) -> LiveState:
    """The merge of both states. The order of the two makes no difference.

    The board is the later one: it has the panels and the prompts that the provider has seen last. If two requests run
    at the same time, the later one may not know of a panel's change in the other. Such a panel keeps its newer stamp
    and place. The costs and the compaction are the newer ones.
    """
    later = _newest(one, two, _moment, _shown)
    panels = {id_: _newer(id_, later, two if later is one else one) for id_ in later.board.panels}
    costs = _newest(
        one, two, lambda each: (bool(each.board.costs.entries), each.charged_s), lambda each: repr(each.board.costs)
    )
    compacted = _newest(
        one, two, lambda each: (each.compaction is not None, each.compacted_s), lambda each: repr(each.compaction)
    )
    return LiveState(
        board=replace(later.board, panels=panels, costs=costs.board.costs),
        charged_s=costs.charged_s,
        compaction=compacted.compaction,
        compacted_s=compacted.compacted_s,
    )


def _newer(id_: str, later: LiveState, earlier: LiveState) -> PanelMemory:
    """The merged memory of a panel that the later board has. If both memories are of the same change, that of the later
    board counts. If both boards are of the same moment, either memory may count, as long as every process takes the
    same one."""
    known = [(each.board.panels[id_], _moment(each)) for each in (later, earlier) if id_ in each.board.panels]
    return max(known, key=lambda one: (one[0].changed_s, one[1], repr(one[0])))[0]


def _newest(one: LiveState, two: LiveState, *orders: Callable[[LiveState], Any]) -> LiveState:
    """The newer state by the first order that tells the two apart. If both are of the same moment, it may be either, as
    long as every process takes the same one: the last order is by a text."""
    return next((max(one, two, key=order) for order in orders if order(one) != order(two)), one)


def _moment(state: LiveState) -> tuple[bool, float]:
    return state.board.is_begun, state.board.last_s


def _shown(state: LiveState) -> str:
    """A text that names what the board shows. The memories of its panels are left out, because they may come from
    either of two boards."""
    return repr((sorted(state.board.panels), sorted(state.board.prompts.items())))


VERSION: Final = 1
MOST_BYTES: Final = 1 << 20
"""A larger blob is neither written nor read."""

# The panels of the form, and the frozen parts of a conversation.
_MOST_PANELS = 10_000
_Panels = Annotated[list[PanelMemory], Meta(max_length=_MOST_PANELS)]
_Prompts = Annotated[list[tuple[Count, Digest, Time]], Meta(max_length=MOST_PROMPTS)]
_Entries = Annotated[list[Entry], Meta(max_length=_MOST_PANELS)]
_Costs = Annotated[list[PanelCost], Meta(max_length=_MOST_PANELS)]
_Totals = Annotated[list[tuple[PanelId, Usd]], Meta(max_length=2 * _MOST_PANELS)]
# A blob is an array: the version, the time of the last change, and the fields. A blob of another version is not read.
_BOARDS = msgpack.Decoder(tuple[Literal[1], Time, _Panels, _Prompts])
_COSTS = msgpack.Decoder(tuple[Literal[1], Time, _Entries, _Costs, _Totals])
_COMPACTIONS = msgpack.Decoder(tuple[Literal[1], Time, Count, Count, Digest, str])


class StatePart(StrEnum):
    """A part of the state, with a blob of its own."""

    BOARD = "board"
    COSTS = "costs"
    COMPACTION = "compaction"


def packed(state: LiveState, part: StatePart) -> bytes:
    """The blob of a part; empty if there is nothing to write, or if the blob would be too large."""
    board, costs, made = state.board, state.board.costs, state.compaction
    found: tuple[object, ...]
    match part:
        case StatePart.BOARD if board.is_begun:
            prompts = [(at, *prompt) for at, prompt in board.prompts.items()]
            found = (VERSION, board.last_s, list(board.panels.values()), prompts)
        case StatePart.COSTS if costs.entries:
            found = (VERSION, state.charged_s, costs.entries, costs.last, list(costs.totals.items()))
        case StatePart.COMPACTION if made is not None:
            found = (VERSION, state.compacted_s, made.covered, made.known, made.digest, made.summary)
        case _:
            return b""
    blob = msgpack.encode(found)
    return blob if len(blob) <= MOST_BYTES else b""


def unpacked(blobs: Mapping[StatePart, bytes]) -> LiveState:
    """The state in these blobs. A blob that cannot be read is ignored."""
    state = LiveState()
    for part, blob in blobs.items():
        with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            state = merged(state, _read(part, blob)) if len(blob) <= MOST_BYTES else state
    return state


def _read(part: StatePart, blob: bytes) -> LiveState:
    match part:
        case StatePart.BOARD:
            _, last_s, memories, prompts = _BOARDS.decode(blob)
            panels = {memory.id: memory for memory in memories}
            times = {at: (digest, time_s) for at, digest, time_s in prompts}
            return LiveState(Board(panels, times, is_begun=True, last_s=last_s))
        case StatePart.COSTS:
            _, charged_s, entries, last, totals = _COSTS.decode(blob)
            return LiveState(Board(costs=PanelCosts(tuple(entries), tuple(last), dict(totals))), charged_s=charged_s)
        case StatePart.COMPACTION:
            _, compacted_s, covered, known, digest, summary = _COMPACTIONS.decode(blob)
            return LiveState(compaction=Compaction(covered, known, digest, summary), compacted_s=compacted_s)


UPLOAD_BYTES = 256 << 20
"""The memory of one process, if the configuration does not set it."""
# An entry's key, its digest, and its places in the tables.
_TEXT_ENTRY_BYTES = 600

# A scope, the kind of the content, and its digest. The kind is needed because a file may have the same text as a
# review's JSON.
_Name = tuple[str, type[str] | type[Review], str]


class Uploads:
    """The contents by scope and digest. ``most_bytes`` bounds their size in memory."""

    def __init__(self, most_bytes: int = UPLOAD_BYTES) -> None:
        self._most = most_bytes
        self._held: Bounded[_Name, str | Review] = Bounded(most_bytes, content_bytes)

    @property
    def bytes(self) -> int:
        """The bytes that the contents take in memory."""
        return self._held.bytes

    def resolve(self, form: StructuredForm, scope: str) -> StructuredForm:
        """The form with all its contents. The contents that the form itself has are kept for later requests of the
        scope. Raises MissingContent with the digests whose contents are neither in the form nor in memory, and then
        keeps nothing.

        The form's own contents are used directly, so that a request works even if there is no room to keep its
        contents.
        """
        contents = list(_contents(form, scope))
        brought = {name: content for name, content in contents if content is not None}
        named = [name for name, content in contents if content is None]
        held = {name: content for name in named if (content := self._held.get(name)) is not None}
        known = brought | held
        missing = dict.fromkeys(digest for _, _, digest in filterfalse(known.__contains__, named))
        if missing:
            raise MissingContent(tuple(missing))
        self._keep(held, brought)
        texts = {digest: content for (_, _, digest), content in known.items() if isinstance(content, str)}
        review = form.review
        if review is not None and isinstance(content := known[scope, Review, review.digest], Review):
            review = replace(review, review=content)
        return replace(_with_texts(form, texts), review=review)

    def _keep(self, held: Iterable[_Name], brought: Mapping[_Name, str | Review]) -> None:
        """Keep the contents that the request has used, as far as they have room together. A content that has no room
        beside the rest of its own request is not kept, and none of the rest is dropped for it."""
        used = dict.fromkeys((*held, *(name for name in brought if name in self._held)))
        new = {name: content for name, content in brought.items() if name not in used}
        own = sum(map(self._held.weight_of, used)) if new else 0
        for name in used:
            self._held.move_to_end(name)
        for name, content in new.items():
            weight = content_bytes(content)
            if own + weight <= self._most:
                own += weight
                self._held.put(name, content)


def content_bytes(content: str | Review) -> int:
    """The bytes that a content takes in memory, with everything that is kept beside it. A string counts as it is
    stored: with one, two or four bytes a character."""
    parts: list[object] = [content]
    if isinstance(content, Review):
        diffs = content.reverse_diffs or {}
        parts += [content.branch, content.commits, diffs, *diffs, *content.texts]
    return _TEXT_ENTRY_BYTES + sum(map(getsizeof, parts))


def _contents(form: StructuredForm, scope: str) -> Iterator[tuple[_Name, str | Review | None]]:
    """The contents of a form by name. A content is None if the form has only its digest."""
    for file in form.context.files:
        if file.digest:
            yield (scope, str, file.digest), file.text
    if form.review is not None:
        yield (scope, Review, form.review.digest), form.review.review


def _with_texts(form: StructuredForm, texts: Mapping[str, str]) -> StructuredForm:
    files = tuple(
        ContextFile(file.path, texts[file.digest], file.digest, file.is_selected)
        if file.text is None and file.digest in texts
        else file
        for file in form.context.files
    )
    return replace(form, context=replace(form.context, files=files))


MOST_TEXT_BYTES = 1 << 20
"""The largest text that is kept, in bytes of memory: about 250,000 tokens, which few prompts have room for."""
MOST_UTF8_BYTES = 2 * MOST_TEXT_BYTES
"""The most bytes that such a text takes in UTF-8: a character that takes one byte in memory may take two in UTF-8."""
_HEAD = struct.Struct(">d")


def blob_name(digest: str) -> str:
    """The name of a text's blob."""
    return f"text:{digest}"


def is_kept(text: str) -> bool:
    """Whether a text is small enough to be kept."""
    return getsizeof(text) <= MOST_TEXT_BYTES


def packed_text(text: str, saved_at: float) -> bytes:
    """The blob of a text."""
    return _HEAD.pack(saved_at) + zlib.compress(text.encode(), level=1)


def unpacked_text(blob: bytes, digest: str) -> tuple[str, float] | None:
    """The text of a blob, and when it was written, in unix seconds; None if it is not the text of this digest, or is
    larger than any text that is kept."""
    if len(blob) < _HEAD.size:
        return None
    (saved_at,) = _HEAD.unpack_from(blob)
    reader = zlib.decompressobj()
    try:
        data = reader.decompress(memoryview(blob)[_HEAD.size :], MOST_UTF8_BYTES)
        if not reader.eof or sha256(data).hexdigest() != digest:
            return None
        return data.decode(), saved_at if math.isfinite(saved_at) else 0.0
    except (zlib.error, UnicodeDecodeError):
        return None


def texts_of(form: StructuredForm) -> Iterator[tuple[str, str]]:
    """The digests and texts of all contents that a request shows; those of a review only if the review itself is in the
    request."""
    for file in form.context.files:
        if file.text is not None and file.digest:
            yield file.digest, file.text
    if form.review is not None and form.review.text:
        yield form.review.digest, form.review.text


def filled(form: StructuredForm, texts: Mapping[str, str]) -> StructuredForm:
    """The form as if the client had sent these texts in the place of their digests. ``texts`` are by digest. A text
    that is not a review is not used as one."""
    review = form.review
    if review is not None and review.review is None and review.digest in texts:
        with suppress(InvalidRequest):
            stored = read_form(b'{"review":%s}' % texts[review.digest].encode())
            found = stored.review if stored is not None else None
            review = found if found is not None and found.review and found.digest == review.digest else review
    return replace(_with_texts(form, texts), review=review)


_THINKING = ("thinking", "reasoning_effort", "reasoning")
_NO_THINKING = frozenset({b"null", b'{"type":"disabled"}', b'"none"', b'{"effort":"none"}', b'{"enabled":false}'})


MOST_UNFOLDED_CHARS = 16 << 20
"""More than any model reads. To assemble this much takes a third of a second."""


@dataclass(frozen=True, slots=True)
class AssemblyOptions:
    """The settings of the operator. ``policy`` is ``economic`` or ``classic``. ``classic`` are the flags of the classic
    policy; its target follows the model's minimum unless ``has_target``. ``text_bytes`` bounds the texts,
    ``session_bytes`` all other state, and ``most_chars`` all texts together that one request shows. ``detach`` are the
    minimums by which the oldest part of a conversation is frozen; None: only what a client asks for is frozen.
    ``repeats_for`` names the cache profiles whose models read the system text again behind the panels.
    ``compaction`` are the terms by which conversations are compacted. ``keeps_alive``: a prefix may be kept alive
    beyond its life."""

    policy: str = "economic"
    classic: ClassicPolicy = ClassicPolicy()
    has_target: bool = False
    text_bytes: int = UPLOAD_BYTES
    session_bytes: int = 64 << 20
    most_chars: int = MOST_UNFOLDED_CHARS
    detach: DetachTerms | None = DetachTerms()
    compaction: CompactionTerms = CompactionTerms()
    repeats_for: frozenset[str] = frozenset()
    keeps_alive: bool = False

    @property
    def is_classic(self) -> bool:
        """Whether tiers decide the layout, and the rules of the original apply, whatever they cost."""
        return self.policy == "classic"


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


_ENTRY_BYTES = 2_000
# The size of a path's slot in a table, without the path.
_SLOT_BYTES = 150


@dataclass(slots=True)
class ContextSession:
    """The state of one conversation. Only the review and a summary are held as texts; of everything else there are only
    digests and counts.

    ``map`` has the chunks of the symbol map. ``state`` has the board of the panels and the compaction, and ``kept`` is
    the state that was written or read last. ``attempts`` has the results of earlier attempts to compact, and
    ``requests`` is the number of answered requests. ``aliases`` are the short names of directories that the legend has
    given, and ``shown`` are the paths that were named so far. ``counted`` is the digest of the conversation that was
    counted last: a retry of it does not count again. ``empty_tiers`` is the sum over all counted requests. ``changes``
    are those of the last counted answer. ``last`` is the usage that the provider reported for the last answer, and
    ``total`` is the sum of all. ``terms`` are those of the cache that has served the last request; None: they are not
    known. ``freezing_cost`` is the cost of freezing, in tokens at the plain input price.
    """

    tracker: ContextTracker
    map: MapChunks = MapChunks()
    state: LiveState = LiveState()
    kept: LiveState = LiveState()
    attempts: CompactionAttempts = CompactionAttempts()
    requests: int = 0
    review: Review | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)
    shown: set[str] = field(default_factory=set)
    counted: bytes = b""
    empty_tiers: int = 0
    changes: Sequence[Change] = ()
    last: Usage | None = None
    total: Usage = Usage(0, 0)
    terms: CacheTerms | None = None
    freezing_cost: float = 0.0

    @property
    def bytes(self) -> int:
        """An estimate of its size in memory."""
        review = content_bytes(self.review) if self.review is not None else 0
        paths = sum(_SLOT_BYTES * len(held) + sum(map(getsizeof, held)) for held in (self.map.places, self.shown))
        board, compaction = self.state.board, self.state.compaction
        summary = getsizeof(compaction.summary) if compaction is not None else 0
        changes = _SLOT_BYTES * len(self.changes)
        return _ENTRY_BYTES + review + self.tracker.size_bytes + paths + board.size_bytes + summary + changes

    def dated(self, now: float) -> LiveState:
        """The state with which other processes can continue. Parts that have changed since it was kept get the time
        ``now``, in unix seconds."""
        state, kept = self.state, self.kept
        return replace(
            state,
            charged_s=kept.charged_s if state.board.costs is kept.board.costs else now,
            compacted_s=kept.compacted_s if state.compaction is kept.compaction else now,
        )

    def adopt(self, known: LiveState, now: float) -> None:
        """Merge in the state that other processes know."""
        self.kept = merged(self.dated(now), known)
        if self.state.compaction != self.kept.compaction:
            self.rewritten()
        self.state = self.kept

    def rewritten(self) -> None:
        """Take note that the next request has a new beginning. Turns are named by their indices, which are different
        from now on, and the cache does not hold what is behind the new beginning."""
        self.tracker.purge_history()
        if self.terms is not None:
            self.terms = replace(self.terms, life_s=0.0)

    def spent(self, usage: Usage | None) -> None:
        """Count an answer with the usage that the provider has reported for it; None if the provider reported
        nothing."""
        self.last = usage
        self.requests += 1
        self.total = summed(self.total, usage) or self.total

    def dialogue(
        self,
        conversation: Conversation,
        form: StructuredForm,
        options: AssemblyOptions,
        texts: CompactionTexts,
        tokens: Callable[[Turn], int],
        now_s: float,
        has_thinking: bool = False,
    ) -> Dialogue:
        """The dialogue of a request that has arrived at ``now_s``, in unix seconds. The session stays as it is.
        ``tokens`` counts a message. ``has_thinking``: thinking is switched on, so that providers accept no call of the
        proxy behind the newest results. Raises InvalidRequest if the form describes messages that the request does not
        have."""
        if not (form.has_history or form.compaction):
            return Dialogue(conversation)
        as_sent = RuledHistory(conversation, tuple(range(len(conversation.turns))), {})
        history = ruled(conversation, form.metas) if form.has_history else as_sent
        uncompacted = history if form.compaction else None
        before, cache = self.state, self.terms
        if form.compaction:
            history = compacted(history, before.compaction, texts, options.compaction.keep_exchanges)
        terms = detach_terms(form.detach, options.detach) if form.has_history else None
        chunks: tuple[Panel, ...] = ()
        # Whether the provider's cache may still hold the conversation, and the model's window has room for it. Then
        # further parts are frozen only for a client that asks for it.
        cost, is_held = 0.0, cache is None or not (cache.is_full or now_s - before.board.last_s > cache.life_s)
        held = sum(name.startswith(FROZEN_PREFIX) for name in before.board.panels)
        if terms is not None:
            # Freezing makes no token cheaper, so its cost is what has to be written anew.
            is_priced = is_held and form.detach is None and not options.is_classic
            whole = history
            history, chunks = frozen(whole, terms, tokens, held if is_priced else None)
            if is_held and len(chunks) > held and cache is not None:
                cost = cache.anew * _behind(whole, chunks[:held], tokens)
        edits = Counter({edit: history.edits.get(edit, 0) for edit in Edit})
        panels = (*chunks, *form.panels)
        edits[Edit.PANELS_SHOWN] = sum(panel.is_shown for panel in panels)
        board = None
        if form.has_history:
            progress = Progress.of(conversation, has_thinking=has_thinking)
            board = refreshed(before.board, panels, progress, now_s, cache)
        return Dialogue(history.conversation, history.origins, panels, board, +edits, uncompacted, cost)


def _behind(whole: RuledHistory, held: Sequence[Panel], tokens: Callable[[Turn], int]) -> float:
    """About how many tokens of the conversation stand behind the parts that were frozen before, by its bytes."""
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
    is shown. ``reading`` has the facts that were read from the texts. ``kept`` is called if the request is sent."""

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
    kept: Callable[[], None] = lambda: None

    @property
    def hint(self) -> str:
        """The conversation's name for the planner; empty if the messages show which conversation it is. They do not
        where panels come to other places."""
        return self.context.session if self.dialogue.board is None else self.session


def body_of(sent: ParsedBody, assembly: Assembly, *, declares_tool: bool = False) -> bytes:
    """The client's body with the messages of the assembly in place of its own, and without the section.
    ``declares_tool``: the tool of the panels is added to its tools."""
    changes: dict[str, bytes | None] = {"messages": assembly.body(), SECTION: None}
    if declares_tool:
        tools = with_declaration(sent.members.get("tools"))
        changes |= {"tools": tools} if tools is not None else {}
    return splice(sent.body, sent.members, changes, sent.span)
