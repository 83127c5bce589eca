"""The windows of budgets: the period that a counter counts, and when the counter begins again.

Calendar windows begin at midnight in the rule's time zone, and weeks on Monday. This also holds if the time zone has
daylight saving time. Minutes and hours begin on the full minute and hour. A rolling window is counted in parts, and
each part has a counter of its own: the part in which the request arrives, and as many earlier parts as the window needs
to reach back far enough. Usage within the window always counts, so that the limit holds for every period of that
length. Usage that has left the window may count up to one part longer (a 24th of the window, at least a second).
"""

import math
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from proxy.core.value import dataclass

_PARTS = 24
_DAY_S = 86400.0
_FIXED_S = {"minute": 60, "hour": 3600}
# Counters of a window that is over are kept this long, so that people can still look at them.
_KEPT_S = {"minute": 60.0, "hour": 3600.0, "day": 7 * _DAY_S, "week": 14 * _DAY_S, "month": 62 * _DAY_S}
_ROLLING = "rolling:"


@dataclass(frozen=True, slots=True)
class Window:
    """``name`` tells the counter of this window from the counters of other windows. ``within`` are the names of further
    counters that count towards the same limit. ``resets_at`` is when money is free again, or may be free; None for
    never. ``keep_s`` is how long the counter is needed after a change; None for ever."""

    name: str
    resets_at: float | None
    keep_s: float | None
    within: tuple[str, ...] = ()


def window_at(text: str, timezone: str, now: float) -> Window:
    """The window of that kind at a time. Windows and time zones have passed the checks of ``proxy.access.validation``.
    Raises ValueError for a window of another name."""
    if text == "total":
        return Window("total", None, None)
    if text.startswith(_ROLLING):
        return _rolling(int(text.removeprefix(_ROLLING)), now)
    if text in _FIXED_S:
        length = _FIXED_S[text]
        index = math.floor(now / length)
        return Window(f"{text}:{index}", (index + 1.0) * length, length + _KEPT_S[text])
    zone = UTC if timezone == "UTC" else ZoneInfo(timezone)  # UTC needs no time zone database
    start, end = _calendar(text, datetime.fromtimestamp(now, zone))
    resets_at = end.timestamp()
    return Window(start.strftime("%Y-%m-%d"), resets_at, resets_at - now + _KEPT_S[text])


def _calendar(text: str, now: datetime) -> tuple[datetime, datetime]:
    """The local midnights between which the window lies. They follow the wall clock: a day may have 23 or 25 hours."""
    today = now.replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
    match text:
        case "day":
            return today, today + timedelta(days=1)
        case "week":
            monday = today - timedelta(days=today.weekday())
            return monday, monday + timedelta(days=7)
        case "month":
            first = today.replace(day=1)
            return first, (first + timedelta(days=32)).replace(day=1)
        case _:
            raise ValueError(f"there is no window of the name {text!r}")


def _rolling(length_s: int, now: float) -> Window:
    part_s = max(1.0, length_s / _PARTS)
    index = math.floor(now / part_s)
    back = math.ceil(length_s / part_s)
    # The next part also counts, because another host's clock may be ahead.
    within = tuple(f"r{length_s}:{i}" for i in (index + 1, *range(index - 1, index - back - 1, -1)))
    return Window(f"r{length_s}:{index}", (index + 1) * part_s, length_s + 2 * part_s, within)
