"""Reservations, settlements and soft limits."""

import asyncio
from dataclasses import replace

import pytest

from proxy.core.caches.cache import Bill
from proxy.core.modes import Mode
from proxy.core.money.charges import Rule
from proxy.core.planner.plan import Plan
from proxy.core.request.demand import Kind
from proxy.core.response.usage import Usage
from proxy.errors import BudgetExceeded, Forbidden
from proxy.ports import Deployment, Transport
from proxy.storage.port import Charge, LedgerEntry
from tests.money import DOLLAR, MODEL, MOST, NOW, SIZE, TOTAL, Flaky, budgeting, exchange, reserved, spent


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
        assert (entry.exchange_id, entry.ending, entry.estimated, entry.key_id) == (
            asked.arrival.id,
            "lost",
            True,
            "key-1",
        )
        assert entry.cost > 0
        await one.settle(asked, Usage(50, 7))
        (entry,) = await one.store.entries(0, NOW + 1)
        assert (entry.ending, entry.estimated, entry.cost) == ("completed", False, 57 * DOLLAR)


async def test_a_budget_cannot_hold_where_the_price_is_not_known() -> None:
    async with budgeting(TOTAL, price=None) as one:
        with pytest.raises(Forbidden, match="Add it to `stratiform.prices`") as caught:
            await one.reserve(exchange(SIZE))
        assert caught.value.code == "model_price_unknown"
        await one.reserve(exchange(0), limit=None, kind=Kind.FREE)
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
