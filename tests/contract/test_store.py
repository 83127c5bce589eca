"""The spend ledger: every store keeps the same promises, and a file keeps them through a kill."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from proxy.ports import SpendStore, StoreError
from proxy.state.memory import MemoryStore
from proxy.state.sqlite import SqliteStore

Check = Callable[[SpendStore], Awaitable[None]]


@asynccontextmanager
async def opened(kind: str, folder: Path) -> AsyncIterator[SpendStore]:
    store: SpendStore = MemoryStore() if kind == "memory" else await SqliteStore.open(folder / "deep" / "spend.sqlite")
    try:
        yield store
    finally:
        await store.aclose()


@pytest.fixture(params=["memory", "sqlite"])
def on_each(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Check], None]:
    async def main(check: Check) -> None:
        async with opened(request.param, tmp_path) as store:
            await check(store)

    return lambda check: asyncio.run(main(check))


def test_spend_adds_up_by_team(on_each: Callable[[Check], None]) -> None:
    async def check(store: SpendStore) -> None:
        assert await store.spent("red") == 0.0
        assert await store.add_spend("a", "red", 0.25, 1.0) == 0.25
        assert await store.add_spend("b", "red", 0.5, 2.0) == 0.75
        assert await store.add_spend("c", "blue", 4.0, 3.0) == 4.0
        assert (await store.spent("red"), await store.spent("blue")) == (0.75, 4.0)

    on_each(check)


def test_an_exchange_counts_once(on_each: Callable[[Check], None]) -> None:
    async def check(store: SpendStore) -> None:
        for _ in range(3):
            assert await store.add_spend("a", "red", 0.25, 1.0) == 0.25
        assert await store.spent("red") == 0.25

    on_each(check)


def test_many_at_once_add_up(on_each: Callable[[Check], None]) -> None:
    async def check(store: SpendStore) -> None:
        await asyncio.gather(*(store.add_spend(f"x{i % 50}", f"t{i % 2}", 0.5, float(i)) for i in range(100)))
        assert (await store.spent("t0"), await store.spent("t1")) == (12.5, 12.5)

    on_each(check)


def test_names_are_data(on_each: Callable[[Check], None]) -> None:
    async def check(store: SpendStore) -> None:
        team = "'; DROP TABLE total; --"
        await store.add_spend("a", team, 1.0, 1.0)
        assert await store.spent(team) == 1.0

    on_each(check)


# SQLite alone


def test_a_file_remembers(tmp_path: Path) -> None:
    async def main() -> None:
        for spent in (0.5, 1.0):
            async with opened("sqlite", tmp_path) as store:
                assert await store.add_spend(str(spent), "red", 0.5, 1.0) == spent
        async with opened("sqlite", tmp_path) as store:
            assert await store.add_spend("0.5", "red", 0.5, 1.0) == 1.0

    asyncio.run(main())


def test_two_processes_share_a_file(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened("sqlite", tmp_path) as one, opened("sqlite", tmp_path) as two:
            await asyncio.gather(
                *(store.add_spend(f"{i}-{n}", "red", 0.5, 1.0) for i, store in enumerate((one, two)) for n in range(20))
            )
            assert await one.spent("red") == await two.spent("red") == 20.0

    asyncio.run(main())


WRITER = """
import asyncio, sys
from pathlib import Path
from proxy.state.sqlite import SqliteStore

async def main():
    store = await SqliteStore.open(Path(sys.argv[1]))
    number = 0
    while True:
        await store.add_spend(str(number), "red", 0.5, float(number))
        print(number, flush=True)
        number += 1

asyncio.run(main())
"""


def test_an_acknowledged_write_survives_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "spend.sqlite"
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        acknowledged = [int(writer.stdout.readline()) for _ in range(50)]
        os.kill(writer.pid, signal.SIGKILL)
        acknowledged += [int(line) for line in writer.stdout.read().split("\n") if line]

    async def main() -> float:
        store = await SqliteStore.open(path)
        try:
            total = await store.spent("red")
            assert await store.add_spend(str(acknowledged[-1]), "red", 0.5, 0.0) == total, "written twice"
            return total
        finally:
            await store.aclose()

    written = asyncio.run(main()) / 0.5
    # One more may have been committed whose acknowledgement was not printed any more.
    assert len(acknowledged) <= written <= len(acknowledged) + 1


def test_what_fails_is_a_store_error(tmp_path: Path) -> None:
    async def main() -> None:
        (tmp_path / "folder").mkdir()
        (tmp_path / "text").write_text("this is not a database, however long it is made to be " * 20)
        for name in ("folder", "text", "text/below"):
            with pytest.raises(StoreError):
                await SqliteStore.open(tmp_path / name)
        store = await SqliteStore.open(tmp_path / "ok")
        await store.aclose()
        await store.aclose()
        with pytest.raises(StoreError):
            await store.spent("red")

    asyncio.run(main())


def test_a_locked_file_is_a_store_error_and_heals(tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "spend.sqlite"
        store = await SqliteStore.open(path, busy_timeout_s=0.01)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="locked"):
            await store.add_spend("a", "red", 0.5, 1.0)
        other.execute("ROLLBACK")
        other.close()
        assert await store.add_spend("a", "red", 0.5, 1.0) == 0.5
        await store.aclose()

    asyncio.run(main())


def test_a_file_of_a_later_version_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "spend.sqlite"
    with sqlite3.connect(path, isolation_level=None) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StoreError, match="the file has version 99, this program knows 1"):
        asyncio.run(SqliteStore.open(path))


def test_single_exchanges_are_forgotten_in_time_and_the_total_is_not(tmp_path: Path) -> None:
    path = tmp_path / "spend.sqlite"

    async def main() -> None:
        store = await SqliteStore.open(path)
        await store.add_spend("old", "red", 0.5, 0.0)
        await store.add_spend("new", "red", 0.5, 31 * 86400.0)
        await store.aclose()
        store = await SqliteStore.open(path)
        assert await store.spent("red") == 1.0
        await store.aclose()

    asyncio.run(main())
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT exchange_id FROM spend").fetchall() == [("new",)]
    connection.close()
