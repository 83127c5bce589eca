"""The facts learnt about a session, as bytes, so that another process can continue where this one stopped.

A snapshot holds digests, counts, times, and the keys of context pieces (which name files), and no text. It carries the
version of its layout. A snapshot with another version is not used, and the session is learnt anew. Blobs are not
trusted: a blob that does not fit raises ``Unreadable``.
"""

from collections.abc import Iterable
from dataclasses import replace
from itertools import repeat
from typing import Annotated, Final, Protocol, TypeVar

from msgspec import DecodeError, Meta, Struct, msgpack

from proxy.core.caches import Cache
from proxy.core.caches.cache import Entry
from proxy.core.caches.prompt import Prompt
from proxy.core.layout.tiers import Classic, ClassicPolicy, Piece
from proxy.core.sessions.cohort import SessionCohort
from proxy.core.sessions.preamble_changes import PreambleChanges
from proxy.core.sessions.session import PreambleKey, Session, SessionMemory
from proxy.core.wire.json_body import Unreadable

VERSION: Final = 14

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
    pieces: dict[str, Piece]
    sequence: int
    held: dict[str, list[SavedEntries]]


class Versioned(Protocol):
    """A snapshot of any kind."""

    @property
    def version(self) -> int:
        """The version of the snapshot's layout."""


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
    """Give the session the state of the snapshot. Its cohort and the records of its head have snapshots of their own.
    If this raises Unreadable, nothing has changed."""
    if not all(record.is_sound for record in packed.memory.prompts):
        raise Unreadable("no snapshot")
    session.tracker = _tracker(packed, session.tracker.policy)
    session.restore(packed.memory)


def pack_cohort(cohort: SessionCohort, held: dict[str, list[SavedEntries]]) -> bytes:
    """The cohort as it stands."""
    return _encode(PackedCohort(VERSION, cohort, held))


def restore_cohort(packed: PackedCohort, cohort: SessionCohort) -> None:
    """Give the cohort the state of the snapshot."""
    for name in SessionCohort.__struct_fields__:
        if name not in _BY_REQUEST:
            setattr(cohort, name, getattr(packed.cohort, name))


def pack_head(records: PreambleChanges) -> bytes:
    """The changes in the heads of a client's requests, as bytes."""
    return _encode(PackedHead(VERSION, records))


def restore_head(packed: PackedHead, records: PreambleChanges) -> None:
    """Take over the changes, if the other process has seen more requests, and all of its volatile regions."""
    if packed.changes.requests() > records.requests():
        records.places = packed.changes.places
    records.evidence.add(packed.changes.evidence.regions)


def held_along(cache: Cache, prompt: Prompt, *, opening_only: bool = False) -> list[SavedEntries]:
    """The entries that a cache holds along a prompt."""
    hashes = prompt.hashes[:_OPENING_POSITIONS] if opening_only else prompt.hashes
    found: list[SavedEntries] = []
    for number, table in enumerate(cache.tables()):
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
