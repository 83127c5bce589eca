"""Estimates, and how a refusal reads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.caches.cache import Bill
from proxy.core.money.charges import (
    MOST_AMOUNT,
    Rule,
    amount_text,
    expected_cost,
    nanos,
    nanos_at_most,
    refusal,
    worst_case,
)
from proxy.core.money.prices import Price, cost
from proxy.core.response.usage import Usage

PRICE = Price(input=3e-6, output=15e-6, read=3e-7, write_5m=3.75e-6, write_1h=6e-6)
LONG = Price(2e-6, 8e-6, 2e-7, 2e-6, 2e-6, tiers=((200_000, Price(4e-6, 12e-6, 4e-7, 4e-6, 4e-6)),))
tokens = st.integers(0, 300_000)


def test_the_worst_case_is_all_written_at_the_life_that_is_asked_for() -> None:
    assert worst_case(PRICE, 1000, 0, long_life=False) == 3_750_000
    assert worst_case(PRICE, 1000, 0, long_life=True) == 6_000_000
    assert worst_case(PRICE, 0, 100, long_life=True) == 1_500_000
    assert worst_case(LONG, 200_001, 1, long_life=False) == 200_001 * 4000 + 12_000


@given(read=tokens, write=tokens, plain=tokens, output=tokens, more=tokens, price=st.sampled_from([PRICE, LONG]))
def test_no_bill_passes_the_worst_case(read: int, write: int, plain: int, output: int, more: int, price: Price) -> None:
    usage = Usage(read + write + plain, output, read, write)
    most = worst_case(price, usage.prompt + more, output + more, long_life=False)
    assert nanos(cost(usage, price).total_usd) <= most


def test_the_expected_cost_goes_by_the_shadow() -> None:
    assert expected_cost(PRICE, Bill(1000, 0, 0, 0), 9999, 10) == 300_000 + 150_000
    assert expected_cost(PRICE, None, 1000, 0) == 3_000_000


def test_a_refusal_says_what_is_spent_and_when_it_begins_anew() -> None:
    rule = Rule("total", "the budget 'total' of team 'red'", hard=1_000_000_000)
    assert refusal(rule, 900_000_000, 0, 200_000_000, "") == (
        "The budget 'total' of team 'red' does not allow this request: $0.90 of $1.00 spent, and this request may cost "
        "up to $0.20."
    )
    assert "up to $0.20 (for a reason)." in refusal(rule, 900_000_000, 0, 200_000_000, "", "for a reason")
    assert refusal(rule, 1_000_000_000, 0, 1, "2026-12-01T00:00:00Z").endswith(
        "$1.00 of $1.00 spent. It begins anew at 2026-12-01T00:00:00Z."
    )
    assert "$0.50 of $1.00 spent, $0.40 reserved by running requests, and" in refusal(rule, 5 * 10**8, 4 * 10**8, 1, "")


def test_a_refusal_in_other_units() -> None:
    rule = Rule("t", "the tokens of key 'k'", unit="tokens", hard=100)
    assert "90 tokens of 100 tokens spent, and this request may take up to 20 tokens" in refusal(rule, 90, 0, 20, "")
    rule = Rule("r", "the requests of key 'k'", unit="requests", hard=3)
    assert refusal(rule, 2, 1, 1, "").endswith(
        "2 requests of 3 requests spent, 1 requests reserved by running requests."
    )


@pytest.mark.parametrize(
    ("amount", "text"), [(0, "$0.00"), (10**9, "$1.00"), (12_345_678, "$0.012"), (100_000, "$0.0001"), (5, "$5.0e-09")]
)
def test_money_for_people(amount: int, text: str) -> None:
    assert amount_text("usd", amount) == text


@pytest.mark.parametrize("usd", [1e12, 1e300, float("inf")])
def test_no_amount_is_larger_than_a_store_counts(usd: float) -> None:
    assert nanos(usd) == nanos_at_most(usd) == MOST_AMOUNT
