"""The words between which live panels stand. They are read from ``prompts/panels.md`` at the rim."""

from dataclasses import dataclass
from datetime import UTC, datetime

ISO_TIME = "{iso_time}"
SYSTEM = "{system}"
"""What is replaced in a text: by a time, and by the client's system prompt."""

_FIRST_KNOWN_S = 1_577_836_800.0
"""The beginning of 2020, in UTC. A clock that shows less was never set."""
_LAST_KNOWN_S = 253_402_300_800.0
"""The beginning of the year 10000, which has no such form."""


@dataclass(frozen=True, slots=True)
class PanelTexts:
    """The texts, without blank lines around them. ``timestamp`` and ``datetime`` hold ``{iso_time}``, ``repeat`` holds
    ``{system}``. ``ok`` stands where an upstream wants a message of the other role."""

    header: str
    timestamp: str
    unknown_timestamp: str
    footer: str
    footer_ack: str
    datetime: str
    repeat: str
    repeat_ack: str
    ok: str

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
    return f"{datetime.fromtimestamp(int(time_s), UTC):%Y-%m-%dT%H:%M:%SZ}"
