"""What is set aside beside a reservation, for further calls of an exchange."""

import random
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import pytest

from proxy.core.money.charges import Rule
from proxy.core.response.usage import Usage
from proxy.engine.exchange import Settlement
from proxy.errors import BudgetExceeded, RateLimited
from proxy.ports import Deployment, Principal, RateLimit
from tests.examples import for_every
from tests.money import DOLLAR, MODEL, MOST, NOW, SIZE, TOTAL, FixedRules, budgeting, exchange, run, spent

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

    def rules(self, principal: Principal, deployment: Deployment) -> Sequence[Rule]:
        name = deployment.name
        own = [replace(TOTAL, id="own", hard=self.limits[name], whom=name)] if name in self.limits else []
        return [*self.held, *own]


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
                if called:
                    await one.settle(asked, Usage(50, 7))
                else:
                    await one.reservations.settle(asked)
                for name, limit in limits.items():
                    cost = 57 * DOLLAR if name in called else 0
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
