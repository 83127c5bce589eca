"""How often the preamble of a client's prompts changes: its tools and its system messages."""

from dataclasses import dataclass, field

from proxy.core.sessions.volatile_lines import VolatileRegions
from proxy.core.stability.change_rates import fixed_hazard

# P(the next request has another text where another has just come), before anything was seen: most are a visit.
_FRESH_CHANGE = 0.6


@dataclass(slots=True)
class PreambleChanges:
    """How often tools and system messages changed from one request of a session to the next, by their place.

    ``seen`` and ``changes`` count texts that had stood there for a request at least; ``fresh_seen`` and
    ``fresh_changes`` those that had just taken another's place: some are a visit (a question asked in another mode),
    some change with every request.
    """

    seen: list[int] = field(default_factory=list)
    changes: list[int] = field(default_factory=list)
    fresh_seen: list[int] = field(default_factory=list)
    fresh_changes: list[int] = field(default_factory=list)
    evidence: VolatileRegions = field(default_factory=VolatileRegions)

    def add(self, before: tuple[bytes, ...], after: tuple[bytes, ...], fresh: frozenset[int] = frozenset()) -> None:
        """One pair of consecutive requests; ``fresh`` are the places where the first of them had another text."""
        for place in range(max(len(before), len(after))):
            while place >= len(self.seen):
                for counts in (self.seen, self.changes, self.fresh_seen, self.fresh_changes):
                    counts.append(0)
            is_changed = before[place : place + 1] != after[place : place + 1]
            seen, changes = (self.fresh_seen, self.fresh_changes) if place in fresh else (self.seen, self.changes)
            seen[place] += 1
            changes[place] += is_changed

    def of(self, place: int) -> tuple[int, int]:
        """In how many requests the place was seen, and in how many it had changed."""
        if place >= len(self.seen):
            return 0, 0
        return self.seen[place] + self.fresh_seen[place], self.changes[place] + self.fresh_changes[place]

    def counts(self) -> tuple[list[int], list[int], list[int], list[int]]:
        """What was counted, in the order of the fields."""
        return self.seen, self.changes, self.fresh_seen, self.fresh_changes

    def hazard(self, place: int, prior: float, *, is_fresh: bool = False, is_edited: bool = False) -> float:
        """-ln P(unchanged in the next request); ``prior`` is the probability of a change before anything was seen.

        ``is_fresh``: another text has just come there. ``is_edited``: the same text has just changed in part, which
        counts already: a date or a setting that changed once does so rarely, a counter each time.
        """
        if is_fresh:
            seen, changes, prior = self.fresh_seen, self.fresh_changes, max(prior, _FRESH_CHANGE)
        else:
            seen, changes = self.seen, self.changes
        counted = (seen[place], changes[place]) if place < len(seen) else (0, 0)
        return fixed_hazard(counted[0] + is_edited, counted[1] + is_edited, prior)


def changed_places(before: tuple[bytes, ...], after: tuple[bytes, ...]) -> frozenset[int]:
    """The places at which two heads differ."""
    return frozenset(i for i in range(max(len(before), len(after))) if before[i : i + 1] != after[i : i + 1])
