"""Time as a port: the machine's clock, and the time that a request states in a header."""

import math
import time
from collections.abc import Callable
from functools import partial

from proxy.core.timing import AGREES, Departure, SteadyTime
from proxy.core.value import dataclass
from proxy.errors import InvalidRequest
from proxy.ports import Clock, Headers

TIME_HEADER = "x-stratiform-time"


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


class SteadyClock:
    """The machine's clock without its steps (``proxy.core.timing``). Budgets, leases and keys use it.

    ``on_departure`` is called when the machine's clock departs from the time that ``now`` gives, and when the two agree
    again. ``steady`` computes that time; it is told the store's clock.
    """

    def __init__(
        self, readings: Readings | None = None, on_departure: Callable[[Departure], None] = lambda departure: None
    ) -> None:
        self.readings = readings or Readings()
        self._on_departure = on_departure
        self.steady = SteadyTime(self.readings.wall(), self.readings.monotonic())
        self._departure = AGREES

    def now(self) -> float:
        """Unix seconds."""
        wall_s, monotonic_s = self.readings.wall(), self.readings.monotonic()
        now = self.steady.at(wall_s, monotonic_s)
        departure = self.steady.departure
        if departure is not self._departure and not departure.is_like(self._departure):
            self._departure = departure
            self._on_departure(departure)
        return now


def request_time(headers: Headers, clock: Clock, *, trust_header: bool) -> float:
    """The time of a request: the time in its header if the operator trusts that header, else the clock's time."""
    text = next((value for name, value in headers if name == TIME_HEADER), None) if trust_header else None
    if text is None:
        return clock.now()
    try:
        now = float(text)
    except ValueError:
        now = math.nan
    if not (math.isfinite(now) and now >= 0.0):
        raise InvalidRequest(f"{TIME_HEADER} must be unix seconds", param=TIME_HEADER, code="invalid_time")
    return now
