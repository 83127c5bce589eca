"""What may be said about teams, keys and budgets."""

from collections.abc import Callable

import pytest

from proxy import terms


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("total", "total"),
        ("month", "month"),
        ("rolling:30d", "rolling:2592000"),
        ("rolling:12h", "rolling:43200"),
        ("rolling:90m", "rolling:5400"),
        ("rolling:3600", "rolling:3600"),
        ("rolling:60s", "rolling:60"),
    ],
)
def test_windows(written: str, kept: str) -> None:
    assert terms.window(written) == kept
    assert terms.window(kept) == kept


@pytest.mark.parametrize(
    ("usd", "nanos"), [(0, 0), (0.1, 100_000_000), (19.99, 19_990_000_000), (1e-9, 1), (50, 50 * 10**9)]
)
def test_money_is_counted_by_the_decimals_that_were_written(usd: float, nanos: int) -> None:
    assert terms.nanos(usd) == nanos


@pytest.mark.parametrize(
    ("check", "value"),
    [
        (terms.window, "fortnight"),
        (terms.window, "rolling:"),
        (terms.window, "rolling:0d"),
        (terms.window, "rolling:5s"),
        (terms.window, "rolling:400d"),
        (terms.window, "rolling:99999999999d"),
        (terms.timezone, "Mars/Olympus"),
        (terms.timezone, "../../etc/passwd"),
        (terms.timezone, ""),
        (terms.name, "a/b"),
        (terms.name, ""),
        (terms.name, "a\n"),
        (terms.name, "a" * 65),
        (terms.text, "two\nlines"),
        (terms.text, "x" * 257),
        (terms.models, [""]),
        (terms.models, ["a\r\nb"]),
        (terms.models, ["m"] * 1001),
        (terms.mode, "turbo"),
        (terms.nanos, -0.01),
        (terms.nanos, float("nan")),
        (terms.nanos, float("inf")),
        (terms.url, "ftp://host/x"),
        (terms.url, "https://user:pw@host/x"),
        (terms.url, "https://"),
        (terms.url, "https://[host/"),
        (terms.url, "https://host/a b"),
        (terms.url, "https://host/\r\nx: y"),
    ],
)
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
        terms.check_amounts(*amounts)


def test_what_clients_name_is_cut_and_kept_on_one_line() -> None:
    assert terms.one_line("a\r\nb\u2028c\x1b[31m") == "abc[31m"
    assert len(terms.one_line("x" * 1000)) == terms.MAX_TEXT_CHARS
