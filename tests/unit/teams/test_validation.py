"""What may be said about teams, keys and budgets."""

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.teams import validation
from proxy.teams.validation import window_of
from tests.examples import examples, for_every

NOW = 1_795_000_000.0
ZONES = [ZoneInfo("Pacific/Kiritimati"), ZoneInfo("Etc/GMT+12")]
"""The zones whose clocks are farthest ahead, and farthest behind."""


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("total", "total"), ("month", "month"), ("rolling:30d", "rolling:2592000"), ("rolling:12h", "rolling:43200"),
        ("rolling:90m", "rolling:5400"), ("rolling:3600", "rolling:3600"), ("rolling:60s", "rolling:60"),
    ],
)  # fmt: skip
def test_windows(written: str, kept: str) -> None:
    assert validation.window(written) == kept
    assert validation.window(kept) == kept


@pytest.mark.parametrize(
    ("usd", "nanos"), [(0, 0), (0.1, 100_000_000), (19.99, 19_990_000_000), (1e-9, 1), (50, 50 * 10**9)]
)
def test_money_is_counted_by_the_decimals_that_were_written(usd: float, nanos: int) -> None:
    assert validation.nanos(usd) == nanos


@for_every(
    [
        (validation.window, "fortnight"), (validation.window, "rolling:"), (validation.window, "rolling:0d"),
        (validation.window, "rolling:5s"), (validation.window, "rolling:400d"),
        (validation.window, "rolling:99999999999d"), (validation.timezone, "Mars/Olympus"),
        (validation.timezone, "../../etc/passwd"), (validation.timezone, ""), (validation.name, "a/b"),
        (validation.name, ""), (validation.name, "a\n"), (validation.name, "a" * 65), (validation.text, "two\nlines"),
        (validation.text, "x" * 257), (validation.patterns, [""]), (validation.patterns, ["a\r\nb"]),
        (validation.patterns, ["m"] * 1001), (validation.mode, "turbo"), (validation.nanos, -0.01),
        (validation.nanos, float("nan")), (validation.nanos, float("inf")), (validation.url, "ftp://host/x"),
        (validation.url, "https://user:pw@host/x"), (validation.url, "https://"), (validation.url, "https://[host/"),
        (validation.url, "https://host/a b"), (validation.url, "https://host/\r\nx: y"),
    ]
)  # fmt: skip
def test_what_is_wrong_is_said_without_repeating_it(check: Callable[[object], object], value: object) -> None:
    with pytest.raises(ValueError, match=r"^(must|may)") as caught:
        check(value)
    assert len(str(caught.value)) < 200
    assert not (isinstance(value, str) and len(value) > 8 and value in str(caught.value))


@pytest.mark.parametrize(
    "amounts",
    [(None, None, None, None), (1, None, 1, None), (1, 2, None, None), (None, None, 5, 6), (None, 1, 1, None)],
)
def test_a_budget_has_one_unit_and_warns_first(amounts: tuple[int | None, ...]) -> None:
    with pytest.raises(ValueError, match="must"):
        validation.check_amounts(*amounts)


@pytest.mark.parametrize(
    ("window", "durations"),
    [
        ("hour", ["1h", "hourly"]),
        ("day", ["1d", "24h", "daily", " DAILY "]),
        ("week", ["7d", "1w", "weekly"]),
        ("month", ["30d", "1mo", "monthly"]),
    ],
)
def test_lengths_that_litellm_begins_with_the_calendar_do_so_here(window: str, durations: list[str]) -> None:
    assert {window_of(duration) for duration in durations} == {window}


@pytest.mark.parametrize(("duration", "window"), [("", "total"), (None, "total"), ("2w", 14), ("2mo", 62), ("45d", 45)])
def test_any_other_window_rolls_and_is_one_that_a_budget_may_have(duration: str | None, window: str | int) -> None:
    found = validation.window(window_of(duration))
    assert found == (window if isinstance(window, str) else f"rolling:{window * 86400}")


@pytest.mark.parametrize("duration", ["sometimes", "2 moons", "0d", "-1d", "1y", "1d1h"])
def test_what_is_no_length_is_refused(duration: str) -> None:
    with pytest.raises(ValueError, match="must be a length"):
        window_of(duration)


@settings(max_examples=examples(300), deadline=None)
@given(
    st.from_regex(r"[1-9][0-9]{0,8}[smhd]", fullmatch=True)
    | st.floats().map(str)
    | st.floats(0, 2.6e11).map(str)
    | st.datetimes(timezones=st.sampled_from([UTC, *ZONES])).map(str),
    st.booleans(),
)
def test_each_time_that_is_accepted_has_a_date_in_every_zone(written: str, is_ahead: bool) -> None:
    with suppress(ValueError):
        at = validation.moment(written, NOW, is_ahead)
        assert at >= 0
        for zone in ZONES:
            assert datetime.fromtimestamp(at, UTC).astimezone(zone).utcoffset() is not None


@pytest.mark.parametrize("expiry", ["999999999d", "9999-12-31T12:00:00Z"])
def test_a_key_expires_before_the_calendar_ends(expiry: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        validation.expiry(expiry, NOW)


def test_a_report_may_look_back_to_before_the_epoch() -> None:
    assert validation.moment("99999d", NOW, ahead=False) == 0.0
