"""What one request takes of each limit before it is sent."""

import asyncio
import base64
import json
import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.engine.exchange import Settlement
from proxy.kit.errors import Forbidden, InvalidRequest
from proxy.kit.modes import Mode
from proxy.kit.tasks import LARGE_BYTES, OBJECT_BYTES, Aside
from proxy.models.bound import SETTING_BYTES, InputBound
from proxy.models.charges import Estimate, Rule, bill
from proxy.planner.plan import Plan
from proxy.protocol.caches import Bill
from proxy.protocol.prices import Extras, Price
from proxy.protocol.request import parse_body
from proxy.protocol.request.demand import BillingKind, Demand, Tool, Wants
from proxy.protocol.response.outcome import Outcome
from proxy.protocol.response.usage import NOTHING_REPORTED, Reported, Usage
from proxy.teams.estimates import Estimates, Habits, PriceOf, PromptBounds, size_of
from tests.examples import for_every
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


def test_what_is_free_or_empty_takes_next_to_nothing() -> None:
    nothing = {"usd": Estimate(1, 0), "tokens": Estimate(1, 0), "requests": Estimate(1, 1)}
    assert estimates().amounts(exchange(10**6, demand=Demand(BillingKind.FREE, 0)), (MODEL,), [USD]) == nothing
    assert estimates().amounts(exchange(0, demand=Demand(max_output_tokens=0)), (MODEL,), [USD]) == nothing


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
    for width, height in ((0, 480), (640, 0)):
        assert size_of(PNG.replace(struct.pack(">II", 640, 480), struct.pack(">II", width, height))) is None


# The dearest answer that a request can get

RATES = st.integers(0, 40).map(lambda tenths: tenths * 1e-7)
PRICES = st.builds(Price, RATES, RATES, RATES, RATES, RATES, max_output_tokens=st.sampled_from([None, 60, 4000]))
RULES = st.lists(
    st.builds(
        Rule, st.just("r"), st.just("t"), st.sampled_from(["usd", "tokens"]), st.sampled_from([None, 10**12]),
        assumed_output_tokens=st.sampled_from([None, 0, 30, 700]), is_rate=st.booleans(),
    ),
    max_size=3,
)  # fmt: skip
DEMANDS = st.builds(
    Demand, max_output_tokens=st.sampled_from([None, 0, 20, 900]), answers=st.integers(1, 3),
    least_output_tokens=st.sampled_from([0, 5000]), predicted_tokens=st.sampled_from([0, 7]),
)  # fmt: skip
LIVES = ("read", "write_5m", "write_1h", None)


def dearest(price: Price, demand: Demand, prompt: int, output: int) -> int:
    """Nano-dollars for the dearest bill: a prompt that is read, or written, or neither."""
    usages = (Usage(prompt, output, **({life: prompt} if life else {})) for life in LIVES)
    bills = (bill(price, demand, usage, NOTHING_REPORTED) for usage in usages)
    return math.ceil(round(max(one.total_usd for one in bills if one is not None) * 1e9, 3))


def longest(price: Price, demand: Demand, rules: Sequence[Rule], passes_limit: bool) -> int:
    """The tokens of the longest answer."""
    by_model = price.max_output_tokens or 8192
    if demand.max_output_tokens is not None:
        return demand.max_output_tokens + by_model * passes_limit
    assumed = [rule.assumed_output_tokens for rule in rules if not rule.is_rate]
    given = [tokens for tokens in assumed if tokens]
    usual = by_model if None in assumed else max(given) if given else 500
    return max(usual, demand.least_output_tokens)


@given(st.lists(PRICES, min_size=1, max_size=3), DEMANDS, RULES, st.integers(0, 2000), st.sampled_from([None, 0, 2000]),
       st.sets(st.integers(0, 2)), st.integers(0, 50))  # fmt: skip
def test_what_is_set_aside_is_the_dearest_answer_of_all_that_may_serve(
    prices: list[Price], demand: Demand, rules: list[Rule], size: int, bare: int | None, passing: set[int], more: int
) -> None:
    served = [replace(MODEL, name=f"m{at}") for at in range(len(prices))]
    ours = estimates(lambda one: prices[served.index(one)])
    for at, one in enumerate(served):
        ours._habits.put(one.name, Habits(passes_limits=at in passing))
    bound = None if bare is None else InputBound(bare=bare)
    probable, prompt = size // 4, size // 4 if bare is None else bare + 30 * bool(bare) + more
    answers = [
        demand.answers * (longest(price, demand, rules, at in passing) + demand.predicted_tokens)
        for at, price in enumerate(prices)
    ]
    usual = [min(answer, 500 * demand.answers) for answer in answers]
    expected = max(
        round((probable * price.input + output * price.output) * 1e9)
        for price, output in zip(prices, usual, strict=True)
    )
    most = max(dearest(price, demand, prompt, answer) for price, answer in zip(prices, answers, strict=True))
    asked = exchange(size, demand=demand)
    assert ours.amounts(asked, served, rules, bound, further_tokens=more) == {
        "usd": Estimate(max(1, most, expected), expected),
        "tokens": Estimate(max(1, prompt + max(answers)), probable + max(usual)),
        "requests": Estimate(1, 1),
    }


UNITS = Extras(
    image=0.5, character=0.001, second=0.002, query=0.25, audio_in=0.0, audio_out=0.0, by_tokens=True,
)  # fmt: skip


@for_every(
    [
        (Demand(BillingKind.PROMPT, 0), 8 * 2e-6, 8, 2, True),
        (Demand(BillingKind.IMAGE, 0, images=2), 8e-6 + 1.0, 13_208, 2, False),
        (Demand(BillingKind.SPEECH, 0, characters=9), 0.009, 8, 2, False),
        (Demand(BillingKind.TRANSCRIPTION, 0, seconds=3.0), 0.006, 60, 0, False),
        (Demand(BillingKind.RERANK, 0, documents=101), 8e-6 + 0.5, 8, 2, False),
    ]
)  # fmt: skip
def test_what_is_not_billed_by_text_is_expected_to_cost_the_most(
    demand: Demand, usd: float, tokens: int, probable: int, is_text: bool
) -> None:
    price = replace(PRICE, extras=UNITS)
    found = estimates(lambda _: price).amounts(
        exchange(8, demand=demand), (MODEL,), [USD], InputBound(text=8, bare=-30)
    )
    assert found["tokens"] == Estimate(tokens, probable)
    assert found["usd"].most == math.ceil(round(usd * 1e9, 3))
    assert found["usd"].expected == (round(2 * 1e-6 * 1e9) if is_text else found["usd"].most)


def test_what_tools_read_counts_as_read() -> None:
    demand = Demand(max_output_tokens=10, wants=Wants(calls=((Tool.SEARCH, 2),)))
    found = estimates().amounts(exchange(400, demand=demand), (MODEL,), [TOKENS])
    assert found["tokens"].most == 3 * 100 + 3 * 8000 + 10, "three readings, with what the searches before them found"


def test_no_amount_is_larger_than_a_counter_can_be() -> None:
    demand = Demand(max_output_tokens=10**18)
    for amount in estimates().amounts(exchange(400, demand=demand), (MODEL,), [])["tokens"], Estimate(1, 1):
        assert amount.most <= 2**53
    assert estimates().amounts(exchange(400, demand=demand), (MODEL,), [])["usd"].most <= 2**53


@pytest.mark.parametrize(
    ("text", "is_long"),
    [
        ('"1h"', True), ('"24h"', True), ('"\\u0031h"', True), ('"1\\u0068"', True), ('"\\u0032\\u0034h"', True),
        ('"2\\u0034h"', True), ('"24\\u0068"', True), ('"5m"', False), ('"\\u0035m"', False), ('"12h"', False),
        ('"4\\u0068"', False), ('"1hour"', False), ('"1\\u0068our"', False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("where", ["sent", "original", "unsent"])
def test_a_marker_of_the_longer_life_is_priced_where_one_may_be_sent(text: str, is_long: bool, where: str) -> None:
    price = replace(PRICE, write_5m=2e-6, write_1h=4e-6)
    ours, marked, plain = estimates(lambda _: price), f'{{"ttl":{text}}}'.encode(), b'{"ttl":"5m"}'
    bodies = (marked, plain) if where == "sent" else (plain, marked)
    reason = "ordered" if where == "original" else "below-minimum"
    plan = Plan(*bodies, Mode.TIER, reason, own=Bill(0, 0, 0, 1000), predicted=Bill(0, 0, 0, 1000))
    assert plan.rewritten is (bodies[0] != bodies[1])
    most = ours.amounts(exchange(9, plan=plan, demand=Demand(max_output_tokens=0)), (MODEL,), [])["usd"].most
    assert most == (4_000_000 if is_long else 2_000_000)


# What answers teach

SEEN = st.lists(
    st.tuples(
        st.sampled_from([Usage(1100, 40), Usage(2600, 3), Usage(700, 900, estimated=True), None]),
        st.sampled_from([0, 499, 500, 1000]), st.sampled_from(["", "flex", "priority"]), st.sampled_from(["", "flex"]),
        st.sampled_from([None, 20, 30]), st.booleans(),
    ),
    max_size=12,
)  # fmt: skip


@given(SEEN, st.integers(1, 60))
def test_habits_are_those_of_the_answers_that_were_reported(seen: list[Any], times: int) -> None:
    ours, output_tokens, factors, tier, passes = estimates(), 500.0, [1.0], "", False
    count = 0
    for usage, counted, asked_tier, served_tier, limit, has_deployment in seen * times:
        one = exchange(
            settlement=Settlement(usage), reported=Reported(tier=served_tier),
            demand=Demand(max_output_tokens=limit, wants=Wants(tier=asked_tier)),
        )  # fmt: skip
        one.counted_tokens = counted
        one.deployment = MODEL if has_deployment else None
        ours.learn(one)
        if usage is None or usage.estimated or not has_deployment:
            continue
        output_tokens = 0.95 * output_tokens + 0.05 * usage.output
        tier = tier if asked_tier else served_tier
        passes = passes or (limit is not None and usage.output > limit + 16)
        if counted >= 500:
            count += 1
            factors.append(min(2.1, usage.prompt / counted))
    found = ours.habits(MODEL)
    assert found.output_tokens == pytest.approx(output_tokens)
    assert (found.highest, found.seen, found.tier, found.passes_limits) == (max(factors), count, tier, passes)
    learnt = max(factors) * 1.15
    assert found.factor == (learnt if count >= 50 else max(1.5, learnt))
    assert ours.habits(replace(MODEL, name="other")) == Habits()


def test_the_habits_of_a_thousand_deployments_are_kept() -> None:
    ours = estimates()
    for number in range(1001):
        one = exchange(settlement=Settlement(Usage(1, 0)))
        one.deployment = replace(MODEL, name=f"m{number}")
        ours.learn(one)
    known = [ours.habits(replace(MODEL, name=f"m{number}")) != Habits() for number in range(1001)]
    assert known == [False] + 1000 * [True]


@pytest.mark.parametrize(
    ("is_exact", "estimates_", "tokens"),
    [(True, False, 100), (True, True, 100), (False, True, 150), (False, False, 400)],
)
def test_a_count_is_used_as_it_is_with_a_margin_or_not_at_all(is_exact: bool, estimates_: bool, tokens: int) -> None:
    bounds = PromptBounds(lambda text: len(text), Aside(), lambda model: is_exact and model == "m", 512 << 20)
    ours, bound = Estimates(lambda _: PRICE, bounds, allows_unknown=False), InputBound(text=400, counted=100)
    asked = exchange(0, demand=Demand(max_output_tokens=0))
    assert ours.amounts(asked, (MODEL,), [], bound, estimates=estimates_)["tokens"].most == tokens + 30
    assert ours.booked_prompt(asked, MODEL, bound) == (100 if is_exact else 150) + 30
    beyond = bound._replace(beyond="file")
    assert ours.booked_prompt(asked, MODEL, beyond) == 200_000


# Bounds of prompts

T = TypeVar("T")


class Noting(Aside):
    """Does all work at once, and notes how much was to be done aside."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    async def run(self, size: int, work: Callable[[], T]) -> T:
        self.sizes.append(size)
        return work()


class Counting:
    """Bounds of prompts, the texts that were counted, and the work that was done aside."""

    def __init__(self, memory_bytes: int = 512 << 20) -> None:
        self.texts: list[str] = []
        self.aside = Noting()
        self.bounds = PromptBounds(self.encode, self.aside, lambda _: False, memory_bytes)

    def encode(self, text: str) -> int:
        self.texts.append(text)
        return len(text.split())

    def bound(self, *bodies: Any, counts: bool = True, added: int = 0) -> InputBound:
        asked = exchange(7, sent=[(body, added) for body in bodies])
        return asyncio.run(self.bounds.bound(asked, counts=counts))


def chat(*texts: str, **more: Any) -> bytes:
    return json.dumps({"messages": [{"role": "user", "content": text} for text in texts], **more}).encode()


def test_each_message_is_counted_once_as_long_as_it_is_known() -> None:
    one, parsed = Counting(), parse_body(chat("a b", "c", system="s t u", temperature=1, seed=5))
    by_bytes = one.bound(parsed, counts=False)
    assert (one.texts, by_bytes.counted) == ([], None)
    for _ in range(3):
        assert one.bound(parsed, added=3) == by_bytes._replace(counted=8, bare=by_bytes.bare + 3)
        assert sorted(one.texts) == ["a b", "c", "s t u", "user", "user"]
    assert one.bound(parsed, counts=False) == by_bytes._replace(counted=8), "what was counted stays counted"
    assert one.aside.sizes == []
    assert "pictures" not in by_bytes.words()


def test_of_several_bodies_the_longest_counts_and_of_none_the_bytes_of_the_request() -> None:
    one = Counting()
    assert one.bound(chat("a"), chat("a " * 50), chat("b")).counted == 51
    assert one.bound() == InputBound(bare=7)
    plan = Plan(chat("a b c"), chat("a"), Mode.TIER, "ordered")
    assert asyncio.run(one.bounds.bound(exchange(7, plan=plan), counts=True)) == one.bound(chat("a b c"))


@pytest.mark.parametrize("body", [b"--boundary", b'{"messages": [', b"[]", b'{"a": 1, "a": 2'])
def test_a_body_that_is_not_understood_is_bounded_by_its_bytes(body: bytes) -> None:
    assert Counting().bound(body, added=5) == InputBound(bare=len(body) + 5)


@pytest.mark.parametrize(("counts", "least"), [(True, 32 << 10), (False, LARGE_BYTES - OBJECT_BYTES)])
@pytest.mark.parametrize("is_large", [True, False])
def test_much_that_is_new_is_bounded_beside_the_event_loop(counts: bool, least: int, is_large: bool) -> None:
    one = Counting()
    frame = len(chat("").removeprefix(b'{"messages": [').removesuffix(b"]}"))
    parsed = parse_body(chat("x" * (least - frame - (not is_large))))
    for _ in range(2):
        one.bound(parsed, counts=counts)
    assert one.aside.sizes == ([least] if is_large else [])


@pytest.mark.parametrize("is_large", [True, False])
def test_a_large_body_is_taken_apart_beside_the_event_loop(is_large: bool) -> None:
    one, body = Counting(), chat("", temperature="x" * LARGE_BYTES)
    body = body.replace(b"x", b"", len(body) - LARGE_BYTES + (not is_large))
    for _ in range(2):
        one.bound(body, counts=False)
    assert one.aside.sizes.count(len(body)) == (2 if is_large else 0)


@pytest.mark.parametrize(("count", "is_large"), [(100, False), (200, True)])
def test_many_new_messages_are_weighed_beside_the_event_loop_however_short_they_are(count: int, is_large: bool) -> None:
    one, parsed = Counting(), parse_body(chat(*map(str, range(count))))
    for _ in range(2):
        one.bound(parsed, counts=False)
    assert len(one.aside.sizes) == is_large


@pytest.mark.parametrize("body", [b"[1]", b"{"])
def test_a_large_body_that_is_not_understood_is_looked_at_beside_the_event_loop(body: bytes) -> None:
    one, large = Counting(), body + b" " * LARGE_BYTES
    assert one.bound(large, added=5) == InputBound(bare=len(large) + 5)
    assert one.aside.sizes == [len(large)] * 2


def test_bounds_of_other_values_are_kept_as_long_as_there_is_room() -> None:
    one = Counting(memory_bytes=3 * 25_000)
    for name, is_new in (("a", True), ("b", True), ("c", True), ("a", False), ("d", True), ("a", True)):
        one.texts.clear()
        one.bound(json.dumps({"input": name}).encode())
        assert one.texts == [name] * is_new, "the one that was set first goes first"
    assert Counting(memory_bytes=10**12).bounds._known._most == 20_000


@pytest.mark.parametrize("count", [16, 17])
def test_bounds_with_many_pictures_are_not_kept(count: int) -> None:
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{base64.b64encode(PNG).decode()}"}}
    parts = [{"type": "text", "text": "one"}, *([picture] * count)]
    one, parsed = Counting(), parse_body(json.dumps({"messages": [{"role": "user", "content": parts}]}).encode())
    for times in (1, 2):
        assert len(one.bound(parsed).pictures) == count
        assert one.texts.count("one") == (1 if count == 16 else times)


@pytest.mark.parametrize("is_weighed", [True, False])
def test_a_setting_is_no_text_unless_it_is_long(is_weighed: bool) -> None:
    value = "x" * (SETTING_BYTES - len('""') + is_weighed)
    found = Counting().bound(json.dumps({"model": value, "input": "a b"}).encode())
    assert (found == Counting().bound(b'{"input": "a b"}')) is not is_weighed


def test_elements_of_a_talk_are_bounded_one_by_one() -> None:
    one = Counting()
    first, second = ({"role": "user", "content": text} for text in ("a b", "c d e"))
    for talk, new in (([first], ["a b"]), ([first, second], ["c d e"]), ([second], [])):
        one.texts.clear()
        one.bound(json.dumps({"input": talk}).encode())
        assert [text for text in one.texts if text != "user"] == new
