"""A store that was emptied or exchanged is seen by the first request, and distrusted until an operator accepts it."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from proxy.storage import EPOCH, Charge, Granted, LedgerEntry, Reserve, Store
from proxy.storage.sqlite import MemoryStore, SqliteStore
from proxy.teams import store_client
from proxy.teams.store_client import Epochs
from tests.contract.stores import DURABLE, ENGINES, redis_store
from tests.redis_server import RedisServer

T = 1_700_000_000.0


class Worker:
    """A store and what is known of it. ``told`` is what ``on_change`` was told."""

    def __init__(self, store: Store, file: Path | None = None) -> None:
        self.store = store
        self.told: list[bool] = []
        self.epochs = Epochs(store, file, self.told.append)

    async def begin(self) -> "Worker":
        await self.epochs.start()
        return self

    async def is_trusted(self, name: str, team: str = "red", counters: tuple[str, ...] = ("red:b",)) -> bool:
        """Whether what a request of that name is granted may be gone by."""
        ask = Reserve(name, team, [Charge("b", 1, 100)], T + 60, LedgerEntry(name, T, team))
        granted = await self.store.reserve(ask, T)
        assert isinstance(granted, Granted)
        return await self.epochs.trusts(granted.epoch, counters)


@asynccontextmanager
async def worker(url: str, file: Path | None = None) -> AsyncIterator[Worker]:
    async with redis_store(url) as store:
        yield await Worker(store, file).begin()


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_store_that_begins_empty_is_trusted(engine: str, tmp_path: Path) -> None:
    async with ENGINES[engine](tmp_path) as store:
        one = await Worker(store, tmp_path / "spool" / "epoch").begin()
        assert await one.is_trusted("a")
        assert await one.is_trusted("b", "blue")
        assert one.told == []
        assert one.epochs.trouble == ""


@pytest.mark.parametrize("engine", DURABLE)
async def test_a_restart_of_a_worker_knows_its_store_again(engine: str, tmp_path: Path) -> None:
    async with ENGINES[engine](tmp_path) as store:
        assert await (await Worker(store, tmp_path / "spool" / "epoch").begin()).is_trusted("a")
        again = await Worker(store, tmp_path / "spool" / "epoch").begin()
        assert await again.is_trusted("b")
        assert again.told == []


@pytest.mark.parametrize("loss", [["FLUSHALL"], ["DEL", "stratiform:{t:red}:accounts"]], ids=["all", "counters"])
async def test_an_emptied_redis_is_seen_by_the_first_request_of_every_worker(
    server: RedisServer, loss: list[str]
) -> None:
    """Also one that has evicted only the counters of a team."""

    async with worker(server.url) as one, worker(server.url) as other:
        assert await one.is_trusted("a")
        assert await other.is_trusted("b")
        assert server.call(*loss) in ("+OK", ":1")
        assert not await one.is_trusted("c")
        assert not await other.is_trusted("d")
        assert (one.told, other.told) == ([True], [True])
        async with worker(server.url) as newcomer:
            assert not await newcomer.is_trusted("e")
        # One operator accepts it, somewhere, for all.
        await other.epochs.accept()
        assert await one.is_trusted("f")
        assert await one.is_trusted("g", "blue")
        assert one.told == [True, False]


async def test_a_restored_counter_counts_and_no_other(server: RedisServer) -> None:
    async with worker(server.url) as one, worker(server.url) as other:
        assert await one.is_trusted("a")
        assert server.call("FLUSHALL") == "+OK"
        assert not await one.is_trusted("b")
        await other.epochs.restored("red:b")
        assert await one.is_trusted("c")
        assert not await one.is_trusted("d", counters=("red:b", "red:other"))


async def test_reports_have_what_is_spent_after_the_server_was_emptied(server: RedisServer) -> None:
    async with worker(server.url) as one:
        for name in ("red", "blue"):
            assert await one.is_trusted(name, name)
        assert server.call("FLUSHALL") == "+OK"
        assert not await one.is_trusted("c")
        assert await one.store.expire(T + 61) == 1
        assert [entry.exchange_id for entry in await one.store.entries(0, 2 * T)] == ["c"]
        assert "blue" in server.ask("SMEMBERS", "stratiform:{directory}:active")


async def test_what_was_known_outlives_the_worker_and_is_told_from_a_new_server(
    server: RedisServer, tmp_path: Path
) -> None:
    async with worker(server.url, tmp_path / "spool" / "epoch") as one:
        assert await one.is_trusted("a")
    assert server.call("FLUSHALL") == "+OK"
    async with worker(server.url, tmp_path / "spool" / "epoch") as one:
        assert one.told == [True]
        assert not await one.is_trusted("b")
        await one.epochs.accept()
        assert await one.is_trusted("c")
    async with worker(server.url, tmp_path / "spool" / "epoch") as one:
        assert await one.is_trusted("d")


async def test_a_file_that_was_exchanged_is_distrusted(tmp_path: Path) -> None:
    for name, is_trusted in (("one", True), ("one", True), ("other", False)):
        store = await SqliteStore.open(tmp_path / name)
        assert await (await Worker(store, tmp_path / "spool" / "epoch").begin()).is_trusted("a") is is_trusted
        await store.aclose()


async def test_a_server_that_is_emptied_while_no_request_comes_is_noticed(server: RedisServer) -> None:
    async with worker(server.url) as one:
        assert await one.is_trusted("a")
        assert server.call("FLUSHALL") == "+OK"
        await one.epochs.look()
        assert one.told == [True]
        assert one.epochs.trouble


@pytest.mark.slow
@pytest.mark.parametrize("emptied", [0, 1, 2])
async def test_one_node_of_a_cluster_that_was_emptied_is_seen(cluster: list[RedisServer], emptied: int) -> None:
    """By the first request of a team that was kept there; where no team was, nothing was lost."""

    for node in cluster:
        assert node.call("FLUSHALL") == "+OK"
    teams = [f"team{number:02}" for number in range(12)]
    async with worker(cluster[0].url) as one:
        for team in teams:
            assert await one.is_trusted(f"a{team}", team)
        held = [team for team in teams if team in cluster[emptied].ask("KEYS", "*:accounts")]
        assert cluster[emptied].call("FLUSHALL") == "+OK"
        seen = [team for team in held if not await one.is_trusted(f"b{team}", team)]
        assert seen == held
        await one.epochs.accept()
        for team in teams:
            assert await one.is_trusted(f"c{team}", team)


@pytest.mark.slow
async def test_many_workers_that_meet_a_new_team_at_once_raise_no_alarm(server: RedisServer) -> None:
    async with worker(server.url) as one, worker(server.url) as two, worker(server.url) as three:
        for number in range(20):
            found = await asyncio.gather(
                *(each.is_trusted(f"{number}-{i}", f"t{number}") for i, each in enumerate((one, two, three)))
            )
            assert all(found)


@pytest.mark.slow
async def test_a_store_that_hangs_is_distrusted_in_time_by_all_who_wait(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_client, "_WATCH_S", 0.3)

    async with worker(server.url) as one:
        assert await one.is_trusted("a")
        assert server.call("FLUSHALL") == "+OK"
        assert not await one.is_trusted("b")
        with server.paused():
            began = asyncio.get_running_loop().time()
            found = await asyncio.gather(*(one.epochs.trusts(None, ["red:b"]) for _ in range(50)))
            # One behind the other they would take fifteen seconds.
            assert asyncio.get_running_loop().time() - began < 8
            assert not any(found)


async def test_the_time_of_a_busy_worker_is_not_the_store_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit_s = 0.2
    monkeypatch.setattr(store_client, "_WATCH_S", limit_s)

    async with ENGINES["sqlite"](tmp_path) as store:
        one = Worker(store)
        # The store has answered when the loop turns again, which is behind the limit.
        asking = asyncio.ensure_future(one.epochs.not_accepted())
        for _ in range(3):
            asyncio.get_running_loop().call_soon(time.sleep, 2 * limit_s)
            await asyncio.sleep(0)
        assert await asking == []


@pytest.mark.parametrize("name", ["é", "a b", "7"])
async def test_an_epoch_of_any_name_is_known_after_a_restart(tmp_path: Path, name: str) -> None:
    """Another program may have written it."""

    store = MemoryStore()
    await store.put_facts({EPOCH: name}, overwrite=True)
    for _ in range(2):
        epochs = Epochs(store, tmp_path / "epoch")
        await epochs.recall()
        assert await epochs.trusts(name, ["counter"])
        assert epochs.trouble == ""
