"""LiteLLM's ``budget_duration`` as a window of a budget."""

import re

# These begin by the calendar in LiteLLM as well (litellm_core_utils/duration_parser.py): 7 days on Monday, 30 days on
# the first of a month. A rolling window is never laxer than one of its length that begins at any other time.
_CALENDAR = {
    "1h": "hour", "hourly": "hour", "1d": "day", "24h": "day", "daily": "day", "7d": "week", "1w": "week",
    "weekly": "week", "30d": "month", "1mo": "month", "monthly": "month",
}  # fmt: skip
_DURATION = re.compile(r"([1-9][0-9]{0,5})(s|m|h|d|w|mo)")
_IN_DAYS = {"w": 7, "mo": 31}


def window_of(duration: str | None) -> str:
    """The window of a budget that LiteLLM resets after this time; ``total`` where it never does. Raises ValueError."""
    if not duration:
        return "total"
    plain = duration.strip().lower()
    if plain in _CALENDAR:
        return _CALENDAR[plain]
    match = _DURATION.fullmatch(plain)
    if match is None:
        raise ValueError("must be a length as in 30s, 15m, 12h, 30d, 2w or 1mo")
    number, unit = int(match[1]), match[2]
    return f"rolling:{number * _IN_DAYS[unit]}d" if unit in _IN_DAYS else f"rolling:{number}{unit}"
