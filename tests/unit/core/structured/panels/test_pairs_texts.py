"""Times are written as every calendar has them, and what no clock could show is not written."""

from datetime import UTC, datetime
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.app.fixed_texts import load_panel_texts
from proxy.core.structured.panels.pairs import is_known, iso_time

TEXTS = load_panel_texts()
FIRST_S, BEHIND_S = 1_577_836_800, 253_402_300_800


@given(st.floats(FIRST_S, BEHIND_S, exclude_max=True))
def test_a_time_is_that_of_the_calendar(time_s: float) -> None:
    assert iso_time(time_s) == datetime.fromtimestamp(int(time_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.mark.parametrize(
    ("year", "month", "day"), [(2020, 2, 29), (2020, 3, 1), (2100, 2, 28), (2100, 3, 1), (2400, 2, 29), (9999, 12, 31)]
)
def test_days_beside_leap_days_are_those_of_the_calendar(year: int, month: int, day: int) -> None:
    last = datetime(year, month, day, 23, 59, 59, tzinfo=UTC)
    assert iso_time(last.timestamp()) == f"{year}-{month:02}-{day:02}T23:59:59Z"


@pytest.mark.parametrize("time_s", [0.0, -1.0, FIRST_S - 1, BEHIND_S, inf, -inf, nan])
def test_a_time_that_no_clock_shows_is_not_known(time_s: float) -> None:
    assert not is_known(time_s)
    assert TEXTS.generated(time_s) == TEXTS.unknown_timestamp
    assert TEXTS.current(time_s) == ""


def test_only_the_placeholder_is_replaced() -> None:
    assert TEXTS.generated(FIRST_S) == "Panel automatically generated at 2020-01-01T00:00:00Z"
    assert TEXTS.current(FIRST_S) == "Current datetime: 2020-01-01T00:00:00Z"
