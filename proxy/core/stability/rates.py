"""The one model of a learnt chance: the share of what was seen, drawn towards what is expected before that."""

from collections.abc import Iterable
from dataclasses import dataclass

Counts = tuple[float, float]
"""How many observations there were, and in how many of them the event happened; both decay."""

RATE_STEP = 0.3
"""The weight of the newest request: the last four or five requests make most of a rate."""

FIRST_RATE = 0.1
"""The rate of change of a piece that was never seen before."""


@dataclass(frozen=True, slots=True)
class DecayedRate:
    """How a chance is estimated.

    ``prior`` is the chance before anything was seen, and it counts as ``weight`` observations. With each observation
    the earlier ones count ``decay`` times as much as before.
    """

    prior: float
    weight: float
    decay: float = 1.0

    def share(self, happened: float, seen: float) -> float:
        """The chance of an event that has ``happened`` in so many of the ``seen`` observations."""
        return (happened + self.prior * self.weight) / (seen + self.weight)

    def added(self, counts: Counts, *, happened: bool) -> Counts:
        """The counts with one observation more."""
        return self.decay * counts[0] + 1.0, self.decay * counts[1] + happened

    def of(self, observations: Iterable[bool]) -> float:
        """The chance after these observations, the oldest first."""
        decay, seen, count = self.decay, 0.0, 0.0
        for happened in observations:  # this is what ``added`` does, without a call for each observation
            seen, count = decay * seen + 1.0, decay * count + happened
        return self.share(count, seen)
