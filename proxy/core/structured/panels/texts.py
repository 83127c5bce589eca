"""The words between which live panels stand. They are read from ``prompts/panels.md`` at the rim."""

from dataclasses import dataclass

ISO_TIME = "{iso_time}"
SYSTEM = "{system}"
"""What is replaced in a text: by a time, and by the client's system prompt."""

_FIRST_KNOWN_S = 1_577_836_800.0
"""The beginning of 2020, in UTC. A clock that shows less was never set."""
_LAST_KNOWN_S = 253_402_300_800.0
"""The beginning of the year 10000, which has no such form."""
_DAY_S, _ERA_DAYS = 86_400, 146_097
"""An era is 400 years: the calendar repeats itself after so many days."""
_DAYS_TO_1970 = 719_468
"""The days from the first of March of the year 0, at which the count of eras begins."""


@dataclass(frozen=True, slots=True)
class PanelTexts:
    """The texts, without blank lines around them. ``timestamp`` and ``datetime`` hold ``{iso_time}``, ``repeat`` holds
    ``{system}``."""

    header: str
    timestamp: str
    unknown_timestamp: str
    footer: str
    footer_ack: str
    datetime: str
    repeat: str
    repeat_ack: str

    def generated(self, stamp_s: float) -> str:
        """What says when a panel has changed, in seconds since 1970."""
        return self.timestamp.replace(ISO_TIME, iso_time(stamp_s)) if is_known(stamp_s) else self.unknown_timestamp

    def current(self, time_s: float) -> str:
        """What says when a prompt was first sent, in seconds since 1970; empty for a time that is not known."""
        return self.datetime.replace(ISO_TIME, iso_time(time_s)) if is_known(time_s) else ""

    def repeated(self, system: str) -> str:
        """The system prompt once more."""
        return self.repeat.replace(SYSTEM, system)


def is_known(time_s: float) -> bool:
    """Whether a clock that was set could show this time."""
    return _FIRST_KNOWN_S <= time_s < _LAST_KNOWN_S


def iso_time(time_s: float) -> str:
    """A known time in UTC, down to the second: ``2026-02-19T14:00:00Z``."""
    days, second = divmod(int(time_s), _DAY_S)
    hour, minute, second = second // 3600, second // 60 % 60, second % 60
    return f"{_date(days)}T{hour:02}:{minute:02}:{second:02}Z"


def _date(days: int) -> str:
    """The date so many days after the beginning of 1970. Years are counted from March on, so that a leap day is the
    last of its year."""
    era, day = divmod(days + _DAYS_TO_1970, _ERA_DAYS)
    year = (day - day // 1_460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    march = (5 * day + 2) // 153
    month = march + 3 if march < 10 else march - 9
    return f"{400 * era + year + (month <= 2):04}-{month:02}-{day - (153 * march + 2) // 5 + 1:02}"
