"""Names of counters: apart where what they count is apart, and short whatever clients call themselves."""

import re

from hypothesis import given
from hypothesis import strategies as st

from proxy.core.money.budget import Estimate, Rule
from proxy.spend.bookings import account_of, booked, counter_of

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
