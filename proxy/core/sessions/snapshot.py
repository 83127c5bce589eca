"""What was learnt of a session, as bytes: so that another process can go on where this one stopped.

Digests, counts, times, and the keys of context pieces (which name files); no text. A snapshot carries a version of its
layout: one that this program does not know is no snapshot, and the session is learnt anew. Nothing here trusts what it
reads: what does not fit raises ``Unreadable``.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, Protocol, TypeVar

from msgspec import DecodeError, Struct, msgpack

from proxy.core.caches import Cache
from proxy.core.caches.cache import Entry
from proxy.core.caches.prompt import Prompt
from proxy.core.layout.tiers import Classic, ClassicPolicy, Piece
from proxy.core.sessions.cohort import SessionCohort
from proxy.core.sessions.preamble_changes import PreambleChanges
from proxy.core.sessions.session import PreambleKey, Session, SessionMemory
from proxy.core.wire.json_body import Unreadable

VERSION: Final = 14

# How a cache model may tell lives apart within a scope (``MarkerCache``).
_LIVES: Final = (b"", b"/5m", b"/1h")
# What a request itself says of its cohort.
_BY_REQUEST: Final = frozenset({"key", "has_tools"})
# An opening that sessions share is rarely more: tools, instructions, examples.
_OPENING_POSITIONS: Final = 48


class SavedEntries(Struct, frozen=True, array_like=True):
    """Entries of a cache along one prompt that have the same dates. ``table`` and ``life`` say where they are."""

    table: int
    scope: bytes
    life: int
    available: float
    expiry: float
    life_s: float
    hashes: list[bytes]
    tokens: list[int]


class PackedHead(Struct, frozen=True, array_like=True):
    """What the heads of a client's requests have shown."""

    version: int
    changes: PreambleChanges


class PackedCohort(Struct, frozen=True, array_like=True):
    """A cohort, and what caches hold of the prompt's beginning that its sessions share."""

    version: int
    cohort: SessionCohort
    held: dict[str, list[SavedEntries]]


class PackedSession(Struct, frozen=True, array_like=True):
    """A session with its tracker, and what caches hold along its last prompts."""

    version: int
    id: str
    cohort_key: bytes
    has_tools: bool
    preamble_key: PreambleKey
    memory: SessionMemory
    target_tokens: int
    pieces: dict[str, Piece]
    sequence: int
    held: dict[str, list[SavedEntries]]


class Versioned(Protocol):
    """A snapshot of any kind."""

    @property
    def version(self) -> int:
        """The version of its layout."""


P = TypeVar("P", bound=Versioned)

SESSION: Final = msgpack.Decoder(PackedSession)
COHORT: Final = msgpack.Decoder(PackedCohort)
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
            memory=session.memory(),
            target_tokens=tracker.policy.target_tokens,
            pieces=pieces,
            sequence=sequence,
            held=held,
        )
    )


def restore_session(packed: PackedSession, session: Session) -> None:
    """Make the session what the snapshot says; its cohort and the records of its head are others' matter, too. Raises
    Unreadable, and then changes nothing."""
    if not all(record.is_sound for record in packed.memory.prompts):
        raise Unreadable("no snapshot")
    session.tracker = _tracker(packed, session.tracker.policy)
    session.restore(packed.memory)


def pack_cohort(cohort: SessionCohort, held: dict[str, list[SavedEntries]]) -> bytes:
    """The cohort as it stands."""
    return _encode(PackedCohort(VERSION, cohort, held))


def restore_cohort(packed: PackedCohort, cohort: SessionCohort) -> None:
    """Make the cohort what the snapshot says."""
    for name in SessionCohort.__struct_fields__:
        if name not in _BY_REQUEST:
            setattr(cohort, name, getattr(packed.cohort, name))


def pack_head(records: PreambleChanges) -> bytes:
    """What the heads of a client's requests have shown."""
    return _encode(PackedHead(VERSION, records))


def restore_head(packed: PackedHead, records: PreambleChanges) -> None:
    """Take over what others have seen more of."""
    if packed.changes.requests() > records.requests():
        records.places = packed.changes.places
    records.evidence.add(packed.changes.evidence.regions)


def held_along(cache: Cache, prompt: Prompt, *, opening_only: bool = False) -> list[SavedEntries]:
    """What a cache holds along a prompt."""
    hashes = prompt.hashes[:_OPENING_POSITIONS] if opening_only else prompt.hashes
    found: list[SavedEntries] = []
    for number, table in enumerate(cache.tables()):
        get = table.get
        for life, suffix in enumerate(_LIVES):
            scope, last = prompt.scope + suffix, None
            for one in hashes:
                entry = get((scope, one))
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
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Unreadable("no snapshot") from error
    if found.version != VERSION:
        raise Unreadable("a snapshot of another version")
    return found


def _tracker(packed: PackedSession, policy: ClassicPolicy) -> Classic:
    tracker = Classic(replace(policy, target_tokens=packed.target_tokens))
    try:
        tracker.restore(packed.pieces, packed.sequence)
    except ValueError as error:
        raise Unreadable("no snapshot") from error
    return tracker
