"""What the administration is shown of a session: who it belongs to, what it used and cost, and where it stands.

It holds counts, times and names of the configuration, and no text. Several workers may serve one session: a record has
a part of each of them, which that worker alone changes, so that two versions of a record are brought together without
counting anything twice.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from msgspec import DecodeError, Struct, msgpack
from msgspec.structs import astuple, replace

from proxy.core.layout.inventory import Inventory
from proxy.core.response.usage import Usage
from proxy.core.sessions.session_requests import SessionRequests
from proxy.core.sessions.snapshot import VERSION

_MOST_PARTS = 32
"""Workers, and starts of them, that are told apart. Beyond that the oldest are added up."""
_EARLIER = ""


class SessionSums(Struct, frozen=True, array_like=True, gc=False):
    """What one worker has counted of a session; ``at`` is when it last did, in unix seconds. What follows
    ``empty_tiers`` are the tokens read, and USD, as they were or would have been in the client's own layout, in that
    with markers (mode mark), and in the planned one."""

    at: float = 0.0
    requests: int = 0
    read_tokens: int = 0
    write_5m_tokens: int = 0
    write_1h_tokens: int = 0
    uncached_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    saved_usd: float = 0.0
    empty_tiers: int = 0
    client_read_tokens: int = 0
    client_usd: float = 0.0
    marked_read_tokens: int = 0
    marked_usd: float = 0.0
    planned_read_tokens: int = 0
    planned_usd: float = 0.0

    @property
    def usage(self) -> Usage:
        """The tokens."""
        written = self.write_5m_tokens + self.write_1h_tokens
        prompt = self.read_tokens + written + self.uncached_tokens
        return Usage(prompt, self.output_tokens, self.read_tokens, self.write_5m_tokens, self.write_1h_tokens)


def added(*sums: SessionSums) -> SessionSums:
    """The sums of several, of which the newest says when."""
    at, *columns = zip(*map(astuple, sums), strict=True)
    return SessionSums(max(at), *map(sum, columns))


class SessionFacts(Struct, frozen=True, array_like=True, gc=False):
    """What the last request of a session was like. ``breakpoints`` are the tokens in front of each and the seconds that
    it lives from ``read_at`` on, when the prefix was last sent; ``tiers`` are the tokens of each tier. ``culprits`` are
    what has cost the most by breaking the cache: names, how often, and USD."""

    team: str = ""
    key_id: str = ""
    user: str = ""
    model: str = ""
    client: str = ""
    mode: str = ""
    reason: str = ""
    read_at: float = 0.0
    breakpoints: tuple[tuple[int, float], ...] = ()
    tiers: Mapping[str, int] = {}
    culprits: tuple[tuple[str, int, float], ...] = ()


class SessionRecord(Struct, frozen=True, array_like=True, gc=False):
    """One session, with the parts of all workers."""

    id: str
    began_at: float
    facts: SessionFacts = SessionFacts()
    parts: Mapping[str, SessionSums] = {}
    version: int = VERSION

    def total(self) -> SessionSums:
        """All parts added up."""
        return added(*self.parts.values()) if self.parts else SessionSums()

    @property
    def last_at(self) -> float:
        """When the session had its last request."""
        return max((part.at for part in self.parts.values()), default=self.began_at)

    def is_found_by(self, words: str) -> bool:
        """Whether each of the words stands in what tells the session from others, in whatever case."""
        facts = self.facts
        names = (self.id, facts.team, facts.key_id, facts.user, facts.model, facts.client, facts.mode)
        told = " ".join(names).casefold()
        return all(word in told for word in words.casefold().split())

    def counted(self, worker: str, sums: SessionSums, facts: SessionFacts) -> "SessionRecord":
        """The record after one more request, which the worker has served."""
        part = self.parts.get(worker)
        return replace(self, facts=facts, parts={**self.parts, worker: sums if part is None else added(part, sums)})

    def merged(self, found: "SessionRecord", worker: str) -> "SessionRecord":
        """This worker's record with what others have counted; of what only one can be right, the newest counts."""
        parts, own, earlier = dict(found.parts), self.parts.get(worker), found.parts.get(_EARLIER)
        is_in_earlier = worker not in parts and own is not None and earlier is not None and own.at <= earlier.at
        if own is not None and not is_in_earlier:
            parts[worker] = own
        # Of the same request this worker knows more only where it has served it: the tiers are found out afterwards.
        served_at = own.at if own is not None else -1.0
        newest = self if self.last_at > found.last_at or served_at == self.last_at == found.last_at else found
        if len(parts) > _MOST_PARTS:
            oldest = min((name for name in parts if name not in (worker, _EARLIER)), key=lambda name: parts[name].at)
            parts[_EARLIER] = added(parts.get(_EARLIER, SessionSums()), parts.pop(oldest))
        return replace(newest, began_at=min(self.began_at, found.began_at), parts=parts)


class SessionContents(Struct, frozen=True, array_like=True, gc=False):
    """What the last request of a session consisted of. ``moves`` are the keys of the pieces that changed their tier
    with it, and both tiers (the second is empty where the piece is gone); ``last`` are the tokens that the provider
    reported: the prompt, the output, those that were read, and written at either life."""

    inventory: Inventory = Inventory()
    moves: tuple[tuple[str, str, str], ...] = ()
    last: tuple[int, int, int, int, int] | None = None
    limits: tuple[int | None, int | None] = (None, None)
    edits: Mapping[str, int] = {}


class SessionDetails(Struct, frozen=True, array_like=True, gc=False):
    """What is kept of a session beside its record: its last requests, and of the very last one, which came ``at`` that
    time, what it consisted of (empty: only figures are kept)."""

    requests: SessionRequests = SessionRequests()
    at: float = 0.0
    packed: bytes = b""
    version: int = VERSION

    def contents(self) -> SessionContents | None:
        """What the last request consisted of; None where that is not kept, or cannot be read."""
        with suppress(DecodeError):
            return _CONTENTS.decode(self.packed) if self.packed else None
        return None

    def merged(self, other: "SessionDetails") -> "SessionDetails":
        """The requests of both, and the contents of the later one."""
        return replace(self if self.at >= other.at else other, requests=self.requests.merged(other.requests))


RECORD: Final = msgpack.Decoder(SessionRecord)
DETAILS: Final = msgpack.Decoder(SessionDetails)
_CONTENTS: Final = msgpack.Decoder(SessionContents)


@dataclass(frozen=True, slots=True)
class SessionPage:
    """Sessions, the last one used first. ``behind`` is where the next page begins; empty: this is the last one.
    ``as_of`` is when the store last answered, in unix seconds; ``is_away``: it does not answer now, and the sessions
    are those that the process knows that was asked."""

    records: Sequence[SessionRecord]
    as_of: float
    behind: str = ""
    is_away: bool = False
