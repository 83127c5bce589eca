"""The background of the accounts: renewing, expiring, forgetting, coming back."""

import asyncio
import itertools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from proxy.engine.exchange import Principal
from proxy.engine.telemetry.metrics import Metrics
from proxy.kit.errors import BudgetExceeded, StoreError
from proxy.models.charges import Rule
from proxy.protocol.response.usage import Usage
from proxy.storage import Balance, Charge, LedgerEntry, PutOff, Reserve, Settle
from proxy.storage.sqlite import Spool
from proxy.teams.store_client import StoreClient, StoreTimes
from tests.doubles import ManualClock
from tests.money import NOW, RED, SIZE, Flaky, budgeting, exchange
from tests.waiting import until_async

BLUE = Principal("s", "blue")
RULE = Rule("total", "the budget", hard=10**15)
DOLLAR = 10**9
# The most that an exchange of 100 bytes can cost.
MOST = 160 * DOLLAR
ACCOUNT = "b:total:-:total"


async def test_what_runs_is_renewed_and_what_ended_is_not() -> None:
    async with budgeting(RULE, lease_s=0.03) as one:
        running, ended = exchange(SIZE), exchange(SIZE)
        await one.reserve(running)
        await one.reserve(ended)
        await one.settle(ended, Usage(1, 1))
        for step in range(1, 5):
            one.clock.set(NOW + 0.02 * step)
            one.store.calls.clear()
            await until_async(lambda: one.store.calls.count("renew") >= 2)
        assert len(await one.store.entries(0, NOW + 100)) == 1, "nothing was billed for the one that runs"
        await one.settle(running, Usage(1, 1))
        one.store.calls.clear()
        await until_async(lambda: one.store.calls.count("expire") >= 2)
        assert "renew" not in one.store.calls


async def test_what_a_dead_worker_left_is_billed() -> None:
    store = Flaky()
    charges = [Charge(ACCOUNT, 70)]
    await store.reserve(Reserve("dead", "red", charges, NOW + 5, LedgerEntry("dead", NOW, "red", cost=70)), NOW)
    async with budgeting(RULE, store=store, lease_s=0.03) as one:
        one.clock.set(NOW + 6)
        await until_async(lambda: one.sample("reservations_expired_total") == 1)
        balance = await store.balance("red", Charge(ACCOUNT, 0), NOW)
        assert (balance.spent, balance.reserved) == (70, 0)
        (entry,) = await store.entries(0, NOW + 1)
        assert entry.estimated


async def test_old_entries_are_forgotten() -> None:
    store = Flaky()
    for age in (100.0, 10.0):
        await store.settle(Settle(LedgerEntry(f"{age}", NOW - age, "red"), ()), NOW)
    async with budgeting(store=store, keep_entries_s=50.0):
        assert [entry.exchange_id for entry in await store.entries(0, NOW + 1)] == ["10.0"]


async def test_a_store_that_hangs_is_away_after_the_timeout_and_asked_no_more(tmp_path: Path) -> None:
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

    store = Hanging()
    async with budgeting(RULE, store=store, spool=tmp_path, timeout_s=0.02) as one:
        first, second = exchange(SIZE), exchange(SIZE)
        await one.reserve(first)
        store.hangs = True
        await one.settle(first, Usage(1, 1))
        assert one.store_client.is_away
        store.calls.clear()
        await one.reserve(second)
        await one.settle(second, Usage(1, 1))
        assert not {"reserve", "settle"} & set(store.calls)
        store.hangs = False
        await one.in_step()
        assert len(await store.entries(0, NOW + 1)) == 2


class Held(Flaky):
    """A store that answers, and takes what was put off only when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.let = asyncio.Event()
        self.refused: set[str] = set()

    async def carry_out(self, team: str, calls: Sequence[PutOff], now: float) -> None:
        if self.is_out:
            raise StoreError("gone fishing")
        await self.let.wait()
        await super().carry_out(team, calls, now)

    async def settle(self, end: Settle, now: float) -> Sequence[Balance]:
        if self.is_out or end.entry.team in self.refused:
            raise StoreError("WRONGTYPE")
        return await super().settle(end, now)


async def test_reservations_are_made_while_the_backlog_is_replayed_and_it_counts(tmp_path: Path) -> None:
    limited = Rule("total", "the budget", hard=MOST * 3)

    store = Held()
    async with budgeting(limited, store=store, spool=tmp_path, timeout_s=60.0) as one:
        store.is_out = True
        for _ in range(2):  # sent while the store is away, and as dear as can be
            sent = exchange(SIZE)
            await one.reserve(sent)
            await one.settle(sent, Usage(160, 0))
        store.is_out = False
        await until_async(lambda: not one.store_client.is_away and one.store_client.pending)
        assert one.sample("store_away") == 0
        fits = exchange(SIZE)
        await one.reserve(fits)
        with pytest.raises(BudgetExceeded, match="spent"):
            await one.reserve(exchange(SIZE))
        store.calls.clear()
        await one.settle(fits, Usage(1, 0))
        assert "settle" in store.calls or one.store_client.pending == 2, "new settlements are not put off"
        assert one.store_client.pending == 2
        store.let.set()
        await one.in_step()
        balance = await store.balance("red", Charge(ACCOUNT, 0), NOW)
        assert (balance.spent, balance.reserved) == (2 * MOST + DOLLAR, 0)


async def test_a_call_that_fails_while_the_store_answers_fails_alone(tmp_path: Path) -> None:
    store = Held()
    store.refused = {"red"}
    async with budgeting(RULE, store=store, spool=tmp_path) as one:
        for who in (RED, BLUE):
            asked = exchange(100, who=who)
            await one.reserve(asked)
            await one.settle(asked, Usage(1, 1))
        assert not one.store_client.is_away
        assert one.store_client.pending
        assert one.sample("store_away") == 0
        assert [entry.team for entry in await store.entries(0, NOW + 1)] == ["blue"]
        store.refused = set()
        store.let.set()
        await one.in_step()
        assert len(await store.entries(0, NOW + 1)) == 2
        assert one.store_client.troubles == {}


async def test_a_reservation_whose_client_has_left_before_the_store_answered_is_given_back() -> None:
    class Slow(Flaky):
        made = asyncio.Event()

        async def reserve(self, ask: Reserve, now: float) -> Any:
            await super().reserve(ask, now)
            self.made.set()
            await asyncio.Event().wait()

    store = Slow()
    async with budgeting(RULE, store=store, timeout_s=60.0) as one:
        asking = asyncio.ensure_future(one.reserve(exchange(SIZE)))
        await store.made.wait()
        assert (await store.balance("red", Charge(ACCOUNT, 0), NOW)).reserved > 0
        asking.cancel()
        await asyncio.wait([asking])
        await until_async(lambda: "carry_out" in store.calls)
        await one.in_step()
        assert (await store.balance("red", Charge(ACCOUNT, 0), NOW)).reserved == 0


class Told(Spool):
    """A spool that tells when it is asked to keep a call."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.asked = asyncio.Event()

    async def add(self, calls: Sequence[PutOff], *, is_last: bool = False) -> None:
        self.asked.set()
        await super().add(calls, is_last=is_last)


async def test_a_spool_counts_its_calls_although_clients_leave_while_they_are_written(tmp_path: Path) -> None:
    store, spool = Flaky(), Told(tmp_path)
    one = StoreClient(store, ManualClock(NOW), Metrics(), [spool], StoreTimes(retry_s=0.01))
    await one.start()
    store.is_out = True
    for count in (1, 2):  # the first call opens the file
        ask = Reserve(f"sx-{count}", "red", [], NOW + 60, LedgerEntry(f"sx-{count}", NOW, "red"))
        assert await one.reserve(ask) is None
        spool.asked.clear()
        intending = asyncio.ensure_future(one.intend(ask))
        await spool.asked.wait()
        intending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await intending
        await one.release(ask.exchange_id, "red")
        assert one.pending == count
    store.is_out = False
    await until_async(lambda: one.is_in_step)
    await one.aclose()
    assert await store.entries(0, NOW + 1) == []


async def test_a_reservation_whose_client_leaves_while_it_is_given_back_is_given_back() -> None:
    async with budgeting(RULE) as one:
        asked, carry_out, asking, go = exchange(SIZE), one.store.carry_out, asyncio.Event(), asyncio.Event()
        await one.reserve(asked)

        async def slowly(*given: Any) -> None:
            asking.set()
            await go.wait()
            await carry_out(*given)

        one.store.carry_out = slowly
        releasing = asyncio.ensure_future(one.store_client.release(asked.arrival.id, "red"))
        await asking.wait()
        releasing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await releasing
        go.set()
    balance = await one.store.balance("red", Charge(ACCOUNT, 0), NOW)
    assert (balance.spent, balance.reserved) == (0, 0)


async def test_a_store_that_goes_on_refusing_is_asked_more_and_more_rarely(tmp_path: Path) -> None:
    retry_s, times = 0.01, list[float]()

    class Refusing(Held):
        async def carry_out(self, team: str, calls: Sequence[PutOff], now: float) -> None:
            times.append(asyncio.get_running_loop().time())
            raise StoreError("WRONGTYPE")

    store = Refusing()
    store.refused = {"red"}
    async with budgeting(RULE, store=store, spool=tmp_path, retry_s=retry_s) as one:
        asked = exchange(SIZE)
        await one.reserve(asked)
        await one.settle(asked, Usage(1, 1))
        await until_async(lambda: len(times) >= 5)
    pauses = [after - before for before, after in itertools.pairwise(times[:5])]
    assert all(pause >= 0.9 * retry_s * 2**number for number, pause in enumerate(pauses, 1)), pauses


class RefusingBalances(Flaky):
    """A store that answers, but refuses to tell balances as long as it has a reason."""

    def __init__(self, reason: str = "WRONGTYPE") -> None:
        super().__init__()
        self.reason = reason

    async def balance(self, team: str, charge: Charge, now: float) -> Balance:
        if self.reason:
            raise StoreError(self.reason)
        return await super().balance(team, charge, now)


async def test_a_trouble_is_over_with_the_next_answer() -> None:
    store = RefusingBalances()
    async with budgeting(RULE, store=store) as one:
        assert await one.store_client.balance("red", Charge(ACCOUNT, 0)) is None
        assert one.store_client.troubles == {"store": "WRONGTYPE"}
        assert one.store_client.is_in_step
        store.reason = ""
        assert await one.store_client.balance("red", Charge(ACCOUNT, 0)) is not None
        assert one.store_client.troubles == {}


async def test_a_trouble_is_logged_once_for_each_reason(caplog: pytest.LogCaptureFixture) -> None:
    store = RefusingBalances("WRONGTYPE")
    async with budgeting(RULE, store=store) as one:
        for reason in ("WRONGTYPE", "WRONGTYPE", "READONLY"):
            store.reason = reason
            await one.store_client.balance("red", Charge(ACCOUNT, 0))
    told = [line for line in caplog.messages if "although the store answers" in line]
    assert [line.rsplit(" ", 1)[1] for line in told] == ["WRONGTYPE", "READONLY"]


async def test_a_store_that_answers_no_ping_is_asked_nothing_twice(tmp_path: Path) -> None:
    async with budgeting(RULE, spool=tmp_path, retry_s=3600.0) as one:
        held = [exchange(SIZE) for _ in range(4)]
        for each in held:
            await one.reserve(each)
        one.store.is_out = True
        one.store.calls.clear()
        await asyncio.gather(*(one.settle(each, Usage(1, 1)) for each in held))
        # Those who fail at once share one ping.
        assert sorted(one.store.calls) == ["ping"] + ["settle"] * 4
        assert one.store_client.is_away
        assert one.store_client.pending == 4
        assert await one.store_client.balance("red", Charge(ACCOUNT, 0)) is None
        assert not await one.store_client.claim("red", "notice", 60.0)
        assert len(one.store.calls) == 5


async def test_a_store_that_goes_away_between_requests_is_found_by_the_renewal_and_found_again(tmp_path: Path) -> None:
    store = Flaky()
    async with budgeting(RULE, store=store, spool=tmp_path, lease_s=0.03) as one:
        await one.reserve(exchange(SIZE))
        store.is_out = True
        await until_async(lambda: one.store_client.is_away)
        assert one.store_client.troubles == {"store": "gone fishing"}
        assert one.sample("store_away") == 1
        store.is_out = False
        await one.in_step()
        assert one.store_client.troubles == {}
        assert one.sample("store_away") == 0


async def test_reservations_are_renewed_as_soon_as_the_store_is_back(tmp_path: Path) -> None:
    async with budgeting(RULE, spool=tmp_path, lease_s=36_000.0) as one:
        running, ended = exchange(SIZE), exchange(SIZE)
        await one.reserve(running)
        await one.reserve(ended)
        one.store.is_out = True
        await one.settle(ended, Usage(1, 1))
        assert one.store_client.is_away
        one.store.calls.clear()
        one.store.is_out = False
        await until_async(lambda: "renew" in one.store.calls)


async def test_a_worker_that_is_late_itself_does_not_take_its_store_for_dead(tmp_path: Path) -> None:
    timeout_s = 0.2

    class Busy(Flaky):
        async def settle(self, end: Settle, now: float) -> Any:
            for _ in range(5):  # the answer is there, and the loop comes to it only now and then
                await asyncio.sleep(0)
                time.sleep(timeout_s / 2)
            return await super().settle(end, now)

    async with budgeting(RULE, store=Busy(), spool=tmp_path, timeout_s=timeout_s) as one:
        asked = exchange(SIZE)
        await one.reserve(asked)
        await one.settle(asked, Usage(1, 1))
        assert one.store_client.is_in_step
        assert one.sample("store_errors_total", operation="settle") == 0
