"""Where litellm's own sum for an exchange is another one than ours, though both know the same price.

Compared for every chat model of litellm 1.109's map, on made-up usages (``tests/contract/test_litellm_costs.py``).
"""

import re
from collections.abc import Mapping

Entry = Mapping[str, object]

_TIER = re.compile(r"input_cost_per_token(_above_\d+k_tokens)")
_CACHED = ("cache_read_input_token_cost", "cache_creation_input_token_cost")
_PROVIDERS = {
    "perplexity": "litellm bills reads and writes of the cache as plain input, or takes the provider's own sum",
    "together_ai": "litellm takes the price of a size that it finds in the name",
}


def deviation_of(name: str, entry: Entry) -> str:
    """Why litellm's sum for a model, by its name in the map, differs from ours; empty where it does not."""
    if "off_peak_pricing" in entry:
        return "litellm takes the price of the hour; ours is the one outside of its cheap hours"
    if name.startswith("gemini-exp"):
        return "litellm takes experimental models for free"
    tiers = [match[1] for match in map(_TIER.fullmatch, entry) if match]
    if any(key in entry and key + tier not in entry for tier in tiers for key in _CACHED):
        return "a longer prompt's missing price of a read or write keeps its proportion to the input price here"
    return _PROVIDERS.get(str(entry.get("litellm_provider")), "")
