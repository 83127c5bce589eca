"""How long an event loop has attended to what it waits for. A limit in these seconds is not used up by its own delays.

A timer that fires two seconds after a question was asked proves nothing where the loop itself was busy, or its process
was not given the processor, for most of that time: the answer may lie unread in the socket. So time is counted by
looks. The loop looks every ``tick_s``; a look that comes late counts no more than that. A limit of many ticks is passed
only after the loop has turned as many times, and whatever had arrived was read on one of those turns.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class Attention:
    """The seconds that a loop has attended, which is never more than the seconds that have passed."""

    tick_s: float
    attended_s: float = 0.0
    _looked_at: float | None = None

    def look(self, at: float) -> float:
        """The loop turns at the time ``at``; the seconds that it has attended by now."""
        if self._looked_at is not None:
            self.attended_s += min(max(at - self._looked_at, 0.0), self.tick_s)
        self._looked_at = at
        return self.attended_s

    def rest(self) -> None:
        """Nothing is waited for: the time up to the next look does not count."""
        self._looked_at = None
