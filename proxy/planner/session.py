"""Sessions, which are recognised without the client's help, and the facts learnt from each.

The facts that all sessions of one client have in common belong to its cohort: whether sessions go on, when, and where
they break. A new session begins with them.
"""

from collections.abc import Sequence
from operator import attrgetter
from typing import Annotated, TypeVar

from msgspec import Meta, Struct, field, msgpack

from proxy.kit.lru import Bounded, LastUsed
from proxy.kit.value import dataclass, digest
from proxy.planner.change_rates import (
    FIRST_RATE,
    MAX_DOCUMENTS,
    RATE_STEP,
    CalibrationCounter,
    DecayedRate,
    DocumentOdds,
    DocumentSign,
    HistoryDivergence,
    turn_survival,
)
from proxy.planner.record import NOTHING_SENT, PromptRecord, SentPrompt
from proxy.planner.tiers import Classic, Item
from proxy.planner.volatile_lines import (
    LineHashes,
    PreambleChanges,
    Regions,
    Sketch,
    are_alike,
    sketch_of,
    with_evidence,
)
from proxy.protocol.recognition import MessageKind
from proxy.protocol.request.message import Message
from proxy.protocol.request.transcript import Transcript
from proxy.protocol.wire.json_body import utf8

_REMEMBERED_GAPS = 64
# People work in bursts: the newest gaps say more than those of an hour ago.
_GAP_DECAY = 0.8
# P(a gap is shorter than a life), before any gap was seen. This prior weighs as much as _PRIOR_WEIGHT gaps; each gap
# that was seen lowers its weight. Most pauses come singly: fitted on recorded sessions (log loss of people's gaps 0.346
# with 1, 0.326 with these).
_USUALLY_WITHIN = 0.9
_PRIOR_WEIGHT = 4.0
_PRIOR_DECAY = 0.9
# The same probability for a gap between any two requests of the cohort.
_ARRIVES_WITHIN = DecayedRate(prior=0.75, weight=2.0)
_ONE_SHOT = 0.3
# One conversation alone can send more than 15 requests a minute for a while; twice as many come from several.
_BUSY_ARRIVALS = 32
_BUSY_PER_S = 0.5
_REMEMBERED_LAYOUTS = 4
REMEMBERED_BREAKS = 32
MAX_ITEMS = 2000
_MAX_KEY_CHARS = 512
# A client that declares tools works in a loop: its conversation goes on more often than not.
_PRIOR_APPEND_TOOLS = 0.9
_PRIOR_APPEND_PLAIN = 0.6
# P(a session without tools goes on), before any session of its kind was seen.
_FIRST_GOES_ON = 0.75
GOES_ON = 0.95
"""The probability that a session goes on, if it has tools or sessions of its kind have gone on before."""


T = TypeVar("T")


class ItemRecord(Struct, frozen=True, array_like=True, gc=False):
    """A context piece over time. ``age`` is the number of requests since its last change (or since it was first seen).
    ``rate`` is the share of recent requests that changed it."""

    digest: bytes
    age: int = 0
    rate: float = FIRST_RATE

    def next_rate(self, *, is_changed: bool) -> float:
        """The rate after one more request."""
        return self.rate + RATE_STEP * (float(is_changed) - self.rate)


ItemRecords = Annotated[dict[str, ItemRecord], Meta(max_length=MAX_ITEMS)]
"""Context pieces by key, at most ``MAX_ITEMS``."""


def record_item(records: ItemRecords, key: str, seen: ItemRecord, *, is_rewrapped: bool = False) -> None:
    """Remember a piece as it was in a request that counts. The rate of a new piece begins with ``seen.rate``.
    ``is_rewrapped``: another digest does not mean that the content changed. A new piece is not recorded beyond the
    bound, or if its key is too long to be a name."""
    before = records.get(key)
    if before is not None:
        rate = before.next_rate(is_changed=seen.digest != before.digest and not is_rewrapped)
        records[key] = ItemRecord(seen.digest, seen.age, rate)
    elif len(records) < MAX_ITEMS and len(key) <= _MAX_KEY_CHARS:
        records[key] = seen


def remember(values: list[T], newest: T, most: int) -> None:
    """Add the newest value, and drop the oldest ones until there are at most ``most`` values."""
    values.append(newest)
    del values[:-most]


class SessionCohort(Struct, array_like=True):
    """Requests with the same model, tools and fixed system text of one scope; they share the head of the prompt.

    ``started`` and ``continued`` count sessions; a session that has had one request only is not counted as ended until
    the next one of the cohort starts. ``layouts`` and ``items`` are those that its sessions last sent: a new session of
    the cohort may begin with the same context. ``edits`` says how often answers edited any file, ``documents`` how long
    retrieved documents stay. ``breaks`` say where its conversations broke. ``gaps`` are the seconds between requests of
    a session, ``arrivals`` those between requests of the cohort, the oldest first. ``key`` identifies the beginning of
    the prompt.
    """

    has_tools: bool
    key: bytes = b""
    started: int = 0
    continued: int = 0
    last_at: float = 0.0
    breaks: Annotated[list[HistoryDivergence], Meta(max_length=REMEMBERED_BREAKS)] = []
    layouts: Annotated[list[tuple[bytes, ...]], Meta(max_length=_REMEMBERED_LAYOUTS)] = []
    items: ItemRecords = {}
    edits: CalibrationCounter = field(default_factory=CalibrationCounter)
    documents: DocumentOdds = field(default_factory=DocumentOdds)
    gaps: Annotated[list[float], Meta(max_length=_REMEMBERED_GAPS)] = []
    arrivals: Annotated[list[float], Meta(max_length=_REMEMBERED_GAPS)] = []

    def request(self, now: float, session_gap: float | None) -> None:
        """Record a request. It came ``session_gap`` seconds after the previous request of its session (None: it is the
        first one)."""
        if self.last_at:
            remember(self.arrivals, now - self.last_at, _REMEMBERED_GAPS)
        if session_gap is None:
            self.started += 1
        else:
            remember(self.gaps, session_gap, _REMEMBERED_GAPS)
        self.last_at = now

    def laid_out(self, layout: tuple[bytes, ...]) -> None:
        if layout not in self.layouts:
            remember(self.layouts, layout, _REMEMBERED_LAYOUTS)

    def continues(self) -> float:
        """P(a session of this cohort has another request), given that it has just had one.

        The session at hand is not counted. Before any session has ended, this one is assumed to go on: not marking a
        session's first request costs more than a wasted cache write. A client with tools works in a loop.
        """
        if self.has_tools or self.continued:
            return GOES_ON
        return _FIRST_GOES_ON / (1 + self.started)

    @property
    def is_one_shot(self) -> bool:
        """Whether the client's own past says that such conversations have only one request."""
        return self.continues() < _ONE_SHOT

    def turn_survival(self, turns: int, newest: HistoryDivergence | None, results: Sequence[int]) -> list[float]:
        """P(the next request repeats everything up to a message), for each of ``turns`` messages. ``newest`` is a break
        that was just seen and is not added yet; ``results`` are as in ``proxy.planner.change_rates``."""
        seen = [*self.breaks] if newest is None else [*self.breaks, newest]
        return turn_survival(seen, _PRIOR_APPEND_TOOLS if self.has_tools else _PRIOR_APPEND_PLAIN, turns, results)

    def returns_within(self, life_s: float, newest: float | None = None) -> float:
        """P(the next request of the session comes within ``life_s`` seconds), given that one comes. ``newest`` is a gap
        that has just ended and is not added yet."""
        gaps = [*self.gaps] if newest is None else [*self.gaps, newest]
        rate = DecayedRate(_USUALLY_WITHIN, _PRIOR_WEIGHT * _PRIOR_DECAY ** len(gaps), _GAP_DECAY)
        return rate.of([gap < life_s for gap in gaps])

    def shares_within(self, life_s: float) -> float:
        """P(any request of the cohort, of this session or another, comes within ``life_s`` seconds)."""
        return _ARRIVES_WITHIN.of([gap < life_s for gap in self.arrivals])

    def is_busy(self) -> bool:
        """Whether more requests come than one machine serves under one routing key: according to OpenAI, about 15 a
        minute."""
        recent = self.arrivals[-_BUSY_ARRIVALS:]
        return len(recent) == _BUSY_ARRIVALS and sum(recent) < _BUSY_ARRIVALS / _BUSY_PER_S


PreambleKey = tuple[bytes, bytes, int]
"""Scope and model, tools, and how many system messages there are."""

SessionMark = tuple[bytes, bytes]
"""The key by which a session is found: a pair of turns, or an opening, within a scope and model or within a cohort."""

_MAX_SESSIONS = 4096
_MAX_COHORTS = 4096
_MAX_PAIRS = 4 * _MAX_SESSIONS
# A pair takes about 300 bytes.
_PAIR_SHARE = 1_000
REMEMBERED_GAPS = 16
MAX_PROMPTS = 2
"""The number of earlier requests whose records are kept, to compare the next request with them."""
# The number of session marks of a request for which other processes are asked. Newer marks say more.
_NEWEST_PAIRS = 4


class SessionMemory(Struct, array_like=True):
    """The facts learnt from one conversation: digests, counts and times, and no text. All of them are shared with other
    processes.

    ``replaced`` are the places of the preamble in which the last request had another text. ``usual_edit`` is P(the
    answer to that request edits any file), as it was expected in general. ``opening`` identifies the beginning of the
    session: the client's id for it, or its first turn. It is the same in every process. ``noticed`` counts later
    requests with system messages within the conversation. ``notices_new`` counts those of them that had a new such
    message. ``documents`` are the last request's retrieved documents, by their digests in the client's order, and
    ``lines`` are its system messages as hashes of their lines. ``prompts`` are the records of its last requests as they
    were sent.
    """

    preamble: tuple[bytes, ...] = ()
    fixed: tuple[bytes, ...] = ()
    replaced: frozenset[int] = frozenset()
    own_head: PreambleChanges = field(default_factory=PreambleChanges)
    own_fixed: PreambleChanges = field(default_factory=PreambleChanges)
    requests: int = 0
    last_at: float = 0.0
    gaps: list[float] = []
    turns: tuple[bytes, ...] = ()
    items: ItemRecords = {}
    documents: Annotated[dict[bytes, DocumentSign], Meta(max_length=MAX_DOCUMENTS)] = {}
    candidates: dict[str, bytes] = {}
    rendered_anew: set[str] = set()
    layouts: list[tuple[bytes, ...]] = []
    is_barred: bool = False
    usual_edit: float = 0.0
    sketch: Sketch = frozenset()
    opening: bytes = b""
    routing: str = ""
    noticed: float = 0.0
    notices_new: float = 0.0
    lines: list[LineHashes] = []
    prompts: Annotated[list[PromptRecord], Meta(max_length=MAX_PROMPTS)] = []


class Session(SessionMemory, kw_only=True):
    """One conversation of one client: the facts learnt from it, and the cohort to which it belongs.

    Its ``cohort`` and the changes of its preamble (``shared_head``) are found by ``cohort_key`` and ``preamble_key``,
    which are the same in every process. ``known_by`` holds the session marks that the next request may have in common
    with the last one. ``sent`` is the record of the last request with its layout, so that what the next one has in
    common with it is taken over.
    """

    id: str
    cohort: SessionCohort
    shared_head: PreambleChanges
    cohort_key: bytes
    preamble_key: PreambleKey
    tracker: Classic = field(default_factory=Classic)
    known_by: tuple[SessionMark, ...] = ()
    sent: SentPrompt = NOTHING_SENT

    def memory(self) -> SessionMemory:
        """The learnt facts alone."""
        return SessionMemory(*(getattr(self, name) for name in SessionMemory.__struct_fields__))

    def restore(self, memory: SessionMemory) -> None:
        """Go on with the facts that another process has learnt."""
        for name in SessionMemory.__struct_fields__:
            setattr(self, name, getattr(memory, name))

    def branch_off(self, trunk: "Session") -> None:
        """Begin with the facts that another session has learnt so far."""
        self.restore(_MEMORY.decode(msgpack.encode(trunk.memory())))
        self.tracker.items = _PIECES.decode(msgpack.encode(trunk.tracker.items))
        self.tracker.policy, self.tracker.sequence = trunk.tracker.policy, trunk.tracker.sequence
        self.sent = trunk.sent

    def notice(self, transcript: Transcript) -> None:
        """Learn from a request, before it is planned, which messages its client renders anew. Such a message replaces
        an earlier one with the same opening. A turn never does this."""
        found: dict[str, bytes | None] = {}
        messages = transcript.messages
        for index in transcript.recognised:
            known = messages[index].recognition
            if known is not None and known.form is MessageKind.CANDIDATE:
                found[known.name] = None if known.name in found else messages[index].digest
        present = {message.digest for message in messages} if found else set()
        for name, one in found.items():
            before = self.candidates.get(name)
            if one is not None and before is not None and before != one and before not in present:
                self.rendered_anew.add(name)
        self.candidates = {name: one for name, one in found.items() if one is not None}


_MEMORY = msgpack.Decoder(SessionMemory)
_PIECES = msgpack.Decoder(dict[str, Item])


@dataclass(frozen=True, slots=True)
class SessionKeys:
    """The keys by which the cohort of a request, the records of its head, and its session are found.

    ``session_marks`` are looked up in their order. ``said`` are the pairs without the first one and without those in
    front of the first answer, which say less. ``beginning`` stands for all of the latter where there are several: each
    may stand in other conversations, too. ``given_id`` is the id of a session that the client has named.
    ``transcript`` holds the messages; the volatile ``regions`` are cut out of their system texts.
    """

    transcript: Transcript
    regions: Regions
    base: bytes
    cohort_key: bytes
    preamble_key: PreambleKey
    opening: bytes
    beginning: bytes
    session_marks: tuple[SessionMark, ...]
    said: Sequence[tuple[int, bytes]]
    given_id: str


class SessionTable:
    """Finds the session of a request. The least recently used sessions and cohorts are forgotten first.

    ``capacity_bytes`` bounds the memory: half is for sessions, a third for cohorts, the rest for the records of heads.
    ``prefix`` is the beginning of the ids that this process gives to sessions. Processes that share sessions have
    different prefixes.
    """

    def __init__(self, *, capacity_bytes: int, prefix: str) -> None:
        self.prefix = prefix
        self._sessions: Bounded[str, Session] = Bounded(capacity_bytes // 2, _session_bytes, _MAX_SESSIONS)
        self._cohorts: Bounded[bytes, SessionCohort] = Bounded(
            capacity_bytes // 3,
            lambda cohort: 4_000 + 400 * len(cohort.items) + 80 * sum(map(len, cohort.layouts)),
            _MAX_COHORTS,
        )
        self._heads: Bounded[PreambleKey, PreambleChanges] = Bounded(
            capacity_bytes // 6,
            lambda head: 800 + _PLACE_BYTES * len(head.places) + 1_000 * len(head.regions),
            _MAX_COHORTS,
        )
        self._by_pair: LastUsed[SessionMark, str] = LastUsed(min(_MAX_PAIRS, capacity_bytes // _PAIR_SHARE))
        self._next = 1

    def find(self, place: SessionKeys) -> Session:
        """The session that this request continues, or a new one.

        Without the client's own id, a request belongs to the session whose newest pair (last user turn and the turn
        before it) it still contains. A conversation that was continued, retried or trimmed at its beginning contains
        this pair; another one does not. If only the session's id or its first turn is known, the head must be alike,
        too, because side calls share the id and the first turn with the conversation. A session with a new id begins
        with the facts of the session that it continues: it is a branch, or its client gives each request another id.
        """
        base, opening, transcript, hint = place.base, place.opening, place.transcript, place.given_id
        preamble, pairs = transcript.messages[: transcript.preamble], transcript.pairs
        newest = transcript.newest_pairs(_NEWEST_PAIRS)
        session = None if hint else self._continued(place, newest)
        if session is None and opening:
            session = self._opened(place, preamble)
        if session is None:
            session = self.begin(hint or f"{self.prefix}{self._next}", place.cohort_key, place.preamble_key)
            if hint and (trunk := self._trunk(place, newest)) is not None:
                session.branch_off(trunk)
            session.sketch, session.opening = sketch_of(preamble), opening
        self._sessions.used(session.id)
        session.cohort.key = session.cohort.key or _front(place)
        # A client may show texts beside its prompt and not keep them. The pair before these helps if the client
        # rewrites its newest turn later. In a session's first request this pair may be an example that all sessions of
        # the client have.
        marks = [(base, pair) for _, pair in pairs[-newest - bool(session.requests) :] if pair != opening]
        marks += [] if session.requests else _grown(base, pairs, -2, len(pairs))
        if opening and (hint or len(pairs) <= 1 + bool(session.requests)):
            marks.append((place.cohort_key, opening))
            # The first session with this opening keeps it: a side call does not take the conversation's place.
            if self._sessions.get(self.known((base, opening)), session) is session:
                marks.append((base, opening))
        if place.beginning and len(place.said) <= bool(session.requests):
            marks.append((place.cohort_key, place.beginning))
        for mark in marks:
            self._by_pair.put(mark, session.id)
        if hint and pairs:
            self._by_pair.put(_first(place), session.id)
        session.known_by = tuple(marks)
        return session

    def place(
        self, scope: str, model: str, hint: str, transcript: Transcript, tools: bytes, known: SessionKeys | None = None
    ) -> SessionKeys:
        """The keys of a request, as far as they follow from the request itself and from the regions of its system texts
        that are known to be volatile. ``known`` are the keys that were made for it a moment ago."""
        # Sessions and all learnt facts of other scopes and models are kept apart.
        base = digest(scope.encode(), model.encode())
        preamble_key = (base, tools, transcript.preamble)
        records = self._heads.get(preamble_key)
        regions = records.regions if records is not None else ()
        if known is not None and known.regions is regions and known.preamble_key == preamble_key:
            return known
        pairs = transcript.pairs
        if regions:
            transcript = seen_volatile(transcript, regions)
        cohort_key = digest(base, tools, *[one.fixed for one in transcript.messages[: transcript.preamble]])
        opening = digest(b"hint", hint.encode()) if hint else pairs[0][1] if pairs else b""
        first = transcript.opening_pairs
        said = pairs[max(1, first) :]
        beginning = digest(*[pair for _, pair in pairs[:first]]) if first > 1 and not hint else b""
        marks = [] if hint else [(base, pair) for _, pair in reversed(said[-_NEWEST_PAIRS:])]
        marks += [] if hint else _grown(base, pairs, -3, len(pairs) - 1)
        marks += [(cohort_key, beginning)] if beginning else []
        if opening:
            marks += [(cohort_key, opening), (base, opening)]
        return SessionKeys(
            transcript=transcript,
            regions=regions,
            base=base,
            cohort_key=cohort_key,
            preamble_key=preamble_key,
            opening=opening,
            beginning=beginning,
            session_marks=tuple(marks),
            said=said,
            given_id=digest(base, b"hint", hint.encode(), cohort_key).hex() if hint else "",
        )

    def known(self, mark: SessionMark) -> str:
        """The id of the session that has this mark; empty if there is none. This process may not have that session, or
        no longer."""
        return self._by_pair.get(mark, "")

    def get(self, session: str) -> Session | None:
        return self._sessions.get(session)

    def point(self, mark: SessionMark, session: str) -> None:
        """Record that another process knows a session by this mark. If a session of this process has the mark, it keeps
        the mark."""
        if self._by_pair.get(mark, "") not in self._sessions:
            self._by_pair.put(mark, session)

    def unite(self, place: SessionKeys) -> None:
        """Unite the sessions that share a request's marks. A session with a single request gives its mark to the
        session with the most requests: it began only because that session was not known here in time."""
        marks = [mark for mark in place.session_marks if mark[1] != place.opening]
        found = [(mark, self._sessions.get(self._by_pair.get(mark, ""))) for mark in marks]
        known = [(mark, session) for mark, session in found if session is not None]
        eldest = max((session for _, session in known), key=attrgetter("requests"), default=None)
        for mark, session in known:
            if eldest is not None and session.requests <= 1 < eldest.requests:
                self._by_pair.put(mark, eldest.id)

    def begin(self, session: str, cohort_key: bytes, preamble_key: PreambleKey) -> Session:
        """A new session with this id, of which nothing is known yet."""
        self._next += 1
        new = Session(
            id=session,
            cohort=self.cohort(cohort_key, has_tools=bool(preamble_key[1])),
            shared_head=self.preamble(preamble_key),
            cohort_key=cohort_key,
            preamble_key=preamble_key,
        )
        self._sessions.put(session, new)
        return new

    def _continued(self, place: SessionKeys, newest: int) -> Session | None:
        """The session that knows one of the request's pairs; the newest pair is tried first. The ``newest`` pairs
        belong to the newest turn. They mean a retry if one session knows all of them. A single one may be a reminder
        that the client shows in each of its conversations."""
        base, pairs, said, known = place.base, place.transcript.pairs, place.said, self._by_pair.get
        if len({known((base, pair)) for _, pair in said[-newest:]}) > 1:
            said = said[:-newest]
        for _, pair in reversed(said):
            session = self._sessions.get(known((base, pair), ""))
            if session is not None:
                return session
        begun = self._sessions.get(known((place.cohort_key, place.beginning), ""))
        if begun is not None:
            return begun
        for mark in _grown(base, pairs, -3, len(pairs) - 1):
            return self._sessions.get(known(mark, ""))
        return None

    def _trunk(self, place: SessionKeys, newest: int) -> Session | None:
        """The session that a request with a new id continues; None if the request begins a conversation. A session with
        the same first turn is the one only if the request repeats its newest turn and adds to it: clients that measure
        models begin many conversations alike, each with an id of its own."""
        trunk, turns = self._continued(place, newest), place.transcript.turns
        if trunk is None and place.transcript.pairs:
            first = self._sessions.get(self._by_pair.get(_first(place), ""))
            if first is not None and 0 < len(first.turns) < len(turns) - place.transcript.preamble:
                trunk = first if first.turns[-1] in turns else None
        return trunk

    def _opened(self, place: SessionKeys, preamble: tuple[Message, ...]) -> Session | None:
        """The session that began with the same opening, under the same or similar instructions."""
        session = self._sessions.get(self._by_pair.get((place.cohort_key, place.opening), ""))
        if session is None:
            session = self._sessions.get(self._by_pair.get((place.base, place.opening), ""))
            if session is None or session.cohort.has_tools is not bool(place.preamble_key[1]):
                return None
            if not are_alike(session.sketch, sketch_of(preamble)):
                return None
        return session

    def preamble(self, key: PreambleKey) -> PreambleChanges:
        """The recorded changes of heads of this kind."""
        records = self._heads.setdefault(key, PreambleChanges())
        self._heads.used(key)
        return records

    def cohort(self, key: bytes, *, has_tools: bool) -> SessionCohort:
        """The cohort with this key."""
        cohort = self._cohorts.setdefault(key, SessionCohort(has_tools))
        self._cohorts.used(key)
        return cohort


def _front(place: SessionKeys) -> bytes:
    """Identifies the beginning of the prompt: the tools, which stand in front of all else, or the first words of the
    instructions. The whole of the instructions may change with each request, and their beginning may be read again."""
    lead = place.transcript.messages[0].lead if place.transcript.preamble else ""
    return place.preamble_key[1] or (digest(place.base, utf8(lead)) if lead else place.cohort_key)


def _first(place: SessionKeys) -> SessionMark:
    """The session mark of a conversation's first turn, for sessions that have ids of their client's."""
    return place.cohort_key, digest(b"first", place.transcript.pairs[0][1])


def _grown(base: bytes, pairs: Sequence[tuple[int, bytes]], place: int, count: int) -> list[SessionMark]:
    """The session mark of the pair in this ``place`` of a conversation that had ``count`` pairs. Some clients rewrite
    each turn once it is no longer the newest (they remove a reminder). From its second request on, a session of such a
    client is found by this mark. An example with which all sessions begin has no turn behind it that other sessions do
    not have: a session with the same number of turns is another one."""
    return [(base, digest(b"grown", pairs[place][1], b"%d" % count))] if len(pairs) + place > 0 else []


def seen_volatile(transcript: Transcript, regions: Regions) -> Transcript:
    """The transcript, with these regions of the system texts cut out as volatile."""
    if not regions:
        return transcript
    system = {i: with_evidence(m, i, regions) for i, m in enumerate(transcript.messages[: transcript.preamble])}
    return transcript.replaced({i: m for i, m in system.items() if m is not transcript.messages[i]})


# The bytes of a record with four numbers, most of them small, and of its slot in a list.
_PLACE_BYTES = 72


def _session_bytes(session: Session) -> int:
    """About how many bytes a session takes: the weights of its digests in tuples, of its records by key, and of an
    empty session."""
    digests = len(session.turns) + len(session.preamble) + len(session.fixed) + sum(map(len, session.layouts))
    digests += len(session.sent.digests)
    records = 2 * len(session.items) + len(session.candidates) + len(session.rendered_anew)
    numbers = sum(map(len, session.lines)) + len(session.sketch)
    places = len(session.own_head.places) + len(session.own_fixed.places)
    told = sum(record.about_bytes for record in session.prompts)
    return 4_000 + 80 * digests + 400 * records + 60 * numbers + _PLACE_BYTES * places + told
