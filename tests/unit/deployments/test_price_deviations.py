"""Models for which litellm's sum is another one than ours: the rest is compared in tests/contract."""

from proxy.deployments.price_deviations import deviation_of
from tests.examples import for_every

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
