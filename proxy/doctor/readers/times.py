"""Times as logs write them."""

import math
from datetime import UTC, datetime

# Seconds of this size are thousands of years away: the number counts milliseconds, or microseconds.
_SECONDS, _MILLISECONDS = 1e11, 1e14
_YEAR_9999 = 253_402_300_800.0


def unix_seconds(value: object) -> float | None:
    """Unix seconds of a number or of an ISO 8601 text, whose zone is UTC where it names none; None for anything
    else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return _scaled(float(value))
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value.strip().removesuffix(" UTC"))
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        pass
    try:
        return _scaled(float(value))
    except ValueError:
        return None


def _scaled(number: float) -> float | None:
    if not math.isfinite(number):
        return None
    size = abs(number)
    number /= 1 if size < _SECONDS else 1e3 if size < _MILLISECONDS else 1e6
    return number if abs(number) < _YEAR_9999 else None
