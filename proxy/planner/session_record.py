"""The record of a session that the administration shows: its owner, its usage and cost, its last requests, and their
contents.

It holds counts, times and names of the configuration, and no text. Several workers may serve one session. A record has
one part for each worker, which only that worker changes. Two versions of the list of requests are merged by taking all
rows of both. So nothing is counted twice, and it does not matter which worker writes last.

``Inventory`` has the contents of a request as figures: its items by their tiers, with tokens and N. A breakdown is made
from it. It is small, so that one may be kept for each session (``Inventory.bounded``).
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from heapq import nlargest
from operator import attrgetter
from typing import Final

from msgspec import DecodeError, Struct, msgpack
from msgspec.structs import astuple, replace

from proxy.kit.secrets import without_keys
from proxy.kit.value import dataclass
from proxy.planner.sharing import VERSION
from proxy.planner.tiers import Tier
from proxy.protocol.response.usage import Usage

MOST_ITEMS: Final = 256
_KEY_CHARS = 200
# A secret that begins within the shown characters and ends behind them must still be recognised as a secret.
_READ_CHARS = 1_000
_MOST_PANELS = 50
_UNNAMED = frozenset({"urls", "images"})


class ListedItem(Struct, frozen=True, array_like=True):
    """One item. ``n`` counts the responses in which it was unchanged; None: its stability is not tracked."""

    key: str
    tokens: int
    n: int | None = None


class ListedSection(Struct, frozen=True, array_like=True):
    """Items of one kind that follow one another in one tier. ``words`` are the tokens around them."""

    tier: Tier
    kind: str
    words: int = 0
    items: tuple[ListedItem, ...] = ()

    @property
    def tokens(self) -> int:
        return self.words + sum(item.tokens for item in self.items)


class Inventory(Struct, frozen=True, array_like=True):
    """The sections of a request; those of the most stable tier come first. ``marked`` are the tiers in which a marker
    stands. ``empty_tiers`` counts the tiers L0 to L3 in which nothing stands, and ``skipped`` counts the items that are
    not shown, by the reason. ``panels`` are the live panels in sending order, each with its place and its cost.
    ``freezing_cost`` is what freezing has cost the session so far, in tokens at the plain input price."""

    sections: tuple[ListedSection, ...] = ()
    marked: tuple[Tier, ...] = ()
    empty_tiers: int = 0
    skipped: Mapping[str, int] = {}
    panels: Sequence[Mapping[str, object]] = ()
    freezing_cost: float = 0.0

    def tier_tokens(self) -> dict[Tier, int]:
        found = dict.fromkeys(Tier, 0)
        for section in self.sections:
            found[section.tier] += section.tokens
        return found

    def bounded(self, most: int = MOST_ITEMS) -> "Inventory":
        """The same inventory with only the ``most`` largest items, each under a short key, and with one section for
        each kind in a tier. The other items of a section become one item, ``others:COUNT``, so that all sums stay the
        same. Addresses of pages and images, and headers of panels, are left out, because a client may have written
        anything into them."""
        items = [item for section in self.sections for item in section.items]
        kept = set(map(id, nlargest(most, items, key=attrgetter("tokens"))))
        alike: dict[tuple[Tier, str], list[ListedSection]] = {}
        for section in self.sections:
            alike.setdefault((section.tier, section.kind), []).append(section)
        sections = tuple(_joined(*place, some, kept) for place, some in alike.items())
        panels = tuple({name: one for name, one in panel.items() if name != "header"} for panel in self.panels)
        return replace(self, sections=sections, panels=panels[:_MOST_PANELS])


def short_key(key: str) -> str:
    """A piece's key in the form in which it may be kept: shortened, and without anything that looks like a secret. The
    client chooses names of files and attributes of documents."""
    return without_keys(key[:_READ_CHARS])[:_KEY_CHARS]


def _joined(tier: Tier, kind: str, sections: Sequence[ListedSection], kept: Collection[int]) -> ListedSection:
    items = [item for section in sections for item in section.items]
    own = [item for item in items if id(item) in kept]
    names = [f"{kind}:{number}" if kind in _UNNAMED else short_key(item.key) for number, item in enumerate(own)]
    shown = [replace(item, key=name) for item, name in zip(own, names, strict=True)]
    others = [item.tokens for item in items if id(item) not in kept]
    if others:
        shown.append(ListedItem(f"others:{len(others)}", sum(others)))
    return ListedSection(tier, kind, sum(section.words for section in sections), tuple(shown))


MOST_REQUESTS: Final = 500


class SessionRequest(Struct, frozen=True, array_like=True, gc=False):
    """One request: the unix seconds at which it came, and its tokens as the provider reported them. ``other_read`` and
    ``other_written`` are the tokens of the layout that was not sent, by the shadow cache and scaled to the same prompt:
    the client's own layout, or the planned one if the request was only observed (``is_observed``). ``saved_usd`` is the
    amount that the planned layout saves, or would save. ``kind`` is empty if nothing broke the cache. Otherwise
    ``culprit`` names the difference, ``before`` and ``tokens`` are the tokens in front of it and its own tokens, by the
    provider's count, and ``lost`` and ``lost_usd`` are the loss in tokens and in USD. ``is_refresh``: the proxy sent
    the request to keep a prefix alive. ``number`` tells requests of one moment apart."""

    at: float
    number: int = 0
    prompt: int = 0
    read: int = 0
    written: int = 0
    other_read: int = 0
    other_written: int = 0
    cost_usd: float = 0.0
    saved_usd: float = 0.0
    kind: str = ""
    culprit: str = ""
    line: int = 0
    before: int = 0
    tokens: int = 0
    lost: int = 0
    lost_usd: float = 0.0
    is_waste: bool = False
    is_refresh: bool = False
    is_observed: bool = False


# Beyond so many parts, the oldest parts that are final are added up.
_MOST_PARTS = 32
# A part whose last count was so long before the session's last request is final. A worker goes on with its part for
# half of this time after its last count, so that nobody adds up a part that still grows, even if clocks differ.
_FINAL_S = 3600.0
_EARLIER = ""


class SessionSums(Struct, frozen=True, array_like=True, gc=False):
    """The sums that one worker has counted for a session. ``at`` is the time of its last count, in unix seconds. The
    fields behind ``empty_tiers`` are the tokens read and the USD, real or as they would have been, in the client's own
    layout, in the client's layout with markers (mode mark), and in the planned layout."""

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
        written = self.write_5m_tokens + self.write_1h_tokens
        prompt = self.read_tokens + written + self.uncached_tokens
        return Usage(prompt, self.output_tokens, self.read_tokens, self.write_5m_tokens, self.write_1h_tokens)


def added(*sums: SessionSums) -> SessionSums:
    """The total of several sums, with the newest of their times."""
    at, *columns = zip(*map(astuple, sums), strict=True)
    return SessionSums(max(at), *map(sum, columns))


class SessionFacts(Struct, frozen=True, array_like=True, gc=False):
    """The properties of the last request of a session. ``breakpoints`` are for each the tokens in front of it, and the
    seconds that it lives from ``read_at`` on, when the prefix was last sent. ``tiers`` are the tokens of each tier.
    ``culprits`` are those that have cost the most by breaking the cache: their names, how often they did, and the
    USD."""

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
        return added(*self.parts.values()) if self.parts else SessionSums()

    @property
    def last_at(self) -> float:
        """When the session had its last request."""
        return max((part.at for part in self.parts.values()), default=self.began_at)

    def is_found_by(self, words: str) -> bool:
        """Whether each of the words occurs in the names that identify the session. Upper and lower case count as
        equal."""
        facts = self.facts
        names = (self.id, facts.team, facts.key_id, facts.user, facts.model, facts.client, facts.mode)
        told = " ".join(names).casefold()
        return all(word in told for word in words.casefold().split())

    def goes_on(self, worker: str, at: float) -> bool:
        """Whether this worker may still count in its part at that time. If not, it begins another part."""
        return worker not in self.parts or at - self.parts[worker].at < _FINAL_S / 2

    def counted(self, worker: str, sums: SessionSums, facts: SessionFacts) -> "SessionRecord":
        """The record after one more request, which this worker has served."""
        part = self.parts.get(worker)
        return replace(self, facts=facts, parts={**self.parts, worker: sums if part is None else added(part, sums)})

    def merged(self, found: "SessionRecord", worker: str) -> "SessionRecord":
        """This worker's record, merged with the store's. A part only grows, so the larger of its two versions is the
        newer one. A part that the store does not have was added up there, or is not written yet."""
        parts, earlier_at = dict(found.parts), found.parts.get(_EARLIER, SessionSums(-1.0)).at
        for name, sums in self.parts.items():
            if name != _EARLIER and (name in parts or sums.at > earlier_at):
                parts[name] = max(parts.get(name, sums), sums, key=astuple)
        # If both records have the same last request, this worker knows more only if it has served it: the tiers become
        # known afterwards.
        served_at = self.parts[worker].at if worker in self.parts else -1.0
        newest = self if self.last_at > found.last_at or served_at == self.last_at == found.last_at else found
        if len(parts) > _MOST_PARTS:
            final_at = newest.last_at - _FINAL_S
            # A part that the store does not have yet stays as it is: this record may be merged again before a write.
            final = {name for name, sums in found.parts.items() if sums == parts[name] and sums.at < final_at}
            oldest = min(final - {worker, _EARLIER}, key=lambda name: parts[name].at, default=None)
            if oldest is not None:
                parts[_EARLIER] = added(parts.get(_EARLIER, SessionSums()), parts.pop(oldest))
        return replace(newest, began_at=min(self.began_at, found.began_at), parts=parts)


class SessionContents(Struct, frozen=True, array_like=True, gc=False):
    """The contents of the last request of a session. ``moves`` are the keys of the pieces that changed their tier with
    it, each with both tiers (the second is empty if the piece is gone). ``last`` are the tokens that the provider
    reported: prompt, output, cache read, and cache write at each of the two lives."""

    inventory: Inventory = Inventory()
    moves: tuple[tuple[str, str, str], ...] = ()
    last: tuple[int, int, int, int, int] | None = None
    limits: tuple[int | None, int | None] = (None, None)
    edits: Mapping[str, int] = {}


class SessionDetails(Struct, frozen=True, array_like=True, gc=False):
    """The data that is kept for a session beside its record: its last requests, each as bytes, and the contents of the
    very last one, which came at the time ``at`` (empty: only figures are kept). The bytes of a request begin with its
    time, so requests that are sorted by their bytes are sorted by time."""

    rows: tuple[bytes, ...] = ()
    at: float = 0.0
    packed: bytes = b""
    version: int = VERSION

    def contents(self) -> SessionContents | None:
        """The contents of the last request; None if they are not kept, or cannot be read."""
        with suppress(DecodeError):
            return _CONTENTS.decode(self.packed) if self.packed else None
        return None

    def added(self, one: SessionRequest) -> "SessionDetails":
        """The details with one more request. If there is no room, the oldest request is dropped."""
        return replace(self, rows=(*self.rows, msgpack.encode(one))[-MOST_REQUESTS:])

    def requests(self) -> Sequence[SessionRequest]:
        """The requests, the oldest first. Bytes that are no request are skipped."""
        rows = sorted(self.rows)
        try:
            return _REQUESTS.decode(_ARRAY + len(rows).to_bytes(4) + b"".join(rows))
        except DecodeError:
            # Reading them one by one takes three times as long.
            return [found for row in rows if (found := _request(row)) is not None]

    def dearest(self, most: int) -> tuple[tuple[str, int, float], ...]:
        """The culprits that cost the most: for each its name, how often it broke the cache, and the loss in USD."""
        sums: dict[str, tuple[int, float]] = {}
        for one in self.requests():
            if one.culprit:
                breaks, before = sums.get(one.culprit, (0, 0.0))
                sums[one.culprit] = breaks + 1, before + one.lost_usd
        return tuple((name, *sums[name]) for name in sorted(sums, key=lambda name: -sums[name][1])[:most])

    def merged(self, other: "SessionDetails") -> "SessionDetails":
        """The requests of both, each once, with the contents of the later one."""
        # If one worker serves a session, its own requests are those of the store, and later ones.
        missing = set(other.rows).difference(self.rows)
        rows = tuple(sorted((*self.rows, *missing))[-MOST_REQUESTS:]) if missing else self.rows
        return replace(self if self.at >= other.at else other, rows=rows)


RECORD: Final = msgpack.Decoder(SessionRecord)
DETAILS: Final = msgpack.Decoder(SessionDetails)
_CONTENTS: Final = msgpack.Decoder(SessionContents)
_REQUEST: Final = msgpack.Decoder(SessionRequest)
_REQUESTS: Final = msgpack.Decoder(list[SessionRequest])
# The sign of MessagePack for an array whose length follows in four bytes.
_ARRAY: Final = b"\xdd"


def _request(row: bytes) -> SessionRequest | None:
    with suppress(DecodeError):
        return _REQUEST.decode(row)
    return None


@dataclass(frozen=True, slots=True)
class SessionPage:
    """Sessions, the most recently used first. ``behind`` is the place where the next page begins; it is empty on the
    last page. ``as_of`` is the time of the store's last answer, in unix seconds. ``is_away``: the store does not answer
    now, and the sessions are those that the asked process knows itself."""

    records: Sequence[SessionRecord]
    as_of: float
    behind: str = ""
    is_away: bool = False
