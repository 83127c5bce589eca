"""What an exchange costs: the same as litellm says, to a billionth, for every model of its map; deviations are listed
(``proxy.models.deployments``). Usages are made up in litellm's own form, so that both read the same counts. And a
budget begins anew when litellm's does."""

import json
import random
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache, partial
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.kit.modes import Mode
from proxy.models.charges import bill
from proxy.models.deployments import (
    ListedModel,
    bundled_price_file,
    bundled_prices,
    deployment_of,
    deviation_of,
    load_price_map,
    price_for,
)
from proxy.protocol.prices import cost
from proxy.protocol.request.demand import Demand
from proxy.protocol.response.usage import reported_in, usage_of
from proxy.teams.bookings import window_at
from proxy.teams.validation import window_of
from tests.contract.litellm_calls import LITELLM

pytestmark = LITELLM

_MODES = ("chat", "responses", "completion")
_LONG_LIVES = {"above_1hr": "ephemeral_1h_input_tokens", "above_12hr": "ephemeral_12h_input_tokens"}


@cache
def price_map() -> dict[str, dict[str, Any]]:
    path = bundled_price_file()
    assert path is not None
    return {
        name: entry
        for name, entry in json.loads(path.read_bytes()).items()
        if entry.get("mode") in _MODES and (entry.get("input_cost_per_token") is not None or "tiered_pricing" in entry)
    }


def usages(entry: Mapping[str, Any], chance: random.Random) -> list[dict[str, Any]]:
    """Usages in litellm's form: without a cache, read, and written at each life that has a price."""
    found = []
    prompt, output = chance.randrange(100, 400_000), chance.randrange(1, 5000)
    read, written = chance.randrange(prompt // 2), chance.randrange(prompt // 2)
    plain = {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}
    found.append(plain)
    if entry.get("cache_read_input_token_cost"):
        found.append(plain | {"prompt_tokens_details": {"cached_tokens": read}, "cache_read_input_tokens": read})
    if not entry.get("cache_creation_input_token_cost"):
        return found
    for life, key in _LONG_LIVES.items():
        long = chance.randrange(written + 1) if f"cache_creation_input_token_cost_{life}" in entry else 0
        short = "ephemeral_30m_input_tokens" if life == "above_12hr" else "ephemeral_5m_input_tokens"
        lives = {short: written - long, key: long}
        details = {"cached_tokens": read, "cache_creation_tokens": written, "cache_creation_token_details": lives}
        counts = {"cache_read_input_tokens": read, "cache_creation_input_tokens": written}
        found.append(plain | counts | {"prompt_tokens_details": details})
    return found


def theirs(litellm: Any, name: str, entry: Mapping[str, Any], usage: Mapping[str, Any], **place: str) -> float:
    response = litellm.ModelResponse(model=name, usage=litellm.Usage(**usage))
    provider = "vertex_ai" if "vertex_location" in place else entry.get("litellm_provider")
    found = litellm.completion_cost(completion_response=response, model=name, custom_llm_provider=provider, **place)
    return float(found)


def test_costs_are_litellms() -> None:
    import litellm

    prices, compared, wrong = load_price_map(), 0, []
    for name, entry in price_map().items():
        price = prices.price(name)
        if price is None or deviation_of(name, entry):
            continue
        for usage in usages(entry, random.Random(name)):
            read, expected = usage_of(usage), theirs(litellm, name, entry, usage)
            assert read is not None
            compared += 1
            if cost(read, price).total_usd != pytest.approx(expected, rel=1e-9, abs=1e-12):
                wrong.append((name, cost(read, price).total_usd, expected, usage))
    assert wrong == []
    assert compared > 5000


@pytest.mark.parametrize(
    ("region", "place", "key"),
    [
        ("eu", {"data_residency": "eu"}, "regional_processing_uplift_multiplier_eu"),
        ("us", {"data_residency": "us"}, "regional_processing_uplift_multiplier_us"),
        ("fedramp", {"data_residency": "fedramp"}, "fedramp_uplift_multiplier"),
        ("vertex", {"vertex_location": "us-east5"}, "regional_endpoint_uplift_multiplier"),
    ],
)
def test_costs_in_a_region_are_litellms(region: str, place: dict[str, str], key: str) -> None:
    import litellm

    prices = load_price_map()
    dearer = {name: entry for name, entry in price_map().items() if key in entry and not deviation_of(name, entry)}
    for name, entry in dearer.items():
        price = prices.price(name)
        assert price is not None
        for usage in usages(entry, random.Random(name)):
            read = usage_of(usage)
            assert read is not None
            found = cost(read, price.in_region(region)).total_usd
            assert found == pytest.approx(theirs(litellm, name, entry, usage, **place), rel=1e-9), name
            assert found > cost(read, price).total_usd


def test_costs_of_bedrock_in_a_region_are_litellms() -> None:
    import litellm

    prices, dearer, usage = load_price_map(), 0, usages({}, random.Random(0))[0]
    read = usage_of(usage)
    assert read is not None
    for name in price_map():
        provider, _, rest = name.partition("/")
        region, slash, model = rest.partition("/")
        if not (provider.startswith("bedrock") and slash and model in litellm.model_cost):
            continue
        given = ListedModel("m", f"{provider}/{model}", params={"aws_region_name": region}, mode=Mode.TIER)
        price = deployment_of(given, partial(price_for, prices)).price
        assert price is not None
        response = litellm.ModelResponse(model=model, usage=litellm.Usage(**usage))
        response._hidden_params["region_name"] = region
        expected = litellm.completion_cost(completion_response=response, model=model, custom_llm_provider=provider)
        assert cost(read, price).total_usd == pytest.approx(expected, rel=1e-9), name
        dearer += cost(read, price).total_usd > cost(read, prices.price(model) or price).total_usd
    assert dearer > 20


def test_an_alias_costs_what_its_model_costs() -> None:
    import litellm

    prices, usage = load_price_map(), usages({}, random.Random(0))[0]
    read = usage_of(usage)
    assert read is not None
    for name, row in bundled_prices().items():
        if "alias_of" in row and (price := prices.price(name)) is not None and not deviation_of(name, row):
            assert cost(read, price).total_usd == pytest.approx(theirs(litellm, name, row, usage), rel=1e-9), name


KINDS = {
    "thinking": {"completion_tokens_details": {"reasoning_tokens": 0.9}},
    "thinking of a cached prompt": {
        "prompt_tokens_details": {"cached_tokens": 0.9}, "completion_tokens_details": {"reasoning_tokens": 0.5}},
    "sound": {"prompt_tokens_details": {"audio_tokens": 0.5}, "completion_tokens_details": {"audio_tokens": 0.5}},
    "searches": {"prompt_tokens_details": {"web_search_requests": 1e-5}},
    "videos": {"prompt_tokens_details": {"video_tokens": 0.5}, "completion_tokens_details": {"video_tokens": 0.5}},
    "pictures": {"prompt_tokens_details": {"image_tokens": 0.5}, "completion_tokens_details": {"image_tokens": 0.5}},
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_no_kind_of_token_costs_less_than_litellm_says(kind: str) -> None:
    """Each kind as a share of the prompt or of the answer. Searches that are not reported are booked here, too. litellm
    has a price of its own for searches of models for which its map has none."""
    import litellm

    prices, compared, same = load_price_map(), 0, 0
    for name, entry in price_map().items():
        price, chance = prices.price(name), random.Random(name)
        is_searched = kind != "searches" or "search_context_cost_per_query" in entry
        if price is None or deviation_of(name, entry) or not is_searched:
            continue
        prompt, output = chance.randrange(100, 400_000), chance.randrange(10, 5000)
        usage = {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}
        for holder, shares in KINDS[kind].items():
            usage[holder] = {part: 1 + int(usage[holder[:-8]] * share) for part, share in shares.items()}
        read, expected = usage_of(usage), theirs(litellm, name, entry, usage)
        found = bill(price, Demand(), read, reported_in({"usage": usage}), name)
        assert found is not None
        assert found.total_usd >= expected * (1 - 1e-9), (name, found, expected, usage)
        compared += 1
        same += found.total_usd == pytest.approx(expected, rel=1e-9, abs=1e-12)
    # A search is booked at the price of its largest size.
    least, share = (300, 0.2) if kind == "searches" else (2500, 0.9)
    assert compared > least
    assert same > share * compared


def test_deviations_are_few_and_ours_is_the_dearer() -> None:
    """But at Perplexity, whose models litellm looks up by another name."""
    import litellm

    prices = load_price_map()
    named = {name: entry for name, entry in price_map().items() if deviation_of(name, entry)}
    assert len(named) < 0.1 * len(price_map())
    for name, entry in named.items():
        if entry.get("litellm_provider") == "perplexity":
            continue
        plain, price = usages(entry, random.Random(name))[0], prices.price(name)
        read = usage_of(plain)
        assert read is not None
        assert price is not None
        assert cost(read, price).total_usd >= theirs(litellm, name, entry, plain) * (1 - 1e-9), name


CALENDAR = ["1h", "hourly", "1d", "24h", "daily", "7d", "1w", "weekly", "30d", "monthly", "1mo"]


@given(st.sampled_from(CALENDAR), st.datetimes(datetime(2020, 1, 1), datetime(2040, 1, 1)))
def test_a_calendar_window_ends_when_litellms_does(duration: str, at: datetime) -> None:
    litellm = import_module("litellm.litellm_core_utils.duration_parser")
    now = at.replace(tzinfo=UTC)
    window = window_at(window_of(duration), "UTC", now.timestamp())
    assert window.resets_at == litellm.get_next_standardized_reset_time(duration, now).timestamp()
