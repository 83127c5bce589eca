"""Exchanges that end early: what was never sent, what failed, and clients that leave."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from proxy.engine.exchange import ExchangeOutcome
from proxy.spend.alerts import WebhookSender
from proxy.telemetry.metrics import Metrics
from tests.doubles import ManualClock
from tests.money import MOST, NOW, SIZE, TOTAL, Flaky, budgeting, exchange, spent


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

    store = Slow()
    real = store.reserve

    async def slowly(*args: Any) -> Any:
        answer = await real(*args)
        store.asked.set()
        await asyncio.sleep(3600)
        return answer

    async with budgeting(TOTAL, store=store, timeout_s=30.0) as one:
        store.__dict__["reserve"] = slowly
        one.store_client._store = _Patched(store, slowly)  # type: ignore[assignment]
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


class _Patched:
    """A store of which one method is another."""

    def __init__(self, store: Flaky, reserve: Any) -> None:
        self._store = store
        self.reserve = reserve

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)
