"""Time, as a port: the system's clock, a clock that is set by hand, and the time that a request brings along."""

import math
import time

from proxy.errors import InvalidRequest
from proxy.ports import Clock, Headers

TIME_HEADER = "x-stratiform-time"


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        """Unix seconds."""
        return time.time()  # noqa: TID251 - the one place


class ManualClock:
    """A clock that stands still until it is set: replays and tests run on it."""

    def __init__(self, now: float = 0.0) -> None:
        self._now = now

    def now(self) -> float:
        """Unix seconds."""
        return self._now

    def set(self, now: float) -> None:
        """Set the time."""
        self._now = now


def request_time(headers: Headers, clock: Clock, *, trust_header: bool) -> float:
    """The time at which a request happens: the clock's, or the header's where the operator trusts it."""
    if not trust_header:
        return clock.now()
    text = next((value for name, value in headers if name == TIME_HEADER), None)
    if text is None:
        return clock.now()
    try:
        now = float(text)
    except ValueError:
        now = math.nan
    if not (math.isfinite(now) and now >= 0.0):
        raise InvalidRequest(f"{TIME_HEADER} must be unix seconds", param=TIME_HEADER, code="invalid_time")
    return now
