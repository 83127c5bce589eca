"""Files of every earlier version are brought up to date, and keep what they know."""

import asyncio
import sqlite3
from pathlib import Path

import pytest

from proxy.ports import StoreError
from proxy.storage.database import STORE, migrate
from proxy.storage.port import Charge, LedgerEntry, Settle
from proxy.storage.sqlite import SqliteStore


async def test_spend_of_the_first_version_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "spend.sqlite"
    connection = sqlite3.connect(path, isolation_level=None)
    migrate(connection, STORE[:1])
    connection.execute("INSERT INTO spend VALUES ('x', 'red', 0.25, 7.0), ('y', 'red', 0.5, 8.0), ('z', 'blue', 1, 9)")
    connection.execute("INSERT INTO total VALUES ('red', 10.75), ('blue', 1)")
    connection.close()

    store = await SqliteStore.open(path)
    red = await store.balance("red", Charge("b:total:-:total", 0), 0.0)
    assert (red.spent, red.reserved) == (10_750_000_000, 0)
    assert [(e.exchange_id, e.team, e.cost) for e in await store.entries(0, 100)] == [
        ("x", "red", 250_000_000),
        ("y", "red", 500_000_000),
        ("z", "blue", 1_000_000_000),
    ]
    await store.settle(Settle(LedgerEntry("x", 7.0, "red", cost=1), [Charge("b:total:-:total", 1)]), 0.0)
    red = await store.balance("red", Charge("b:total:-:total", 0), 0.0)
    assert red.spent == 10_750_000_000, "an exchange that was settled is known again"
    await store.aclose()


def test_a_file_of_a_later_version_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "spend.sqlite"
    with sqlite3.connect(path, isolation_level=None) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StoreError, match=f"the file has version 99, this program knows {len(STORE)}"):
        asyncio.run(SqliteStore.open(path))


def test_a_migration_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "f", isolation_level=None)
    migrate(connection, ["CREATE TABLE a (x)"])
    with pytest.raises(sqlite3.Error):
        migrate(connection, ["CREATE TABLE a (x)", "CREATE TABLE b (x); CREATE TABLE a (x)"])
    assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("a",)]
    assert connection.execute("PRAGMA user_version").fetchone() == (1,)
    connection.close()
