"""What is set aside beside a reservation, for further calls of an exchange."""

from dataclasses import replace

from proxy.core.response.usage import Usage
from proxy.engine.exchange import Settlement
from tests.money import DOLLAR, MOST, NOW, SIZE, TOTAL, budgeting, exchange, run, spent

CALL = MOST + 10 * DOLLAR
"""The most that one call costs."""


def test_a_further_call_is_set_aside_beside_what_the_calls_before_it_have_spent() -> None:
    async def main() -> None:
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

    run(main)


def test_a_further_call_that_does_not_fit_leaves_what_was_set_aside() -> None:
    async def main() -> None:
        for rule in (replace(TOTAL, hard=CALL + 5 * DOLLAR), replace(TOTAL, unit="tokens", hard=SIZE + 60)):
            async with budgeting(rule) as one:
                asked = exchange(SIZE)
                await one.reserve(asked, limit=10)
                before = await spent(one)
                assert not await one.reservations.extend(asked, Settlement(Usage(300, 0), 10.0))
                assert await spent(one) == before
                await one.settle(asked, Usage(3, 0))
                assert (await spent(one))[1] == 0

    run(main)


def test_what_was_set_aside_later_is_billed_where_its_worker_dies() -> None:
    async def main() -> None:
        async with budgeting(TOTAL) as one:
            asked = exchange(SIZE)
            await one.reserve(asked, limit=10)
            assert await one.reservations.extend(asked, Settlement(Usage(1, 0), 20.0))
            await one.store.expire(NOW + 1e6)
            assert await spent(one) == (CALL + 20 * DOLLAR, 0)
            entries = await one.store.entries(0, NOW + 1)
            assert sorted(entry.cost for entry in entries) == [20 * DOLLAR, CALL]

    run(main)


def test_without_a_hard_limit_nothing_more_is_set_aside() -> None:
    async def main() -> None:
        for rules in ((), (replace(TOTAL, hard=None),)):
            async with budgeting(*rules) as one:
                asked = exchange(SIZE)
                await one.reserve(asked, limit=10)
                before = await spent(one)
                assert await one.reservations.extend(asked, Settlement(Usage(1, 0), 20.0))
                assert await spent(one) == before

    run(main)
