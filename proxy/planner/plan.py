"""A plan and its request until the end of the answer: what is sent and why, what the provider has accepted, and what
was learnt from it.

``planned_changes`` writes the decided layout as changes of the client's body. ``PlannerOptions`` are the parts of
planning that an operator may turn on and off. ``Diagnosing`` compares each request, as it was sent, with the earlier
ones of its conversation. ``inventory_of`` lists the contents of a request without structured context: its pieces, each
in the tier that the tracker gives it. Tools and system texts stand in L0, in front of everything, and the conversation
is in the active tier. The planner's breakpoints belong to no tier, because a marker may stand within the conversation:
they are listed separately.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from operator import attrgetter

import orjson
from msgspec import structs

from proxy.kit.lru import LastUsed
from proxy.kit.modes import Edit, Mode, Reason
from proxy.kit.value import dataclass, digest, field, replace
from proxy.planner.candidates import IncomingChat, PlanAnalysis, TextsInFlight
from proxy.planner.diagnose import Comparison, compared
from proxy.planner.layout import given_members, slots_of
from proxy.planner.observation import Again, StoredPrompt, commit_preamble, commit_reading, followed
from proxy.planner.record import (
    IMAGE_SHOWN,
    IMAGES,
    NOTHING_SENT,
    Break,
    BreakKind,
    PromptRecord,
    SentPrompt,
    sent_prompt,
)
from proxy.planner.render import elsewhere, patches, render_messages, render_tools, written_front
from proxy.planner.session import MAX_PROMPTS, SessionTable, remember
from proxy.planner.session_record import Inventory, ListedItem, ListedSection
from proxy.planner.shadow import LOST, Deviation, Observation, ShadowCaches, cost_of, missing, unpredicted_cost
from proxy.planner.sharing import SentForm
from proxy.planner.tiers import CACHED, Change, Tier, Tracked
from proxy.protocol.caches import Bill, Cache, PromptPositions
from proxy.protocol.prices import Price
from proxy.protocol.providers import NO_BOUNDARIES, Family
from proxy.protocol.recognition import PieceKind
from proxy.protocol.request import BodyChanges
from proxy.protocol.request.message import Message
from proxy.protocol.request.transcript import Transcript
from proxy.protocol.response.usage import Usage
from proxy.protocol.wire.json_body import Unreadable

_REMEMBERED_LAYOUTS = 3


@dataclass(frozen=True, slots=True)
class PlanResult:
    """What the end of an exchange has shown. ``moves`` are the pieces that changed their tier. ``deviation`` says how
    the provider's report differs from what was expected (``proxy.planner.shadow``; empty if there is nothing to
    compare). ``broke`` says why the request was not read from the cache as far as it could have been, and what that
    cost; None: it was read that far. ``marked`` is the shadow cache's bill in mode mark; None if that bill is not asked
    for, or if it would be the same mode."""

    moves: Sequence[Change] = ()
    deviation: str = ""
    broke: Break | None = None
    marked: Bill | None = None


@dataclass(frozen=True, slots=True)
class Accepted:
    """A prompt that the provider has accepted, and its bill. ``last_use`` belongs to the entry that it reads.
    ``elsewhere`` are the bills of this prompt and of the client's own prompt for the case that system messages within
    the conversation stand elsewhere than the proxy believes."""

    prompt: PromptPositions
    bill: Bill
    last_use: tuple[float, float] | None
    elsewhere: tuple[Bill, Bill] | None


@dataclass(slots=True)
class InFlight:
    """One request that has been sent and is not finished. ``sends_own``: the client's own layout is sent. ``form`` is
    the layout that is sent, if it is not the client's; it is kept because the thinking in the answer may be signed.
    ``sent`` is the record of what is sent (``shows_own``: the record of the client's own layout), and ``comparison``
    compares it with the earlier records of the conversation. ``fronts`` are the names under which the sent form is
    remembered. ``waiting`` is stored in the shadow caches when the answer has ended. ``mark`` chooses the markers of
    mode mark, if they are asked for. Only the planner changes this object."""

    analysis: PlanAnalysis
    sends_own: bool
    form: SentForm | None
    sent: SentPrompt = NOTHING_SENT
    comparison: Comparison | None = None
    shows_own: bool = False
    accepted: Accepted | None = None
    waiting: list[tuple[Cache, PromptPositions]] = field(default_factory=list)

    def expected_break(self, bill: Bill | None) -> Break | None:
        """How the request breaks the cache, as far as that is known before the answer; None if nothing is lost.
        ``bill`` is what the shadow cache expects. The cost of the break is in tokens at the plain price."""
        comparison, profile = self.comparison, self.analysis.profile
        if comparison is None:
            return None
        usage = None
        if bill is not None:
            # The bill is by our own count, and so the request before is, too.
            usage = Usage(bill.total, 0, bill.read, bill.write_5m, bill.write_1h)
            comparison = structs.replace(comparison, old=structs.replace(comparison.old, scale=0.0))
        price = Price.relative(profile.read, profile.write, profile.write_long)
        found = comparison.diagnosed(usage, profile, price)
        return found if found is not None and found.culprit and (found.lost or bill is None) else None

    def stored(self, now: float, *, is_planned: bool) -> StoredPrompt:
        """What the provider stores of the prompt that it has accepted. Unless ``is_planned``, that is the client's own
        prompt."""
        profile, own = self.analysis.profile, self.analysis.own
        if self.accepted is None:
            return StoredPrompt()
        prompt, read = self.accepted.prompt, self.accepted.bill.read
        if not is_planned:
            prompt, read = own.prompt, own.bill.read
        if prompt.total < profile.min_tokens:
            return StoredPrompt()
        if profile.family is not Family.MARKER or prompt.endings:
            return StoredPrompt(now + profile.life_s, prompt.total, 0, read)
        if not prompt.marks:
            return StoredPrompt()
        life_s = profile.long_life_s if "1h" in prompt.marks.values() else profile.life_s
        return StoredPrompt(now + life_s, prompt.total, prompt.total - prompt.ends[max(prompt.marks)], read)

    def accept(self, caches: ShadowCaches, now: float) -> None:
        """The provider has accepted the prompt. This is called again if the client's own request was sent after an
        empty answer: the provider has then seen both requests."""
        analysis, is_first = self.analysis, self.accepted is None
        own, choice, profile, at = analysis.own, analysis.choice, analysis.profile, analysis.incoming.now
        # What can be read was decided when the request came: entries that were written after that do not count.
        prompt, bill = own.prompt, own.sent_bill
        if not self.sends_own:
            prompt, bill = choice.layout.prompt(choice.marks), choice.bill
        last_use = caches.sent.last_use(prompt, bill.hit, at) if bill.hit >= 0 else None
        caches.sent_cost += cost_of(profile, bill)
        stores = [(caches.sent, prompt)]
        if is_first:
            caches.own_cost += cost_of(profile, own.bill)
            stores.append((caches.own, own.prompt))
        bills = None
        if analysis.recognised.transcript.notices:
            # System messages within the conversation may stand elsewhere than the proxy believes. The provider's report
            # then tells which of the two assumptions holds.
            owns = elsewhere(own.arrived, own.prompt.marks)
            other = owns if self.sends_own else elsewhere(choice.layout, choice.marks)
            if owns is not None and other is not None:
                stores += [(caches.sent, other), (caches.own, owns)][: 1 + is_first]
                bills = caches.sent.bill(other, at), caches.own.bill(owns, at)
        self.accepted = Accepted(prompt, bill, last_use, bills)
        if profile.after_answer:
            self.waiting += stores
        else:
            for cache, stored in stores:
                cache.store(stored, at, now)
        if not self.sends_own:
            # A later request that begins like the order that was sent may be read from the cache.
            layouts, newest = analysis.session.layouts, tuple(choice.layout.digests)
            if newest in layouts:
                layouts.remove(newest)
            remember(layouts, newest, _REMEMBERED_LAYOUTS)
            analysis.session.cohort.laid_out(newest)
            if analysis.key is not None:
                caches.observations.key_was(accepted=True)

    def complete(self, caches: ShadowCaches, usage: Usage | None, now: float, *, is_predicted: bool) -> PlanResult:
        """Count the exchange once. ``usage`` is the provider's report of the prompt that was sent. ``is_predicted``
        says whether the report is compared with what was expected."""
        analysis = self.analysis
        for cache, prompt in self.waiting:
            cache.store(prompt, analysis.incoming.now, now)
        self.waiting.clear()
        deviation = self._compare(caches, usage, now, is_predicted=is_predicted) if usage is not None else ""
        session, observation = analysis.session, analysis.observation
        if observation.turns == session.turns and not observation.is_retry:
            observation = replace(observation, is_retry=True)
        # Requests that were planned from the same state are one observation of their pieces: only the first one counts.
        newest = session.turns
        is_sibling = newest != analysis.turns_before and observation.turns[: len(newest)] != newest
        pieces, is_new = analysis.pieces, session.preamble != observation.preamble
        commit_reading(session, observation, now, pieces.edits, pieces.usual_edit)
        if observation.is_retry:
            return PlanResult(deviation=deviation)
        if is_new:
            commit_preamble(session, analysis.recognised)
        retrieved = [document.digest for document in analysis.recognised.retrieved]
        if retrieved or session.documents:
            session.documents = followed(session.documents, retrieved, pieces.documents, session.cohort.documents)
        sizes, tracker, moves = analysis.elements.sizes, session.tracker, list[Change]()
        items = [Tracked(item.key, item.digest, sizes.get(item.key, 0)) for item in analysis.recognised.items]
        if not is_sibling and (items or tracker.items):
            moves = tracker.update(items)
        return PlanResult(moves, deviation)

    def as_marked(self, caches: ShadowCaches, now: float) -> Bill | None:
        """What the request would have cost in mode mark if all requests had been sent in that mode. None if mode mark
        is the mode that was sent, or if it adds no marker. Long pauses and split texts are not considered, because an
        estimate must not cost as much as the thing that it estimates."""
        own, profile, incoming = self.analysis.own, self.analysis.profile, self.analysis.incoming
        is_full = profile.family is not Family.MARKER or own.mark_count >= slots_of(incoming.parsed.members, profile)
        if self.accepted is None or incoming.mode is Mode.MARK or is_full:
            return None
        if own.arrived.total < profile.min_tokens:
            return Bill(0, 0, 0, own.arrived.total)  # nothing of it is stored
        pricing = replace(self.analysis.pricing(), cache=caches.marked, outlook=None)
        judged = pricing.read(own.arrived, is_natural=True, known=self.analysis.natural)
        choice = pricing.best_marks(judged, Reason.MARKED, own.marks, own.mark_count)
        caches.marked.store(choice.layout.prompt(choice.marks), incoming.now, now)
        return choice.bill

    def _compare(self, caches: ShadowCaches, usage: Usage, now: float, *, is_predicted: bool) -> str:
        """Compare the provider's report with what was expected, and return the kind of deviation. The difference is
        part of the realised regret. Entries that the provider evidently does not hold are dropped."""
        accepted, profile, own = self.accepted, self.analysis.profile, self.analysis.own
        if accepted is None:
            return ""
        prompt, bill, other = accepted.prompt, accepted.bill, accepted.elsewhere
        caches.sent_cost += unpredicted_cost(profile, bill, usage)
        if usage.estimated or not is_predicted:
            return ""
        stops = [*prompt.marks, *prompt.endings[-1:]]
        age_s, life_s = accepted.last_use or (None, 0.0)
        seen = Observation(
            predicted=bill,
            reported=usage,
            marked=prompt.ends[max(stops)] if stops else 0,
            age_s=age_s,
            life_s=life_s,
            distance=min((p - bill.hit for p in stops if p >= bill.hit >= 0), default=0),
            elsewhere=other[0] if other else None,
            scale=self.comparison.old.scale if self.comparison is not None else 0.0,
        )
        deviation = caches.observations.observe(seen, profile, now)
        if deviation in LOST:
            caches.sent.forget(prompt, missing(prompt, bill, usage))
        is_own = (prompt.hashes, prompt.marks) == (own.prompt.hashes, own.prompt.marks)
        if deviation is Deviation.MOVED_SYSTEM and other is not None:
            # The client's own request would have had the same deviation.
            caches.own_cost += cost_of(profile, other[1]) - cost_of(profile, own.bill)
        elif deviation is Deviation.MORE_READ and is_own:
            # The client's own request was sent, so that more was read is no gain of ours. If only such requests had
            # been sent, the provider would hold no less of them.
            caches.own_cost += min(0.0, unpredicted_cost(profile, own.bill, usage))
        return deviation


_MOST_TALKS = 8192
_TALK_BYTES = 400
_MOST_TURNS = 64


class Diagnosing:
    """Says for each request why it was not read from the cache.

    The records of a session belong to the session, and are shared together with it. The names by which a conversation
    is found when it continues with another model are kept here, in memory only, in about ``capacity_bytes``.
    """

    def __init__(self, sessions: SessionTable, capacity_bytes: int) -> None:
        self._sessions = sessions
        self._talks: LastUsed[tuple[str, bytes], str] = LastUsed(min(_MOST_TALKS, capacity_bytes // _TALK_BYTES))

    def compare(self, in_flight: InFlight, *, is_own: bool) -> None:
        """Compare what is sent with what the conversation has sent before. ``is_own``: the client's own layout is sent.
        This is called again if it turns out later that the client's own layout is sent."""
        analysis, incoming = in_flight.analysis, in_flight.analysis.incoming
        session, route = analysis.session, incoming.route
        layout = analysis.own.arrived if is_own else analysis.choice.layout
        marks = analysis.own.prompt.marks if is_own else analysis.choice.marks
        last = session.sent
        transcript, before = analysis.recognised.transcript, session.prompts
        if not before and transcript.is_answered:
            # At the conversation's first request to a model, or behind an edited opening, these are its records so far.
            known = chain.from_iterable(map(partial(_names, transcript), range(_MOST_TURNS)))
            others = (self._sessions.get(self._talks.get((route.scope, name), "")) for name in known)
            other = next((one for one in others if one is not None and one is not session), None)
            before = other.prompts if other is not None else before
        for name in _names(transcript):
            self._talks.put((route.scope, name), session.id)
        parameters = last.record.parameters
        if layout.seed != last.seed:
            breaking = analysis.profile.breaking
            names = (*breaking.before_tools, *breaking.before_system, *breaking.before_messages)
            parameters = {name: digest(raw) for name, raw in given_members(incoming.parsed.members, names).items()}
            if incoming.transcript.media_at >= 0:
                parameters[IMAGES] = IMAGE_SHOWN
        head = PromptRecord(
            at=incoming.now,
            model=route.model,
            route=route.upstream,
            parameters=parameters,
            stops=sorted([layout.ends[position] for position in marks]),
            long=max((layout.ends[position] for position, life in marks.items() if life == "1h"), default=0),
        )
        in_flight.shows_own = is_own
        in_flight.sent = sent_prompt(layout, analysis.recognised.messages, head, last)
        marks_own = incoming.mode < Mode.MARK
        in_flight.comparison = compared(before, in_flight.sent.record, marks_own=marks_own)

    def complete(self, in_flight: InFlight, usage: Usage | None, deviation: str, price: Price | None) -> Break | None:
        """The exchange counts, and the session remembers its record. Returns why the request was not read from the
        cache (None: it was). ``usage`` is the provider's report, and ``deviation`` says how it differs from what was
        expected. ``price`` is the model's price, None if it is not known."""
        analysis, sent, comparison = in_flight.analysis, in_flight.sent, in_flight.comparison
        session, profile = analysis.session, analysis.profile
        record = sent.record.answered(usage, profile)
        found = comparison.diagnosed(usage, profile, price, deviation) if comparison is not None else None
        if found is not None and not found.lost:
            found = None
        elif found is not None and found.kind is BreakKind.REORDERED and not in_flight.shows_own:
            found = replace(found, is_waste=False)  # the planner has weighed what it costs
        session.prompts, session.sent = [*session.prompts, record][-MAX_PROMPTS:], sent
        return found


def _names(transcript: Transcript, back: int = 0) -> Iterator[bytes]:
    """The names that the last turn, or the one that stands so many turns in front of it, gives a conversation: with
    what stands in front of it, and, of a user's turn, without the context in between."""
    at = len(transcript.turns) - 1 - back
    if at >= transcript.preamble:
        yield digest(*transcript.turns[max(transcript.preamble, at - 1) : at + 1])
        yield from [pair for place, pair in transcript.pairs[-1 - back :] if place == at]


def inventory_of(in_flight: InFlight) -> Inventory:
    """The items of a request, each with its current N. Words around the context count as part of the files."""
    analysis, recognised = in_flight.analysis, in_flight.analysis.recognised
    elements, tracker = analysis.elements, analysis.session.tracker
    # A document's share of the message's tokens is its share of the message's characters.
    documents = {
        one.key: message.tokens * len(one.text) // max(1, len(message.text or ""))
        for system in recognised.system
        for message in (recognised.messages[system.message],)
        for one in system.documents
    }
    sizes = {**elements.sizes, **documents}
    head = [ListedItem("system:tools", sum(one.tokens for one in elements.tools))] if elements.tools else []
    head += [ListedItem(f"system:{place}", one.tokens) for place, one in enumerate(elements.preamble)]
    if documents:
        # The documents stand in the last system text, and are listed as items of their own.
        head[-1] = structs.replace(head[-1], tokens=head[-1].tokens - sum(documents.values()))
    sections = [ListedSection(Tier.L0, "system", 0, tuple(head))]
    pieces: dict[tuple[Tier, str], list[ListedItem]] = {}
    for piece in recognised.items:
        place = (tracker.tier(piece.key), "symbols" if piece.kind is PieceKind.SYMBOL else "files")
        pieces.setdefault(place, []).append(ListedItem(piece.key, sizes.get(piece.key, 0), tracker.n(piece.key)))
    sections += [ListedSection(*place, 0, tuple(items)) for place, items in sorted(pieces.items())]
    turns = sum(turn.tokens for turn in chain(elements.turns, elements.notices))
    last = ListedItem("prompt", sum(turn.tokens for turn in elements.tail))
    around = analysis.own.natural.total - turns - last.tokens - sum(section.tokens for section in sections)
    if pieces and around > 0:
        sections.append(ListedSection(Tier.ACTIVE, "files", around))
    sections.append(ListedSection(Tier.ACTIVE, "history", 0, (ListedItem("history", turns),) if turns else ()))
    sections.append(ListedSection(Tier.ACTIVE, "prompt", 0, (last,)))
    standing = tuple(sorted((one for one in sections if one.items or one.words), key=attrgetter("tier")))
    filled = {section.tier for section in standing}
    return Inventory(standing, empty_tiers=sum(tier not in filled for tier in CACHED))


def breakpoints(in_flight: InFlight, *, is_planned: bool) -> list[tuple[int, float]]:
    """The places up to which the prompt that was sent may be read next time, in tokens, and for how many seconds each.
    They are its markers, or the boundary that the provider sets itself. ``is_planned``: the plan was sent, and not the
    client's own request."""
    accepted, analysis = in_flight.accepted, in_flight.analysis
    if accepted is None:
        return []
    prompt, profile = accepted.prompt if is_planned else analysis.own.prompt, analysis.profile
    if prompt.total < profile.min_tokens or profile.family is Family.NONE:
        return []
    if prompt.marks:
        lives = {"5m": profile.life_s, "1h": profile.long_life_s or profile.life_s}
        return [(prompt.ends[place], lives[life]) for place, life in sorted(prompt.marks.items())]
    if profile.family is Family.MARKER and not prompt.endings:
        return []
    return [(prompt.ends[prompt.endings[-1]] if prompt.endings else prompt.total, profile.life_s)]


_BUCKETS = 1 << 32


@dataclass(frozen=True, slots=True)
class PlannerOptions:
    """``holdout`` is the share of sessions that are sent unchanged, as controls. ``routing_keys``: if a provider keeps
    a conversation's requests together by a key, a key is sent to it. ``steady_tools``: tools that come again in another
    order or form are sent as they first came. ``texts_again`` says when the operator's text of an earlier turn is sent
    again. ``prices_mark``: after each request the planner computes what it would have cost in mode mark."""

    holdout: float = 0.0
    routing_keys: bool = True
    steady_tools: bool = True
    texts_again: Again = Again.BY_PRICE
    prices_mark: bool = False

    def is_control(self, scope: str, opening: bytes) -> bool:
        """Whether a session is one of the controls. The hash of its scope and its opening decides this, so that the
        answer is the same for all its requests in every process."""
        drawn = int.from_bytes(digest(b"holdout", scope.encode(), opening)[:4])
        return drawn < self.holdout * _BUCKETS


TREATED, CONTROL = "treated", "control"
"""The arms of the hold-out."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is sent for one request, and why. ``body`` is complete JSON, ready for the wire. If ``write`` is not None,
    it has still to make the body, and until then ``body`` is the original.

    ``original`` is the client's request with only the edits that every mode allows; a retry after a refused rewrite
    sends it. ``reason`` is from a closed vocabulary (``proxy.kit.modes``). ``predicted`` and ``own`` are the shadow
    cache's bills: of this plan, and of the client's own layout with the client's own markers. ``tier_tokens`` are the
    tokens of context pieces by their tier. ``segment_tokens`` are the tokens of the whole prompt by segment; a segment
    ends at a marker. ``arm`` is the arm of the hold-out, empty without one. ``session`` is the planner's name for the
    conversation, empty if it saw none. ``headers`` are added unless the client sends a header of that name. Only the
    planner changes ``in_flight``. ``client`` is the recogniser that knows the client's texts, empty if none does.
    ``price`` is the model's price in USD a token, if it is known. ``texts`` are the operator's texts in the request,
    which the planner remembers. ``counted`` is called once when the exchange counts, with the reported usage. It
    returns the moves of pieces that the planner does not track itself. ``edits`` says how many messages or panels were
    edited because a client asked for it, by the reason. ``contents`` measures what the request consists of, if it was
    assembled from structured context; any thread may call it. ``changes`` are the changes that lead from the client's
    request to ``body``; None if these can only be the edits that every mode allows. ``surprise`` is an internal error
    of the proxy that was contained.
    """

    body: bytes
    original: bytes
    mode: Mode
    reason: str
    predicted: Bill | None = None
    own: Bill | None = None
    tier_tokens: Mapping[str, int] = field(default_factory=dict)
    segment_tokens: Mapping[str, int] = field(default_factory=dict)
    arm: str = ""
    session: str = ""
    headers: Sequence[tuple[str, str]] = ()
    in_flight: InFlight | None = None
    client: str = ""
    price: Price | None = field(default=None, compare=False, repr=False)
    texts: TextsInFlight | None = field(default=None, compare=False, repr=False)
    counted: Callable[[Usage | None], Sequence[Change]] | None = field(default=None, compare=False, repr=False)
    edits: Mapping[Edit, int] = field(default_factory=dict)
    contents: Callable[[], Inventory] | None = field(default=None, compare=False, repr=False)
    surprise: Exception | None = None
    changes: BodyChanges | None = field(default=None, compare=False, repr=False)
    write: Callable[[], BodyChanges] | None = field(default=None, compare=False, repr=False)

    def written(self, *, has_body: bool = True) -> "Plan":
        """The plan with its changes, and with its body if it ``has_body``. This changes no other state, so another
        thread may call it."""
        if self.write is None:
            return self
        try:
            changes = self.write()
            return replace(self, body=changes.body() if has_body else self.body, changes=changes, write=None)
        except Exception as error:  # noqa: BLE001 - fidelity rule 7: caching never fails a request
            return as_it_came(self.original, self.mode, error)

    @property
    def rewritten(self) -> bool:
        """Whether the body has more changes than the edits that every mode allows."""
        return self.body is not self.original and self.body != self.original


def as_it_came(original: bytes, mode: Mode, error: Exception) -> Plan:
    """The plan after an internal error of the proxy: caching never fails a request (fidelity rule 7)."""
    if isinstance(error, Unreadable):
        return Plan(original, original, mode, Reason.UNREADABLE)
    return Plan(original, original, mode, Reason.INTERNAL_ERROR, surprise=error)


CHANGES_NOTHING = frozenset(
    {
        Reason.CLIENT_OPTIMAL, Reason.NATURAL_ORDER, Reason.NOTHING_STABLE, Reason.ONE_SHOT, Reason.BELOW_MINIMUM,
    }
)  # fmt: skip


def planned_changes(analysis: PlanAnalysis) -> BodyChanges:
    """The changes for the plan's order, markers, tools and routing key."""
    incoming, choice = analysis.incoming, analysis.choice
    parsed, route, mode = incoming.parsed, incoming.route, incoming.mode
    changes = dict(incoming.edits)
    if analysis.key is not None and analysis.is_key_in_body:
        changes[analysis.key[0]] = orjson.dumps(analysis.key[1])
    if analysis.steady_tools is not None:
        changes["tools"] = analysis.steady_tools
    messages = analysis.recognised.messages
    own = choice.reason in (Reason.CLIENT_OPTIMAL, Reason.REGRET_BOUND)
    # In mode mark the client's markers stay, even if the provider ignores or refuses them.
    if own and (mode is Mode.MARK or not analysis.own.has_foreign_marks):
        return changes_as_read(incoming, messages, changes)
    if choice.layout.seed.is_implicit is not analysis.own.natural.seed.is_implicit:
        changes["prompt_cache_options"] = NO_BOUNDARIES
    dialect = route.profile.dialect
    keep = mode is Mode.MARK and choice.reason is not Reason.SPLIT and not incoming.front
    marks = {p: life for p, life in choice.marks.items() if not keep or choice.layout.parts[p].own_mark is None}
    if analysis.elements.tools:
        last = len(analysis.elements.tools[0].parts) - 1
        raw_tools = analysis.steady_tools or bytes(parsed.members["tools"])
        changes["tools"] = render_tools(raw_tools, marks.get(last), dialect, keep_own=keep)
    if choice.layout is analysis.own.natural and parsed.span is not None and not incoming.front:
        rewritten = patches(choice.layout, messages, marks, dialect, incoming.transcript.marked, keep_own=keep)
        return BodyChanges(parsed, changes, {**_inlaid(incoming, messages), **rewritten})
    written = render_messages(choice.layout, messages, marks, dialect, keep_own=keep)
    return BodyChanges(parsed, changes, messages=written)


def changes_as_read(
    incoming: IncomingChat, messages: Sequence[Message], changes: Mapping[str, bytes | None]
) -> BodyChanges:
    """These changes of top-level members. The messages are the client's messages, with two exceptions: the operator's
    texts that ``messages`` may contain, and the messages that were sent in another form before."""
    front = incoming.front
    if not front:
        return BodyChanges(incoming.parsed, changes, _inlaid(incoming, messages))
    written = [*written_front(front, messages), *(message.raw for message in messages[incoming.laid_out :])]
    return BodyChanges(incoming.parsed, changes, messages=written)


def _inlaid(incoming: IncomingChat, messages: Sequence[Message]) -> Mapping[int, bytes]:
    """The messages that the operator's texts were inserted into, by their index."""
    if not incoming.route.has_texts:
        return {}
    came = incoming.transcript.messages
    return {i: new.raw for i, (old, new) in enumerate(zip(came, messages, strict=True)) if old.raw != new.raw}
