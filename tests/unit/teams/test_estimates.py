"""What one request takes of each limit before it is sent."""

import struct
from dataclasses import replace
from typing import Any

import pytest

from proxy.engine.exchange import Settlement
from proxy.kit.errors import Forbidden, InvalidRequest
from proxy.models.charges import Rule
from proxy.protocol.prices import Extras, Price
from proxy.protocol.request.demand import BillingKind, Demand, Tool, Wants
from proxy.protocol.response.outcome import Outcome
from proxy.protocol.response.usage import Reported, Usage
from proxy.teams.estimates import Estimates, PriceOf, size_of
from tests.money import BOUNDS, MODEL, exchange

PRICE = Price(1e-6, 1e-5, 1e-7, 1.25e-6, 2e-6, max_output_tokens=1000)
USD = Rule("total", "the budget", hard=10**9)
TOKENS = replace(USD, unit="tokens")
RATE = replace(USD, unit="requests", is_rate=True)


def estimates(price_of: PriceOf = lambda _: PRICE, *, allows: bool = False) -> Estimates:
    return Estimates(price_of, BOUNDS, allows_unknown=allows)


@pytest.mark.parametrize(
    ("demand", "code"),
    [(Demand(BillingKind.UNKNOWN), "price_unknown"), (Demand(BillingKind.IMAGE, 0, images=1), "model_price_unknown")],
)
def test_what_nobody_can_price_is_refused_under_a_hard_budget_in_its_unit(demand: Demand, code: str) -> None:
    with pytest.raises(Forbidden, match="`stratiform.budgets.on_unknown_price: allow`") as caught:
        estimates().amounts(exchange(10, demand=demand), (MODEL,), [USD])
    assert caught.value.code == code
    if demand.kind is BillingKind.UNKNOWN:
        with pytest.raises(Forbidden):
            estimates().amounts(exchange(10, demand=demand), (MODEL,), [TOKENS])
    passing = [TOKENS] if demand.kind is BillingKind.IMAGE else [replace(TOKENS, is_rate=True)]
    for rules in ([], passing, [RATE], [replace(USD, hard=None, soft=1)]):
        assert estimates().amounts(exchange(10, demand=demand), (MODEL,), rules)["usd"].most >= 1
    assert estimates(allows=True).amounts(exchange(10, demand=demand), (MODEL,), [USD])["usd"].most >= 1


@pytest.mark.parametrize("rule", [USD, TOKENS])
def test_what_cannot_be_understood_is_refused_under_a_budget(rule: Rule) -> None:
    with pytest.raises(InvalidRequest, match="'n' is missing, or cannot be understood") as caught:
        estimates().amounts(exchange(10, demand=Demand(unclear="n")), (MODEL,), [rule])
    assert (caught.value.code, caught.value.param) == ("cost_unclear", "n")
    estimates().amounts(exchange(10, demand=Demand(unclear="n")), (MODEL,), [RATE])


def test_a_request_without_a_size_still_has_an_answer() -> None:
    assert estimates().amounts(exchange(0, demand=Demand()), (MODEL,), [USD])["usd"].most == 1000 * 10_000


def test_what_is_free_takes_next_to_nothing() -> None:
    amounts = estimates().amounts(exchange(10**6, demand=Demand(BillingKind.FREE, 0)), (MODEL,), [USD])
    assert (amounts["usd"].most, amounts["tokens"].most, amounts["requests"].most) == (1, 1, 1)
    assert amounts["requests"].expected == 1


def test_a_tier_that_was_seen_without_being_asked_for_is_reserved() -> None:
    price = replace(PRICE, services=(("priority", PRICE.times(2.0)),))
    ours = estimates(lambda _: price)
    usual = ours.amounts(exchange(100, demand=Demand(max_output_tokens=10)), (MODEL,), [USD])["usd"].most
    settled = Settlement(Usage(50, 10))
    ours.learn(exchange(100, reported=Reported(tier="priority"), settlement=settled))
    assert ours.amounts(exchange(100, demand=Demand(max_output_tokens=10)), (MODEL,), [USD])["usd"].most == 2 * usual
    ours.learn(exchange(100, settlement=settled))
    assert ours.amounts(exchange(100, demand=Demand(max_output_tokens=10)), (MODEL,), [USD])["usd"].most == usual


def test_a_prompt_that_refers_to_more_counts_as_the_longest_in_tokens_too() -> None:
    beyond = Demand(max_output_tokens=10, wants=Wants(is_beyond=True))
    price = replace(PRICE, extras=Extras(max_input_tokens=5000))
    assert estimates(lambda _: price).amounts(exchange(10, demand=beyond), (MODEL,), [TOKENS])["tokens"].most == 5010
    assert estimates(lambda _: None).amounts(exchange(10, demand=beyond), (MODEL,), [TOKENS])["tokens"].most == 200_010


def test_what_some_server_takes_for_a_limit_is_reserved_at_least() -> None:
    rule = replace(USD, assumed_output_tokens=500)
    amounts = estimates().amounts(exchange(0, demand=Demand(least_output_tokens=100_000)), (MODEL,), [rule])
    assert amounts["usd"].most == 100_000 * 10_000


def learn(ours: Estimates, usage: Usage, counted: int, times: int = 1) -> None:
    for _ in range(times):
        seen = exchange(settlement=Settlement(usage))
        seen.counted_tokens = counted
        ours.learn(seen)


@pytest.mark.parametrize(
    ("seen", "least", "most"),
    [
        ([], 1.5, 1.5),
        ([(Usage(1100, 100), 1000, 49)], 1.5, 1.5),
        ([(Usage(1100, 100), 1000, 50)], 1.2, 1.3),
        ([(Usage(2000, 100), 1000, 1)], 2.0, 2.4),
        ([(Usage(2000, 100), 1000, 1), (Usage(1000, 100), 1000, 100)], 2.0, 2.4),
        ([(Usage(400, 100), 100, 100)], 1.5, 1.5),
        ([(Usage(4000, 100, estimated=True), 1000, 100)], 1.5, 1.5),
        ([(Usage(900_000, 100), 1000, 1)], 2.0, 2.5),
    ],
    ids=["nothing", "too few", "enough", "more", "more once", "too short", "an estimate", "of another prompt"],
)
def test_how_much_more_a_provider_may_count(seen: list[tuple[Usage, int, int]], least: float, most: float) -> None:
    ours = estimates()
    for usage, counted, times in seen:
        learn(ours, usage, counted, times)
    assert least <= ours.habits(MODEL).factor <= most


def test_answers_are_expected_to_be_as_long_as_former_answers() -> None:
    ours = estimates()
    assert round(ours.habits(MODEL).output_tokens) == 500
    learn(ours, Usage(1, 20), 1, times=200)
    assert round(ours.habits(MODEL).output_tokens) == 20
    tokens = [
        ours.amounts(exchange(4000, demand=Demand(max_output_tokens=most)), (MODEL,), [TOKENS])["tokens"].expected
        for most in (1, 5, 900)
    ]
    assert [one - tokens[0] for one in tokens] == [0, 4, 19]


def test_of_several_calls_the_first_teaches_how_long_prompts_and_answers_are() -> None:
    ours = estimates()
    seen = exchange(settlement=Settlement(Usage(2100, 1000)), usage=Usage(1000, 500))
    seen.counted_tokens = 1000
    seen.answer.further = (Outcome(usage=Usage(1100, 500)),)
    for _ in range(50):
        ours.learn(seen)
    assert ours.habits(MODEL).factor < 1.2
    assert round(ours.habits(MODEL).output_tokens) == 500


@pytest.mark.parametrize(
    ("output", "more", "is_passed"),
    [
        (10, {}, False),
        (26, {}, False),
        (27, {}, True),
        (40, {"answers": 2}, False),
        (90, {"answers": 2}, True),
        (40, {"predicted_tokens": 30}, False),
        (90, {"wants": Wants(is_summarised=True)}, False),
        (90, {"wants": Wants(calls=((Tool.SEARCH, 3),))}, False),
        (90, {"max_output_tokens": None}, False),
    ],
)
def test_a_limit_that_a_model_has_passed_is_no_longer_trusted(
    output: int, more: dict[str, Any], is_passed: bool
) -> None:
    ours, demand = estimates(), Demand(max_output_tokens=10)
    seen = replace(demand, **more)
    assert ours.amounts(exchange(0, demand=demand), (MODEL,), [USD])["usd"].most == 10 * 10_000
    ours.learn(exchange(0, demand=seen, settlement=Settlement(Usage(5, output))))
    longest = 1010 if is_passed else 10
    assert ours.amounts(exchange(0, demand=demand), (MODEL,), [USD])["usd"].most == longest * 10_000
    other = replace(MODEL, name="other")
    assert ours.amounts(exchange(0, demand=demand), (other,), [USD])["usd"].most == 10 * 10_000


PNG = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 640, 480) + bytes(16)
# A frame of a GIF may be larger than its header says.
GIF = b"GIF89a" + struct.pack("<HH", 640, 480) + bytes(3)


def test_a_header_tells_the_size_only_where_it_bounds_what_is_drawn() -> None:
    assert [size_of(header) for header in (PNG, GIF, b"")] == [(640, 480), None, None]
