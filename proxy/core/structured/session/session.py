"""The state of one conversation with structured context."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from sys import getsizeof

from proxy.core.layout.tiers import Change
from proxy.core.response.usage import Usage, summed
from proxy.core.structured.context import Review
from proxy.core.structured.history.compaction import Compaction, CompactionAttempts
from proxy.core.structured.panels.board import Board
from proxy.core.structured.panels.placing import CacheTerms
from proxy.core.structured.placement.tracking import ContextTracker
from proxy.core.structured.session.live_state import LiveState, merged
from proxy.core.structured.session.uploads import content_bytes
from proxy.core.structured.symbols import MapChunks

_ENTRY_BYTES = 2_000
_SLOT_BYTES = 150
"""The size of a path's slot in a table, without the path."""


@dataclass(slots=True)
class ContextSession:
    """The state of one conversation. Only the review and a summary are held as texts; of everything else there are only
    digests and counts.

    ``map`` has the chunks of the symbol map. ``board`` is the board of the panels. ``compaction``, if there is one,
    leaves out the oldest part of the conversation. ``attempts`` has the results of earlier attempts to compact, and
    ``requests`` is the number of answered requests. ``aliases`` are the short names of directories that the legend has
    given, and ``shown`` are the paths that were named so far. ``counted`` is the digest of the conversation that was
    counted last: a retry of it does not count again. ``empty_tiers`` is the sum over all counted requests. ``changes``
    are those of the last counted answer. ``last`` is the usage that the provider reported for the last answer, and
    ``total`` is the sum of all. ``dated`` has the board and the compaction with the times at which they changed.
    ``terms`` are those of the cache that has served the last request; None: they are not known. ``freezing_cost`` is
    the cost of freezing, in tokens at the plain input price.
    """

    tracker: ContextTracker
    map: MapChunks = MapChunks()
    board: Board = Board()
    compaction: Compaction | None = None
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
    dated: LiveState = LiveState()
    terms: CacheTerms | None = None
    freezing_cost: float = 0.0

    @property
    def bytes(self) -> int:
        """An estimate of its size in memory."""
        review = content_bytes(self.review) if self.review is not None else 0
        paths = sum(_SLOT_BYTES * len(held) + sum(map(getsizeof, held)) for held in (self.map.places, self.shown))
        summary = getsizeof(self.compaction.summary) if self.compaction is not None else 0
        live = self.board.size_bytes + summary
        return _ENTRY_BYTES + review + self.tracker.size_bytes + paths + live + _SLOT_BYTES * len(self.changes)

    def live(self, now: float) -> LiveState:
        """The state with which other processes can continue. Parts that have changed since the last time get the time
        ``now``, in unix seconds."""
        board, dated = self.board, self.dated
        return LiveState(
            board=board,
            charged_s=dated.charged_s if board.costs is dated.board.costs else now,
            compaction=self.compaction,
            compacted_s=dated.compacted_s if self.compaction is dated.compaction else now,
        )

    def adopt(self, known: LiveState, now: float) -> None:
        """Merge in the state that other processes know."""
        self.dated = merged(self.live(now), known)
        if self.compaction != self.dated.compaction:
            self.rewritten()
        self.board, self.compaction = self.dated.board, self.dated.compaction

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
