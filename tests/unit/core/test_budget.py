"""Hard budgets, pure."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.budget import Limit, decide, upper_bound
from proxy.core.prices import Price

USD = st.floats(min_value=0, max_value=1e6)


@given(USD, USD, USD, USD)
def test_what_is_allowed_never_passes_the_limit(limit: float, spent: float, reserved: float, estimate: float) -> None:
    if decide(Limit(limit), spent, reserved, estimate) is None:
        assert spent + reserved + estimate <= limit * (1 + 1e-9) + 1e-9


@given(USD, USD)
def test_a_budget_of_nothing_allows_nothing(spent: float, estimate: float) -> None:
    assert decide(Limit(0), spent, 0, estimate) is not None


@pytest.mark.parametrize(
    ("spent", "reserved", "estimate", "words"),
    [
        (5.0, 0.0, 0.0, "$5.00 of the budget of $5.00 is spent"),
        (4.0, 1.0, 0.0, "$4.00 of the budget of $5.00 is spent, $1.00 is reserved by running requests"),
        (4.99, 0.0, 0.05, "$4.99 of the budget of $5.00 is spent, and this request may cost up to $0.05 "
         "(a lower output limit lowers that)"),
        (0.0, 0.0, 0.00001, None),
    ],
)  # fmt: skip
def test_a_refusal_says_how_it_stands(spent: float, reserved: float, estimate: float, words: str | None) -> None:
    assert decide(Limit(5.0), spent, reserved, estimate) == words


def test_the_last_of_the_money_may_be_spent() -> None:
    assert decide(Limit(5.0), 4.0, 0.5, 0.5) is None


def test_the_upper_bound_takes_the_dearest_rate_and_the_tier_of_the_prompt() -> None:
    long = Price(2.0, 4.0, 0.2, 2.5, 4.0)
    price = Price(1.0, 2.0, 0.1, 1.25, 2.0, tiers=((100, long),))
    assert upper_bound(price, 100, 10) == 100 * 2.0 + 10 * 2.0
    assert upper_bound(price, 101, 10) == 101 * 4.0 + 10 * 4.0
