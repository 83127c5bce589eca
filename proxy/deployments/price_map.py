"""Finds litellm's bundled price map and reads it as data, because importing litellm takes seconds.

Reading took 25 ms on a 2-core machine with litellm 1.109 (3.2 MB, 4553 models), once at start. Only the fields that
``proxy.core.money.prices`` reads are kept. For some models, litellm's own sum for an exchange differs from ours,
although both know the same price; ``deviation_of`` gives the reason (compared for every chat model in
``tests/contract/test_litellm_costs.py``).
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

import orjson

from proxy.core.money.prices import Entry, Price, PriceMap, needed, price_of
from proxy.core.providers import PRICES
from proxy.core.providers.hosted import provider_at
from proxy.ports import Deployment


def litellm_file(name: str) -> Path | None:
    """A file of litellm's package; None if litellm or the file is missing."""
    spec = find_spec("litellm")
    found = [Path(folder, name) for folder in (spec.submodule_search_locations or () if spec is not None else ())]
    return next((path for path in found if path.is_file()), None)


# The map's keys of these providers, and of servers that are not known, have no prefix.
_UNPREFIXED = frozenset({"", "openai", "anthropic"})


def bundled_price_file() -> Path | None:
    """The path of the installed litellm's price map; None if litellm or the file is missing."""
    return litellm_file("model_prices_and_context_window_backup.json")


def load_price_map(overrides: Mapping[str, Entry] | None = None) -> PriceMap:
    """The price map of the installed litellm, together with our own entries. Raises OSError or ValueError if its file
    cannot be read."""
    source = bundled_price_file()
    ours = {name: dict[str, object](row) for name, (row, _) in PRICES.items()}
    if source is None:
        return PriceMap(ours, overrides)
    loaded = orjson.loads(source.read_bytes())
    if not isinstance(loaded, dict):
        raise ValueError(f"{source.name} is no price map: an object of models is expected")
    entries = {name: kept for name, entry in loaded.items() if isinstance(entry, dict) and (kept := needed(entry))}
    return PriceMap({**ours, **entries}, overrides)


def price_for(prices: PriceMap, deployment: Deployment) -> Price | None:
    """The price of a deployment's tokens.

    The configuration comes first: a price for the deployment's own name, prices among its litellm_params, its
    ``price_key``. Then the upstream's name of the model is looked up, with the provider's prefix (by its host) and
    without it. The deployment's own name is not looked up in the map: it is an alias, and may be the name of another
    model. The greatest lengths of prompt and answer come from the configuration, or else from the map, even if the
    configuration gives the price.
    """
    if (given := prices.override(deployment.name)) is None and "input_cost_per_token" in deployment.params:
        given = price_of(deployment.params)
    provider = provider_at(urlsplit(deployment.base_url).hostname or "")
    prefixed = deployment.model if provider in _UNPREFIXED else f"{provider}/{deployment.model}"
    known = prices.price(deployment.price_key, prefixed, deployment.model)
    found = given or known
    if found is None or (given is None and deployment.max_input_tokens is None):
        return found
    longest = found.max_output_tokens or (known.max_output_tokens if known is not None else None)
    window = deployment.max_input_tokens or (known.extras.max_input_tokens if known is not None else None)
    return replace(found, max_output_tokens=longest, extras=replace(found.extras, max_input_tokens=window))


_TIER = re.compile(r"input_cost_per_token(_above_\d+k_tokens)")
_CACHED = ("cache_read_input_token_cost", "cache_creation_input_token_cost")
_PROVIDERS = {
    "perplexity": "litellm bills reads and writes of the cache as plain input, or takes the provider's own sum",
    "together_ai": "litellm takes the price of a size that it finds in the name",
}


def deviation_of(name: str, entry: Mapping[str, object]) -> str:
    """Why litellm's sum for a model, by its name in the map, differs from ours; empty if it does not differ."""
    if "off_peak_pricing" in entry:
        return "litellm takes the price of the hour; ours is the one outside of its cheap hours"
    if name.startswith("gemini-exp"):
        return "litellm takes experimental models for free"
    tiers = [match[1] for match in map(_TIER.fullmatch, entry) if match]
    if any(key in entry and key + tier not in entry for tier in tiers for key in _CACHED):
        return "a longer prompt's missing price of a read or write keeps its proportion to the input price here"
    return _PROVIDERS.get(str(entry.get("litellm_provider")), "")
