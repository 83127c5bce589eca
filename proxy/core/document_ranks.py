"""How long retrieved documents stay: what ranks first is often retrieved again, what ranks last rarely is."""

import math
from collections.abc import Sequence

_MAX_RANKS = 24
# Certainty that no finite record gives.
_LEAST = 0.05
# Share of documents that the next request has, too, before anything was seen, weighing as much as so many documents;
# and how much the session's own share weighs against what was seen at a rank and beside it.
_STAYS = 0.4
_WEIGHT = 6.0
_RANK_WEIGHT = 4.0
_BESIDE = (1.0, 0.5, 0.25)
# Documents come and go together: several are kept more often than each by itself says (measured).
_TOGETHER = 0.7


class DocumentRanks:
    """Counts of a session, by rank in the client's order: documents ``seen``, and those of them that the next request
    ``kept``, at whatever rank."""

    __slots__ = ("kept", "last", "seen")

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.kept: list[int] = []
        self.last: tuple[bytes, ...] = ()

    def state(self) -> tuple[list[int], list[int], list[bytes]]:
        """What was counted, and the documents of the last request."""
        return self.seen, self.kept, list(self.last)

    def restore(self, seen: Sequence[int], kept: Sequence[int], last: Sequence[bytes]) -> None:
        """Remember these, and no others."""
        known = min(len(seen), len(kept), _MAX_RANKS)
        self.seen, self.kept, self.last = list(seen[:known]), list(kept[:known]), tuple(last[:_MAX_RANKS])

    def follow(self, documents: Sequence[bytes]) -> None:
        """A request that counts, and its documents in the client's order."""
        now = set(documents)
        for rank, one in enumerate(self.last):
            if rank == len(self.seen):
                self.seen.append(0)
                self.kept.append(0)
            self.seen[rank] += 1
            self.kept[rank] += one in now
        self.last = tuple(documents[:_MAX_RANKS])

    def hazard(self, rank: int) -> float:
        """-ln P(the next request has the document), as it counts among others."""
        share = (sum(self.kept) + _STAYS * _WEIGHT) / (sum(self.seen) + _WEIGHT)
        kept, seen = share * _RANK_WEIGHT, _RANK_WEIGHT
        for place in range(max(0, rank - 2), min(len(self.seen), rank + 3)):
            weight = _BESIDE[abs(place - rank)]
            kept += weight * self.kept[place]
            seen += weight * self.seen[place]
        return -_TOGETHER * math.log(max(kept / seen, _LEAST))
