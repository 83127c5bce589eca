"""What is reserved by bytes, by a count and by an estimate, and what is asked and told beside it."""

import asyncio
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.engine.exchange import Exchange, ExchangeOutcome, Settlement
from proxy.kit.errors import BudgetExceeded, BudgetUnavailable, RateLimited, StoreError
from proxy.kit.tasks import Aside
from proxy.models import Deployment, RateLimit
from proxy.models.charges import Rule
from proxy.protocol.request.demand import BillingKind, Demand
from proxy.protocol.request.tokens import bytes_over_four
from proxy.protocol.response.usage import Usage
from proxy.storage import Charge, Reserve
from proxy.teams.estimates import Habits, PromptBounds
from proxy.teams.reservations import DEFERRED_S
from tests.examples import examples, for_every
from tests.money import DOLLAR, MODEL, MOST, NOW, SIZE, TOTAL, Flaky, budgeting, exchange, reserved, spent

EXACT, OTHER = MODEL, replace(MODEL, name="n", model="n")
"""A model whose tokenizer is known, and one whose tokenizer is not."""
MODELS = {"m": EXACT, "n": OTHER}
LIMITS = (Rule("a", "the budget", hard=9000 * DOLLAR), Rule("b", "the budget", "tokens", 3000))


FRESH = itertools.count()


def body(words: int) -> bytes:
    """A chat with this many words of five bytes. Its text was never counted before."""
    return b'{"messages":[{"role":"user","content":"%05d%b"}]}' % (next(FRESH), b"word " * (words - 1))


def tokens(words: int, by: str) -> int:
    """The most tokens of such a prompt: a token for each byte of its texts, and one for four bytes, or half as many
    again. Six tokens frame the message, and thirty are those of a template."""
    texts = [5 * words, len("user")]
    counted = sum(math.ceil(size / 4) for size in texts)
    return {"bytes": sum(texts), "count": counted, "estimate": math.ceil(counted * 1.5)}[by] + 36


def amount(rule: Rule, count: int) -> int:
    return count * (2 * DOLLAR if rule.unit == "usd" else 1)


class Model:
    """What is taken of each limit, and which requests are taken by an estimate."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = rules
        self.running: dict[int, tuple[int, bool]] = {}
        self.counted = 0

    def fits(self, count: int, share: int = 1) -> bool:
        taken = sum(tokens for tokens, _ in self.running.values())
        return all(amount(rule, taken + count) <= (rule.hard or 0) // share for rule in self.rules)

    def reserve(self, number: int, words: int, served: str) -> bool:
        by_bytes, is_estimate = tokens(words, "bytes"), False
        if not self.fits(by_bytes, share=2):
            self.counted += 1
            if served == "m":
                by_bytes = tokens(words, "count")
            elif not any(is_estimate for _, is_estimate in self.running.values()):
                by_bytes, is_estimate = tokens(words, "estimate"), True
        if self.fits(by_bytes):
            self.running[number] = (by_bytes, is_estimate)
            return True
        return False


class Noted(PromptBounds):
    """Notes how often whole texts were asked for."""

    def __init__(self) -> None:
        super().__init__(bytes_over_four, Aside(), lambda model: model == "m", 512 << 20)
        self.counted = 0

    async def bound(self, exchange: Exchange, *, counts: bool) -> Any:
        self.counted += counts
        return await super().bound(exchange, counts=counts)


@settings(max_examples=examples(200, least=40))
@given(
    st.sampled_from([LIMITS, LIMITS[:1], LIMITS[1:]]),
    st.lists(
        st.tuples(st.integers(1, 300), st.sampled_from(["m", "n", "mn", "nm"]), st.booleans()),
        min_size=1, max_size=10,
    ),
)  # fmt: skip
def test_half_of_a_limit_is_reserved_by_bytes_and_the_rest_by_counts_with_one_estimate_at_a_time(
    rules: Sequence[Rule], asks: list[tuple[int, str, bool]]
) -> None:
    async def main() -> None:
        model, bounds = Model(rules), Noted()
        async with budgeting(*rules) as one:
            one.reservations._estimates.bounds = bounds
            running: list[tuple[int, Exchange]] = []
            for number, (words, names, ends_one) in enumerate(asks):
                served = [MODELS[name] for name in names]
                asked = exchange(1, sent=((body(words), 0),))
                asked.deployment = served[0]
                if model.reserve(number, words, names):
                    await one.reserve(asked, others=served[1:])
                    running.append((number, asked))
                    assert bool(asked.reservation.estimated) is model.running[number][1]
                else:
                    with pytest.raises(BudgetExceeded):
                        await one.reserve(asked, others=served[1:])
                    await one.reservations.settle(asked)
                assert bounds.counted == model.counted
                if ends_one and running:
                    ended, given_back = running.pop(0)
                    await one.reservations.settle(given_back)
                    del model.running[ended]
                taken = sum(tokens for tokens, _ in model.running.values())
                for rule in rules:
                    assert await spent(one, f"b:{rule.id}:-:total") == (0, amount(rule, taken))

    asyncio.run(main())


async def test_a_prompt_is_learnt_from_where_all_of_it_was_counted() -> None:
    async with budgeting(replace(TOTAL, hard=200 * DOLLAR)) as one:
        asked = exchange(1, sent=((body(20), 0),))
        await one.reserve(asked)
        assert asked.counted_tokens == tokens(20, "count") - 36
        assert asked.reservation.bound.counted == asked.counted_tokens


@for_every(
    [
        ({}, True), ({"kind": BillingKind.PROMPT}, True), ({"kind": BillingKind.IMAGE}, False), ({"hard": None}, False),
        ({"has_deployment": False}, False), ({"known": 7}, False),
    ]
)  # fmt: skip
def test_a_prompt_without_a_usage_is_weighed_where_a_hard_limit_counts_its_text(
    case: dict[str, Any], is_weighed: bool
) -> None:
    async def main() -> None:
        async with budgeting(replace(TOTAL, hard=case.get("hard", 10**15), soft=1)) as one:
            asked = await reserved(one, exchange(1, sent=((body(20), 0),)))
            asked.requested.demand = Demand(case.get("kind", BillingKind.TEXT))
            asked.deployment = OTHER if case.get("has_deployment", True) else None
            asked.reservation.prompt_tokens = before = case.get("known", 0)
            await one.reservations.weigh(asked)
            assert asked.reservation.prompt_tokens == (tokens(20, "estimate") if is_weighed else before)

    asyncio.run(main())


# What is told


RATE = Rule("rate", "the requests per minute of team 'red'", "requests", 1, window="minute", is_rate=True)


async def test_a_rate_limit_is_told_with_the_time_to_come_back_in_whole_seconds() -> None:
    minute = NOW // 60 * 60
    for after_s, wait_s in ((0.0, 60), (0.5, 60), (59.0, 1), (59.9, 1)):
        async with budgeting(RATE) as one:
            await one.reserve(exchange(SIZE, at=minute + after_s))
            with pytest.raises(RateLimited) as caught:
                await one.reserve(exchange(SIZE, at=minute + after_s))
            assert caught.value.headers["retry-after"] == str(wait_s)
            assert "x-should-retry" not in caught.value.headers
            assert caught.value.message == (
                "The requests per minute of team 'red' does not allow this request: 0 requests of 1 requests spent, "
                "1 requests reserved by running requests. It begins anew at 2023-11-14T22:14:00Z."
            )


async def test_what_made_a_request_large_is_told_where_it_does_not_fit() -> None:
    tight = Rule("rate", "the tokens per minute", "tokens", 20, window="minute", is_rate=True)
    by_count = "$150.00 (its texts have 26 tokens by our count"
    by_bytes = "25 tokens (its texts have 104 bytes"
    full, open_ = replace(TOTAL, hard=10 * DOLLAR), replace(TOTAL, hard=10**15)
    for rules, told in (([full], by_count), ([open_, tight], by_bytes)):
        async with budgeting(*rules) as one:
            with pytest.raises((BudgetExceeded, RateLimited)) as caught:
                await one.reserve(exchange(100, sent=((body(20), 0),)))
            assert told in caught.value.message


async def test_a_full_deployment_tells_nothing_of_the_prompt() -> None:
    full = replace(MODEL, id="m#1", rates=RateLimit("", requests=0))
    async with budgeting(TOTAL) as one:
        asked = await reserved(one, exchange(SIZE))
        with pytest.raises(RateLimited) as caught:
            await one.reservations.take_turn(asked, full)
        start = "The rate limit of deployment 'm#1' does not allow this request: 0 requests of 0 requests spent. It"
        assert caught.value.message.startswith(start)
        assert one.sample("rate_limited_total", team="red", unit="requests") == 1
        assert (await spent(one))[1] == MOST
        assert [ask.exchange_id for ask in asked.reservation.further] == []


async def test_the_limits_of_a_request_are_told_with_it() -> None:
    async with budgeting(RATE, replace(TOTAL, soft=0)) as one:
        asked = await reserved(one, exchange(SIZE, at=NOW // 60 * 60))
        held = asked.reservation
        assert (held.exchange_id, held.team, held.is_limited, held.is_hard) == (asked.arrival.id, "red", True, True)
        told = {"limit": "1", "remaining": "0", "reset": "60s"}
        assert held.rates == [(f"x-ratelimit-{name}-requests", value) for name, value in told.items()]
        assert held.notice == "total; spent=$0.00; soft=$0.00"
        assert [one.rule.id for one in held.bookings] == ["rate", "total"]
    async with budgeting(RATE, replace(TOTAL, hard=None)) as one:
        held = (await reserved(one, exchange(SIZE))).reservation
        assert (held.is_limited, held.is_hard) == (True, False)


# Without the store


class Own:
    """The limit of a fallback."""

    are_known = True

    def __init__(self, rule: Rule) -> None:
        self.rule = rule

    def may_hold(self, principal: object) -> bool:
        return True

    def rules(self, principal: object, *deployments: Deployment) -> Sequence[Rule]:
        return [self.rule for one in deployments if one is OTHER]


@for_every(
    [
        (policy, hard, is_out)
        for policy in ("allow", "deny") for hard in (10**15, None, 1) for is_out in (True, False)
    ]
)  # fmt: skip
def test_a_fallback_whose_budget_cannot_be_asked_is_refused_where_that_is_denied(
    policy: str, hard: int | None, is_out: bool
) -> None:
    async def main() -> None:
        async with budgeting(on_store_error=policy) as one:
            one.reservations._rules = Own(replace(TOTAL, hard=hard, soft=10**15))  # type: ignore[assignment]
            asked = exchange(SIZE)
            await one.reserve(asked)
            assert not asked.reservation.is_limited
            one.store.is_out = is_out
            refusal: Any = None
            if is_out and policy == "deny" and hard is not None:
                refusal = BudgetUnavailable
            elif not is_out and hard == 1:
                refusal = BudgetExceeded
            if refusal is not None:
                with pytest.raises(refusal) as caught:
                    await one.reservations.take_turn(asked, OTHER)
                if refusal is BudgetUnavailable:
                    told = "The budgets of team 'red' cannot be checked: the store does not answer."
                    assert caught.value.message == told
                return
            await one.reservations.take_turn(asked, OTHER)
            held = asked.reservation
            assert (held.is_limited, held.is_hard) == (True, hard is not None)
            assert [one.charge.amount for one in held.bookings] == [0]
            assert held.held(held.bookings[0]) == MOST
            await one.reservations.take_turn(asked, OTHER)
            assert len(held.bookings) == 1, "once"

    asyncio.run(main())


@for_every([(policy, is_taken) for policy in ("allow", "deny") for is_taken in (True, False)])
def test_a_further_call_without_the_store_is_made_unless_that_is_denied(policy: str, is_taken: bool) -> None:
    async def main() -> None:
        async with budgeting(TOTAL, on_store_error=policy) as one:
            asked = await reserved(one, exchange(SIZE))
            one.store.is_out = not is_taken
            made = await one.reservations.extend(asked, Settlement(Usage(1, 0), 20.0))
            assert made is (is_taken or policy == "allow")

    asyncio.run(main())


# What is deferred


async def test_what_was_lost_before_a_deferred_call_is_settled_at_once() -> None:
    rules = (TOTAL, Rule("calls", "t", "requests", 5), Rule("n", "t", "tokens", 10**9))
    async with budgeting(*rules) as one:
        asked = await reserved(one, exchange(SIZE))
        asked.lost, asked.answer.status = Settlement(Usage(30, 4), 34.0), 202
        await one.reservations.defer(asked)
        (lost,) = await one.store.entries(0, NOW + 1)
        assert (lost.exchange_id, lost.ending, lost.cost, lost.status) == (
            f"{asked.arrival.id}+0", "broken", 34 * DOLLAR, 202,
        )  # fmt: skip
        assert await spent(one) == (34 * DOLLAR, MOST)
        assert await spent(one, "b:n:-:total") == (34, 80)
        assert await spent(one, "b:calls:-:total") == (0, 1), "it is one request"
        await one.store.expire(NOW + DEFERRED_S - 1)
        assert (await spent(one))[1] == MOST
        await one.store.expire(NOW + DEFERRED_S)
        assert await spent(one) == (34 * DOLLAR + MOST, 0)
        late = next(entry for entry in await one.store.entries(0, NOW + 1) if entry.exchange_id == asked.arrival.id)
        assert (late.cost, late.estimated, DEFERRED_S) == (MOST, True, 3600)
        assert (late.ending, late.status) == ("deferred", 202)


async def test_without_rules_a_deferred_call_is_billed_by_what_it_probably_costs_at_most() -> None:
    async with budgeting() as one:
        one.store_client.is_durable = False
        asked = await reserved(one, exchange(SIZE))
        assert asked.reservation.entry is None
        await one.reservations.defer(asked)
        await one.store.expire(NOW + DEFERRED_S)
        (entry,) = await one.store.entries(0, NOW + 1)
        assert (entry.ending, entry.cost, entry.plain_tokens) == ("deferred", 2 * (SIZE // 4) * DOLLAR, SIZE // 4)


async def test_a_limit_is_open_to_an_estimate_again_when_the_deferred_one_is_over() -> None:
    for after_s, settles, is_open in (
        (0, False, False), (DEFERRED_S - 1, False, False), (DEFERRED_S, False, True), (0, True, True),
    ):  # fmt: skip
        async with budgeting(replace(TOTAL, hard=600 * DOLLAR)) as one:
            asked = await reserved(one, exchange(1, sent=((body(50), 0),)))
            assert asked.reservation.estimated == {"b:total:-:total"}
            await one.reservations.defer(asked)
            if settles:
                asked.attempts, asked.ending, asked.settlement = 1, ExchangeOutcome.COMPLETED, Settlement()
                await one.reservations.settle_later(asked)
            later = exchange(1, at=NOW + after_s, sent=((body(50), 0),))
            one.rules.held = [replace(TOTAL, hard=10**6 * DOLLAR)]
            bound = await one.reservations._estimates.bounds.bound(later, counts=True)
            await one.reserve(later)
            ask: Callable[..., Reserve] = one.reservations._ask
            ask(later, later.reservation, one.rules.held, bound, counts=True)
            assert bool(later.reservation.estimated) is is_open


async def test_nothing_is_told_of_a_reservation_that_is_none() -> None:
    async with budgeting(TOTAL) as one:
        asked = exchange(SIZE)
        for end in (one.reservations.settle, one.reservations.defer, one.reservations.weigh):
            await end(asked)
        assert await one.reservations.extend(asked, Settlement())
        await one.reservations.take_turn(asked, replace(MODEL, rates=RateLimit("", requests=0)))
        assert await one.store.entries(0, NOW + 1) == []


async def test_an_exchange_that_was_not_sent_gives_back_once(tmp_path: Path) -> None:
    async with budgeting(TOTAL, spool=tmp_path) as one:
        asked = await reserved(one, exchange(SIZE))
        one.store.calls.clear()
        for _ in range(2):
            await one.reservations.settle(asked)
        assert one.store.calls.count("carry_out") == 1
        assert await one.store.balance("red", Charge("b:total:-:total", 0), NOW) is not None
        assert await spent(one) == (0, 0)


# Further calls


async def test_a_further_call_is_set_aside_beside_all_tokens_that_were_spent() -> None:
    rules = (Rule("n", "the budget", "tokens", 1000), Rule("rate", "t", "tokens", 10**6, is_rate=True, window="minute"))
    async with budgeting(*rules) as one:
        asked = await reserved(one, exchange(SIZE))
        for usage, held in ((Usage(10, 20), 110), (Usage(10, 15), 110), (Usage(300, 20), 400)):
            assert await one.reservations.extend(asked, Settlement(usage, 5.0))
            assert await spent(one, "b:n:-:total") == (0, held)
        assert await spent(one, f"r:rate:-:minute:{NOW // 60:.0f}") == (0, SIZE // 4), "no rate counts it"
        lost = [asked.reservation.entry, *(ask.entry for ask in asked.reservation.further)]
        assert sum(each.plain_tokens for each in lost) == 400, "what the ledger tells if this process dies"
        assert sum(each.cost for each in lost) == MOST + 5 * DOLLAR
        assert not await one.reservations.extend(asked, Settlement(Usage(900, 30), 5.0))
        await one.settle(asked, Usage(7, 3))
        assert await spent(one, "b:n:-:total") == (10, 0)


async def test_a_further_call_that_is_refused_at_its_second_try_is_given_back_in_case_it_arrives() -> None:
    class Late(Flaky):
        lost: list[Reserve] = []
        loses = False

        async def reserve(self, ask: Reserve, now: float) -> Any:
            if self.loses:
                self.loses = False
                self.lost.append(ask)
                raise StoreError("nothing is heard")
            return await super().reserve(ask, now)

    store = Late()
    async with budgeting(TOTAL, store=store) as one:
        asked = await reserved(one, exchange(SIZE))
        store.loses = True
        assert not await one.reservations.extend(asked, Settlement(Usage(1, 0), 900.0))
        (ask,) = store.lost
        assert [(one.exchange_id, one.charges) for one in asked.reservation.further] == [(ask.exchange_id, ())]
        await one.settle(asked, Usage(5, 0))
        await store.set_spent("red", Charge("b:total:-:total", 0), NOW)
        await store.reserve(ask, NOW)
        assert await spent(one) == (0, 0)


async def test_a_fallback_without_limits_of_its_own_is_called_without_asking() -> None:
    async with budgeting(TOTAL) as one:
        asked = await reserved(one, exchange(SIZE))
        one.store.calls.clear()
        await one.reservations.take_turn(asked, OTHER)
        await one.reservations.take_turn(asked, MODEL)
        assert (one.store.calls, asked.reservation.further) == ([], [])
        assert not asked.reservation.passes_limits
        one.reservations._estimates._habits.put("n", Habits(passes_limits=True))
        await one.reservations.take_turn(asked, OTHER)
        assert asked.reservation.passes_limits
        await one.reservations.take_turn(asked, MODEL)
        assert not asked.reservation.passes_limits


async def test_a_fallback_with_a_budget_is_set_aside_where_nothing_was_asked_before() -> None:
    async with budgeting() as one:
        one.store_client.is_durable = False
        one.reservations._rules = Own(replace(TOTAL, hard=10**15))  # type: ignore[assignment]
        asked = await reserved(one, exchange(SIZE))
        assert asked.reservation.entry is None
        asked.deployment = OTHER
        await one.reservations.take_turn(asked, OTHER)
        assert await spent(one) == (0, MOST)
        (ask,) = asked.reservation.further
        assert (ask.exchange_id, ask.team, ask.entry.model, ask.entry.cost) == (f"{asked.arrival.id}+1", "red", "n", 0)
        assert (ask.entry.exchange_id, ask.entry.plain_tokens) == (ask.exchange_id, 0)


async def test_what_was_refused_holds_nothing_that_could_be_given_back() -> None:
    async with budgeting(replace(TOTAL, hard=DOLLAR)) as one:
        asked = exchange(SIZE)
        with pytest.raises(BudgetExceeded):
            await one.reserve(asked)
        one.store.calls.clear()
        await one.reservations.settle(asked)
        assert one.store.calls == []
