"""Brings together what several processes know about the same sessions, cohorts and caches, through named blobs.

A snapshot of a session holds digests, counts, times, and the keys of context pieces (which name files), and no text. It
carries the version of its layout. A snapshot with another version is not used, and the session is learnt anew. Blobs
are not trusted: a blob that does not fit raises ``Unreadable``.

Requests that were sent in another layout than the client's own are remembered as well (``FrontTable``), because signed
thinking binds everything in front of it. Newer models sign their thinking. Later they refuse it unless the tools, the
system text and all messages in front of it are those that they saw. The answer to any request may come back with signed
thinking. So the layout is remembered in digests. A request of which nothing is remembered was sent as it came, behind
the part that its own signed thinking bound. Each request is remembered by its whole content, so no other request and
no other process can replace it.

A ``StateLookup`` says under which ``names`` other processes may have left something about a request, and can ``adopt``
it. ``snapshot`` makes the blobs to leave for other processes. A name may lead to another one (a session mark leads to a
session's id). So a caller asks for names, loads those that it has not loaded yet, and asks again, until there is
nothing new. Of two versions, the one that has seen more counts. If processes write at the same time, facts may be lost.
This makes a forecast less precise, but never loses a request.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain, repeat
from typing import Annotated, Final, TypeVar

from msgspec import DecodeError, Meta, Struct, msgpack

from proxy.kit.lru import Bounded
from proxy.kit.value import digest
from proxy.planner.session import (
    PreambleKey,
    Session,
    SessionCohort,
    SessionMark,
    SessionMemory,
    SessionTable,
)
from proxy.planner.shadow import ShadowCaches
from proxy.planner.tiers import Classic, Item
from proxy.planner.volatile_lines import PreambleChanges, Regions, joined_regions
from proxy.protocol.caches import Cache, PromptPositions
from proxy.protocol.caches.table import Entry
from proxy.protocol.request.reader import Route
from proxy.protocol.request.transcript import Transcript
from proxy.protocol.wire.json_body import Unreadable

VERSION: Final = 15

# The suffixes by which a cache model may tell lives apart within a scope (``MarkerCache``).
_LIVES: Final = (b"", b"/5m", b"/1h")
# The fields of a cohort that a request itself gives.
_BY_REQUEST: Final = frozenset({"key", "has_tools"})
# A shared opening of sessions (tools, instructions, examples) rarely has more positions.
_OPENING_POSITIONS: Final = 48


class SavedEntries(Struct, frozen=True, array_like=True):
    """Entries of a cache along one prompt that have the same dates. ``table`` and ``life`` say in which table of the
    cache they are, and with which life."""

    table: Annotated[int, Meta(ge=0)]
    scope: bytes
    life: Annotated[int, Meta(ge=0)]
    available: float
    expiry: float
    life_s: float
    hashes: list[bytes]
    tokens: list[int]


class PackedHead(Struct, frozen=True, array_like=True):
    """The changes in the heads of a client's requests."""

    version: int
    changes: PreambleChanges


class PackedCohort(Struct, frozen=True, array_like=True):
    """A cohort, and the entries that caches hold for the beginning of the prompt, which its sessions share."""

    version: int
    cohort: SessionCohort
    held: dict[str, list[SavedEntries]]


class PackedSession(Struct, frozen=True, array_like=True):
    """A session with its tracker, and the entries that caches hold along its last prompts."""

    version: int
    id: Annotated[str, Meta(min_length=1)]
    cohort_key: bytes
    has_tools: bool
    preamble_key: PreambleKey
    memory: SessionMemory
    target_tokens: int
    pieces: dict[str, Item]
    sequence: int
    held: dict[str, list[SavedEntries]]


P = TypeVar("P")

SESSION: Final = msgpack.Decoder(PackedSession)
COHORT: Final = msgpack.Decoder(PackedCohort)
HEAD: Final = msgpack.Decoder(PackedHead)
_encode: Final = msgpack.Encoder().encode


def held_along(cache: Cache, prompt: PromptPositions, *, opening_only: bool = False) -> list[SavedEntries]:
    """The entries that a cache holds along a prompt."""
    hashes = prompt.hashes[:_OPENING_POSITIONS] if opening_only else prompt.hashes
    found: list[SavedEntries] = []
    for number, table in enumerate(cache.tables):
        get = table.get
        for life, suffix in enumerate(_LIVES):
            last, keys = None, zip(repeat(prompt.scope + suffix), hashes)
            for one, entry in zip(hashes, map(get, keys), strict=True):
                if entry is None:
                    continue
                dates = entry.available, entry.expiry, entry.life_s
                if dates != last:
                    found.append(SavedEntries(number, prompt.scope, life, *dates, [], []))
                    last = dates
                found[-1].hashes.append(one)
                found[-1].tokens.append(entry.tokens)
    return found


def hold(cache: Cache, held: Iterable[SavedEntries]) -> None:
    """Add the entries that the provider holds according to another process."""
    for group in held:
        if group.table >= len(cache.tables) or group.life >= len(_LIVES):
            continue
        table, scope = cache.tables[group.table], group.scope + _LIVES[group.life]
        for one, tokens in zip(group.hashes, group.tokens, strict=False):
            table.adopt((scope, one), Entry(group.available, group.expiry, group.life_s, tokens))


def unpacked(decoder: msgpack.Decoder[P], blob: bytes) -> P:
    """A snapshot of the kind that the decoder reads. Raises Unreadable."""
    try:
        found = decoder.decode(blob)
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Unreadable("no snapshot") from error
    if getattr(found, "version", None) != VERSION:
        raise Unreadable("a snapshot of another version")
    return found


_MOST_FORMS = 8
_MOST_HEADS = 64
_FORMS, _HEADS = "f", "g"
"""The beginnings of the names in a store."""


class SentForm(Struct, frozen=True, array_like=True):
    """The form in which a request of ``count`` messages was sent. ``key`` is the digest of its tools and messages as
    they came. ``elements`` are the digests of its elements in the order in which they were sent. ``regions`` are the
    regions of its system messages that were known to be volatile. ``tools`` are the digests of its tools as they were
    sent, if their order was not the client's."""

    count: int
    key: bytes
    elements: tuple[bytes, ...]
    regions: Regions = ()
    tools: tuple[bytes, ...] = ()


class SentFront(Struct, frozen=True, array_like=True):
    """The facts that are known under one name. ``forms`` are those of a request without signed thinking, or of a
    conversation with signed thinking, the newest last. ``heads`` are the digests of all tools and instructions under
    which a conversation was sent up to some request; empty if they are not known."""

    version: int = VERSION
    forms: tuple[SentForm, ...] = ()
    heads: frozenset[bytes] = frozenset()


_DECODER: Final = msgpack.Decoder(SentFront)
_NOTHING: Final = SentFront()


class FrontTable:
    """The conversations that were sent. The least recently used are dropped first. All models and deployments get the
    same form."""

    def __init__(self, *, capacity_bytes: int) -> None:
        self._known: Bounded[str, SentFront] = Bounded(capacity_bytes, _weight)

    def bound(self, scope: str, transcript: Transcript, tools: bytes) -> tuple[int, SentForm | None]:
        """How many messages of a request with signed thinking must keep their places, and the form in which the first
        of them were sent; None if they were sent as they came. ``tools`` is the digest of its tools as they came.

        Nothing is bound if all thinking was made under other instructions: the client has changed them since."""
        names = _forms_names(scope, transcript, tools)
        known = list(chain.from_iterable(self._known.get(name, _NOTHING).forms for name in names))
        fitting = [f for f in known if f.count in transcript.signed and f.key == key_of(transcript, tools, f.count)]
        form = max(fitting, key=lambda one: one.count, default=None)
        if form is not None:
            # The conversation keeps this form, and passes it on to other processes with each request.
            self._put(names[-1], [*(one for one in known if one != form), form])
        newest, messages = transcript.signed[-1], transcript.messages
        if form is None and newest != transcript.signed[0]:
            # If there is only one message with thinking, it cannot be known under which instructions it was made: many
            # conversations begin alike, with answers that a client writes itself, and not all were remembered.
            heads = self._known.get(_heads_name(scope, transcript, newest), _NOTHING).heads
            if heads and key_of(transcript, tools, transcript.preamble) not in heads:
                return 0, None
        still = newest + 1
        while still < len(messages) and messages[still].is_answer:
            still += 1  # nothing is inserted in front of an answer
        return still, form

    def sent(self, scope: str, transcript: Transcript, tools: bytes, form: SentForm | None) -> Sequence[str]:
        """Record that a request was sent: in this ``form``, or as it came (None). Returns the names under which this is
        remembered: that of its form, and that of its heads."""
        name = _forms_names(scope, transcript, tools)[-1]
        heads_name = _heads_name(scope, transcript, len(transcript.messages))
        if form is not None or name in self._known:
            own = form.key if form is not None else key_of(transcript, tools, len(transcript.messages))
            kept = [one for one in self._known.get(name, _NOTHING).forms if one.key != own]
            self._put(name, [*kept, *([form] if form is not None else ())])
        heads = known = self._known.get(heads_name, _NOTHING).heads
        if transcript.signed:
            heads = self._known.get(_heads_name(scope, transcript, transcript.signed[-1]), _NOTHING).heads
        if heads or not transcript.signed:
            self._put(heads_name, heads=heads | known | {key_of(transcript, tools, transcript.preamble)})
        return name, heads_name

    def packed(self, names: Iterable[str]) -> dict[str, bytes]:
        """The blobs to leave for other processes. A conversation that was sent as it came, under one head, leaves
        nothing."""
        found = {name: self._known.get(name) for name in names}
        return {name: msgpack.encode(one) for name, one in found.items() if one is not None and len(one.heads) != 1}

    def adopt(self, name: str, blob: bytes) -> None:
        """Take over a blob of another process. Raises Unreadable."""
        theirs, ours = unpacked(_DECODER, blob), self._known.get(name, _NOTHING)
        self._put(name, [*theirs.forms, *ours.forms], theirs.heads | ours.heads)

    def _put(self, name: str, forms: Iterable[SentForm] = (), heads: frozenset[bytes] = frozenset()) -> None:
        newest = tuple(dict.fromkeys(forms))[-_MOST_FORMS:]
        self._known.put(name, SentFront(forms=newest, heads=heads if len(heads) <= _MOST_HEADS else frozenset()))


def names_of(scope: str, transcript: Transcript, tools: bytes) -> list[str]:
    """The names under which other processes may have left something about a request."""
    if not transcript.signed:
        return []
    return [*_forms_names(scope, transcript, tools), _heads_name(scope, transcript, transcript.signed[-1])]


def key_of(transcript: Transcript, tools: bytes, count: int) -> bytes:
    """The digest of the tools and of the first ``count`` messages as they came."""
    return digest(tools, b"".join([message.digest for message in transcript.messages[:count]]))


def _forms_names(scope: str, transcript: Transcript, tools: bytes) -> list[str]:
    """The names of the request whose answer had the first signed thinking, and of the conversation since then. Without
    signed thinking: only the name of the request itself."""
    first = transcript.signed[0] if transcript.signed else len(transcript.messages)
    counts = (first, first + 1) if transcript.signed else (first,)
    keys = [key_of(transcript, tools, count) for count in counts]
    return [_FORMS + digest(b"front", scope.encode(), key).hex() for key in keys]


def _heads_name(scope: str, transcript: Transcript, count: int) -> str:
    """The name of the heads of the first ``count`` messages. The instructions do not count, nor whether the client has
    kept older thinking."""
    said = [part.digest for message in transcript.messages[transcript.preamble : count] for part in message.parts]
    return _HEADS + digest(b"heads", scope.encode(), b"%d" % count, b"".join(said)).hex()


def _weight(known: SentFront) -> int:
    forms = sum(200 + 60 * (len(f.elements) + len(f.tools)) + 1_000 * len(f.regions) for f in known.forms)
    return 300 + 60 * len(known.heads) + forms


# The beginnings of the names in a store. "l" stands for cohorts, since "c" stands for costs. The names of sent fronts
# begin with "f" and "g".
_SESSION_MARK, _SESSION, _COHORT, _HEAD, _COSTS = "m", "s", "l", "h", "c"

SENT: Final = "sent"
OWN: Final = "own"


class StateLookup:
    """Finds the state that other processes have left for one request. ``adopt`` may reveal further names to ask for.
    ``place`` holds the keys of the request, as far as they are known now."""

    def __init__(
        self,
        sessions: SessionTable,
        route: Route,
        transcript: Transcript,
        tools: bytes,
        account: bytes,
        caches: ShadowCaches,
        fronts: FrontTable,
    ) -> None:
        """``caches`` are those of the ``account``."""
        self._sessions = sessions
        self._request = route.scope, route.named, route.hint, transcript, tools
        self._caches = {SENT: caches.sent, OWN: caches.own}
        self._costs_name = costs_name(account)
        self._costs = caches.others
        self._fronts = fronts
        self._front_names = names_of(route.scope, transcript, tools)
        self.place = sessions.place(*self._request)

    def names(self) -> list[str]:
        """The names under which something may be known about the request, as far as they are known now."""
        place = self.place
        cohorts, preambles = self._keys()
        found = [self._costs_name, *map(_cohort_name, cohorts), *map(_head_name, preambles), *self._front_names]
        ids = [self._sessions.known(mark) for mark in place.session_marks]
        # A session that began here while an older one was not known shares marks with the older one.
        found += [_SESSION + session for session in dict.fromkeys(filter(None, [*ids, place.given_id]))]
        # For a mark that is known here, other processes need not be asked.
        found += [_session_mark_name(mark) for mark, known in zip(place.session_marks, ids, strict=True) if not known]
        return found

    def is_known(self) -> bool:
        """Whether this process has the request's session."""
        known = map(self._sessions.known, self.place.session_marks)
        return self._sessions.get(next(filter(None, known), self.place.given_id)) is not None

    def adopt(self, blobs: Mapping[str, bytes]) -> None:
        """Take over the state of other processes. Blobs that cannot be read are skipped."""
        place, sessions = self.place, self._sessions
        for mark in place.session_marks:
            pointer = blobs.get(_session_mark_name(mark))
            if pointer is not None:
                sessions.point(mark, pointer.decode("utf-8", "replace"))
        for name, blob in blobs.items():
            if name.startswith(_SESSION):
                with suppress(Unreadable):
                    self._take_session(blob)
        sessions.unite(place)
        cohorts, preambles = self._keys()
        takers: dict[str, Callable[[bytes], None]] = {
            _cohort_name(key): partial(self._take_cohort, key) for key in cohorts
        }
        takers |= {_head_name(preamble): partial(self._take_head, preamble) for preamble in preambles}
        for name in self._front_names:
            takers[name] = partial(self._fronts.adopt, name)
        takers[self._costs_name] = partial(self._costs.adopt, process=sessions.prefix)
        for name, take in takers.items():
            if name in blobs:
                with suppress(Unreadable):
                    take(blobs[name])
        self.place = sessions.place(*self._request, place)

    def _keys(self) -> tuple[set[bytes], set[PreambleKey]]:
        """The cohorts and the kinds of heads to which a request may belong: its own, and those of its session. They may
        differ, because instructions may have changed since the session began."""
        place, sessions = self.place, self._sessions
        cohorts, preambles = {place.cohort_key}, {place.preamble_key}
        for mark in place.session_marks:
            session = sessions.get(sessions.known(mark))
            if session is not None:
                cohorts.add(session.cohort_key)
                preambles.add(session.preamble_key)
        return cohorts, preambles

    def _take_session(self, blob: bytes) -> None:
        """Take over a session. Its cohort and the records of its head have snapshots of their own."""
        packed = unpacked(SESSION, blob)
        if not all(record.is_sound for record in packed.memory.prompts):
            raise Unreadable("no snapshot")
        session = self._sessions.get(packed.id)
        if session is None:
            session = self._sessions.begin(packed.id, packed.cohort_key, packed.preamble_key)
        if (packed.memory.requests, packed.memory.last_at) > (session.requests, session.last_at):
            session.tracker = Classic(replace(session.tracker.policy, target_tokens=packed.target_tokens))
            session.tracker.items, session.tracker.sequence = packed.pieces, packed.sequence
            session.restore(packed.memory)
        _hold(self._caches, packed.held)

    def _take_head(self, preamble: PreambleKey, blob: bytes) -> None:
        """Take over the changes, if the other process has seen more requests, and all of its volatile regions."""
        theirs, records = unpacked(HEAD, blob).changes, self._sessions.preamble(preamble)
        if theirs.requests() > records.requests():
            records.places = theirs.places
        records.regions = joined_regions(records.regions, theirs.regions)

    def _take_cohort(self, key: bytes, blob: bytes) -> None:
        packed = unpacked(COHORT, blob)
        cohort = self._sessions.cohort(key, has_tools=packed.cohort.has_tools)
        if (packed.cohort.started, packed.cohort.last_at) > (cohort.started, cohort.last_at):
            for name in SessionCohort.__struct_fields__:
                if name not in _BY_REQUEST:
                    setattr(cohort, name, getattr(packed.cohort, name))
        _hold(self._caches, packed.held)


def snapshot(session: Session, caches: ShadowCaches, sent: PromptPositions, own: PromptPositions) -> dict[str, bytes]:
    """The blobs to leave for other processes once an exchange is settled."""
    pairs = [(SENT, caches.sent, sent), (OWN, caches.own, own)]
    path = {kind: held_along(cache, prompt) for kind, cache, prompt in pairs}
    opening = {kind: held_along(cache, prompt, opening_only=True) for kind, cache, prompt in pairs}
    blobs = {_session_mark_name(mark): session.id.encode() for mark in session.known_by}
    packed = PackedSession(
        version=VERSION,
        id=session.id,
        cohort_key=session.cohort_key,
        has_tools=session.cohort.has_tools,
        preamble_key=session.preamble_key,
        memory=session.memory(),
        target_tokens=session.tracker.policy.target_tokens,
        pieces=session.tracker.items,
        sequence=session.tracker.sequence,
        held=path,
    )
    blobs[_SESSION + session.id] = _encode(packed)
    blobs[_cohort_name(session.cohort_key)] = _encode(PackedCohort(VERSION, session.cohort, opening))
    blobs[_head_name(session.preamble_key)] = _encode(PackedHead(VERSION, session.shared_head))
    return blobs


def _hold(caches: Mapping[str, Cache], held: Mapping[str, list[SavedEntries]]) -> None:
    for kind, groups in held.items():
        if kind in caches:
            hold(caches[kind], groups)


def costs_name(scope: bytes) -> str:
    """The name under which the sums of one route are known."""
    return _COSTS + scope.hex()


def _session_mark_name(mark: SessionMark) -> str:
    return _SESSION_MARK + digest(*mark).hex()


def _cohort_name(key: bytes) -> str:
    return _COHORT + key.hex()


def _head_name(key: PreambleKey) -> str:
    base, tools, count = key
    return _HEAD + digest(base, tools, b"%d" % count).hex()
