"""What a request can cost at the most, and what it did cost, by the same rules."""

from dataclasses import replace
from typing import Any

import pytest

from proxy.core.money.charges import bill, most_cost, most_prompt, unit_tokens
from proxy.core.money.prices import Price, price_of
from proxy.core.request.demand import PLAIN, Demand, Kind, Tool, Wants
from proxy.core.response.usage import NOTHING_REPORTED, Reported, Usage
from tests.examples import for_every

ENTRY = {
    "input_cost_per_token": 1e-6, "output_cost_per_token": 1e-5,
    "input_cost_per_token_priority": 2e-6, "output_cost_per_token_priority": 2e-5,
    "input_cost_per_token_flex": 5e-7, "output_cost_per_token_flex": 5e-6,
    "input_cost_per_token_above_200k_tokens": 2e-6, "output_cost_per_token_above_200k_tokens": 2e-5,
    "output_cost_per_audio_token": 1e-4, "provider_specific_entry": {"fast": 2.0, "us": 1.1},
    "search_context_cost_per_query": {"search_context_size_low": 0.01}, "max_input_tokens": 300_000,
}  # fmt: skip


def priced(**more: Any) -> Price:
    found = price_of({**ENTRY, **more})
    assert found is not None
    return found


def most(demand: Demand, prompt: int = 1000, output: int = 100, model: str = "") -> float:
    nanos = most_cost(priced(), demand, prompt, output, long_life=False, model=model)
    assert nanos is not None
    return nanos / 1e9


def text(**wants: Any) -> Demand:
    return Demand(wants=Wants(**wants))


@for_every(
    [
        (Demand(), 0.002),
        (text(tier="priority"), 0.004),
        (text(tier="flex"), 0.002),
        (text(tier="ultrafast"), 0.012),
        (text(is_fast=True), 0.004),
        (text(is_local=True), 0.0022),
        (text(has_audio=True), 0.011),
        (text(is_beyond=True), 0.602),
        (text(calls=((Tool.SEARCH, 2),)), 0.001 + 0.003 + 0.008 + 0.016 + 0.02),
        (text(calls=((Tool.CODE, 1),)), 0.002 + 2 * 0.6 + 0.03),
        (text(calls=((Tool.READING, 2),)), 0.002 + 3 * 0.6),
        (text(calls=((Tool.CONTAINER, 1),), memory_gib=4), 0.002 + 2 * 0.6 + 0.12),
        (text(is_summarised=True), 0.002 + 0.001 + 8192 * 1e-5),
        (Demand(Kind.FREE), 0.0),
    ]
)
def test_the_most_that_a_request_can_cost(demand: Demand, usd: float) -> None:
    assert most(demand) == pytest.approx(usd, rel=1e-9, abs=1e-12)


def test_models_that_always_search() -> None:
    assert most(Demand(), model="gpt-4o-search-preview") == pytest.approx(0.012)
    assert most(Demand(), model="anthropic/claude-sonnet-4.5:online") == pytest.approx(0.012)


def test_a_client_may_ask_for_the_longer_prompts_that_have_a_price() -> None:
    for window, tokens in ((200_000, 1_000_000), (1_048_576, 1_048_576), (300_000, 300_000)):
        assert most_prompt(priced(max_input_tokens=window), text(is_beyond=True), 9) == tokens


def test_sound_and_images_are_tokens_too() -> None:
    assert unit_tokens(Demand(Kind.IMAGE, images=2)) == 2 * 6600
    assert unit_tokens(Demand(Kind.TRANSCRIPTION, seconds=10.0)) == 200


@for_every(
    [
        (Demand(), NOTHING_REPORTED, 0.002),
        (Demand(), Reported(tier="priority"), 0.004),
        (text(tier="priority"), NOTHING_REPORTED, 0.002),
        (text(tier="flex"), Reported(tier="flex"), 0.001),
        (text(tier="ultrafast"), Reported(tier="ultrafast"), 0.012),
        (Demand(), Reported(tier="ultrafast"), 0.002),
        (text(is_fast=True), Reported(is_fast=True), 0.004),
        (Demand(), Reported(searches=3), 0.032),
        (text(searches_once=True), NOTHING_REPORTED, 0.012),
        (text(memory_gib=4), NOTHING_REPORTED, 0.122),
        (text(memory_gib=1), Reported(codes=1), 0.032),
        (Demand(), Reported(audio_out=50), 0.002 + 50 * 9e-5),
        (Demand(), Reported(audio_out=10**12), 0.002 + 100 * 9e-5),
        (Demand(), Reported(usd=0.5), 0.5),
        (Demand(), Reported(usd=0.0001), 0.002),
    ]
)
def test_a_bill_is_what_the_provider_reports_as_cost(demand: Demand, reported: Reported, usd: float) -> None:
    found = bill(priced(), demand, Usage(1000, 100), reported)
    assert found is not None
    assert found.total_usd == pytest.approx(usd)


def test_an_estimate_is_billed_at_the_dearest_tier_that_was_asked_for() -> None:
    found = bill(priced(), text(tier="priority"), Usage(1000, 100, estimated=True), NOTHING_REPORTED)
    assert found is not None
    assert found.total_usd == pytest.approx(0.004)


@pytest.mark.parametrize("kind", [Kind.IMAGE, Kind.SPEECH, Kind.TRANSCRIPTION, Kind.UNKNOWN])
def test_what_has_no_price_costs_nobody_knows_what(kind: Kind) -> None:
    text_alone = replace(priced(), extras=replace(priced().extras, audio_out=0.0))
    assert most_cost(text_alone, Demand(kind), 10, 10, long_life=False) is None


UNITS = [
    (Demand(Kind.IMAGE, images=3), {"output_cost_per_image": 0.04}, 0.12, Reported(images=2), 0.08),
    (Demand(Kind.SPEECH, characters=1000), {"input_cost_per_character": 1e-5}, 0.01, NOTHING_REPORTED, 0.01),
    (Demand(Kind.SPEECH, seconds=10.0), {"output_cost_per_second": 0.01}, 0.1, NOTHING_REPORTED, 0.1),
    (Demand(Kind.TRANSCRIPTION, seconds=60.0), {"input_cost_per_second": 0.001}, 0.06, Reported(seconds=6.0), 0.006),
    (Demand(Kind.RERANK, documents=250), {"input_cost_per_query": 0.002}, 0.006, NOTHING_REPORTED, 0.006),
]  # fmt: skip


@pytest.mark.parametrize(("demand", "entry", "reserved", "reported", "billed"), UNITS)
def test_units_are_reserved_and_billed_alike(
    demand: Demand, entry: Any, reserved: float, reported: Reported, billed: float
) -> None:
    price = price_of(entry)
    assert price is not None
    nanos = most_cost(price, demand, 0, 0, long_life=False)
    assert nanos is not None
    assert nanos / 1e9 == pytest.approx(reserved)
    found = bill(price, demand, None, reported)
    assert found is not None
    assert found.total_usd == pytest.approx(billed)


def test_text_at_a_model_of_images_has_no_price() -> None:
    price = price_of({"output_cost_per_image": 0.04})
    assert price is not None
    assert most_cost(price, Demand(wants=PLAIN), 10, 10, long_life=False) is None


def test_images_are_billed_by_their_tokens_where_those_are_told() -> None:
    price = price_of(
        {"input_cost_per_token": 1e-6, "input_cost_per_image_token": 2e-6, "output_cost_per_image_token": 4e-5}
    )
    assert price is not None
    found = bill(price, Demand(Kind.IMAGE, images=1), Usage(110, 1000), Reported(image_in=100))
    assert found is not None
    assert found.total_usd == pytest.approx(10e-6 + 200e-6 + 0.04)
