"""Names of counters: apart where what they count is apart, and short whatever clients call themselves."""

import re

from hypothesis import given
from hypothesis import strategies as st

from proxy.core.money.charges import Estimate, Rule
from proxy.spend.bookings import Booking, Window, account_of, booked, counter_of, rate_headers
from proxy.storage.port import Balance, Charge

DAY = "2026-11-22"


def rule(whom: str = "", *, is_rate: bool = False) -> Rule:
    return Rule("daily", "the budget", hard=1, whom=whom, is_rate=is_rate)


def test_a_counter_is_named_by_rule_whom_and_window() -> None:
    assert account_of(rule(), DAY) == "b:daily:-:2026-11-22"
    assert account_of(rule("ann"), DAY) == "b:daily:ann:2026-11-22"
    assert account_of(rule("key-1", is_rate=True), DAY) == "r:daily:key-1:2026-11-22"
    assert counter_of("red", rule("ann")) == "red:b:daily:ann:"


def test_a_name_that_is_not_plain_is_spelt_as_in_the_stores_that_hold_it() -> None:
    # BLAKE2b of the name, 12 bytes: another spelling would begin every budget of such a user anew.
    assert account_of(rule("a b"), DAY) == "b:daily:~f8ead3ec60da789524652385:2026-11-22"


@given(st.text(), st.text())
def test_nobody_shares_a_counter_with_another(one: str, other: str) -> None:
    names = {account_of(rule(whom), DAY) for whom in (one, other)}
    assert len(names) == len({one, other})
    assert all(re.fullmatch(r"b:daily:[\w.@+/~-]{1,64}:2026-11-22", name, re.ASCII) for name in names)


def test_a_budget_reserves_the_most_and_a_rate_limit_what_is_expected() -> None:
    amounts = {unit: Estimate(100, 7) for unit in ("usd", "tokens", "requests")}
    charges = [
        booked(Rule("r", "limit", "tokens", 50, window="minute", is_rate=is_rate), amounts, 0.0).charge
        for is_rate in (False, True)
    ]
    assert [(one.amount, one.expected) for one in charges] == [(100, 7), (7, 7)]


BUDGET = Rule("total", "t", hard=5)


def limit(rule: Rule, spent: int, reserved: int, resets_at: float | None = 130.0) -> tuple[Booking, Balance]:
    return Booking(rule, Window("w", resets_at, None), Charge("a", 1)), Balance("a", spent, reserved)


def rate(unit: str, hard: int, whom: str = "key-1") -> Rule:
    return Rule(f"rate/{unit}", "t", unit=unit, hard=hard, window="minute", whom=whom, is_rate=True)  # type: ignore[arg-type]


def test_the_limit_with_the_least_left_is_told() -> None:
    limits = [
        limit(rate("requests", 60), 10, 5),
        limit(rate("requests", 1000, ""), 995, 2),
        limit(rate("tokens", 500), 600, 0),
        limit(BUDGET, 1, 1, resets_at=None),
    ]
    assert rate_headers(limits, now=100.5) == [
        ("x-ratelimit-limit-requests", "1000"),
        ("x-ratelimit-remaining-requests", "3"),
        ("x-ratelimit-reset-requests", "30s"),
        ("x-ratelimit-limit-tokens", "500"),
        ("x-ratelimit-remaining-tokens", "0"),
        ("x-ratelimit-reset-tokens", "30s"),
    ]


def test_nothing_is_said_where_there_is_no_rate_limit() -> None:
    assert rate_headers([limit(BUDGET, 1, 1, resets_at=None)], 0.0) == []
