"""What may be said about teams, keys and budgets."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.kit.errors import InvalidRequest
from proxy.storage import BudgetRecord, KeyRecord, Record, TeamRecord
from proxy.teams import validation
from proxy.teams.validation import (
    AdminForm,
    BudgetForm,
    KeyForm,
    SpentForm,
    TeamForm,
    budget_changes,
    key_changes,
    parts_of_url,
    read_form,
    spent_amount,
    team_changes,
    window_of,
)
from tests.examples import examples, for_every

NOW = 1_795_000_000.0
DAY = 86_400.0
ZONES = [ZoneInfo("Pacific/Kiritimati"), ZoneInfo("Etc/GMT+12")]
"""The zones whose clocks are farthest ahead, and farthest behind."""
BAD = object()
"""The verdict on a value that is refused."""


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


# Every check, with the values at each of its bounds


def kept_or_bad(check: Callable[[Any], object], value: object) -> object:
    try:
        return check(value)
    except ValueError:
        return BAD


def verdicts(check: Callable[[Any], object], table: Mapping[Any, object]) -> list[tuple[Any, ...]]:
    return [(check, value, verdict) for value, verdict in table.items()]


def same(*values: Any) -> dict[Any, Any]:
    """Values that are stored as they are written."""
    return {value: value for value in values}


def bad(*values: Any) -> dict[Any, object]:
    return dict.fromkeys(values, BAD)


@for_every(
    [
        *verdicts(
            validation.name,
            {**same("a", "7", "Red.team_1-x", "a" * 64), **bad("", "a" * 65, "-a", "a b", "é", "a\n")},
        ),
        *verdicts(validation.text, {**same("", "ann", "x" * 256), **bad("x" * 257, "a\tb", "a\x7fb", "a\u2028b")}),
        *verdicts(
            validation.patterns,
            {
                ("m", "gpt-*", "m"): ("m", "gpt-*"), (): (), ("x" * 256,): ("x" * 256,),
                **bad(("x" * 257,), ("m", ""), ("a\nb",)),
            },
        ),
        *verdicts(
            validation.paths,
            {
                ("/fine_tuning/", "a/b-1.c", "*", "a/b-1.c"): ("fine_tuning", "a/b-1.c", "*"),
                ("x" * 64,): ("x" * 64,), ("/".join("abcdefgh"),): ("a/b/c/d/e/f/g/h",),
                **bad(("",), ("a//b",), ("a*",), ("a?",), ("*", "a b"), ("x" * 65,), ("a/" + "x" * 65,)),
                **bad(("/".join("abcdefghi"),)),
            },
        ),
        *verdicts(validation.mode, {**same("", "passthrough", "observe", "mark", "tier"), **bad("Tier", " ", "turbo")}),
        *verdicts(
            validation.window,
            {
                **same("total", "hour", "day", "week", "month", "rolling:60", "rolling:999999"),
                "rolling:1m": "rolling:60", "rolling:2h": "rolling:7200", "rolling:366d": "rolling:31622400",
                **bad("minute", "Month", "rolling", "rolling:59", "rolling:59s", "rolling:31622401", "rolling:367d",
                      "rolling:060", "rolling:1w", "rolling:1d ", " rolling:1d", "rolling:999999999",
                      "rolling:1000000000"),
            },
        ),
        *verdicts(validation.timezone, {**same("UTC", "Europe/Berlin"), **bad("utc/x", "Berlin", "/etc/localtime")}),
        *verdicts(
            validation.nanos, {0: 0, 1e-9: 1, 2.5: 2_500_000_000, 9_000_000: 9 * 10**15, **bad(-1e-9, 9_000_000.01)}
        ),
        *verdicts(
            validation.url,
            {
                **same("http://h", "https://h/x?y=1#z", "https://[::1]:8443/x", "http://h:65535/"),
                **bad("HTTPS//h", "http:/h", "https://user@h/", "https://:pw@h/", "https://h:0/", "https://h:65536/",
                      "https:// h/", "https://h/\x85", "file:///x", "ws://h", "", "//h"),
            },
        ),
        *verdicts(
            validation.host,
            {
                **same("proxy.example.com", "localhost", "h" * 253, "127.0.0.1", "::1"), "0:0:0:0:0:0:0:1": "::1",
                **bad("", "h" * 254, "a b", "a/b", "h:80", "u@h", "h?", "h#", "*.h", "[::1]", "http://h"),
            },
        ),
        *verdicts(validation.between(2, 4), {**same(2, 3, 4), **bad(1, 5, -3)}),
        *verdicts(
            window_of,
            {
                None: "total", "": "total", "1h": "hour", "hourly": "hour", "1d": "day", "24h": "day", "daily": "day",
                "7d": "week", "1w": "week", "weekly": "week", "30d": "month", "1mo": "month", "monthly": "month",
                " Weekly\n": "week", "30S": "rolling:30s", "15m": "rolling:15m", "12h": "rolling:12h",
                "999999d": "rolling:999999d", "2w": "rolling:14d", "3mo": "rolling:93d",
                **bad("1000000s", "05m", "5", "h", "1h1m", "1 h"),
            },
        ),
    ]
)  # fmt: skip
def test_each_check_keeps_or_refuses_a_value_as_the_table_says(
    check: Callable[[Any], object], value: object, verdict: object
) -> None:
    assert kept_or_bad(check, value) == verdict


@pytest.mark.parametrize("count", [1000, 1001])
@pytest.mark.parametrize("check", [validation.patterns, validation.paths])
def test_a_list_has_at_most_a_thousand_entries(check: Callable[[list[str]], tuple[str, ...]], count: int) -> None:
    assert (kept_or_bad(check, [f"m{n}" for n in range(count)]) is BAD) is (count > 1000)


@given(st.integers(1, 10**9 - 1), st.sampled_from(["", "s", "m", "h", "d"]))
def test_a_rolling_window_is_kept_in_seconds_between_a_minute_and_a_leap_year(number: int, unit: str) -> None:
    length = number * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}[unit]
    stored = f"rolling:{length}" if 60 <= length <= 366 * 86_400 else BAD
    assert kept_or_bad(validation.window, f"rolling:{number}{unit}") == stored


@given(st.integers(0, 9_000_000 * 10**9))
def test_money_that_a_counter_has_is_read_back_as_it_was(nanos: int) -> None:
    # Beyond fifteen digits a double does not tell neighbours apart.
    kept = nanos - nanos % 10 ** max(0, len(str(nanos)) - 15)
    assert validation.nanos(validation.usd(kept)) == kept
    assert Decimal(repr(validation.usd(kept))) * 10**9 == kept


@for_every(
    [(a, b, c, d) for a in (None, 1.0, 2.0) for b in (None, 1.0, 2.0) for c in (None, 1, 2) for d in (None, 1, 2)]
)
def test_amounts_are_those_of_one_unit_with_the_soft_one_no_higher(
    usd: float | None, soft_usd: float | None, tokens: int | None, soft_tokens: int | None
) -> None:
    money, count = (usd, soft_usd), (tokens, soft_tokens)
    units = [pair for pair in (money, count) if pair != (None, None)]
    is_good = len(units) == 1 and (None in units[0] or units[0][1] <= units[0][0])  # type: ignore[operator]
    assert (kept_or_bad(lambda _: validation.check_amounts(*money, *count), 0) is None) is is_good


@for_every(
    [
        (None, "team", "total", "usd", "total"), (None, "user", "month", "usd", "user-month"),
        (None, "team", "day", "tokens", "day-tokens"), (None, "key", "rolling:60", "tokens", "key-rolling-60-tokens"),
        ("own", "key", "day", "tokens", "own"),
    ]
)  # fmt: skip
def test_a_budget_without_a_name_is_called_by_what_it_is(
    given: str | None, scope: str, window: str, unit: str, name: str
) -> None:
    assert validation.budget_name(given, scope, window, unit) == name


# Moments

OFFSETS = st.none() | st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(st.datetimes(datetime(1970, 1, 3), datetime(9999, 12, 29)), OFFSETS, st.booleans())
def test_a_date_or_a_time_is_the_moment_that_it_names(at: datetime, zone: timezone | None, ahead: bool) -> None:
    at = at.replace(microsecond=0, tzinfo=zone)
    seconds = (at.replace(tzinfo=zone or UTC) - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()
    assert validation.moment(at.isoformat(), NOW, ahead) == seconds
    midnight = datetime(at.year, at.month, at.day, tzinfo=UTC).timestamp()
    assert validation.moment(at.date().isoformat(), NOW, ahead) == midnight


@for_every(
    [
        ("1s", 1.0), ("2m", 120.0), ("3h", 10_800.0), ("30d", 30 * DAY), ("19999d", 19999 * DAY),
        ("999999999s", 999_999_999.0),
    ]
)  # fmt: skip
def test_a_length_leads_ahead_or_back(written: str, length_s: float) -> None:
    assert validation.moment(written, NOW, ahead=True) == NOW + length_s
    assert validation.moment(written, NOW, ahead=False) == NOW - length_s


@for_every(
    [
        *verdicts(
            lambda text: validation.moment(text, NOW, ahead=False),
            {
                "0": 0.0, "5": 5.0, "123456789": 123_456_789.0, "1e9": 1e9, "1795000000.5": NOW + 0.5,
                "253402214399": 253_402_214_399.0, "1970-01-01": 0.0, "9999-12-30T23:59:59Z": 253_402_214_399.0,
                "99999d": 0.0, "999999999d": 0.0,
                **bad("-1", "253402214400", "1e300", "nan", "inf", "", "soon", "1969-12-31T23:59:59Z", "2027-13-01",
                      "1w", "0d", "1d1h", "9999-12-31T00:00:00Z", "0001-01-01T00:00:00+23:59"),
            },
        ),
        *verdicts(
            lambda text: validation.expiry(text, NOW),
            {
                "1s": NOW + 1, "2900000d": NOW + 2_900_000 * DAY, "1795000000.5": NOW + 0.5,
                **bad("1795000000", "1794999999", "2020-01-01", "never", "3000000d", "999999999d"),
            },
        ),
    ]
)  # fmt: skip
def test_a_moment_lies_between_1970_and_the_year_10000_and_an_expiry_ahead(
    check: Callable[[Any], object], value: object, verdict: object
) -> None:
    assert kept_or_bad(check, value) == verdict


def test_what_is_no_time_is_told_how_a_time_is_written() -> None:
    told = "must be unix seconds, a date or time as in 2027-01-31 or 2027-01-31T18:00:00Z, or a length as in 30d, 12h"
    for wrong in ("soon", "-1", "2027-13-01"):
        with pytest.raises(ValueError, match="must be") as caught:
            validation.moment(wrong, NOW, ahead=True)
        assert str(caught.value) == told


def test_the_parts_of_a_url_are_known_for_its_schemes_alone() -> None:
    parts = parts_of_url("redis://u:p@h:6379/0", "redis", "rediss")
    assert parts is not None
    assert (parts.hostname, parts.port, parts.username) == ("h", 6379, "u")
    for text in ("http://h", "redis://", "redis://h:0", "redis://h:x", "redis://[h"):
        assert parts_of_url(text, "redis", "rediss") is None


# Forms of the admin API

CHANGES: dict[type[AdminForm], Callable[[Any], Mapping[str, Any]]] = {
    TeamForm: team_changes,
    KeyForm: lambda form: key_changes(form, NOW),
    BudgetForm: lambda form: {
        name: value for name, value in budget_changes(form).items() if name not in ("unit", "hard", "soft")
    },
}
RIGHTS: dict[str, dict[Any, object]] = {
    "mode": {**same("mark", ""), **bad("turbo")},
    "models": {("m", "m"): ("m",), **bad(("",))},
    "requests_per_minute": {**same(1, 10**12), **bad(0, -1, 10**12 + 1)},
    "tokens_per_minute": {**same(1, 10**12), **bad(0, 10**12 + 1)},
}
TABLES: dict[type[AdminForm], dict[str, dict[Any, object]]] = {
    TeamForm: {**RIGHTS, "paths": {("/files/",): ("files",), **bad(("a b",))}},
    KeyForm: {
        **RIGHTS,
        "user": {**same("ann"), **bad("a\nb")},
        "note": {**same("for CI"), **bad("a\nb")},
        "expires_at": {"1d": NOW + DAY, 1_800_000_000: 1_800_000_000.0, **bad(NOW, "soon")},
    },
    BudgetForm: {
        "timezone": {**same("Europe/Berlin"), **bad("Mars")},
        "assumed_output_tokens": {**same(1, 10**9), **bad(0, 10**9 + 1)},
        "webhook": {**same("https://h/x"), **bad("ftp://h")},
    },
}
AMOUNT = {BudgetForm: {"usd": 1}}


def changed(form: type[AdminForm], field: str, value: object) -> Mapping[str, Any]:
    """The changes that one field of a form makes."""
    body = {**AMOUNT.get(form, {}), field: list(value) if isinstance(value, tuple) else value}
    return CHANGES[form](read_form(body, form))


@for_every([(form, field, *row) for form, table in TABLES.items() for field in table for row in table[field].items()])
def test_each_field_of_a_form_is_stored_as_its_check_says(
    form: type[AdminForm], field: str, value: object, stored: object
) -> None:
    if stored is not BAD:
        assert changed(form, field, value) == {field: stored}
        return
    with pytest.raises(InvalidRequest, match=f"^'{field}' m") as caught:
        changed(form, field, value)
    assert caught.value.param == field


RECORDS: dict[type[AdminForm], type[Record]] = {TeamForm: TeamRecord, KeyForm: KeyRecord, BudgetForm: BudgetRecord}


@for_every([(form, field) for form, table in TABLES.items() for field in table])
def test_null_clears_a_field_to_what_a_record_has_by_itself(form: type[AdminForm], field: str) -> None:
    (default,) = (one.default for one in fields(RECORDS[form]) if one.name == field)
    assert changed(form, field, None) == {field: default}


@for_every([TeamForm, KeyForm, BudgetForm])
def test_a_field_that_is_left_out_changes_nothing(form: type[AdminForm]) -> None:
    assert CHANGES[form](read_form(AMOUNT.get(form, {}), form)) == {}


@for_every([("forward", True), ("refuse", False), (None, False)])
def test_a_team_forwards_its_clients_keys_where_it_says_so(value: str | None, forwards: bool) -> None:
    assert team_changes(read_form({"client_keys": value}, TeamForm)) == {"forwards_keys": forwards}


@for_every(
    [
        {"zap": 1},
        {"mode": 5},
        {"client_keys": "pass"},
        {"requests_per_minute": "5"},
        {"requests_per_minute": 1.5},
        [],
        "x",
    ]
)
def test_a_body_that_is_no_form_is_refused(body: object) -> None:
    with pytest.raises(InvalidRequest, match="The body is not right: ") as caught:
        read_form(body, TeamForm)
    known = "; known are mode, models, requests_per_minute, tokens_per_minute, name, client_keys, paths."
    assert caught.value.message.endswith(known) is (body == {"zap": 1})


def test_numbers_may_be_texts_where_the_reader_allows_it() -> None:
    assert read_form({"requests_per_minute": "5"}, TeamForm, is_strict=False).requests_per_minute == 5


USD = BudgetRecord("red/b", "red", hard=5 * 10**9, soft=4 * 10**9)
TOKENS = BudgetRecord("red/b", "red", unit="tokens", hard=50, soft=40)


@for_every(
    [
        ({"usd": 2.5}, None, ("usd", 2_500_000_000, None)), ({"soft_usd": 1}, None, ("usd", None, 10**9)),
        ({"usd": 2, "soft_usd": 2}, None, ("usd", 2 * 10**9, 2 * 10**9)), ({"tokens": 7}, None, ("tokens", 7, None)),
        ({"soft_tokens": 0}, None, ("tokens", None, 0)), ({"tokens": 10**15}, None, ("tokens", 10**15, None)),
        ({}, USD, ("usd", 5 * 10**9, 4 * 10**9)), ({"usd": 6}, USD, ("usd", 6 * 10**9, 4 * 10**9)),
        ({"soft_usd": None}, USD, ("usd", 5 * 10**9, None)), ({"usd": None}, USD, ("usd", None, 4 * 10**9)),
        ({}, TOKENS, ("tokens", 50, 40)), ({"tokens": 60}, TOKENS, ("tokens", 60, 40)),
        ({"tokens": None}, TOKENS, ("tokens", None, 40)),
        ({}, None, BAD), ({"usd": 1, "soft_usd": 2}, None, BAD), ({"usd": 1, "tokens": 1}, None, BAD),
        ({"tokens": 10**15 + 1}, None, BAD), ({"tokens": -1}, None, BAD), ({"usd": 9_000_001}, None, BAD),
        ({"usd": 3}, USD, BAD), ({"tokens": 1}, USD, BAD), ({"usd": None, "soft_usd": None}, USD, BAD),
        ({"usd": None, "soft_usd": None, "tokens": 1}, USD, BAD), ({"usd": 1}, TOKENS, BAD),
        ({"tokens": None, "soft_tokens": None, "usd": 1}, TOKENS, BAD),
    ]
)  # fmt: skip
def test_the_amounts_of_a_budget_keep_their_unit(
    body: dict[str, Any], before: BudgetRecord | None, kept: object
) -> None:
    try:
        changes = budget_changes(read_form(body, BudgetForm), before)
    except InvalidRequest:
        assert kept is BAD
    else:
        assert (changes["unit"], changes["hard"], changes["soft"]) == kept


@for_every(
    [
        (USD, {"spent": 1.5}, 1_500_000_000), (USD, {"spent": 0}, 0), (USD, {}, BAD), (USD, {"spent": -1}, BAD),
        (TOKENS, {"spent": 7.0}, 7), (TOKENS, {"spent": 0}, 0), (TOKENS, {"spent": 10**15}, 10**15),
        (TOKENS, {"spent": 1.5}, BAD), (TOKENS, {"spent": -1}, BAD), (TOKENS, {"spent": 10**15 + 2}, BAD),
    ]
)  # fmt: skip
def test_what_is_set_as_spent_is_in_the_unit_of_the_budget(
    budget: BudgetRecord, body: dict[str, Any], amount: object
) -> None:
    form = read_form(body, SpentForm)
    assert not form.dry_run
    if amount is not BAD:
        assert spent_amount(budget, form) == amount
        return
    with pytest.raises(InvalidRequest, match="^'spent' ") as caught:
        spent_amount(budget, form)
    assert caught.value.param == "spent"


def test_amounts_are_shown_in_dollars_or_as_they_are() -> None:
    shown = [validation.in_unit("usd", 1_500_000_000), validation.in_unit("tokens", 7), validation.in_unit("usd", None)]
    assert shown == [1.5, 7, None]
    assert validation.in_unit("usd", 0) == 0.0
