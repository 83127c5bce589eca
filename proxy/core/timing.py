"""Measures time where clocks cannot be trusted.

Readings of clocks come in; the time that budgets use goes out. This package reads no clock itself.

The time that budgets use: the machine's clock without its steps.

A clock is stepped when somebody sets it, when it is first synchronised, or when a virtual machine moves to another
host. A step must not open a new budget window, and must not make the proxy forget anything. So the wall clock is
compared with a monotonic clock, which is never set and which also counts the time while the machine sleeps. As long as
the two differ by no more than ``STEP_S``, the wall clock gives the time, and its slow corrections are followed. When
the wall clock departs further, the monotonic clock gives the time, until the wall clock has kept its new time for
``SETTLED_S``.

Several hosts share one store, and the store has a clock, too. A host whose wall clock differs from the store's clock by
more than ``STEP_S`` uses the store's clock. Until the store has been asked once, the time is provisional. The store's
first answer is used at once.

All values are in seconds. The module reads no clock: every reading comes from outside.
"""

from proxy.core.value import dataclass

STEP_S = 60.0
"""How far a clock may depart from the monotonic one before the departure counts as a step."""
SETTLED_S = 600.0
"""How long a clock must keep a new time before the new time is used."""


@dataclass(frozen=True, slots=True)
class Departure:
    """How far the wall clock is off. ``held_back_s``: how far the new time, which is not used yet, is ahead of the time
    that is given; 0 if there is no such new time. ``ahead_of_store_s``: how far the wall clock is ahead of the store's
    clock, if the store's clock is used instead; 0 if the wall clock itself is used."""

    held_back_s: float = 0.0
    ahead_of_store_s: float = 0.0

    def is_like(self, other: "Departure") -> bool:
        """Whether it is the same departure, give or take slow corrections."""
        return _is_like(self.held_back_s, other.held_back_s) and _is_like(self.ahead_of_store_s, other.ahead_of_store_s)


AGREES = Departure()


class SteadyTime:
    """The time, computed with each reading. The first answer of a store replaces it at once."""

    def __init__(self, wall_s: float, monotonic_s: float) -> None:
        self._store_s: float | None = None
        self._waiting_s: float | None = None
        self._ahead_of_store_s = 0.0
        self._take(wall_s - monotonic_s, monotonic_s)

    def at(self, wall_s: float, monotonic_s: float) -> float:
        """The time for a reading of both clocks, which are read directly one after the other."""
        own_s = wall_s - monotonic_s
        seen_s = self._chosen(own_s)
        self._ahead_of_store_s = own_s - seen_s
        if abs(seen_s - self._base_s) <= STEP_S:
            self._offset_s, self._waiting_s = seen_s, None
            # Corrections are measured from the offset of a while ago, so that small steps do not add up to a large one.
            if monotonic_s - self._base_at >= SETTLED_S:
                self._take(seen_s, monotonic_s)
        elif self._waiting_s is None or abs(seen_s - self._waiting_s) > STEP_S:
            self._waiting_s, self._waiting_at = seen_s, monotonic_s
        elif monotonic_s - self._waiting_at >= SETTLED_S:
            self._take(seen_s, monotonic_s)
        return monotonic_s + self._offset_s

    def told_by_store(self, store_s: float, monotonic_s: float) -> None:
        """Record that the store's clock showed ``store_s`` when the monotonic clock showed ``monotonic_s``."""
        is_first, self._store_s = self._store_s is None, store_s - monotonic_s
        if is_first:
            self._take(self._chosen(self._offset_s), monotonic_s)

    @property
    def departure(self) -> Departure:
        """How far the wall clock of the last reading is from the time that was given for it."""
        if self._waiting_s is None and not self._ahead_of_store_s:
            return AGREES
        held_back_s = 0.0 if self._waiting_s is None else self._waiting_s - self._offset_s
        return Departure(held_back_s, self._ahead_of_store_s)

    def _chosen(self, own_s: float) -> float:
        if self._store_s is None or abs(own_s - self._store_s) <= STEP_S:
            return own_s
        return self._store_s

    def _take(self, offset_s: float, monotonic_s: float) -> None:
        self._offset_s = self._base_s = offset_s
        self._base_at = monotonic_s
        self._waiting_s, self._waiting_at = None, 0.0


def _is_like(one_s: float, other_s: float) -> bool:
    return bool(one_s) == bool(other_s) and abs(one_s - other_s) <= STEP_S
