"""The background of the accounts: renewing, expiring, forgetting, coming back."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from proxy.core.budget import Rule
from proxy.core.usage import Usage
from proxy.store import Charge, Entry, Reserve, Settle
from tests.money import NOW, Flaky, desk, exchange

RULE = Rule("total", "the budget", hard=10**15)
ACCOUNT = "b:total:-:total"


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


async def until(condition: Callable[[], Any], seconds: float = 5.0) -> None:
    """Wait until it is so."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.002)


def test_what_runs_is_renewed_and_what_ended_is_not() -> None:
    async def main() -> None:
        store = Flaky()
        async with desk(RULE, store=store, lease_s=0.03) as one:
            running, ended = exchange(100), exchange(100)
            await one.reserve(running)
            await one.reserve(ended)
            await one.settle(ended, Usage(1, 1))
            for step in range(1, 5):
                one.clock.set(NOW + 0.02 * step)
                store.calls.clear()
                await until(lambda: store.calls.count("renew") >= 2)
            assert len(await store.entries(0, NOW + 100)) == 1, "nothing was billed for the one that runs"
            await one.settle(running, Usage(1, 1))
            store.calls.clear()
            await until(lambda: store.calls.count("expire") >= 2)
            assert "renew" not in store.calls

    run(main)


def test_what_a_dead_worker_left_is_billed() -> None:
    async def main() -> None:
        store = Flaky()
        charges = [Charge(ACCOUNT, 70)]
        await store.reserve(Reserve("dead", "red", charges, NOW + 5, Entry("dead", NOW, "red", cost=70)), NOW)
        async with desk(RULE, store=store, lease_s=0.03) as one:
            one.clock.set(NOW + 6)
            await until(lambda: one.sample("reservations_expired_total") == 1)
            (balance,) = await store.balances("red", [ACCOUNT], NOW)
            assert (balance.spent, balance.reserved) == (70, 0)
            (entry,) = await store.entries(0, NOW + 1)
            assert entry.estimated

    run(main)


def test_old_entries_are_forgotten() -> None:
    async def main() -> None:
        store = Flaky()
        for age in (100.0, 10.0):
            await store.settle(Settle(Entry(f"{age}", NOW - age, "red"), ()), NOW)
        async with desk(store=store, keep_entries_s=50.0):
            assert [entry.exchange_id for entry in await store.entries(0, NOW + 1)] == ["10.0"]

    run(main)


def test_a_store_that_hangs_is_away_after_the_timeout_and_asked_no_more(tmp_path: Path) -> None:
    class Hanging(Flaky):
        hangs = False

        async def _hang(self) -> None:
            if self.hangs:
                await asyncio.sleep(3600)

        async def settle(self, end: Settle, now: float) -> Any:
            await self._hang()
            return await super().settle(end, now)

        async def ping(self) -> None:
            await self._hang()

    async def main() -> None:
        store = Hanging()
        async with desk(RULE, store=store, spool=tmp_path, timeout_s=0.02) as one:
            first, second = exchange(100), exchange(100)
            await one.reserve(first)
            store.hangs = True
            await one.settle(first, Usage(1, 1))
            assert one.books.is_away
            store.calls.clear()
            await one.reserve(second)
            await one.settle(second, Usage(1, 1))
            assert not {"reserve", "settle"} & set(store.calls)
            store.hangs = False
            await until(lambda: not one.books.is_away)
            assert len(await store.entries(0, NOW + 1)) == 2

    run(main)


def test_where_even_the_spool_fails_settlements_wait_in_memory(tmp_path: Path) -> None:
    async def main() -> None:
        (tmp_path / "file").write_text("x")
        store = Flaky()
        async with desk(RULE, store=store, spool=tmp_path / "file") as one:
            asked = exchange(100)
            await one.reserve(asked)
            store.is_out = True
            await one.settle(asked, Usage(1, 1))
            assert one.books.pending == 1
            assert one.sample("store_errors_total", operation="spool") == 1
            store.is_out = False
            await until(lambda: not one.books.is_away)
            assert one.books.pending == 0
            assert len(await store.entries(0, NOW + 1)) == 1

    run(main)


def test_what_is_put_off_at_the_end_is_written_by_the_next_process(tmp_path: Path) -> None:
    async def main() -> None:
        store = Flaky()
        async with desk(RULE, store=store, spool=tmp_path) as one:
            asked = exchange(100)
            await one.reserve(asked)
            store.is_out = True
            await one.settle(asked, Usage(1, 1))
        assert len(list(tmp_path.glob("*.spool"))) == 1
        store.is_out = False
        async with desk(RULE, store=store, spool=tmp_path) as one:
            assert one.sample("spool_replayed_total") == 1
            assert len(await store.entries(0, NOW + 1)) == 1
        assert list(tmp_path.iterdir()) == []

    run(main)
