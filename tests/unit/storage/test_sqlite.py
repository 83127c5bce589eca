"""What is SQLite's own (tests/contract/test_store.py and its neighbours hold what every engine promises)."""

import asyncio
import sqlite3
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from shutil import copyfile

import pytest

from proxy.kit.errors import StoreError
from proxy.storage import Charge, Granted, LedgerEntry, Reserve, Settle, TeamRecord
from proxy.storage.database import STORE, DamagedFile, Database
from proxy.storage.sqlite import MemoryStore, SqliteStore
from tests.damage import damage_table, fill, overwrite, settle, small_disk
from tests.examples import chosen


@pytest.mark.slow
async def test_layout_state_is_bounded_by_bytes(tmp_path: Path) -> None:
    store = SqliteStore(await Database.open(tmp_path / "store.sqlite", STORE), state_bytes=1_000_000)
    for number in range(2_000):
        await store.save("s", {f"n{number}": bytes(1_000)}, 1e6, float(number))
    found = await store.load("s", [f"n{number}" for number in range(2_000)], 2000.0)
    kept = [blob is not None for blob in found]
    assert 300 <= sum(kept) <= 1_063
    assert kept == sorted(kept), "what was saved last is kept"
    await store.aclose()


@pytest.mark.slow
@pytest.mark.parametrize(
    "blob_bytes",
    chosen([0, 11, 100, 1_030, 1_400, 2_100, 4_000, 5_000, 8_200, 41_000, 330_000], 1_400, 330_000),
)
async def test_layout_state_takes_no_more_of_the_file_than_is_promised(tmp_path: Path, blob_bytes: int) -> None:
    most, scope = 2 << 20, "the team of Ärger/key-0123456789abcdef"
    count = 3 * most // (200 + blob_bytes)
    path = tmp_path / "store.sqlite"

    store = SqliteStore(await Database.open(path, STORE), state_bytes=most)
    for start in range(0, count, 20):
        names = [sha256(b"%d" % number).hexdigest() for number in range(start, start + 20)]
        await store.save(scope, dict.fromkeys(names, bytes(blob_bytes)), 86400.0, float(start))
    await store.aclose()
    with closing(sqlite3.connect(path)) as connection:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        (rows,) = connection.execute("SELECT count(*) FROM blob").fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    at_once = most // 16 + 20 * blob_bytes  # is written before the rest is looked through
    assert pages * size <= most + at_once + 300_000, "the other tables, too"
    assert rows


async def test_a_file_forgets_its_layout_state_in_pieces(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "store.sqlite")
    await store.save("s", {f"n{number}": b"1" for number in range(800)}, 10.0, 0.0)
    await store.save("s", {"fresh": b"1"}, 1e6, 0.0)
    left = []
    for _ in range(2):
        await store.expire(100.0)
        found = await store.load("s", [*(f"n{number}" for number in range(800)), "fresh"], 0.0)
        left.append(sum(blob is not None for blob in found))
    assert left == [301, 1]
    await store.aclose()


async def test_a_ledger_in_memory_keeps_its_newest_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.storage.sqlite._MOST_ENTRIES", 3)
    store = MemoryStore()
    for number in range(5):
        await store.settle(Settle(LedgerEntry(f"n{number}", float(number), "red"), ()), 0.0)
    await store.expire(0.0)
    assert [entry.exchange_id for entry in await store.entries(0.0, 10.0)] == ["n2", "n3", "n4"]


def ask(name: str) -> Reserve:
    return Reserve(name, "red", [Charge("a", 1, 10**9)], 2e9, LedgerEntry(name, 1.0, "red"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of a store with entries, reservations and layout state."""
    asyncio.run(filled(tmp_path / "f"))
    settle(tmp_path / "f")
    return tmp_path / "f"


async def filled(path: Path) -> None:
    store = await SqliteStore.open(path)
    for number in range(200):
        await store.reserve(ask(f"n{number}"), 1.0)
        if number % 2:
            await store.settle(Settle(LedgerEntry(f"n{number}", 1.0, "red", cost=1), [Charge("a", 1)]), 1.0)
        await store.save("s", {f"n{number}": bytes(500)}, 1e6, 1.0)
    await store.put(TeamRecord("red"))
    await store.aclose()


@pytest.mark.parametrize("table", ["counter", "hold", "entry"])
async def test_a_damaged_file_is_found_at_the_start_and_used_again_once_it_is_replaced(
    path: Path, caplog: pytest.LogCaptureFixture, table: str
) -> None:
    backup = path.with_name("backup")
    copyfile(path, backup)
    damage_table(path, table)
    store = await SqliteStore.open(path, is_patient=True)
    await store.check()
    for call in (store.ping(), store.reserve(ask("x"), 1.0), store.expire(1.0), store.put(TeamRecord("blue"))):
        with pytest.raises(DamagedFile, match="is damaged"):
            await call
    assert [team.name for team in await store.records(TeamRecord)] == ["red"], "what can be read still is"
    (line,) = [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert "is damaged" in line
    backup.replace(path)
    await store.ping()
    assert isinstance(await store.reserve(ask("x"), 1.0), Granted)
    await store.aclose()


async def test_a_file_that_is_no_database_any_more_is_a_store_that_is_away(path: Path) -> None:
    overwrite(path, 0, 4096)
    with pytest.raises(DamagedFile):
        await SqliteStore.open(path)
    store = await SqliteStore.open(path, is_patient=True)
    await store.check()
    for call in (
        store.ping(),
        store.reserve(ask("x"), 1.0),
        store.records(TeamRecord),
        store.load("s", ["a"], 1.0),
    ):
        with pytest.raises(DamagedFile):
            await call
    path.unlink()
    await store.ping()
    await store.aclose()


async def test_damage_that_shows_up_later_ends_the_writing(path: Path) -> None:
    damage_table(path, "hold")
    store = await SqliteStore.open(path)
    with pytest.raises(DamagedFile):
        await store.expire(3e9)
    with pytest.raises(DamagedFile):
        await store.ping()
    await store.aclose()


async def test_a_record_that_cannot_be_read_is_damage(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE hold SET charges = '[[\"a', entry = 'x'")
        connection.execute("UPDATE directory SET record = '{'")
        connection.commit()
    store = await SqliteStore.open(path)
    with pytest.raises(DamagedFile):
        await store.records(TeamRecord)
    with pytest.raises(DamagedFile):
        await store.expire(3e9)
    await store.aclose()


async def test_damage_of_the_layout_state_costs_nothing_else(path: Path) -> None:
    damage_table(path, "blob")
    store = await SqliteStore.open(path, is_patient=True)
    await store.check()
    for call in (store.load("s", ["n1"], 1.0), store.save("s", {"n1": b"x"}, 1e6, 1.0)):
        with pytest.raises(StoreError):
            await call
    assert isinstance(await store.reserve(ask("x"), 1.0), Granted)
    assert await store.expire(3e9) == 101
    await store.ping()
    await store.aclose()


async def test_a_full_disk_fails_what_would_be_written_and_the_ping_until_there_is_room(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 512) as disk:
        store = await SqliteStore.open(disk / "f")
        ballast = fill(disk)

        async def reserve_all() -> None:
            for number in range(10_000):
                await store.reserve(ask(str(number)), 1.0)

        with pytest.raises(StoreError, match="full"):
            await reserve_all()
        for _ in range(3):
            with pytest.raises(StoreError, match="full"):
                await store.ping()
        ballast.unlink()
        await store.ping()
        assert isinstance(await store.reserve(ask("x"), 1.0), Granted)
        await store.aclose()


async def test_a_full_disk_at_the_start_is_a_store_that_is_away(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 16384) as disk:
        await filled(disk / "f")
        ballast = fill(disk)
        store = await SqliteStore.open(disk / "f", is_patient=True)
        await store.check()
        with pytest.raises(StoreError):
            await store.ping()
        with pytest.raises(StoreError):
            await store.reserve(ask("x"), 1.0)
        ballast.unlink()
        await store.ping()
        assert isinstance(await store.reserve(ask("x"), 1.0), Granted)
        await store.aclose()
