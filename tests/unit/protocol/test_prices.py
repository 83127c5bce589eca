"""Prices: reading litellm's entries, finding a model's price, and the arithmetic of cost and saving."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.protocol.caches import Bill
from proxy.protocol.prices import (
    Cost,
    Price,
    PriceMap,
    cost,
    forms,
    input_cost,
    needed,
    price_of,
    saved_as_reported,
    saved_on_shadow,
    uncached_cost,
)
from proxy.protocol.response.usage import Usage
from tests.examples import for_every

SONNET = {
    "input_cost_per_token": 3e-06,
    "output_cost_per_token": 1.5e-05,
    "cache_read_input_token_cost": 3e-07,
    "cache_creation_input_token_cost": 3.75e-06,
    "cache_creation_input_token_cost_above_1hr": 6e-06,
    "input_cost_per_token_batches": 1.5e-06,
    "litellm_provider": "anthropic",
    "mode": "chat",
    "max_tokens": 64000,
}
HAIKU = {
    "input_cost_per_token": 1e-07,
    "output_cost_per_token": 5e-07,
    "cache_read_input_token_cost": 1e-08,
    "cache_creation_input_token_cost": 1.25e-07,
    "cache_creation_input_token_cost_above_1hr": 2e-07,
    "input_cost_per_token_above_100k_tokens": 5e-07,
    "output_cost_per_token_above_100k_tokens": 2.5e-06,
    "cache_read_input_token_cost_above_100k_tokens": 5e-08,
    "cache_creation_input_token_cost_above_100k_tokens": 6.25e-07,
    "cache_creation_input_token_cost_above_1hr_above_100k_tokens": 1e-06,
}
USD = Price(input=1.0, output=5.0, read=0.1, write_5m=1.25, write_1h=2.0)


def test_an_entry_with_every_rate():
    assert price_of(SONNET) == Price(3e-06, 1.5e-05, 3e-07, 3.75e-06, 6e-06)


def test_openai_sells_twelve_hours_as_its_longer_life():
    price = price_of(
        {
            "input_cost_per_token": 4e-06,
            "cache_creation_input_token_cost": 5e-06,
            "cache_creation_input_token_cost_above_12hr": 1e-05,
        }
    )
    assert (price.write_5m, price.write_1h) == (5e-06, 1e-05)


def test_what_is_missing_costs_the_input_price():
    assert price_of({"input_cost_per_token": 2.0, "output_cost_per_token": 3.0}) == Price(2.0, 3.0, 2.0, 2.0, 2.0)


def test_a_write_price_of_zero_means_no_write_fee():
    price = price_of({"input_cost_per_token": 2.8e-07, "cache_creation_input_token_cost": 0.0})
    assert price.write_5m == price.write_1h == 2.8e-07


@pytest.mark.parametrize(
    "entry",
    [
        {},
        {"mode": "image_generation"},
        {"tiered_pricing": [{"range": []}]},
        {"input_cost_per_token": "3e-6", "output_cost_per_token": 1e-5},
        {"input_cost_per_token": 3e-6, "output_cost_per_token": -1},
    ],
)
def test_no_token_price(entry):
    assert price_of(entry) is None


@pytest.mark.parametrize("bad", [-1.0, "3", True, None, float("nan")])
def test_rates_that_are_no_rates_are_ignored(bad):
    entry = {"input_cost_per_token": 1.0, "cache_read_input_token_cost": bad, "cache_creation_input_token_cost": bad}
    assert price_of(entry) == Price(1.0, 0.0, 1.0, 1.0, 1.0)


def test_a_long_prompt_pays_the_tiers_price_for_every_token():
    price = price_of(HAIKU)
    assert price.at(100_000).input == 1e-07
    assert price.at(100_001) == Price(5e-07, 2.5e-06, 5e-08, 6.25e-07, 1e-06)
    usage = Usage(prompt=100_001, output=10, read=100_000)
    assert cost(usage, price).total_usd == pytest.approx(100_000 * 5e-08 + 5e-07 + 10 * 2.5e-06)


def test_a_tiers_missing_rates_keep_their_proportion():
    price = price_of({**SONNET, "input_cost_per_token_above_200k_tokens": 6e-06})
    long = price.at(200_001)
    assert long.read == pytest.approx(6e-07)
    assert long.write_1h == pytest.approx(1.2e-05)
    assert long.output == pytest.approx(3e-05)


def test_a_discount_is_none_on_what_the_map_does_not_name():
    """azure/gpt-5.5 names no output price at its tier ``flex``, and litellm books the usual one."""
    price = price_of(
        {
            "input_cost_per_token": 4.0, "output_cost_per_token": 24.0, "cache_read_input_token_cost": 1.0,
            "input_cost_per_token_flex": 2.0, "cache_read_input_token_cost_flex": 0.5,
            "input_cost_per_token_above_200k_tokens": 8.0, "output_cost_per_token_above_200k_tokens": 36.0,
            "cache_read_input_token_cost_above_200k_tokens": 2.0, "input_cost_per_token_above_200k_tokens_flex": 4.0,
        }
    ).served("flex")  # fmt: skip
    short, long = price.at(200_000), price.at(200_001)
    assert (short.input, short.read, short.output) == (2.0, 0.5, 24.0)
    assert (long.input, long.read, long.output) == (4.0, 2.0, 36.0)


def test_a_search_without_a_price_costs_as_much_as_the_dearest():
    """That of Google: https://ai.google.dev/gemini-api/docs/pricing."""
    assert price_of({"input_cost_per_token": 1.0}).extras.search == 0.035


def test_dashscopes_stepped_prices():
    price = price_of(
        {
            "tiered_pricing": [
                {"input_cost_per_token": 2.0, "output_cost_per_token": 12.0, "range": [32000.0, 128000.0]},
                {"input_cost_per_token": 1.0, "output_cost_per_token": 6.0, "range": [0, 32000.0]},
            ]
        }
    )
    assert (price.at(32_000).input, price.at(32_001).input, price.at(500_000).output) == (1.0, 2.0, 12.0)


@pytest.mark.parametrize("entry", [SONNET, HAIKU])
def test_the_kept_fields_are_those_that_are_read(entry):
    kept = needed(entry)
    assert price_of(kept) == price_of(entry)
    assert "litellm_provider" not in kept
    assert "input_cost_per_token_batches" not in kept


@for_every(
    [
        ("claude-sonnet-4-5", "claude-sonnet-4-5"),
        ("anthropic/claude-sonnet-4-5", "claude-sonnet-4-5"),
        ("openrouter/anthropic/claude-sonnet-4.5:nitro", "claude-sonnet-4-5"),
        ("claude-sonnet-4-5-20990101", "claude-sonnet-4-5"),
        ("claude-sonnet-4-5@20990101", "claude-sonnet-4-5"),
        ("claude-sonnet-4-5-latest", "claude-sonnet-4-5"),
        ("claude-sonnet-4-5[1m]", "claude-sonnet-4-5"),
        ("gpt-4o-2031-01-01", "gpt-4o"),
        ("GPT-4o", "gpt-4o"),
        ("bedrock/eu.anthropic.claude-x-v1:0", "anthropic.claude-x-v1:0"),
        ("deepseek/deepseek-chat", "deepseek/deepseek-chat"),
    ]
)
def test_the_forms_of_a_models_name(asked, known):
    prices = PriceMap({known: {"input_cost_per_token": 1.0}})
    assert prices.price(asked) == price_of({"input_cost_per_token": 1.0})


def test_the_closest_form_wins():
    prices = PriceMap({"x": {"input_cost_per_token": 1.0}, "p/x": {"input_cost_per_token": 2.0}})
    assert prices.price("p/x").input == 2.0
    assert prices.price("q/x").input == 1.0
    assert forms("p/x")[0] == "p/x"


@pytest.mark.parametrize("name", ["", "/", "unheard-of", "anthropic/", "x" * 1000, "a/" * 100])
def test_unknown_models_have_no_price(name):
    prices = PriceMap({"gpt-4o": {"input_cost_per_token": 1.0}})
    assert prices.price(name) is None


def test_names_are_tried_in_order_and_overrides_win():
    prices = PriceMap(
        {"gpt-4o": {"input_cost_per_token": 1.0}, "mine": {"input_cost_per_token": 2.0}},
        {"gpt-4o": {"input_cost_per_token": 9.0}},
    )
    assert prices.price("gpt-4o").input == 9.0
    assert prices.price("", "nope", "mine").input == 2.0
    assert prices.price("openai/gpt-4o", "mine").input == 2.0, "an exact name is closer than a stripped one"


def test_answers_are_remembered_up_to_a_bound():
    prices = PriceMap({"gpt-4o": {"input_cost_per_token": 1.0}})
    for number in range(10_000):
        assert prices.price(f"junk-{number}") is None
    assert prices.price.cache_info().currsize <= 4096
    assert prices.price("gpt-4o") is prices.price("gpt-4o")


def test_cost_of_an_exchange():
    usage = Usage(prompt=1000, output=10, read=600, write_5m=200, write_1h=100)
    assert cost(usage, USD) == Cost(60 + 250 + 200 + 100, 50)
    assert cost(usage, USD).total_usd == 660
    assert uncached_cost(usage, USD) == 1000


def test_saved_is_signed():
    hit, miss = Bill(read=900, write_5m=100, write_1h=0, plain=0), Bill(read=0, write_5m=1000, write_1h=0, plain=0)
    assert saved_on_shadow(own=miss, predicted=hit, price=USD) == pytest.approx(1250 - 215)
    assert saved_on_shadow(own=hit, predicted=miss, price=USD) == pytest.approx(215 - 1250)


def test_saved_as_reported_weighs_both_layouts_by_the_providers_count():
    own = Bill(read=0, write_5m=0, write_1h=0, plain=1000)
    usage = Usage(prompt=1200, output=5, read=1000)
    assert saved_as_reported(own, usage, USD) == pytest.approx(1200 - (100 + 200))
    assert saved_as_reported(own, Usage(1200, 5, write_5m=1200), USD) == pytest.approx(-300)
    assert saved_as_reported(Bill(0, 0, 0, 0), Usage(0, 0), USD) == 0


parts = st.integers(0, 10**6)
bills = st.builds(Bill, parts, parts, parts, parts)
rates = st.floats(0, 1e-3)
prices = st.builds(Price, rates, rates, rates, rates, rates)


@settings(deadline=None)
@given(bills, st.integers(0, 10**7))
def test_a_scaled_bill_adds_up_and_keeps_its_shares(bill, total):
    result = bill.scaled(total)
    assert result.total == total
    assert min(result.read, result.write_5m, result.write_1h, result.plain) >= 0
    if bill.total:
        assert abs(result.read - bill.read * total / bill.total) <= 1
        assert abs(result.write_5m - bill.write_5m * total / bill.total) <= 1


@settings(deadline=None)
@given(bills, bills, prices)
def test_what_one_layout_saves_the_other_loses(a, b, price):
    assert saved_on_shadow(a, b, price) == pytest.approx(-saved_on_shadow(b, a, price))
    assert saved_on_shadow(a, a, price) == 0
    assert input_cost(a, price) >= 0


@settings(deadline=None)
@given(parts, parts, parts, parts, st.integers(0, 10**5), prices)
def test_a_usage_and_a_bill_of_the_same_parts_cost_the_same(read, short, long, plain, output, price):
    usage = Usage(read + short + long + plain, output, read, short, long)
    bill = Bill(read, short, long, plain)
    assert input_cost(usage, price) == input_cost(bill, price) == cost(usage, price).input_usd
    assert saved_as_reported(bill, usage, price) == 0
