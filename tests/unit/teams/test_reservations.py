"""What is reserved before a request is sent, for its further calls, and what is booked when its client leaves."""

import asyncio
import random
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from proxy.engine.exchange import ExchangeOutcome, Principal, Settlement
from proxy.engine.telemetry.metrics import Metrics
from proxy.kit.errors import BudgetExceeded, Forbidden, RateLimited
from proxy.kit.modes import Mode
from proxy.models import Deployment, RateLimit, Transport
from proxy.models.charges import Rule
from proxy.planner.plan import Plan
from proxy.protocol.caches import Bill
from proxy.protocol.request.demand import BillingKind
from proxy.protocol.response.usage import Usage
from proxy.storage import Charge, LedgerEntry
from proxy.teams.alerts import WebhookSender
from tests.doubles import ManualClock
from tests.examples import for_every
from tests.money import (
    DOLLAR,
    MODEL,
    MOST,
    NOW,
    SIZE,
    TOTAL,
    FixedRules,
    Flaky,
    budgeting,
    exchange,
    reserved,
    run,
    spent,
)


async def test_money_is_reserved_at_the_worst_case_and_settled_to_what_it_was() -> None:
    async with budgeting(TOTAL) as one:
        asked = exchange(SIZE)
        await one.reserve(asked, limit=10)
        assert await spent(one) == (0, MOST + 10 * DOLLAR)
        await one.settle(asked, Usage(50, 7, read=20, write_5m=10))
        assert await spent(one) == (round((20 * 0.1 + 10 * 1.25 + 20 + 7) * DOLLAR), 0)
        assert one.reservations.alerts.remaining()["red"][0] == 1000 - 41.5


async def test_the_ledger_says_all_that_is_known_of_an_exchange() -> None:
    async with budgeting(TOTAL) as one:
        asked = exchange(SIZE, mode=Mode.MARK, reason="ordered", opened=-1000.0)
        await one.reserve(asked)
        await one.settle(asked, Usage(50, 7, read=20, write_5m=10, write_1h=5), saved_usd=-0.5)
        (entry,) = await one.store.entries(0, NOW + 1)
        assert entry.latency_ms >= 1_000_000
        assert entry == LedgerEntry(
            asked.arrival.id, NOW, "red", "key-1", "ann", "m", "mark", "ordered", 200, "completed", 20, 10, 5, 15,
            7, round((2 + 12.5 + 10 + 15 + 7) * DOLLAR), -DOLLAR // 2, entry.latency_ms, False,
        )  # fmt: skip


async def test_an_exchange_without_usage_is_in_the_ledger_with_no_tokens() -> None:
    async with budgeting(TOTAL) as one:
        await one.settle(await reserved(one, exchange(SIZE)))
        (entry,) = await one.store.entries(0, NOW + 1)
        tokens = (entry.read_tokens, entry.write_5m_tokens, entry.write_1h_tokens, entry.plain_tokens)
        assert (tokens, entry.output_tokens, entry.cost) == ((0, 0, 0, 0), 0, 0)


async def test_a_reservation_says_whether_anything_limits_it() -> None:
    for rules in ((), (TOTAL,)):
        async with budgeting(*rules) as one:
            asked = exchange(SIZE)
            held = await one.reserve(asked)
            assert held.is_limited is bool(rules)


@pytest.mark.parametrize(
    ("window", "headers", "end"),
    [
        (
            "month", {"x-stratiform-budget-reset": "2023-12-01T00:00:00Z"},
            "reserved by running requests. It begins anew at 2023-12-01T00:00:00Z.",
        ),
        ("total", {}, "reserved by running requests."),
    ],
)  # fmt: skip
async def test_what_does_not_fit_is_refused_with_when_it_begins_anew(
    window: str, headers: dict[str, str], end: str
) -> None:
    async with budgeting(replace(TOTAL, window=window, hard=MOST)) as one:
        await one.reserve(exchange(SIZE))
        with pytest.raises(BudgetExceeded) as caught:
            await one.reserve(exchange(SIZE))
        assert caught.value.status == 429
        assert caught.value.headers == {"x-should-retry": "false", "x-stratiform-budget": "total", **headers}
        start = "The budget 'total' of team 'red' does not allow this request: $0.00 of $160.00 spent, $160.00 "
        assert caught.value.message == start + end
        if window == "month":
            await one.reserve(exchange(SIZE, at=NOW + 31 * 86400))


async def test_output_is_reserved_as_the_request_limits_it_times_its_choices_or_as_assumed() -> None:
    for limit, choices, output in ((None, 1, 5), (None, 3, 15), (2, 1, 2), (2, 4, 8)):
        async with budgeting(TOTAL) as one:
            await one.reserve(exchange(SIZE), limit=limit, choices=choices)
            assert await spent(one) == (0, MOST + output * DOLLAR)


async def test_without_any_limit_the_models_longest_answer_isreserved() -> None:
    for known, output in ((64_000, 64_000), (None, 8192)):
        async with budgeting(replace(TOTAL, assumed_output_tokens=None, hard=10**6 * DOLLAR)) as one:
            price = one.reservations._estimates._price_of(MODEL)
            assert price is not None
            one.reservations._estimates._price_of = lambda d, price=price, known=known: replace(
                price, max_output_tokens=known
            )
            await one.reserve(exchange(SIZE), limit=None)
            assert await spent(one) == (0, MOST + output * DOLLAR)


async def test_the_worst_case_is_made_of_all_bytes_at_the_plans_life() -> None:
    for body, rate in ((b"{}", 1.25), (b'{"ttl":"1h"}', 2.0), (b'{"ttl":"1\\u0068"}', 2.0)):
        async with budgeting(TOTAL) as one:
            plan = Plan(body, body, Mode.TIER, "x", own=Bill(0, 0, 0, 100), predicted=Bill(90, 10, 0, 0))
            asked = exchange(10_000, plan=plan)
            asked.sent = ((b'{"model":"m","messages":[{"role":"user","content":"Hello there!"}]}', 2),)
            await one.reserve(asked)
            # Twelve bytes of text, four of a role, what frames a message, two bytes of ours, and a template.
            assert await spent(one) == (0, round((12 + 4 + 6 + 2 + 30) * rate * DOLLAR))
            balance = await one.store.balance("red", Charge("b:total:-:total", 0), NOW)
            # What is expected: the shadow's bill.
            assert balance.expected == round((90 * 0.1 + 10 * 1.25) * DOLLAR)


async def test_a_prompt_whose_usage_is_not_reported_is_counted_and_not_booked_by_its_bytes() -> None:
    body = b'{"model":"m","messages":[{"role":"user","content":"%b"}]}' % (b"word " * 400)
    async with budgeting(replace(TOTAL, hard=10**15)) as one:
        asked = await reserved(one, exchange(len(body), sent=((body, 0),)))
        asked.deployment = MODEL
        await one.reservations.weigh(asked)
        assert 400 <= asked.reservation.prompt_tokens < len(body) / 2


@pytest.mark.parametrize("body", [b"--boundary\r\n", b'{"messages": [', b"[]", b'"text"'])
async def test_a_body_that_cannot_be_understood_takes_a_token_for_each_byte(body: bytes) -> None:
    async with budgeting(TOTAL) as one:
        await one.reserve(exchange(SIZE, sent=((body, 0),)))
        assert await spent(one) == (0, 2 * (len(body) + 30) * DOLLAR), "the bytes and a template, at the dearest price"


async def test_the_dearest_of_those_that_may_serve_isreserved() -> None:
    async with budgeting(TOTAL) as one:
        prices = {"m": 1.0, "n": 3.0}
        found = one.reservations._estimates._price_of(MODEL)
        assert found is not None
        one.reservations._estimates._price_of = lambda d: replace(found, write_1h=prices[d.name], write_5m=1.0)
        other = Deployment("n", "n", Transport.HTTP, MODEL.profile)
        await one.reserve(exchange(SIZE), others=(other,))
        assert await spent(one) == (0, 80 * 3 * DOLLAR)


async def test_several_rules_hold_at_once_and_each_counts_for_itself() -> None:
    rules = [
        TOTAL,
        replace(TOTAL, id="daily", window="day", hard=None, soft=DOLLAR),
        Rule("user", "tokens of 'ann'", unit="tokens", hard=10_000, window="day", whom="ann"),
        Rule("rate", "requests", unit="requests", hard=10, window="minute", is_rate=True),
    ]
    async with budgeting(*rules) as one:
        asked = exchange(SIZE)
        await one.reserve(asked, limit=10)
        assert await spent(one, "b:daily:-:2023-11-14") == (0, MOST + 10 * DOLLAR)
        assert await spent(one, "b:user:ann:2023-11-14") == (0, 90)
        assert await spent(one, f"r:rate:-:minute:{int(NOW // 60)}") == (0, 1)
        await one.settle(asked, Usage(50, 7))
        assert await spent(one, "b:daily:-:2023-11-14") == (57 * DOLLAR, 0)
        assert await spent(one, "b:user:ann:2023-11-14") == (57, 0)
        assert await spent(one, f"r:rate:-:minute:{int(NOW // 60)}") == (1, 0)


async def test_whom_a_rule_is_for_may_be_called_anything() -> None:
    names = ["ann", "a" * 300, "{x}", "ünï", "a b", "\ud800", "", "-"]
    async with budgeting() as one:
        for name in names:
            one.rules.held = [Rule("user", "t", unit="requests", hard=1, whom=name)]
            await one.reserve(exchange(SIZE))
            with pytest.raises(BudgetExceeded):
                await one.reserve(exchange(SIZE))


async def test_answers_teach_how_much_is_expected_of_the_next_request() -> None:
    async with budgeting(replace(TOTAL, hard=10**9 * DOLLAR)) as one:
        expected = []
        for _ in range(40):
            asked = exchange(SIZE)
            held = await one.reserve(asked, limit=10_000)
            expected.append(held.bookings[0].charge.expected)
            await one.settle(asked, Usage(50, 4000))
        assert expected[-1] > 2 * expected[0]


async def test_many_at_once_cannot_pass_the_limit_together() -> None:
    async with budgeting(TOTAL) as one:
        asked = [exchange(SIZE) for _ in range(20)]
        got = await asyncio.gather(*(one.reserve(each) for each in asked), return_exceptions=True)
        held = [each for each, answer in zip(asked, got, strict=True) if not isinstance(answer, BaseException)]
        assert len(held) == 6
        assert all(isinstance(answer, BudgetExceeded) for answer in got if isinstance(answer, BaseException))
        await one.settle(held[0], Usage(1, 0))
        await one.reserve(exchange(SIZE))


async def test_without_rules_and_without_a_durable_store_nothing_is_asked_and_nothing_written() -> None:
    store = Flaky()
    store.is_durable = False  # type: ignore[misc]
    async with budgeting(store=store) as one:
        store.calls.clear()
        asked = exchange(SIZE)
        await one.reserve(asked)
        assert store.calls == []
        await one.settle(asked, Usage(50, 7))
        (entry,) = await one.store.entries(0, NOW + 1)
        assert entry.cost == 57 * DOLLAR


async def test_without_rules_a_durable_ledger_bills_what_a_crash_left() -> None:
    async with budgeting() as one:
        asked = exchange(SIZE)
        await one.reserve(asked)
        await one.store.expire(NOW + 61)
        (entry,) = await one.store.entries(0, NOW + 1)
        assert (entry.ending, entry.estimated, entry.key_id) == ("lost", True, "key-1")
        assert entry.cost > 0
        await one.settle(asked, Usage(50, 7))
        (entry,) = await one.store.entries(0, NOW + 1)
        assert (entry.ending, entry.estimated, entry.cost) == ("completed", False, 57 * DOLLAR)


async def test_a_budget_cannot_hold_where_the_price_is_not_known() -> None:
    async with budgeting(TOTAL, price=None) as one:
        with pytest.raises(Forbidden, match="Add it to `stratiform.prices`") as caught:
            await one.reserve(exchange(SIZE))
        assert caught.value.code == "model_price_unknown"
        await one.reserve(exchange(0), limit=None, kind=BillingKind.FREE)
        one.rules.held = [replace(TOTAL, unit="tokens")]
        await one.reserve(exchange(SIZE))


async def test_a_path_without_a_prompt_is_refused_where_nothing_is_left() -> None:
    async with budgeting(replace(TOTAL, hard=MOST)) as one:
        await one.settle(await reserved(one, exchange(SIZE)), Usage(160, 0))
        with pytest.raises(BudgetExceeded):
            await one.reserve(exchange(0))


async def test_what_costs_more_than_was_expected_at_most_is_counted() -> None:
    async with budgeting(TOTAL) as one:
        asked = exchange(SIZE)
        await one.reserve(asked, limit=None)
        await one.settle(asked, Usage(80, 500))
        assert one.sample("budget_overrun_usd_total", team="red") == 580 - 165


async def test_a_soft_limit_refuses_nobody_and_says_so() -> None:
    soft = replace(TOTAL, hard=None, soft=600 * DOLLAR)
    async with budgeting(soft) as one:
        first, second = exchange(SIZE), exchange(SIZE)
        await one.reserve(first, limit=1)
        assert first.reservation.notice == ""
        await one.settle(first, Usage(590, 0))
        await one.reserve(second, limit=1)
        assert second.reservation.notice == "total; spent=$590.00; soft=$600.00"
        assert one.sample("soft_limits_total", team="red") == 1


CALL = MOST + 10 * DOLLAR
"""The most that one call costs."""


async def test_a_further_call_is_set_aside_beside_what_the_calls_before_it_have_spent() -> None:
    async with budgeting(TOTAL) as one:
        asked = exchange(SIZE)
        await one.reserve(asked, limit=10)
        assert await one.reservations.extend(asked, Settlement(cost_usd=0.0))
        assert await spent(one) == (0, CALL), "what is set aside covers one call"
        assert await one.reservations.extend(asked, Settlement(Usage(1, 0), 20.0))
        assert await spent(one) == (0, CALL + 20 * DOLLAR)
        assert await one.reservations.extend(asked, Settlement(Usage(1, 0), 30.0), further_tokens=4)
        assert await spent(one) == (0, CALL + 30 * DOLLAR + 4 * 2 * DOLLAR)
        await one.settle(asked, Usage(50, 7))
        assert await spent(one) == (57 * DOLLAR, 0)


async def test_a_further_call_that_does_not_fit_leaves_what_was_set_aside() -> None:
    for rule in (replace(TOTAL, hard=CALL + 5 * DOLLAR), replace(TOTAL, unit="tokens", hard=SIZE + 60)):
        async with budgeting(rule) as one:
            asked = exchange(SIZE)
            await one.reserve(asked, limit=10)
            before = await spent(one)
            assert not await one.reservations.extend(asked, Settlement(Usage(300, 0), 10.0))
            assert await spent(one) == before
            await one.settle(asked, Usage(3, 0))
            assert (await spent(one))[1] == 0


async def test_what_was_set_aside_later_is_billed_where_its_worker_dies() -> None:
    async with budgeting(TOTAL) as one:
        asked = exchange(SIZE)
        await one.reserve(asked, limit=10)
        assert await one.reservations.extend(asked, Settlement(Usage(1, 0), 20.0))
        await one.store.expire(NOW + 1e6)
        assert await spent(one) == (CALL + 20 * DOLLAR, 0)
        entries = await one.store.entries(0, NOW + 1)
        assert sorted(entry.cost for entry in entries) == [20 * DOLLAR, CALL]


async def test_without_a_hard_limit_nothing_more_is_set_aside() -> None:
    for rules in ((), (replace(TOTAL, hard=None),)):
        async with budgeting(*rules) as one:
            asked = exchange(SIZE)
            await one.reserve(asked, limit=10)
            before = await spent(one)
            assert await one.reservations.extend(asked, Settlement(Usage(1, 0), 20.0))
            assert await spent(one) == before


class ByModel(FixedRules):
    """A budget of each of these models by its name, beside the limits that hold for all."""

    def __init__(self, limits: Mapping[str, int], *held: Rule) -> None:
        super().__init__(held)
        self.limits = limits

    def rules(self, principal: Principal, *deployments: Deployment) -> Sequence[Rule]:
        names = [one.name for one in deployments if one.name in self.limits]
        own = replace(TOTAL, id="own")
        return [*self.held, *(replace(own, hard=self.limits[name], whom=name, models=name) for name in names)]


def deployment(name: str) -> Deployment:
    return replace(MODEL, name=name, model=name)


@for_every(range(40))
def test_a_call_fits_the_budgets_of_its_own_model_whichever_model_was_asked_for(seed: int) -> None:
    """The model of a call may be the one that was asked for, one that the request names beside it, or one that stands
    in for another. Each may have a budget."""
    luck = random.Random(seed)
    limits = {name: luck.choice([CALL // 2, CALL, 3 * CALL]) for name in "abcd" if luck.random() < 0.7}

    async def main() -> None:
        async with budgeting(*luck.choice([(), (TOTAL,)])) as one:
            one.reservations._rules = ByModel(limits, *one.rules.held)  # type: ignore[assignment]
            for _ in range(4):
                first, *further = map(deployment, luck.sample("abcd", luck.randint(1, 2)))
                others = [deployment(name) for name in luck.sample("abcd", 2)]
                asked = exchange(SIZE)
                asked.deployment, asked.requested.further = first, further
                before = {name: await spent(one, f"b:own:{name}:total") for name in limits}
                called: list[str] = []
                with suppress(BudgetExceeded):  # what was called before is settled
                    await one.reserve(asked, limit=10, others=(*others, *further))
                    called += [each.name for each in (first, *further)]
                    for other in (first, *others):
                        await one.reservations.take_turn(asked, other)
                        asked.deployment = other
                        called.append(other.name)
                for name in {*called} & limits.keys():
                    assert (await spent(one, f"b:own:{name}:total"))[1] == CALL, "a call was not set aside"
                was_lost = luck.random() < 0.2
                if called:
                    asked.lost = Settlement(Usage(1, 0), 2.0) if was_lost else Settlement()
                    await one.settle(asked, Usage(50, 7))
                else:
                    await one.reservations.settle(asked)
                for name, limit in limits.items():
                    answering = called if was_lost else [*called[-1:], *(each.name for each in further if called)]
                    cost = 57 * DOLLAR if name in answering else 0
                    assert await spent(one, f"b:own:{name}:total") == (before[name][0] + cost, 0)
                    assert before[name][0] + cost <= limit

    run(main)


async def test_what_was_set_aside_for_a_fallback_that_is_full_is_given_back() -> None:
    async with budgeting() as one:
        one.reservations._rules = ByModel({"b": 9 * CALL})  # type: ignore[assignment]
        full = replace(deployment("b"), id="b#1", rates=RateLimit("", requests=0))
        asked = exchange(SIZE)
        asked.deployment = deployment("a")
        await one.reserve(asked, limit=10, others=(full,))
        with pytest.raises(RateLimited):
            await one.reservations.take_turn(asked, full)
        await one.reservations.settle(asked)
        assert await spent(one, "b:own:b:total") == (0, 0)


async def test_what_was_never_sent_leaves_nothing_and_what_failed_leaves_an_entry() -> None:
    async with budgeting(TOTAL) as one:
        never, failed = exchange(SIZE), exchange(SIZE)
        await one.reserve(never)
        await one.reserve(failed)
        await one.reservations.settle(never)
        await one.settle(failed, None, ExchangeOutcome.BROKEN)
        assert await spent(one) == (0, 0)
        (entry,) = await one.store.entries(0, NOW + 1)
        assert (entry.exchange_id, entry.ending, entry.cost) == (failed.arrival.id, "broken", 0)


async def test_a_client_that_leaves_while_money_is_reserved_holds_none() -> None:
    class Slow(Flaky):
        asked = asyncio.Event()

        async def reserve(self, *args: Any) -> Any:
            answer = await super().reserve(*args)
            self.asked.set()
            await asyncio.sleep(3600)
            return answer

    store = Slow()
    async with budgeting(TOTAL, store=store, timeout_s=30.0) as one:
        task = asyncio.ensure_future(one.reserve(exchange(SIZE)))
        await store.asked.wait()
        assert (await spent(one))[1] == MOST
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while (await spent(one))[1]:
            await asyncio.sleep(0)


async def test_a_client_that_leaves_while_a_notice_is_claimed_holds_no_money() -> None:
    class Claiming(Flaky):
        asked = asyncio.Event()

        async def claim(self, *args: Any) -> bool:
            self.asked.set()
            await asyncio.sleep(3600)
            return True

    store, soft = Claiming(), replace(TOTAL, soft=0, webhook="http://127.0.0.1:1")
    sender = WebhookSender(b"", ManualClock(NOW), Metrics())
    async with budgeting(soft, store=store, timeout_s=30.0, webhooks=sender) as one:
        asked = exchange(SIZE)
        task = asyncio.ensure_future(one.reserve(asked))
        await store.asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await spent(one) == (0, MOST)
        await one.reservations.settle(asked)
        assert await spent(one) == (0, 0)
