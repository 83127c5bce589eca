"""Exchanges that the provider still works on: what is reserved stays, and is billed or settled later."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from proxy.core.account.references import Said
from proxy.core.money.charges import Rule
from proxy.core.response.outcome import Outcome
from proxy.core.response.usage import Usage
from proxy.engine.conclusion import bill_of, owing
from proxy.engine.exchange import ExchangeOutcome, Settlement
from proxy.errors import BudgetExceeded
from proxy.ports import Deployment, Principal
from proxy.spend.reservations import DEFERRED_S
from tests.doubles import ModelList
from tests.money import DOLLAR, MODEL, MOST, NOW, SIZE, TOTAL, FixedRules, Flaky, budgeting, exchange, spent


async def test_what_the_provider_still_works_on_stays_reserved_for_an_hour_and_is_billed_then() -> None:
    async with budgeting(TOTAL, lease_s=60.0) as one:
        asked = exchange(SIZE)
        await one.reserve(asked, limit=10)
        await one.reservations.defer(asked)
        await one.store.expire(NOW + 3590)
        assert await spent(one) == (0, MOST + 10 * DOLLAR)
        await one.store.expire(NOW + 3610)
        (entry,) = await one.store.entries(0, NOW + 1)
        assert (entry.exchange_id, entry.estimated) == (asked.arrival.id, True)
        assert await spent(one) == (entry.cost, 0)
        assert entry.cost > 0


async def test_a_deferred_exchange_is_billed_with_what_it_did_cost_where_that_is_known_in_time() -> None:
    async with budgeting(TOTAL) as one:
        asked = exchange(SIZE)
        await one.reserve(asked, limit=10)
        await one.reservations.defer(asked)
        asked.attempts, asked.ending, asked.settlement = (
            1,
            ExchangeOutcome.COMPLETED,
            Settlement(Usage(50, 7), 57.0),
        )
        await one.reservations.settle_later(asked)
        assert await spent(one) == (57 * DOLLAR, 0)
        await one.store.expire(NOW + 7200)
        (entry,) = await one.store.entries(0, NOW + 1)
        assert (entry.ending, entry.estimated, entry.cost) == ("completed", False, 57 * DOLLAR)


async def test_a_deferred_exchange_is_settled_in_the_budgets_of_all_models_that_it_names() -> None:
    """Its provider may have chosen any of them."""

    class RulesOfModels(FixedRules):
        def rules(self, principal: Principal, deployment: Deployment) -> Sequence[Rule]:
            return [replace(TOTAL, whom=deployment.name)]

    models = ModelList({name: replace(MODEL, name=name, id=name) for name in ("m", "n")})

    async with budgeting() as one:
        one.reservations._rules = RulesOfModels()
        asked = exchange(SIZE)
        asked.deployment, asked.requested.further = models.resolve("m"), [models.resolve("n")]
        await one.reservations.reserve(asked)
        await one.reservations.defer(asked)
        shown = exchange()
        shown.answer.outcome = Outcome(said=Said())
        later = owing(bill_of(asked), shown, models)
        assert later is not None
        later.settlement = Settlement(Usage(50, 7), 57.0)
        await one.reservations.settle_later(later)
        for model in ("m", "n"):
            assert await spent(one, f"b:total:{model}:total") == (57 * DOLLAR, 0)


async def test_an_exchange_that_is_deferred_while_the_store_is_away_is_billed_at_once(tmp_path: Path) -> None:
    store = Flaky()
    async with budgeting(TOTAL, store=store, spool=tmp_path, retry_s=0.01) as one:
        asked = exchange(SIZE)
        await one.reserve(asked, limit=10)
        store.is_out = True
        await one.reservations.defer(asked)
        store.is_out = False
        while not await store.entries(0, NOW + 1):
            await asyncio.sleep(0.005)
        (entry,) = await store.entries(0, NOW + 1)
        assert (entry.ending, entry.estimated, entry.cost > 0) == ("deferred", True, True)
        assert await spent(one) == (entry.cost, 0)


async def test_what_was_reserved_for_nobody_is_not_deferred() -> None:
    async with budgeting(TOTAL) as one:
        await one.reservations.defer(exchange(SIZE))
        assert await spent(one) == (0, 0)


async def test_a_deferred_estimate_is_the_only_one_of_its_limit_until_it_is_billed() -> None:
    body = b'{"model":"m","messages":[{"role":"user","content":"%b"}]}' % (b"word " * 800)

    for is_known in (True, False):
        async with budgeting(replace(TOTAL, hard=7000 * DOLLAR)) as one:
            first, second = (exchange(len(body), sent=((body, 0),)) for _ in range(2))
            await one.reserve(first)
            assert first.reservation.estimated
            await one.reservations.defer(first)
            with pytest.raises(BudgetExceeded):
                await one.reserve(second)
            await one.settle(second)
            if is_known:
                first.attempts, first.ending, first.settlement = 1, ExchangeOutcome.COMPLETED, Settlement()
                await one.reservations.settle_later(first)
            else:
                await one.store.expire(NOW + DEFERRED_S + 1)
            await one.reserve(exchange(len(body), NOW + (0 if is_known else DEFERRED_S + 1), sent=((body, 0),)))
