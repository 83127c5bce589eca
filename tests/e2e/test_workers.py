"""Several workers over one Redis: budgets to the last cent, workers that are killed, a store that fails under load."""

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from proxy.core.money.bound import InputBound
from proxy.storage.port import Balance, Charge, LedgerEntry, SpendQuery
from proxy.storage.redis import RedisStore
from tests.doubles import serving
from tests.e2e.fleet import INPUT, OUTPUT, TEAM, Crowd, Fleet, Provider, configuration, fleet, metric, until
from tests.redis_server import RedisServer, ask, redis_server

pytestmark = pytest.mark.slow

# The most that is reserved for one call of the crowd, whose bodies are shorter than this.
RESERVATION = InputBound(text=950).tokens(None) * INPUT + 20 * OUTPUT


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path / "redis", "--appendfsync", "everysec") as server:
        yield server


def read(url: str, *, at: float | None = None) -> tuple[list[LedgerEntry], int, int]:
    """The ledger; and of the team's budget what is spent and reserved, after reservations that expire by ``at``."""

    async def main() -> tuple[list[LedgerEntry], int, int]:
        store = RedisStore(url, timeout_s=10.0)
        try:
            await store.expire(at or time.time())
            entries: list[LedgerEntry] = []
            while page := await store.entries(
                entries[-1].at if entries else 0.0, 1e12, entries[-1].exchange_id if entries else ""
            ):
                entries += page
            account = next((name for name in accounts(url) if name.startswith("b:")), "")
            found = await store.balance(TEAM, Charge(account, 0), time.time()) if account else Balance("", 0, 0)
            (row,) = await store.spend(SpendQuery(0.0, 1e12)) if entries else (None,)
            assert row is None or row.cost == sum(entry.cost for entry in entries)
            return entries, found.spent, found.reserved
        finally:
            await store.aclose()

    return asyncio.run(main())


def accounts(url: str) -> list[str]:
    port = int(url.rpartition(":")[2].partition("/")[0])
    words = ask(port, "HKEYS", f"stratiform:{{t:{TEAM}}}:accounts").split("\r\n")
    return sorted({word.partition(":")[2] for word in words if word[:2] in ("s:", "r:")})


@contextmanager
def meanwhile(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Something that goes on beside the load, and whose failure is the test's."""
    stop, failures = threading.Event(), list[BaseException]()

    def run() -> None:
        try:
            work(stop)
        except BaseException as error:  # noqa: BLE001 - raised again in the test's own thread
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    if failures:
        raise failures[0]


def test_a_hard_budget_holds_on_four_workers_to_the_last_cent(tmp_path: Path, redis: RedisServer) -> None:
    clients, calls = 200, 50
    average = (50 + 49) * 5 // 4 * INPUT + 20 * OUTPUT
    limit = clients * calls // 2 * average
    provider = Provider()
    with serving(provider) as upstream:
        config = configuration(upstream, redis.url, budgets=[{"usd": limit / 1e9}])
        with fleet(tmp_path / "proxy", config, workers=4) as proxy:
            crowd = Crowd()
            asyncio.run(crowd.send(proxy.url, clients, calls))
            # While some ran, others were refused for what those had reserved: demand lasts until nobody runs.
            alone = Crowd()
            asyncio.run(alone.send(proxy.url, 1, clients * calls, stop=lambda: alone.refused > 0))
            until(lambda: metric(proxy.url, "spool_pending") == 0)
    entries, spent, reserved = read(redis.url)
    others = {status: text for status, text in crowd.texts.items() if status not in (200, 429)}
    assert not others
    assert (crowd.broken, alone.refused) == (0, 1)
    assert crowd.refused > 1000, "demand must last"
    assert sum(entry.cost for entry in entries) == spent == provider.nanos
    assert reserved == 0
    assert limit - RESERVATION < spent <= limit
    assert sorted(entry.exchange_id for entry in entries if entry.cost) == sorted(crowd.complete + alone.complete)


def test_workers_may_be_killed_under_load(tmp_path: Path, redis: RedisServer) -> None:
    provider, chance = Provider(delay_s=0.01), random.Random(4)
    kills = 50

    def kill(proxy: Fleet, crowd: Crowd, over: threading.Event) -> None:
        try:
            # All connections may lead to one worker, and the other one's kills are felt by nobody.
            for number in range(1, 20 * kills):
                time.sleep(chance.uniform(0.05, 0.4))
                until(lambda: len(proxy.workers()) == 2)
                proxy.kill_worker(chance.randrange(2))
                if number >= kills and crowd.broken and len(crowd.complete) > 100:
                    return
        finally:
            over.set()

    with serving(provider) as upstream:
        config = configuration(upstream, redis.url, budgets=[{"usd": 1000}])
        with fleet(tmp_path / "proxy", config, workers=2) as proxy:
            crowd, over = Crowd(), threading.Event()
            with meanwhile(lambda _: kill(proxy, crowd, over)):
                asyncio.run(crowd.send(proxy.url, 20, 1_000_000, stop=over.is_set))
            assert proxy.process.poll() is None
    entries, spent, reserved = read(redis.url, at=time.time() + 3600)
    names = [entry.exchange_id for entry in entries]
    assert len(names) == len(set(names))
    assert not set(crowd.complete) - set(names), "an answer that a client has is in the ledger"
    assert set(crowd.statuses) == {200}, crowd.texts
    settled = {entry.exchange_id for entry in entries if not entry.estimated}
    assert not set(crowd.complete) - settled, "and with what it cost"
    assert crowd.broken > 0, "kills were felt"
    assert reserved == 0, "no budget is stuck"
    assert spent == sum(entry.cost for entry in entries) >= provider.nanos


def _restarted(redis: RedisServer) -> None:
    redis.kill()
    redis.start()


def _paused(redis: RedisServer) -> None:
    redis.pause()
    time.sleep(10)
    redis.resume()


def _cut_off(redis: RedisServer) -> None:
    redis.kill()
    time.sleep(5)
    redis.start()


@pytest.mark.parametrize("trouble", [_restarted, _paused, _cut_off])
def test_a_store_in_trouble_fails_no_request_and_loses_no_money(
    tmp_path: Path, redis: RedisServer, trouble: Callable[[RedisServer], None]
) -> None:
    provider, over = Provider(delay_s=0.02), threading.Event()

    def disturb(crowd: Crowd) -> None:
        try:
            until(lambda: len(crowd.complete) > 50)
            trouble(redis)
            served = len(crowd.complete)
            until(lambda: len(crowd.complete) > served + 50)
        finally:
            redis.resume()
            over.set()

    with serving(provider) as upstream:
        config = configuration(upstream, redis.url, budgets=[{"usd": 1000}])
        with fleet(tmp_path / "proxy", config, workers=2) as proxy:
            crowd = Crowd()
            with meanwhile(lambda _: disturb(crowd)):
                asyncio.run(crowd.send(proxy.url, 20, 100_000, stop=over.is_set))
            until(lambda: metric(proxy.url, "spool_pending") == 0)
    entries, spent, reserved = read(redis.url, at=time.time() + 3600)
    assert (set(crowd.statuses), crowd.broken) == ({200}, 0), crowd.texts
    assert len(crowd.complete) == provider.served > 100
    assert sorted(entry.exchange_id for entry in entries) == sorted(crowd.complete)
    assert not any(entry.estimated for entry in entries)
    assert sum(entry.cost for entry in entries) == spent == provider.nanos
    assert reserved == 0
