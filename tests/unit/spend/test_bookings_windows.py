"""Windows: calendars in time zones, and stretches that roll."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.spend.bookings import window_at
from tests.examples import for_every

BERLIN = "Europe/Berlin"


def at(text: str, zone: str = "UTC") -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


@for_every(
    [
        ("day", "UTC", "2026-11-22T23:59:59", "2026-11-22", "2026-11-23T00:00:00"),
        ("day", BERLIN, "2026-11-22T00:00:00", "2026-11-22", "2026-11-23T00:00:00"),
        ("week", "UTC", "2026-11-22T12:00:00", "2026-11-16", "2026-11-23T00:00:00"),  # a Sunday
        ("week", "UTC", "2026-11-23T00:00:00", "2026-11-23", "2026-11-30T00:00:00"),
        ("month", "UTC", "2026-12-31T23:00:00", "2026-12-01", "2027-01-01T00:00:00"),
        ("month", BERLIN, "2026-02-01T00:00:00", "2026-02-01", "2026-03-01T00:00:00"),
        # The clocks change on 29 March (a day of 23 hours) and 25 October (of 25).
        ("day", BERLIN, "2026-03-29T12:00:00", "2026-03-29", "2026-03-30T00:00:00"),
        ("day", BERLIN, "2026-10-25T23:30:00", "2026-10-25", "2026-10-26T00:00:00"),
    ]
)
def test_calendar_windows_begin_at_local_midnight(kind: str, zone: str, now: str, name: str, resets: str) -> None:
    window = window_at(kind, zone, at(now, zone))
    assert (window.name, window.resets_at) == (name, at(resets, zone))
    assert window.within == ()
    assert window.keep_s is not None
    # People can look at a window that is over for a week, two weeks or two months more.
    shown_s = window.keep_s - (at(resets, zone) - at(now, zone))
    assert shown_s == {"day": 7, "week": 14, "month": 62}[kind] * 86_400


def test_a_day_begins_elsewhere_in_another_zone() -> None:
    now = at("2026-11-22T23:30:00")
    assert window_at("day", "UTC", now).name == "2026-11-22"
    assert window_at("day", BERLIN, now).name == "2026-11-23"
    assert window_at("day", "America/New_York", now).name == "2026-11-22"


def test_minutes_and_hours_begin_on_the_clock() -> None:
    now = at("2026-11-22T10:59:59")
    minute, hour = window_at("minute", "UTC", now), window_at("hour", "UTC", now)
    assert minute.resets_at == hour.resets_at == at("2026-11-22T11:00:00")
    assert window_at("minute", "UTC", now + 1).name != minute.name
    assert window_at("hour", "UTC", now - 3599).name == hour.name


def test_the_total_never_begins_anew() -> None:
    window = window_at("total", "UTC", 0.0)
    assert (window.name, window.resets_at, window.keep_s) == ("total", None, None)
    assert window_at("total", "UTC", 2e9) == window


@given(
    length=st.integers(1, 400 * 86400),
    now=st.floats(0, 4e9, allow_nan=False),
    share=st.floats(0, 1, allow_nan=False),
)
def test_whatever_is_within_a_rolling_window_counts(length: int, now: float, share: float) -> None:
    window = window_at(f"rolling:{length}", "UTC", now)
    counted = {window.name, *window.within}
    assert window_at(f"rolling:{length}", "UTC", max(0.0, now - share * length)).name in counted
    assert window.resets_at is not None
    assert window.resets_at > now
    # What lies a part and more behind the window does not.
    part = max(1.0, length / 24)
    long_ago = now - length - 2 * part
    if long_ago > 0:
        assert window_at(f"rolling:{length}", "UTC", long_ago).name not in counted
    assert len(counted) <= 26


def test_an_unknown_window_is_refused() -> None:
    with pytest.raises(ValueError, match="no window of the name 'year'"):
        window_at("year", "UTC", 0.0)


@pytest.mark.parametrize("length_s", [1, 60, 3600, 86_400])
def test_a_rolling_window_counts_each_part_of_it_once(length_s: int) -> None:
    window = window_at(f"rolling:{length_s}", "UTC", 1_700_000_123.0)
    assert len({window.name, *window.within}) == 1 + len(window.within)


@pytest.mark.parametrize(("kind", "length_s"), [("minute", 60), ("hour", 3600)])
def test_the_counter_of_a_short_window_stays_as_long_again(kind: str, length_s: int) -> None:
    assert window_at(kind, "UTC", 1_700_000_123.0).keep_s == 2 * length_s
