"""What was learnt of a session, as bytes: so that another process can go on where this one stopped.

Digests, counts, times, and the keys of context pieces (which name files); no text. A snapshot carries a version of its
layout: one that this program does not know is no snapshot, and the session is learnt anew. Nothing here trusts what it
reads: what does not fit raises ``Unreadable``.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import astuple, replace
from itertools import islice
from typing import Final, TypeVar

import msgspec
from msgspec import msgpack

from proxy.core.caches import Cache
from proxy.core.caches.entries import Entry
from proxy.core.caches.prompt import Prompt
from proxy.core.layout.tiers import Classic, ClassicPolicy, Piece
from proxy.core.sessions.cohort import MAX_ITEMS, ItemRecords, SessionCohort
from proxy.core.sessions.preamble_changes import PreambleChanges
from proxy.core.sessions.session import Session
from proxy.core.sessions.volatile_lines import VolatileRegion
from proxy.core.stability.change_rates import HistoryDivergence
from proxy.core.stability.document_retention import MAX_DOCUMENTS, DocumentSign, State
from proxy.core.stability.mention_calibration import CalibrationCounter, Reliance
from proxy.core.wire.json_body import Unreadable

VERSION: Final = 11

# How a cache model may tell lives apart within a scope (``MarkerCache``).
_LIVES: Final = (b"", b"/5m", b"/1h")
# An opening that sessions share is rarely more: tools, instructions, examples.
_OPENING_POSITIONS: Final = 48


class SavedEntries(msgspec.Struct, frozen=True, array_like=True):
    """Entries of a cache along one prompt that have the same dates. ``table`` and ``life`` say where they are."""

    table: int
    scope: bytes
    life: int
    available: float
    expiry: float
    life_s: float
    hashes: list[bytes]
    tokens: list[int]


Tally = tuple[float, float, float]
"""``CalibrationCounter``."""

Counts = tuple[list[int], list[int], list[int], list[int]]
"""Requests seen and changed, by place: of texts that stood there before, and of those that had just changed."""


class PackedHead(msgspec.Struct, frozen=True, array_like=True):
    """``PreambleChanges``."""

    version: int
    seen: list[int]
    changes: list[int]
    fresh_seen: list[int]
    fresh_changes: list[int]
    regions: list[tuple[int, list[int], list[int], int]]


class PackedLane(msgspec.Struct, frozen=True, array_like=True):
    """``SessionCohort``, and what caches hold of the prompt's beginning that its sessions share."""

    version: int
    has_tools: bool
    started: int
    continued: int
    last_at: float
    breaks: list[HistoryDivergence]
    layouts: list[list[bytes]]
    items: ItemRecords
    opening: list[bytes] | None
    gaps: list[float]
    arrivals: list[float]
    reliance: tuple[Tally, Tally, Tally]
    documents: State
    held: dict[str, list[SavedEntries]]


class PackedSession(msgspec.Struct, frozen=True, array_like=True):
    """``Session``, and what caches hold along its last prompts."""

    version: int
    id: str
    cohort_key: bytes
    has_tools: bool
    preamble_key: tuple[bytes, bytes, int]
    preamble: list[bytes]
    fixed: list[bytes]
    own_head: Counts
    own_fixed: Counts
    replaced: list[int]
    requests: int
    last_at: float
    gaps: list[float]
    turns: list[bytes]
    items: ItemRecords
    candidates: dict[str, bytes]
    rendered_anew: list[str]
    layouts: list[list[bytes]]
    target_tokens: int
    pieces: dict[str, Piece]
    sequence: int
    is_barred: bool
    usual_edit: float
    documents: list[tuple[bytes, DocumentSign]]
    sketch: list[int]
    opening: bytes
    routing: str
    lines: list[list[int]]
    noticed: float
    notices_new: float
    held: dict[str, list[SavedEntries]]


P = TypeVar("P", PackedSession, PackedLane, PackedHead)

SESSION: Final = msgpack.Decoder(PackedSession)
LANE: Final = msgpack.Decoder(PackedLane)
HEAD: Final = msgpack.Decoder(PackedHead)
_encode: Final = msgpack.Encoder().encode


def pack_session(session: Session, held: dict[str, list[SavedEntries]]) -> bytes:
    """The session as it stands."""
    tracker = session.tracker
    pieces, sequence = tracker.state()
    return _encode(
        PackedSession(
            version=VERSION,
            id=session.id,
            cohort_key=session.cohort_key,
            has_tools=session.cohort.has_tools,
            preamble_key=session.preamble_key,
            preamble=list(session.preamble),
            fixed=list(session.fixed),
            own_head=session.own_head.counts(),
            own_fixed=session.own_fixed.counts(),
            replaced=sorted(session.replaced),
            requests=session.requests,
            last_at=session.last_at,
            gaps=list(session.gaps),
            turns=list(session.turns),
            items=session.items,
            candidates=session.candidates,
            rendered_anew=sorted(session.rendered_anew),
            layouts=[list(layout) for layout in session.layouts],
            target_tokens=tracker.policy.target_tokens,
            pieces=pieces,
            sequence=sequence,
            is_barred=session.is_barred,
            usual_edit=session.usual_edit,
            documents=list(session.documents.items()),
            sketch=sorted(session.sketch),
            opening=session.opening,
            routing=session.routing,
            lines=[list(lines) for lines in session.lines],
            noticed=session.noticed,
            notices_new=session.notices_new,
            held=held,
        )
    )


def restore_session(packed: PackedSession, session: Session) -> None:
    """Make the session what the snapshot says; its cohort and the records of its head are others' matter, too. Raises
    Unreadable, and then changes nothing."""
    tracker = _tracker(packed, session.tracker.policy)
    session.preamble, session.fixed = tuple(packed.preamble), tuple(packed.fixed)
    session.own_head = _records(packed.own_head)
    session.own_fixed = _records(packed.own_fixed)
    session.replaced = frozenset(packed.replaced)
    session.requests, session.last_at = packed.requests, packed.last_at
    session.gaps = deque(packed.gaps, maxlen=session.gaps.maxlen)
    session.turns = tuple(packed.turns)
    session.items = dict(islice(packed.items.items(), MAX_ITEMS))
    session.candidates = dict(packed.candidates)
    session.rendered_anew = set(packed.rendered_anew)
    session.layouts = [tuple(layout) for layout in packed.layouts]
    session.tracker = tracker
    session.is_barred, session.usual_edit = packed.is_barred, packed.usual_edit
    session.documents = dict(packed.documents[:MAX_DOCUMENTS])
    session.sketch = frozenset(packed.sketch)
    session.opening = packed.opening
    session.routing = packed.routing
    session.noticed, session.notices_new = packed.noticed, packed.notices_new
    session.lines = [tuple(lines) for lines in packed.lines]


def pack_lane(cohort: SessionCohort, held: dict[str, list[SavedEntries]]) -> bytes:
    """The cohort as it stands."""
    return _encode(
        PackedLane(
            version=VERSION,
            has_tools=cohort.has_tools,
            started=cohort.started,
            continued=cohort.continued,
            last_at=cohort.last_at,
            breaks=list(cohort.breaks),
            layouts=[list(layout) for layout in cohort.layouts],
            items=cohort.items,
            opening=None if cohort.opening is None else list(cohort.opening),
            gaps=list(cohort.gaps),
            arrivals=list(cohort.arrivals),
            reliance=astuple(cohort.reliance),
            documents=astuple(cohort.documents),
            held=held,
        )
    )


def restore_lane(packed: PackedLane, cohort: SessionCohort) -> None:
    """Make the cohort what the snapshot says."""
    cohort.started, cohort.continued, cohort.last_at = packed.started, packed.continued, packed.last_at
    cohort.breaks = deque(packed.breaks, cohort.breaks.maxlen)
    cohort.layouts = deque((tuple(layout) for layout in packed.layouts), maxlen=cohort.layouts.maxlen)
    cohort.items = dict(islice(packed.items.items(), MAX_ITEMS))
    cohort.opening = None if packed.opening is None else tuple(packed.opening)
    cohort.gaps = deque(packed.gaps, cohort.gaps.maxlen)
    cohort.arrivals = deque(packed.arrivals, cohort.arrivals.maxlen)
    cohort.documents.restore(packed.documents)
    cohort.reliance = Reliance(*(CalibrationCounter(*tally) for tally in packed.reliance))


def pack_head(records: PreambleChanges) -> bytes:
    """What the heads of a client's requests have shown."""
    regions = [(r.place, list(r.before), list(r.after), r.lines) for r in records.evidence.regions]
    return _encode(PackedHead(VERSION, *records.counts(), regions))


def restore_head(packed: PackedHead, records: PreambleChanges) -> None:
    """Take over what others have seen more of."""
    if sum(packed.seen) + sum(packed.fresh_seen) > sum(records.seen) + sum(records.fresh_seen):
        taken = _records((packed.seen, packed.changes, packed.fresh_seen, packed.fresh_changes))
        records.seen, records.changes = taken.seen, taken.changes
        records.fresh_seen, records.fresh_changes = taken.fresh_seen, taken.fresh_changes
    records.evidence.add(
        VolatileRegion(place, tuple(before), tuple(after), lines) for place, before, after, lines in packed.regions
    )


def held_along(cache: Cache, prompt: Prompt, *, opening_only: bool = False) -> list[SavedEntries]:
    """What a cache holds along a prompt."""
    hashes = prompt.hashes[:_OPENING_POSITIONS] if opening_only else prompt.hashes
    found: list[SavedEntries] = []
    for number, table in enumerate(cache.tables()):
        get = table.getter()
        for life, suffix in enumerate(_LIVES):
            scope, last = prompt.scope + suffix, None
            for one in hashes:
                entry = get((scope, one))
                if entry is None:
                    continue
                dates = entry[:3]
                if dates != last:
                    found.append(SavedEntries(number, prompt.scope, life, *dates, [], []))
                    last = dates
                found[-1].hashes.append(one)
                found[-1].tokens.append(entry.tokens)
    return found


def hold(cache: Cache, held: Iterable[SavedEntries]) -> None:
    """Add what another process knows the provider to hold."""
    tables = cache.tables()
    for group in held:
        if group.table >= len(tables) or group.life >= len(_LIVES):
            continue
        table, scope = tables[group.table], group.scope + _LIVES[group.life]
        for one, tokens in zip(group.hashes, group.tokens, strict=False):
            table.adopt((scope, one), Entry(group.available, group.expiry, group.life_s, tokens))


def unpacked(decoder: msgpack.Decoder[P], blob: bytes) -> P:
    """A snapshot of the kind that the decoder reads. Raises Unreadable."""
    try:
        found = decoder.decode(blob)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Unreadable("no snapshot") from error
    if found.version != VERSION:
        raise Unreadable("a snapshot of another version")
    return found


def _records(counts: Counts) -> PreambleChanges:
    known = min(map(len, counts))
    seen, changes, fresh_seen, fresh_changes = (list(each[:known]) for each in counts)
    return PreambleChanges(seen, changes, fresh_seen, fresh_changes)


def _tracker(packed: PackedSession, policy: ClassicPolicy) -> Classic:
    tracker = Classic(replace(policy, target_tokens=packed.target_tokens))
    try:
        tracker.restore(packed.pieces, packed.sequence)
    except ValueError as error:
        raise Unreadable("no snapshot") from error
    return tracker
