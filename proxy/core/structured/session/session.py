"""State of one conversation with structured context."""

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
"""A path's place in a table, without the path."""


@dataclass(slots=True)
class ContextSession:
    """The state of one conversation. It holds the review and a summary as texts, and of everything else digests and
    counts.

    ``map`` are the chunks of the symbol map. ``board`` is what is known of the panels. ``compaction`` leaves out the
    oldest part of the conversation, where there is one, ``attempts`` is what came of looks for one, and ``requests`` is
    how many were answered. ``aliases`` are the short names of directories that the legend has given, and ``shown`` the
    paths that were named so far. ``counted`` is the digest of the conversation that was counted last: a retry of it
    does not count again. ``empty_tiers`` is the sum over all counted requests. ``changes`` are those of the last
    counted answer; ``last`` is the usage that the provider reported for the last answer, ``total`` the sum of all.
    ``dated`` has the board and the compaction with the times at which they changed. ``terms`` are those of the cache
    that has served the last request; None: nobody knows. ``freezing_cost`` is what freezing has cost, in tokens at the
    plain input price.
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
        """About what it takes in memory."""
        review = content_bytes(self.review) if self.review is not None else 0
        paths = sum(_SLOT_BYTES * len(held) + sum(map(getsizeof, held)) for held in (self.map.places, self.shown))
        summary = getsizeof(self.compaction.summary) if self.compaction is not None else 0
        live = self.board.size_bytes + summary
        return _ENTRY_BYTES + review + self.tracker.size_bytes + paths + live + _SLOT_BYTES * len(self.changes)

    def live(self, now: float) -> LiveState:
        """State with which other processes may go on. Parts that have changed since the last time get the time ``now``,
        in unix seconds."""
        board, dated = self.board, self.dated
        return LiveState(
            board=board,
            charged_s=dated.charged_s if board.costs is dated.board.costs else now,
            compaction=self.compaction,
            compacted_s=dated.compacted_s if self.compaction is dated.compaction else now,
        )

    def adopt(self, known: LiveState, now: float) -> None:
        """Take over what other processes know."""
        self.dated = merged(self.live(now), known)
        if self.compaction != self.dated.compaction:
            self.rewritten()
        self.board, self.compaction = self.dated.board, self.dated.compaction

    def rewritten(self) -> None:
        """The next request has another beginning: turns are named by their places, which are others from now on, and
        the cache does not hold what is behind it."""
        self.tracker.purge_history()
        if self.terms is not None:
            self.terms = replace(self.terms, life_s=0.0)

    def spent(self, usage: Usage | None) -> None:
        """The provider has reported the usage of an answer; None where it reported nothing."""
        self.last = usage
        self.requests += 1
        self.total = summed(self.total, usage) or self.total
