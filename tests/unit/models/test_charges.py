"""What a request may cost, what it did cost, what a refusal says, and what is booked without a report."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.models.charges import (
    Heard,
    Rule,
    Speeds,
    amount_text,
    bill,
    expected_cost,
    most_cost,
    most_prompt,
    nanos,
    nanos_at_most,
    refusal,
    runs_on,
    unanswered,
    unit_tokens,
    worst_case,
)
from proxy.protocol.caches import Bill
from proxy.protocol.prices import MOST_AMOUNT, Price, cost, price_of
from proxy.protocol.request.demand import PLAIN, BillingKind, Demand, Tool, Wants
from proxy.protocol.response.usage import NOTHING_REPORTED, Reported, Usage
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
        (Demand(BillingKind.FREE), 0.0),
    ]
)
def test_the_most_that_a_request_can_cost(demand: Demand, usd: float) -> None:
    assert most(demand) == pytest.approx(usd, rel=1e-9, abs=1e-12)


def test_a_tier_that_nobody_has_priced_costs_nobody_knows_what() -> None:
    unknown = text(tier="performance")
    assert most_cost(priced(), unknown, 1000, 100, long_life=False) is None
    own = priced(input_cost_per_token_performance=3e-6, output_cost_per_token_performance=3e-5)
    assert most_cost(own, unknown, 1000, 100, long_life=False) == 6_000_000


def test_models_that_always_search() -> None:
    for model in ("gpt-4o-search-preview", "perplexity/sonar-pro", "sonar-pro", "openai/gpt-4o:online"):
        assert most(Demand(), model=model) == pytest.approx(0.012), model
    assert most(Demand(), model="anthropic/claude-sonnet-4.5:online") == pytest.approx(0.012)


def test_a_client_may_ask_for_the_longer_prompts_that_have_a_price() -> None:
    for window, tokens in ((200_000, 1_000_000), (1_048_576, 1_048_576), (300_000, 300_000)):
        assert most_prompt(priced(max_input_tokens=window), text(is_beyond=True), 9) == tokens


def test_sound_and_images_are_tokens_too() -> None:
    assert unit_tokens(Demand(BillingKind.IMAGE, images=2)) == 2 * 6600
    assert unit_tokens(Demand(BillingKind.TRANSCRIPTION, seconds=10.0)) == 200


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
    assert found.total_usd == pytest.approx(usd)


def test_an_estimate_is_billed_at_the_dearest_tier_that_was_asked_for() -> None:
    found = bill(priced(), text(tier="priority"), Usage(1000, 100, estimated=True), NOTHING_REPORTED)
    assert found.total_usd == pytest.approx(0.004)


@pytest.mark.parametrize(
    "kind", [BillingKind.IMAGE, BillingKind.SPEECH, BillingKind.TRANSCRIPTION, BillingKind.UNKNOWN]
)
def test_what_has_no_price_costs_nobody_knows_what(kind: BillingKind) -> None:
    text_alone = replace(priced(), extras=replace(priced().extras, audio_out=0.0))
    assert most_cost(text_alone, Demand(kind), 10, 10, long_life=False) is None


UNITS = [
    (Demand(BillingKind.IMAGE, images=3), {"output_cost_per_image": 0.04}, 0.12, Reported(images=2), 0.08),
    (Demand(BillingKind.SPEECH, characters=1000), {"input_cost_per_character": 1e-5}, 0.01, NOTHING_REPORTED, 0.01),
    (Demand(BillingKind.SPEECH, seconds=10.0), {"output_cost_per_second": 0.01}, 0.1, NOTHING_REPORTED, 0.1),
    (Demand(BillingKind.TRANSCRIPTION, seconds=60.0), {"input_cost_per_second": 0.001}, 0.06,
     Reported(seconds=6.0), 0.006),
    (Demand(BillingKind.RERANK, documents=250), {"input_cost_per_query": 0.002}, 0.006, NOTHING_REPORTED, 0.006),
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
    assert found.total_usd == pytest.approx(billed)


def test_thinking_and_videos_are_reserved_and_billed_at_their_own_price() -> None:
    steps = [
        {"range": [0, 1000], "input_cost_per_token": 1e-6, "output_cost_per_token": 2e-6,
         "output_cost_per_reasoning_token": 8e-6},
        {"range": [1000, 9000], "input_cost_per_token": 2e-6, "output_cost_per_token": 4e-6,
         "output_cost_per_reasoning_token": 16e-6},
    ]  # fmt: skip
    stepped, seeing = (
        price_of({"tiered_pricing": steps}),
        price_of({"input_cost_per_token": 1e-6, "output_cost_per_token": 0.0, "input_cost_per_video_token": 1e-3}),
    )
    assert stepped is not None
    assert seeing is not None
    for prompt, thought in ((1000, 8e-6), (1001, 16e-6)):
        billed = bill(stepped, Demand(), Usage(prompt, 100), Reported(thought=60))
        assert billed.output_usd == pytest.approx(60 * thought + 40 * thought / 4)
        most = most_cost(stepped, Demand(max_output_tokens=100), prompt, 100, long_life=False)
        assert most is not None
        assert most / 1e9 >= prompt * 1e-6 + 100 * thought
    billed = bill(seeing, Demand(BillingKind.PROMPT), Usage(50, 0), Reported(video_in=40))
    wants = Wants(is_beyond=True)
    assert billed.input_usd >= 40e-3
    assert most_cost(seeing, Demand(BillingKind.PROMPT, wants=wants), 50, 0, long_life=False) >= 50_000_000


def test_text_at_a_model_of_images_has_no_price() -> None:
    price = price_of({"output_cost_per_image": 0.04})
    assert price is not None
    assert most_cost(price, Demand(wants=PLAIN), 10, 10, long_life=False) is None


@pytest.mark.parametrize(
    ("own", "seen_usd"), [({"input_cost_per_image_token": 2e-6}, 200e-6), ({}, 100e-6)], ids=["own price", "none"]
)
def test_images_are_billed_by_their_tokens_where_those_are_told(own: dict[str, float], seen_usd: float) -> None:
    price = price_of({"input_cost_per_token": 1e-6, "output_cost_per_image_token": 4e-5, **own})
    assert price is not None
    found = bill(price, Demand(BillingKind.IMAGE, images=1), Usage(110, 1000), Reported(image_in=100))
    assert found.total_usd == pytest.approx(10e-6 + seen_usd + 0.04)


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


RATE = st.sampled_from([1e-7, 1e-6, 1e-5, 1e-4])
OF_TEXT = ("input_cost_per_token", "output_cost_per_token", "cache_read_input_token_cost",
           "cache_creation_input_token_cost", "output_cost_per_reasoning_token")  # fmt: skip
OTHERS = [f"{way}_cost_per_{what}_token" for way in ("input", "output") for what in ("audio", "image", "video")]
ENTRIES = st.tuples(
    st.fixed_dictionaries(dict.fromkeys(OF_TEXT[:2], RATE), optional=dict.fromkeys(OF_TEXT[2:], RATE)),
    st.fixed_dictionaries({}, optional=dict.fromkeys(OTHERS, RATE)),
    st.sets(st.sampled_from(["_above_128k_tokens", "_above_200k_tokens"])),
    st.dictionaries(st.sampled_from(["flex", "priority"]), st.sampled_from([0.5, 1.0, 2.5])),
    st.sets(st.sampled_from(OF_TEXT)),
)


def entry_of(parts: tuple[dict[str, float], dict[str, float], set[str], dict[str, float], set[str]]) -> Price:
    """A price as the price map writes it: longer prompts and tiers of service, for which some rates are not named."""
    rates, others, lengths, services, unnamed = parts
    steps = [("", 1.0), *((length, 2.0) for length in sorted(lengths))]
    every = [(length, times, *one) for length, times in steps for one in (("", 1.0), *services.items())]
    named = {
        f"{name}{length}{'_' if service else ''}{service}": rate * times * factor
        for length, times, service, factor in every
        for name, rate in rates.items()
        if not (length or service) or name not in unnamed
    }
    price = price_of({**named, **others, "max_input_tokens": 1_000_000})
    assert price is not None
    return price


@given(
    price=ENTRIES.map(entry_of), wants=st.builds(Wants, tier=st.sampled_from(["", "flex", "priority"]),
    has_audio=st.booleans(), is_beyond=st.booleans(), is_summarised=st.booleans(), is_fast=st.booleans()),
    prompt=st.sampled_from([1, 90_000, 128_001, 200_001]), shares=st.lists(st.floats(0, 1), min_size=8, max_size=8),
)  # fmt: skip
def test_no_bill_passes_what_was_reserved_whatever_kinds_of_tokens_it_has(
    price: Price, wants: Wants, prompt: int, shares: list[float]
) -> None:
    demand = Demand(max_output_tokens=100, wants=wants)
    most = most_cost(price, demand, prompt, 100, long_life=False)
    assert most is not None

    def parts(total: int, shares: list[float]) -> list[int]:
        cuts = sorted(int(total * share) for share in shares)
        return [cut - before for before, cut in zip([0, *cuts], cuts, strict=False)]

    read, written = parts(prompt, shares[:2])
    heard, filmed, seen = parts(prompt, shares[2:5])
    spoken, drawn, thought = parts(100, shares[5:])
    reported = Reported(
        tier=wants.tier, is_fast=wants.is_fast, image_in=seen, image_out=drawn, thought=thought,
        audio_in=heard * wants.is_beyond, video_in=filmed * wants.is_beyond, audio_out=spoken * wants.has_audio,
    )  # fmt: skip
    told = bill(price, demand, Usage(prompt, 100, read, written), reported)
    booked = bill(price, demand, *unanswered(demand, prompt, Heard(100, 9.0, 9.0), 100.0, price))
    for cost_ in (told, booked):
        assert cost_ is not None
        assert nanos(cost_.total_usd) <= most + 1


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


@pytest.mark.parametrize(
    ("demand", "heard", "output"),
    [
        (Demand(), Heard(40, 0.0, 9.0), 40),
        (Demand(), Heard(40, 3.0, 9.0), 40 + 300),
        (Demand(answers=3), Heard(40, 3.0, 9.0), 40 + 900),
        (Demand(max_output_tokens=100), Heard(40, 3.0, 9.0), 100),
        (Demand(max_output_tokens=100, answers=2), Heard(40, 3.0, 9.0), 200),
        (Demand(max_output_tokens=500), Heard(0, 0.1, 0.1, runs_on=True), 500),
        (Demand(), Heard(0, 1e9, 1e9), 4000),
        (Demand(max_output_tokens=500, predicted_tokens=30, answers=2), Heard(0, 0.0, 0.1, runs_on=True), 1060),
        (Demand(max_output_tokens=10**15), Heard(0, 0.1, 0.1, runs_on=True), 200_000),
        (Demand(kind=BillingKind.PROMPT), Heard(7, 3.0, 3.0, runs_on=True), 0),
        (Demand(max_output_tokens=100), Heard(117, 3.0, 9.0), 417),
        (Demand(max_output_tokens=100), Heard(117, 1e9, 1e9), 4100),
    ],
)
def test_output_is_what_came_and_what_may_have_been_thought_up_to_the_limit(
    demand: Demand, heard: Heard, output: int
) -> None:
    usage, _ = unanswered(demand, 70, heard, 100.0, Price(1.0, 1.0, 1.0, 1.0, 1.0, max_output_tokens=4000))
    assert usage == Usage(70, output, estimated=True)


def test_a_model_that_passes_limits_may_have_thought_beyond_its_limit() -> None:
    price = Price(1.0, 1.0, 1.0, 1.0, 1.0, max_output_tokens=4000)
    for heard, output in ((Heard(0, 3.0, 3.0), 300), (Heard(0, 0.1, 0.1, runs_on=True), 4001)):
        usage, _ = unanswered(Demand(max_output_tokens=1), 70, heard, 100.0, price, passes_limits=True)
        assert usage.output == output


def test_without_any_limit_an_answer_is_as_long_as_the_longest_that_is_assumed() -> None:
    assert unanswered(Demand(), 1, Heard(0, 0.0, 0.0, runs_on=True), 100.0, None)[0].output == 8192


def test_readings_that_are_booked_together_are_reserved_at_the_rate_of_their_sum() -> None:
    demand, price = text(is_summarised=True), priced(input_cost_per_token_above_128k_tokens=1.5e-6)
    booked = bill(price, demand, *unanswered(demand, 150_000, Heard(0, 0.0, 0.5), 100.0, price))
    reserved = most_cost(price, demand, 150_000, 100, long_life=False)
    assert booked is not None
    assert reserved is not None
    assert booked.input_usd == 300_000 * 2e-6
    assert nanos(booked.total_usd) <= reserved


def test_a_tier_may_be_dearer_by_one_kind_of_tokens() -> None:
    price = priced(cache_creation_input_token_cost_flex=1e-5, output_cost_per_token_flex=1e-9)
    reserved = most_cost(price, text(tier="flex"), 1000, 100, long_life=False)
    assert reserved == 1000 * 10_000 + 100 * 10_000


def test_a_tool_of_the_providers_was_called_once_a_second_and_no_oftener_than_allowed() -> None:
    demand = Demand(wants=Wants(calls=((Tool.SEARCH, 5), (Tool.CODE, 8))))
    usage, ran = unanswered(demand, 1000, Heard(0, 0.0, 2.5), 100.0, None)
    assert (ran.searches, ran.codes) == (3, 1)
    assert usage.prompt == 200_000 * 7, "what a program prints may fill the window, each time"
    searches = Demand(wants=Wants(calls=((Tool.SEARCH, 5),)))
    assert unanswered(searches, 1000, Heard(0, 0.0, 2.5), 100.0, None)[0].prompt == 1000 * 4 + 8000 * (1 + 2 + 3)
    assert unanswered(demand, 1000, Heard(0, 0.0, 99.0), 100.0, None)[1].searches == 5


def test_a_summary_that_may_have_been_made_is_booked() -> None:
    demand = Demand(max_output_tokens=10, wants=Wants(is_summarised=True))
    assert unanswered(demand, 1000, Heard(3, 0.0, 0.5), 100.0, None)[0] == Usage(2000, 3 + 8192, estimated=True)


def test_a_model_is_as_fast_as_it_was_seen_to_be_once_enough_was_seen() -> None:
    speeds = Speeds()
    assert speeds.tokens_per_s("m", "") < speeds.tokens_per_s("m", "groq") < speeds.tokens_per_s("m", "cerebras")
    for _ in range(19):
        speeds.learn("m", 1000, 8.0)
        speeds.learn("m", 10, 0.001)
    assert speeds.tokens_per_s("m", "") == 300, "short answers teach nothing"
    speeds.learn("m", 1000, 10.0)
    assert speeds.tokens_per_s("m", "") == 125 * 1.5
    assert speeds.tokens_per_s("other", "") == 300
    speeds.learn("m", 1000, 1.0)
    assert speeds.tokens_per_s("m", "") == 1500
    speeds.learn("m", 1000, 0.001)
    speeds.learn("m", 1000, 0.0)
    assert speeds.tokens_per_s("m", "") == 1500, "no model writes so fast: the answer was kept"


def test_a_client_that_reads_slowly_makes_no_model_slow() -> None:
    speeds = Speeds()
    for _ in range(40):
        speeds.learn("m", 300, 300.0)
    assert speeds.tokens_per_s("m", "") == 100


def test_who_finishes_a_call_whose_client_has_left() -> None:
    assert runs_on("openai", is_stream=False)
    # All that OpenRouter's page names, by litellm's names for them.
    for server in ("gemini", "vertex_ai", "vertex_ai_beta", "bedrock", "bedrock_mantle", "sagemaker_chat", "perplexity",
                   "huggingface", "replicate", "ai21_chat", "featherless_ai", "lambda_ai", "sambanova", "nebius",
                   "dashscope", "groq", "mistral", "minimax"):  # fmt: skip
        assert runs_on(server, is_stream=True), server
    for server in ("openai", "azure", "anthropic", "fireworks_ai", "together_ai", "cohere", "xai", "deepseek"):
        assert not runs_on(server, is_stream=True), server
    assert not runs_on("", is_stream=True)
    assert runs_on("", is_stream=True, is_background=True)
