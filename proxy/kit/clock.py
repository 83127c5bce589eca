"""Time as a port: the machine's clock, the time that budgets use, and the time that a request states in a header.

A clock is stepped when somebody sets it, when it is first synchronised, or when a virtual machine moves to another
host. A step must not open a new budget window, and must not make the proxy forget anything. So ``SteadyClock`` compares
the wall clock with a monotonic clock, which is never set and which also counts the time while the machine sleeps. As
long as the two differ by no more than ``STEP_S``, the wall clock gives the time, and its slow corrections are followed.
When the wall clock departs further, the monotonic clock gives the time, until the wall clock has kept its new time for
``SETTLED_S``.

Several hosts share one store, and the store has a clock, too. A host whose wall clock differs from the store's clock by
more than ``STEP_S`` uses the store's clock. Until the store has been asked once, the time is provisional. The store's
first answer is used at once.

All values are in seconds.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from proxy.kit.errors import InvalidRequest
from proxy.kit.value import dataclass

STEP_S = 60.0
"""How far a clock may depart from the monotonic one before the departure counts as a step."""
SETTLED_S = 600.0
"""How long a clock must keep a new time before the new time is used."""
TIME_HEADER = "x-stratiform-time"
_LATEST_S = 2.5e11  # in the year 9892, so that the windows of budgets end before the calendar does


class Clock(Protocol):
    """Unix seconds."""

    def now(self) -> float:
        """The time."""


class SystemClock:
    """The machine's wall clock, as it is set."""

    now = staticmethod(time.time)  # noqa: TID251 - the one place
    """Unix seconds."""


boot_time: Callable[[], float] = partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
"""Seconds of a clock that cannot be set, and that goes on while the machine sleeps. On Linux it is ``CLOCK_BOOTTIME``
(clock_gettime(2)). On macOS ``CLOCK_MONOTONIC`` counts the sleep (clock_gettime(3))."""


@dataclass(frozen=True, slots=True)
class Readings:
    """The clocks of a machine. Tests use other ones."""

    wall: Callable[[], float] = SystemClock().now
    monotonic: Callable[[], float] = boot_time


@dataclass(frozen=True, slots=True)
class Departure:
    """How far the wall clock is off. ``held_back_s``: how far the new time, which is not used yet, is ahead of the time
    that is given; 0 if there is no such new time. ``ahead_of_store_s``: how far the wall clock is ahead of the store's
    clock, if the store's clock is used instead; 0 if the wall clock itself is used."""

    held_back_s: float = 0.0
    ahead_of_store_s: float = 0.0

    def is_like(self, other: "Departure") -> bool:
        """Whether it is the same departure, give or take slow corrections."""
        pairs = (self.held_back_s, other.held_back_s), (self.ahead_of_store_s, other.ahead_of_store_s)
        return all(bool(one_s) == bool(other_s) and abs(one_s - other_s) <= STEP_S for one_s, other_s in pairs)


_AGREES = Departure()


class SteadyClock:
    """The machine's clock without its steps. Budgets, leases and keys use it.

    ``on_departure`` is called when the machine's clock departs from the time that ``now`` gives, and when the two agree
    again: with the departure that was reported before, and with the new one.
    """

    def __init__(
        self,
        readings: Readings | None = None,
        on_departure: Callable[[Departure, Departure], None] = lambda before, departure: None,
    ) -> None:
        self.readings = readings or Readings()
        self._on_departure = on_departure
        self._reported = _AGREES
        self._store_s: float | None = None
        self._waiting_s: float | None = None
        self.departure = _AGREES
        """How far the wall clock of the last reading is from the time that was given for it."""
        wall_s, monotonic_s = self.readings.wall(), self.readings.monotonic()
        self._take(wall_s - monotonic_s, monotonic_s)

    def now(self) -> float:
        """Unix seconds."""
        # Both clocks are read directly one after the other.
        wall_s, monotonic_s = self.readings.wall(), self.readings.monotonic()
        own_s = wall_s - monotonic_s
        # Only a wall clock that departs from the store's gives way to it.
        seen_s = own_s
        if self._store_s is not None and abs(own_s - self._store_s) > STEP_S:
            seen_s = self._store_s
        if abs(seen_s - self._base_s) <= STEP_S:
            self._offset_s, self._waiting_s = seen_s, None
            # Corrections are measured from the offset of a while ago, so that small steps do not add up to a large one.
            if monotonic_s - self._base_at >= SETTLED_S:
                self._take(seen_s, monotonic_s)
        elif self._waiting_s is None or abs(seen_s - self._waiting_s) > STEP_S:
            self._waiting_s, self._waiting_at = seen_s, monotonic_s
        elif monotonic_s - self._waiting_at >= SETTLED_S:
            self._take(seen_s, monotonic_s)
        before, self.departure = self._reported, _AGREES
        if self._waiting_s is not None or own_s != seen_s:
            held_back_s = 0.0 if self._waiting_s is None else self._waiting_s - self._offset_s
            self.departure = Departure(held_back_s, own_s - seen_s)
        if self.departure is not before and not self.departure.is_like(before):
            self._reported = self.departure
            self._on_departure(before, self.departure)
        return monotonic_s + self._offset_s

    def told_by_store(self, store_s: float, monotonic_s: float) -> None:
        """Record that the store's clock showed ``store_s`` when the monotonic clock showed ``monotonic_s``."""
        is_first, self._store_s = self._store_s is None, store_s - monotonic_s
        if is_first and abs(self._offset_s - self._store_s) > STEP_S:
            self._take(self._store_s, monotonic_s)

    def _take(self, offset_s: float, monotonic_s: float) -> None:
        self._offset_s = self._base_s = offset_s
        self._base_at = monotonic_s
        self._waiting_s, self._waiting_at = None, 0.0


def request_time(headers: Sequence[tuple[str, str]], clock: Clock) -> float:
    """The time of a request: the time in its header, which the operator must trust, or else the clock's time."""
    text = next((value for name, value in headers if name == TIME_HEADER), None)
    if text is None:
        return clock.now()
    try:
        now = float(text)
    except ValueError:
        now = -1.0
    if not 0.0 <= now <= _LATEST_S:
        raise InvalidRequest(f"{TIME_HEADER} must be unix seconds", param=TIME_HEADER, code="invalid_time")
    return now
