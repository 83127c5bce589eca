"""The price map is found and read; where litellm's own sum is another one is compared in tests/contract."""

import subprocess
import sys
from functools import partial
from itertools import product

import orjson
import pytest

import proxy.models.deployments as litellm_files
from proxy.kit.modes import Mode
from proxy.models import Deployment, Transport
from proxy.models.deployments import (
    ListedModel,
    ModelTable,
    bundled_price_file,
    deviation_of,
    litellm_file,
    load_price_map,
    price_for,
    provider_names,
)
from proxy.protocol.prices import Price
from proxy.protocol.providers import NONE
from tests.examples import for_every


@pytest.fixture(scope="module")
def prices():
    return load_price_map()


def deployment(**fields):
    given = {"name": "any", "model": "m", "transport": Transport.HTTP, "profile": NONE, "mode": Mode.TIER, **fields}
    return Deployment(**given)


def test_the_bundled_file_is_found_and_holds_thousands_of_prices(prices):
    assert bundled_price_file() is not None
    assert len(prices) > 2000


def test_prices_that_providers_publish(prices):
    # https://platform.claude.com/docs/en/about-claude/pricing, https://openai.com/api/pricing
    assert prices.price("claude-sonnet-4-5") == Price(3e-06, 1.5e-05, 3e-07, 3.75e-06, 6e-06, max_output_tokens=64_000)
    haiku = prices.price("claude-haiku-5-5")
    assert haiku.at(100_001).input == pytest.approx(5 * haiku.input)
    known = prices.price("claude-opus-5-5")
    assert known.read / known.input == pytest.approx(0.05)
    opus = prices.price("anthropic/claude-opus-5-5")
    assert opus.write_5m == pytest.approx(1.25 * opus.input)
    other = prices.price("gpt-4o")
    assert (other.read / other.input, other.write_5m) == (pytest.approx(0.5), other.input)


@pytest.mark.slow
def test_every_entry_is_read_without_a_surprise(prices):
    for name in list(prices._entries):
        price = prices.price(name)
        if price is None:
            continue
        for rate in (price, *(tier for _, tier in price.tiers)):
            assert min(rate.input, rate.output, rate.read, rate.write_5m, rate.write_1h) >= 0, name
        assert [above for above, _ in price.tiers] == sorted(above for above, _ in price.tiers), name


@pytest.mark.slow
def test_the_price_map_is_read_without_importing_litellm():
    code = "import sys, proxy.models.deployments as p; assert len(p.load_price_map()); print('litellm' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def bundle(monkeypatch, tmp_path, content):
    path = tmp_path / "prices.json"
    path.write_bytes(content)
    monkeypatch.setattr("proxy.models.deployments.bundled_price_file", lambda: path)


def test_entries_of_the_file_and_overrides(monkeypatch, tmp_path):
    entries = {"mine": {"input_cost_per_token": 1.0}, "odd": 3, "unpriced": {"mode": "ocr"}}
    bundle(monkeypatch, tmp_path, orjson.dumps(entries))
    prices = load_price_map({"mine": {"input_cost_per_token": 2.0, "cache_read_input_token_cost": None}})
    assert prices.price("odd") is prices.price("unpriced") is None
    assert prices.price("mine") == Price(2.0, 0.0, 2.0, 2.0, 2.0)


@pytest.mark.parametrize("content", [b"[]", b"{", b""])
def test_a_file_that_is_no_price_map(monkeypatch, tmp_path, content):
    bundle(monkeypatch, tmp_path, content)
    with pytest.raises(ValueError):  # noqa: PT011 - orjson's own and ours
        load_price_map()


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        ({"model": "gpt-4o", "base_url": "https://api.openai.com/v1"}, "gpt-4o"),
        (
            {"model": "deepseek-chat", "base_url": "https://api.deepseek.com/v1", "server": "deepseek"},
            "deepseek/deepseek-chat",
        ),
        ({"model": "grok-4.6", "base_url": "https://api.x.ai/v1", "server": "xai"}, "xai/grok-4.6"),
        ({"model": "anthropic/claude-sonnet-4-5", "transport": Transport.LITELLM}, "claude-sonnet-4-5"),
        ({"model": "my-azure-name", "price_key": "azure/gpt-4o"}, "azure/gpt-4o"),
        ({"model": "claude-sonnet-4-5", "base_url": "http://127.0.0.1:9/v1"}, "claude-sonnet-4-5"),
    ],
)
def test_the_price_of_a_deployment(prices, fields, key):
    assert price_for(prices, deployment(**fields)) == prices.price(key)
    assert prices.price(key) is not None


def test_a_deployments_alias_is_not_a_models_name(prices):
    assert price_for(prices, deployment(name="gpt-4o", model="home-made", base_url="http://127.0.0.1:9")) is None


def test_the_config_wins():
    prices = load_price_map({"alias": {"input_cost_per_token": 7.0}})
    assert price_for(prices, deployment(name="alias", model="gpt-4o")).input == 7.0
    own = {"input_cost_per_token": 8.0, "output_cost_per_token": 1.0, "temperature": 0}
    found = price_for(prices, deployment(model="gpt-4o", params=own, max_input_tokens=9))
    assert found == Price(8.0, 1.0, 8.0, 8.0, 8.0, max_output_tokens=16384), "the map knows how long answers are"
    assert found.extras.max_input_tokens == 9
    assert price_for(prices, deployment(model="gpt-4o", params=own)).extras.max_input_tokens == 128_000


@for_every(
    product([Transport.HTTP, Transport.LITELLM], ["openai/gpt-4o", "groq/gemma-7b-it", "mine/home-made"], [0, 1])
)
def test_a_price_of_the_config_is_found_by_either_name_of_the_model_on_any_transport(
    transport: Transport, written: str, part: int
) -> None:
    bare = written.partition("/")[2]
    prices = load_price_map({(written, bare)[part]: {"input_cost_per_token": 7.0}})
    model = written if transport is Transport.LITELLM else bare
    found = price_for(prices, deployment(model=model, price_key=written, transport=transport, base_url="http://a/v1"))
    assert found is not None
    assert found.input == 7.0


READ, ABOVE = "cache_read_input_token_cost", "_above_200k_tokens"
TIERED = {"input_cost_per_token": 1.0, f"input_cost_per_token{ABOVE}": 2.0}


@for_every(
    [
        ("m", {"litellm_provider": "openai"}, ""),
        ("m", {"off_peak_pricing": {}}, "price of the hour"),
        ("gemini-exp-1206", {}, "for free"),
        ("m", {"litellm_provider": "together_ai"}, "size"),
        ("m", TIERED, ""),
        ("m", TIERED | {READ: 0.1}, "proportion"),
        ("m", TIERED | {READ: 0.1, READ + ABOVE: 0.2}, ""),
    ]
)
def test_what_differs_is_said(name: str, entry: dict[str, object], told: str) -> None:
    found = deviation_of(name, entry)
    assert told in found
    assert bool(found) == bool(told)


def test_a_file_is_found_where_it_is() -> None:
    found = litellm_file("types/utils.py")
    assert found.parts[-3:] == ("litellm", "types", "utils.py")
    assert litellm_file("types/nothing.py") is None


def test_without_litellm_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(litellm_files, "find_spec", lambda name: None)
    assert bundled_price_file() is None
    assert provider_names() == frozenset()


EU = {"regional_processing_uplift_multiplier_eu": 1.1, "regional_processing_uplift_multiplier_us": 1.2}
ROW = {"input_cost_per_token": 1.0, "output_cost_per_token": 2.0, "input_cost_per_token_priority": 3.0,
       "input_cost_per_audio_token": 4.0}  # fmt: skip
VERTEX = {"model": "vertex_ai/m", "transport": Transport.LITELLM, "price_key": "m"}


@pytest.mark.parametrize(
    ("fields", "factor"),
    [
        ({"base_url": "https://api.openai.com/v1"}, 1.0),
        ({"base_url": "https://EU.api.openai.com/v1"}, 1.1),
        ({"base_url": "https://us.api.openai.com/v1"}, 1.2),
        ({"base_url": "https://gov.api.openai.com/v1"}, 1.3),
        ({"base_url": "https://eu.api.openai.com.example/v1"}, 1.0),
        (VERTEX, 1.4),
        ({**VERTEX, "params": {"vertex_location": "us-east5"}}, 1.4),
        ({**VERTEX, "params": {"vertex_location": "global"}}, 1.0),
        ({**VERTEX, "params": {"vertex_ai_location": "global"}}, 1.0),
        ({**VERTEX, "params": {"input_cost_per_token": 1.0, "output_cost_per_token": 2.0}}, 1.0),
    ],
)
def test_a_region_in_which_tokens_cost_more(monkeypatch, tmp_path, fields, factor):
    row = {**ROW, **EU, "fedramp_uplift_multiplier": 1.3, "regional_endpoint_uplift_multiplier": 1.4}
    bundle(monkeypatch, tmp_path, orjson.dumps({"m": row}))
    price = price_for(load_price_map(), deployment(**fields))
    assert (price.input, price.output) == pytest.approx((factor, 2 * factor))
    if "input_cost_per_token" not in fields.get("params", {}):
        assert (price.served("priority").input, price.extras.audio_in) == pytest.approx((3 * factor, 4 * factor))


def test_an_alias_of_the_map_is_the_model_that_is_served(monkeypatch, tmp_path):
    rows = {
        "gpt-sol-latest": {"alias_of": "openai/gpt-6.1-sol"},
        "lost": {"alias_of": "nothing"},
        "openai/gpt-6.1-sol": ROW,
    }
    bundle(monkeypatch, tmp_path, orjson.dumps(rows))
    prices = load_price_map()
    assert prices.price("gpt-sol-latest") == prices.price("gpt-6.1-sol", "openai/gpt-6.1-sol")
    assert prices.price("lost") is None
    for given in ({}, {"gpt-sol-latest": {"input_cost_per_token": 7.0}}):
        table = ModelTable(
            [ListedModel("gpt-sol-latest", "openai/gpt-sol-latest")], partial(price_for, load_price_map(given))
        )
        found = table.resolve("gpt-sol-latest")
        assert found.profile.name == "openai-explicit"
        assert found.model == "openai/gpt-sol-latest"
        assert found.price.input == (7.0 if given else 1.0)
