"""A layout as it is judged: how much of it the next request is expected to read, now and after a pause."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from proxy.core.caches.prompt import Bill, Life
from proxy.core.layout.layout import Layout


@dataclass(frozen=True, slots=True)
class PauseValue:
    """Tokens that are expected to be read after a pause, if everything up to a position is protected: by the session's
    next request. ``held`` are the positions, ascending, that are protected whatever is sent now."""

    layout: Layout
    expected: tuple[float, ...]
    held: Sequence[int]

    def of(self, marks: Mapping[int, Life], bill: Bill) -> float:
        """With these markers: what is held that long already, and what is written for an hour now."""
        ends = self.layout.ends
        read = ends[bill.hit] if bill.hit >= 0 else 0
        protected = sorted([*self.held, *(p for p, life in marks.items() if life == "1h" and ends[p] > read)])
        return self.expected[protected[-1]] if protected else 0.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """A layout, and by position ``survival``: P(the next request comes within the short life and repeats everything up
    to there). ``held`` are the positions, ascending, whose entries the provider holds. ``worth`` is set where the
    client is expected to pause. ``is_natural``: the layout has the client's own order."""

    layout: Layout
    survival: Sequence[float]
    held: Sequence[int]
    worth: PauseValue | None = None
    is_natural: bool = False
